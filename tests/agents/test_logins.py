"""Logins that the daemon keeps and refreshes, against a scripted token endpoint."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentkernel.agents.definition import AgentDefinition
from agentkernel.errors import (
    ConflictError,
    InvalidInputError,
    LoginEndedError,
    LoginError,
    NotFoundError,
    UnsupportedError,
)
from agentkernel.kernel.agents import token_requests
from agentkernel.kernel.agents.login_model import LoginRecord
from agentkernel.kernel.kernel import Kernel
from agentkernel.network.policy.model import Operator
from agentkernel.network.secrets.names import access_name, refresh_name
from agentkernel.network.secrets.store import Hidden

from .scripted import ScriptedModels
from .scripted.replies import Reply, as_json
from .scripted.tokens import Tokens

ELSEWHERE = "elsewhere.test"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedModels]:
    server = ScriptedModels(tmp_path_factory.mktemp("models"), hosts=(ELSEWHERE,))
    yield server
    server.close()


@pytest.fixture
def models(server: ScriptedModels) -> ScriptedModels:
    server.tokens = Tokens()
    server.requests.clear()
    server.refused.clear()
    return server


def operator(models: ScriptedModels) -> Operator:
    return msgspec.convert(models.settings(), Operator)


@pytest.fixture
async def kernel(models: ScriptedModels, tmp_path: Path) -> AsyncIterator[Kernel]:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    async with Kernel(state, operator=operator(models)) as kernel:
        yield kernel


def definition(kernel: Kernel, agent: str = "claude") -> AgentDefinition:
    return kernel.agents.definitions.get(agent)


def claude_file(tokens: dict[str, Any], *, seconds: float = 3600.0) -> Hidden:
    """What Claude Code would have written, with an access token that ends then."""
    body = {
        "claudeAiOauth": {
            "accessToken": tokens["access_token"],
            "refreshToken": tokens["refresh_token"],
            "expiresAt": int((time.time() + seconds) * 1000),
            "scopes": ["user:inference"],
            "subscriptionType": "pro",
        }
    }
    return Hidden(json.dumps(body).encode())


async def log_in(kernel: Kernel, models: ScriptedModels, *, seconds: float = 3600.0) -> str:
    """The access token of it."""
    given = models.tokens.issue("anthropic")
    await kernel.agents.logins.take("claude", claude_file(given, seconds=seconds), owner="local")
    return str(given["access_token"])


async def access(kernel: Kernel, agent: str = "claude", owner: str = "local") -> str:
    reference = f"{owner}/{access_name(agent)}"
    return (await kernel.secrets.values([reference]))[reference].decode()


def record_of(kernel: Kernel) -> LoginRecord:
    record = kernel.agents.logins._records.get("local", "claude")
    assert record is not None
    return record


# -- what there is -------------------------------------------------------------------------------


async def test_a_login_is_used_by_a_name_and_shown_without_its_tokens(
    kernel: Kernel, models: ScriptedModels
) -> None:
    logins = kernel.agents.logins
    assert (await logins.status("claude", owner="local")).kind == "none"
    token = await log_in(kernel, models)
    use = await logins.use(definition(kernel), owner="local")
    assert use.secrets == ("AGENTKERNEL_LOGIN_CLAUDE=agent-claude-access@api.anthropic.com",)
    status = await logins.status("claude", owner="local")
    assert (status.kind, status.state, status.account) == ("oauth", "ok", "pro")
    assert status.enters == "nothing: a placeholder stands for it"
    assert models.tokens.asked == []
    kept = kernel.state_dir / "agents" / "logins.json"
    shown = kept.read_text() + str(status) + str(await logins.list(owner="local"))
    for secret in (token, *models.tokens.refreshable):
        assert secret not in shown
    assert kept.stat().st_mode & 0o777 == 0o600
    bound = await kernel.secrets.resolve(use.secrets, owner="local")
    files = await logins.files(definition(kernel), bound, owner="local")
    inside = json.loads(files["~/.claude/.credentials.json"])["claudeAiOauth"]
    assert inside["accessToken"] == bound[0].placeholder
    assert inside["accessToken"] != token


async def test_logins_of_several_agents_fit_into_one_sandbox(
    kernel: Kernel, models: ScriptedModels
) -> None:
    await log_in(kernel, models)
    given = models.tokens.issue("google")
    file = Hidden(json.dumps({**given, "expiry_date": 4e12}).encode())
    await kernel.agents.logins.take("gemini", file, owner="local")
    wanted: list[str] = []
    for agent in ("claude", "gemini"):
        use = await kernel.agents.logins.use(definition(kernel, agent), owner="local")
        wanted += use.secrets
    bound = await kernel.secrets.resolve(wanted, owner="local")
    assert {each.env for each in bound} == {"AGENTKERNEL_LOGIN_CLAUDE", "AGENTKERNEL_LOGIN_GEMINI"}
    for agent in ("claude", "gemini"):
        (content,) = (
            await kernel.agents.logins.files(definition(kernel, agent), bound, owner="local")
        ).values()
        placeholder = next(each.placeholder for each in bound if agent.upper() in each.env)
        assert placeholder.encode() in content


async def test_nothing_of_a_refresh_token_can_be_asked_for_by_a_user(
    kernel: Kernel, models: ScriptedModels
) -> None:
    await log_in(kernel, models)
    name = refresh_name("claude")
    assert [secret.name for secret in await kernel.secrets.list(owner="local")] == [
        "agent-claude-access"
    ]
    for binding in (f"{name}@api.example.org", f"X={name}@api.example.org"):
        with pytest.raises(InvalidInputError):
            await kernel.secrets.resolve([binding], owner="local")
    with pytest.raises(InvalidInputError):
        await kernel.secrets.remove(name, owner="local")
    # Control: the access token's name can be bound, and the refresh token is guarded all the same.
    assert await kernel.secrets.resolve(["agent-claude-access@api.example.org"], owner="local")
    guarded = await kernel.secrets.values_of(["local"])
    assert guarded[f"local/{name}"].decode() in models.tokens.refreshable


async def test_another_owner_sees_and_ends_nothing(kernel: Kernel, models: ScriptedModels) -> None:
    await log_in(kernel, models, seconds=-5)
    logins = kernel.agents.logins
    assert (await logins.status("claude", owner="token:ci")).kind == "none"
    assert (await logins.use(definition(kernel), owner="token:ci")).secrets == ()
    with pytest.raises(NotFoundError):
        await logins.remove("claude", owner="token:ci")
    with pytest.raises(NotFoundError):
        await logins.refresh("claude", owner="token:ci")
    with pytest.raises(NotFoundError):
        await kernel.secrets.resolve(["agent-claude-access@api.anthropic.com"], owner="token:ci")
    assert models.tokens.asked == []
    assert (await logins.status("claude", owner="local")).kind == "oauth"  # control


async def test_keys_are_secrets_and_the_one_that_was_given_comes_first(kernel: Kernel) -> None:
    logins = kernel.agents.logins
    await kernel.secrets.set(
        "ANTHROPIC_API_KEY", Hidden(b"sk-ant-api03-" + b"k" * 20), owner="local"
    )
    use = await logins.use(definition(kernel), owner="local")
    assert use.secrets == ("ANTHROPIC_API_KEY",)
    with pytest.raises(ConflictError, match="ANTHROPIC_API_KEY"):
        await logins.remove("claude", owner="local")
    token = Hidden(b"sk-ant-oat01-" + b"t" * 20)
    await logins.take_key("claude", token, name="CLAUDE_CODE_OAUTH_TOKEN", owner="local")
    use = await logins.use(definition(kernel), owner="local")
    assert use.secrets == ("CLAUDE_CODE_OAUTH_TOKEN@api.anthropic.com",)
    assert await kernel.secrets.resolve(use.secrets, owner="local")
    gone = await logins.remove("claude", owner="local")
    assert gone.secrets == ["CLAUDE_CODE_OAUTH_TOKEN"]
    assert (await logins.status("claude", owner="local")).secrets == ["ANTHROPIC_API_KEY"]
    # An agent with models of several providers has all keys there are.
    await kernel.secrets.set("OPENAI_API_KEY", Hidden(b"sk-proj-" + b"o" * 20), owner="local")
    use = await logins.use(definition(kernel, "aider"), owner="local")
    assert use.secrets == ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")
    with pytest.raises(InvalidInputError, match="takes no API key"):
        await logins.take_key("claude", token, name="NO_SUCH_KEY", owner="local")
    with pytest.raises(UnsupportedError):
        await logins.take("aider", Hidden(b"{}"), owner="local")


async def test_a_login_that_is_forgotten_leaves_nothing(
    kernel: Kernel, models: ScriptedModels
) -> None:
    await log_in(kernel, models)
    await kernel.agents.logins.remove("claude", owner="local")
    assert await kernel.secrets.values_of(["local"]) == {}
    assert "claude" not in (kernel.state_dir / "agents" / "logins.json").read_text()
    assert (await kernel.agents.logins.status("claude", owner="local")).kind == "none"


# -- refreshing ----------------------------------------------------------------------------------


async def test_many_who_use_it_at_once_ask_once(kernel: Kernel, models: ScriptedModels) -> None:
    old = await log_in(kernel, models, seconds=-5)
    used = [kernel.agents.logins.use(definition(kernel), owner="local") for _ in range(10)]
    assert len(set(await asyncio.gather(*used))) == 1
    (asked,) = models.tokens.asked
    assert asked["host"] == "platform.claude.com"
    assert asked["path"] == "/v1/oauth/token"
    assert asked["client_id"] == "9d1c250a-e61b-44d9-88ed-5944d1962f5e"
    assert asked["content-type"] == "application/json"
    new = await access(kernel)
    assert new == models.tokens.access[-1] != old
    assert models.refused == []


@pytest.mark.parametrize(
    ("agent", "kind", "host", "content_type"),
    [
        ("codex", "openai", "auth.openai.com", "application/json"),
        ("gemini", "google", "oauth2.googleapis.com", "application/x-www-form-urlencoded"),
        ("opencode", "openai", "auth.openai.com", "application/x-www-form-urlencoded"),
    ],
)
async def test_every_provider_is_asked_in_its_own_way(
    kernel: Kernel, models: ScriptedModels, agent: str, kind: str, host: str, content_type: str
) -> None:
    models.tokens.claims = {"email": "me@example.org"}
    given = models.tokens.issue(kind)
    files: dict[str, Any] = {
        "codex": {"tokens": given},
        "gemini": {**given, "expiry_date": 1},
        "opencode": {
            "openai": {
                "access": given["access_token"], "refresh": given["refresh_token"], "expires": 1,
            }
        },
    }  # fmt: skip
    logins = kernel.agents.logins
    await logins.take(agent, Hidden(json.dumps(files[agent]).encode()), owner="local")
    status = await logins.refresh(agent, owner="local")
    (asked,) = models.tokens.asked
    assert (asked["host"], asked["content-type"]) == (host, content_type)
    assert asked["refresh_token"] == given["refresh_token"]
    assert await access(kernel, agent) == models.tokens.access[-1]
    assert status.expires_at is not None
    assert status.expires_at > time.time() + 3000
    assert status.account == ("" if agent == "opencode" else "me@example.org")


async def test_an_access_token_that_was_removed_as_a_secret_comes_back(
    kernel: Kernel, models: ScriptedModels
) -> None:
    await log_in(kernel, models)
    await kernel.secrets.remove(access_name("claude"), owner="local")
    use = await kernel.agents.logins.use(definition(kernel), owner="local")
    assert await kernel.secrets.resolve(use.secrets, owner="local")
    log = b"".join(file.read_bytes() for file in (kernel.state_dir / "audit").rglob("*.jsonl"))
    assert b'"agent.refresh"' in log


async def test_a_refresh_token_that_rotates_is_used_once(
    kernel: Kernel, models: ScriptedModels
) -> None:
    await log_in(kernel, models)
    for _ in range(3):
        await kernel.agents.logins.refresh("claude", owner="local")
    used = [asked["refresh_token"] for asked in models.tokens.asked]
    assert len(set(used)) == 3
    kept = (await kernel.secrets.values_of(["local"]))[f"local/{refresh_name('claude')}"]
    assert {kept.decode()} == models.tokens.refreshable


async def test_who_leaves_does_not_stop_a_request_under_way(
    kernel: Kernel, models: ScriptedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    await log_in(kernel, models)
    asked, answer = threading.Event(), threading.Event()
    given = models.tokens.answer

    def slow(*words: Any) -> Reply:
        asked.set()
        assert answer.wait(20)
        return given(*words)

    monkeypatch.setattr(models.tokens, "answer", slow)
    task = asyncio.ensure_future(kernel.agents.logins.refresh("claude", owner="local"))
    assert await asyncio.to_thread(asked.wait, 20)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    answer.set()
    await kernel.agents.logins.close()  # waits for it
    assert await access(kernel) == models.tokens.access[-1]
    await kernel.agents.logins.refresh("claude", owner="local")  # with the token that was rotated


async def test_a_failure_is_told_and_the_old_token_goes_on(
    kernel: Kernel, models: ScriptedModels
) -> None:
    token = await log_in(kernel, models, seconds=1000)
    models.tokens.error = (503, "temporarily_unavailable")
    logins = kernel.agents.logins
    for times in (1, 2):
        with pytest.raises(LoginError, match="503, temporarily_unavailable") as failed:
            await logins.refresh("claude", owner="local")
        assert not isinstance(failed.value, LoginEndedError)
        assert record_of(kernel).failures == times
    status = await logins.status("claude", owner="local")
    assert status.state == "failing"
    assert "503" in status.problem
    # Later each time.
    due = record_of(kernel).due_at
    assert due is not None
    assert due >= record_of(kernel).failed_at + 30.0
    await logins.use(definition(kernel), owner="local")
    assert await access(kernel) == token
    models.tokens.error = None
    assert (await logins.refresh("claude", owner="local")).state == "ok"


async def test_without_a_token_that_counts_it_is_not_used(
    kernel: Kernel, models: ScriptedModels
) -> None:
    await log_in(kernel, models, seconds=-5)
    models.tokens.error = (500, "server_error")
    with pytest.raises(LoginError):
        await kernel.agents.logins.use(definition(kernel), owner="local")
    models.tokens.error = None
    await kernel.agents.logins.use(definition(kernel), owner="local")  # control


@pytest.mark.parametrize("code", ["invalid_grant", "refresh_token_reused"])
async def test_a_login_that_was_revoked_says_log_in_again(
    kernel: Kernel, models: ScriptedModels, code: str
) -> None:
    await log_in(kernel, models, seconds=-5)
    models.tokens.error = (400, code)
    logins = kernel.agents.logins
    for _ in range(2):
        with pytest.raises(LoginEndedError) as ended:
            await logins.use(definition(kernel), owner="local")
        assert "agent login claude" in str(ended.value.hint)
    assert len(models.tokens.asked) == 1  # nobody asks in vain
    assert (await logins.status("claude", owner="local")).state == "ended"
    models.tokens.error = None
    await log_in(kernel, models)
    assert (await logins.use(definition(kernel), owner="local")).secrets


# -- endpoints that are not as they should be ----------------------------------------------------

SECRET = "token-of-somebody-0123456789"
ANSWERS: dict[str, Callable[[], Reply]] = {
    "garbage": lambda: Reply(200, b"\xff\xfe<html>" + SECRET.encode()),
    "no token": lambda: Reply(200, json.dumps({"token": SECRET}).encode()),
    "a list": lambda: Reply(200, json.dumps([SECRET]).encode()),
    "deep": lambda: Reply(200, b"[" * 60_000),
    "huge": lambda: Reply(200, b'{"access_token":"' + b"A" * (1 << 20) + b'"}'),
    "an error of any words": lambda: as_json({"error": SECRET + " \x1b[2J"}, 400),
    "elsewhere": lambda: Reply(307, headers={"location": f"https://{ELSEWHERE}/v1/oauth/token"}),
    "elsewhere, seen": lambda: Reply(303, headers={"location": f"https://{ELSEWHERE}/"}),
    "nothing": lambda: Reply(204, b""),
}


@pytest.mark.parametrize("what", ANSWERS)
async def test_an_endpoint_that_answers_anything_harms_nothing(
    kernel: Kernel, models: ScriptedModels, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    token = await log_in(kernel, models)
    before = await kernel.secrets.values_of(["local"])
    monkeypatch.setattr(models.tokens, "answer", lambda *_: ANSWERS[what]())
    with pytest.raises(LoginError) as failed:
        await kernel.agents.logins.refresh("claude", owner="local")
    assert not isinstance(failed.value, LoginEndedError)
    status = await kernel.agents.logins.status("claude", owner="local")
    for words in (str(failed.value.to_dict()), str(status)):
        assert SECRET not in words
        assert "\x1b" not in words
        assert token not in words
    assert await kernel.secrets.values_of(["local"]) == before
    assert {asked.host for asked in models.requests} == {"platform.claude.com"}
    monkeypatch.undo()
    assert (await kernel.agents.logins.refresh("claude", owner="local")).state == "ok"  # control


async def test_an_endpoint_that_never_answers_is_left(
    kernel: Kernel, models: ScriptedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    await log_in(kernel, models)
    over = threading.Event()

    def silent(*_: Any) -> Reply:
        over.wait(20)
        return Reply(200, b"{}")

    monkeypatch.setattr(models.tokens, "answer", silent)
    monkeypatch.setattr(token_requests, "SECONDS", 0.3)
    try:
        with pytest.raises(LoginError, match="in time"):
            await kernel.agents.logins.refresh("claude", owner="local")
    finally:
        over.set()


async def test_a_certificate_of_nobody_gets_no_refresh_token(
    models: ScriptedModels, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    untrusting = Operator(upstream_proxy=models.url)
    async with Kernel(state, operator=untrusting) as kernel:
        await log_in(kernel, models)
        with pytest.raises(LoginError, match="not trusted"):
            await kernel.agents.logins.refresh("claude", owner="local")
    assert models.tokens.asked == []


async def test_the_operators_address_of_a_host_counts(
    models: ScriptedModels, tmp_path: Path
) -> None:
    """Without the proxy: the name is dialled where network.hosts says."""
    home = tmp_path / "config" / "agentkernel" / "agents"
    home.mkdir(parents=True)
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    settings = Operator(
        upstream_proxy="none",
        upstream_ca=str(models.authority.ca_path),
        hosts={"platform.claude.com": "127.0.0.1"},
    )
    async with Kernel(state, operator=settings) as kernel:
        await log_in(kernel, models)
        oauth = definition(kernel).login.oauth
        assert oauth is not None

        there = msgspec.structs.replace(
            oauth, token_url=f"https://platform.claude.com:{models.port}/v1/oauth/token"
        )
        await kernel.agents.logins._refreshing.renew(there, record_of(kernel))
        assert await access(kernel) == models.tokens.access[-1]


@pytest.mark.parametrize(
    "url", ["http://platform.claude.com/x", "https://u:p@h/x", "ftp://h/", "https://", "x", ""]
)
async def test_only_tls_is_spoken_with_a_refresh_token(
    kernel: Kernel, models: ScriptedModels, url: str
) -> None:

    await log_in(kernel, models)
    oauth = definition(kernel).login.oauth
    assert oauth is not None
    with pytest.raises(LoginError):
        await kernel.agents.logins._refreshing.renew(
            msgspec.structs.replace(oauth, token_url=url), record_of(kernel)
        )
    assert models.requests == []
