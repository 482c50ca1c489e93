"""A login in use by a sandbox: it arrives at its provider, and nothing of it is inside."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentkernel.errors import InvalidInputError, NotFoundError
from agentkernel.guest.processes import ProcessOptions
from agentkernel.kernel.agents.login_boxes import LABEL
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.network_control import setting_of
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.network.policy.model import Rule
from agentkernel.network.policy.request import NetworkRequest
from agentkernel.network.secrets.names import access_name, refresh_name

from .scripted import ScriptedModels
from .scripted.models import Asked
from .scripted.replies import Reply, as_json
from .scripted.tokens import Tokens
from .test_logins import access, claude_file, definition, operator, record_of

SECONDS = 30.0
FILE = "/root/.claude/.credentials.json"
# Asks as an agent would, with the token of its file. Hosts that are only passed on have a
# certificate of the test's own authority, which nobody inside knows.
ASK = """
import json, ssl, sys, urllib.error, urllib.request
token = json.load(open('/root/.claude/.credentials.json'))['claudeAiOauth']['accessToken']
url, header = sys.argv[1], sys.argv[2].replace('TOKEN', token)
body = sys.argv[3].replace('TOKEN', token).encode() if len(sys.argv) > 3 else None
name, _, value = header.partition(': ')
request = urllib.request.Request(url, body, {name: value} if name else {})
try:
    context = None if 'anthropic' in url else ssl._create_unverified_context()
    with urllib.request.urlopen(request, timeout=20, context=context) as answer:
        print(answer.status, answer.read(100000).decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read(100000).decode())
except OSError as error:
    print('no', error)
"""


class Echoing(ScriptedModels):
    """Says what it was sent, as a provider's error page might."""

    def _answer(self, asked: Asked) -> Reply:
        if asked.path.startswith("/echo"):
            return as_json({"headers": asked.headers, "body": asked.body.decode("latin-1")})
        return super()._answer(asked)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Echoing]:
    server = Echoing(tmp_path_factory.mktemp("models"))
    yield server
    server.close()


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    state = tmp_path_factory.mktemp("state")
    state.chmod(0o700)
    return state


@pytest.fixture
async def kernel(server: Echoing, state: Path) -> AsyncIterator[Kernel]:
    server.tokens = Tokens()
    server.requests.clear()
    async with Kernel(state, operator=operator(server)) as kernel:
        yield kernel
        for record in (await kernel.list()).records:
            await kernel.remove(record.id)


async def log_in(kernel: Kernel, server: Echoing, seconds: float = 3600.0) -> str:
    given = server.tokens.issue("anthropic")
    await kernel.agents.logins.take("claude", claude_file(given, seconds=seconds), owner="local")
    return str(given["access_token"])


async def box(kernel: Kernel, *rules: Rule, kept: bool = False) -> str:
    """A sandbox with the login, as a session makes one."""
    use = await kernel.agents.logins.use(definition(kernel), owner="local")
    spec = SandboxSpec(
        ephemeral=not kept,
        secrets=list(use.secrets),
        network=NetworkRequest(presets=[], allow=["api.anthropic.com"], rules=list(rules)),
        workspace="none",
    )
    record = await kernel.create(spec, owner="local")
    setting = setting_of(record)
    assert setting is not None
    files = await kernel.agents.logins.files(definition(kernel), setting.secrets, owner="local")
    async with kernel.files(record.id) as inside:
        for path, content in files.items():
            await inside.write(path.replace("~", "/root"), content, parents=True, mode=0o600)
    return record.id


async def ask(kernel: Kernel, id: str, url: str, header: str = "", *body: str) -> str:
    words = ["/usr/bin/python3", "-I", "-c", ASK, url, header, *body]
    done = await kernel.run(id, words, ProcessOptions(timeout_seconds=60))
    assert done.status.exit_code == 0, done.stderr
    return done.stdout.decode()


BEARER = "Authorization: Bearer TOKEN"


async def test_the_login_arrives_and_is_nowhere_inside(kernel: Kernel, server: Echoing) -> None:
    token = await log_in(kernel, server)
    (refresh,) = server.tokens.refreshable
    id = await box(kernel)
    said = await ask(kernel, id, "https://api.anthropic.com/echo", BEARER)
    assert server.requests[-1].key == token
    # What comes back has the placeholder where it was.
    placeholder = json.loads(await _read(kernel, id))["claudeAiOauth"]["accessToken"]
    assert placeholder in said
    assert token not in said
    everything = await kernel.run(
        id,
        ["sh", "-c", "tar cf - /etc /run /tmp /var/tmp /root/.claude 2>/dev/null; "
         "find /root -xdev -type f -mmin -10 -exec cat {} + 2>/dev/null; "
         "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/mounts 2>/dev/null; env"],
        ProcessOptions(timeout_seconds=60),
    )  # fmt: skip
    assert placeholder.encode() in everything.stdout  # control: it was looked through
    for secret in (token, refresh):
        assert secret.encode() not in everything.stdout
    events = msgspec.json.encode((await kernel.events(limit=1000)).records)
    log = b"".join(file.read_bytes() for file in (kernel.state_dir / "audit").rglob("*.jsonl"))
    assert b"agent.login" in log
    for secret in (token, refresh):
        assert secret.encode() not in events + log


async def _read(kernel: Kernel, id: str) -> bytes:
    async with kernel.files(id) as inside:
        return await inside.read(FILE)


async def test_the_placeholder_is_worth_nothing_elsewhere(kernel: Kernel, server: Echoing) -> None:
    token = await log_in(kernel, server)
    looked_into = Rule(host="api.openai.com", ports=(443,), methods=("GET", "POST"))
    passed_on = Rule(host="generativelanguage.googleapis.com", ports=(443,))
    id = await box(kernel, looked_into, passed_on)
    for rule in (looked_into, passed_on):
        url = f"https://{rule.host}/echo"
        assert (await ask(kernel, id, url, "X-Free: yes")).startswith("200")  # control
        for words in ((BEARER,), ("X-Free: TOKEN",), ("X-Free: yes", "TOKEN")):
            said = await ask(kernel, id, url, *words)
            # Where requests are looked at it is stopped; elsewhere it arrives as it is.
            assert said.startswith("200") is (rule is passed_on)
    assert token not in str(server.requests)
    # At its own host it is swapped in the header it is for, and nowhere else.
    said = await ask(kernel, id, "https://api.anthropic.com/echo", BEARER, "body TOKEN")
    assert said.startswith("200")
    assert server.requests[-1].key == token
    assert token.encode() not in server.requests[-1].body


async def test_a_guest_reaches_no_token_endpoint_and_moves_no_refresh(
    kernel: Kernel, server: Echoing
) -> None:
    """What a guest writes into its file, or asks, is nothing to the daemon."""
    await log_in(kernel, server)
    id = await box(kernel)
    async with kernel.files(id) as inside:
        evil = json.loads(await inside.read(FILE))
        evil["claudeAiOauth"]["refreshToken"] = "a-refresh-token-of-the-guest"
        evil["claudeAiOauth"]["expiresAt"] = 1
        evil["token_url"] = evil["claudeAiOauth"]["tokenUrl"] = "https://evil.test/token"
        await inside.write(FILE, json.dumps(evil).encode())
    said = await ask(
        kernel, id, "https://platform.claude.com/v1/oauth/token", "Content-Type: application/json",
        json.dumps({"grant_type": "refresh_token", "refresh_token": "x"}),
    )  # fmt: skip
    assert not said.startswith("200")
    assert server.tokens.asked == []
    await kernel.agents.logins.refresh("claude", owner="local")
    (asked,) = server.tokens.asked
    assert asked["host"] == "platform.claude.com"
    assert asked["refresh_token"] != "a-refresh-token-of-the-guest"


async def test_a_new_token_counts_from_the_next_request_on(kernel: Kernel, server: Echoing) -> None:
    """By the daemon's clock, before the old one's end; and its sandbox is told of it."""
    old = await log_in(kernel, server)
    id = await box(kernel)
    await ask(kernel, id, "https://api.anthropic.com/echo", BEARER)
    assert server.requests[-1].key == old
    _about_to_end(kernel)
    await _until(lambda: len(server.tokens.access) == 2)
    await _event(kernel, id, "login.refreshed")
    await ask(kernel, id, "https://api.anthropic.com/echo", BEARER)
    assert server.requests[-1].key == server.tokens.access[-1] == await access(kernel)
    assert await access(kernel) != old


async def test_a_login_that_was_forgotten_works_no_more(kernel: Kernel, server: Echoing) -> None:
    await log_in(kernel, server)
    id = await box(kernel)
    assert (await ask(kernel, id, "https://api.anthropic.com/echo", BEARER)).startswith("200")
    await kernel.agents.logins.remove("claude", owner="local")
    count = len(server.requests)
    said = await ask(kernel, id, "https://api.anthropic.com/echo", BEARER)
    assert "agentkernel agent login claude" in said
    assert len(server.requests) == count
    new = await log_in(kernel, server)  # another login is the sandbox's, too
    assert (await ask(kernel, id, "https://api.anthropic.com/echo", BEARER)).startswith("200")
    assert server.requests[-1].key == new


async def test_a_refresh_that_fails_is_an_event(kernel: Kernel, server: Echoing) -> None:
    old = await log_in(kernel, server)
    id = await box(kernel)
    server.tokens.error = (400, "invalid_grant")
    _about_to_end(kernel)
    event = await _event(kernel, id, "login.failed")
    assert event["ended"] is True
    assert "invalid_grant" in event["reason"]
    assert (await kernel.agents.logins.status("claude", owner="local")).state == "ended"
    await ask(kernel, id, "https://api.anthropic.com/echo", BEARER)
    assert server.requests[-1].key == old  # the gateway goes on with what it has


async def test_without_a_daemon_the_last_token_goes_on_and_the_next_one_refreshes(
    server: Echoing, state: Path
) -> None:
    server.tokens = Tokens()
    server.requests.clear()
    settings = operator(server)
    async with Kernel(state, operator=settings) as kernel:
        old = await log_in(kernel, server)
        id = await box(kernel, kept=True)
        words = ["sh", "-c", 'while :; do /usr/bin/python3 -I -c "$0" "$@"; done', ASK]
        await kernel.jobs.start(id, [*words, "https://api.anthropic.com/echo", BEARER])
        await _until(lambda: server.requests)
        # Its end comes while nobody is there.
        record = msgspec.structs.replace(record_of(kernel), expires_at=time.time() - 1)
        kernel.agents.logins._records.put(record)
    server.requests.clear()
    await _until(lambda: len(server.requests) >= 2)
    assert {asked.key for asked in server.requests} == {old}
    assert server.tokens.asked == []
    async with Kernel(state, operator=settings) as kernel:
        await _until(lambda: len(server.tokens.asked) == 1)
        await _event(kernel, id, "login.refreshed")
        assert await access(kernel) == server.tokens.access[-1]
        await _until(lambda: server.requests[-1].key == server.tokens.access[-1])
        await kernel.remove(id)


async def test_a_login_that_no_sandbox_uses_is_left_alone(kernel: Kernel, server: Echoing) -> None:
    await log_in(kernel, server, seconds=-5)
    await kernel.agents.logins._refreshing._look()
    assert server.tokens.asked == []
    id = await box(kernel)  # control: its use refreshes it
    assert len(server.tokens.asked) == 1
    await kernel.remove(id)


# -- the agent's own login, in a sandbox of its own -----------------------------------------------


@pytest.fixture
def fake(kernel: Kernel) -> Iterator[str]:
    """An agent whose login writes a file, if it is told the code."""
    directory = kernel.agents.definitions._directory
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "fake.toml"
    file.write_text(
        'name = "fake"\ntitle = "Fake"\nversion = "1"\n'
        '[command]\ninteractive = ["true"]\n'
        "[login]\n"
        """command = ["sh", "-c", 'read -r code; mkdir -p ~/.fake; echo "$code" >~/.fake/auth']\n"""
        'hosts = ["auth.openai.com"]\n'
        '[login.oauth]\nfile = "~/.fake/auth"\naccess = "access"\nrefresh_token = "refresh"\n'
        'hosts = ["api.openai.com"]\ntoken_url = "https://auth.openai.com/oauth/token"\n'
    )
    yield "fake"
    file.unlink()


async def test_a_login_is_taken_out_of_its_sandbox_which_is_gone_then(
    kernel: Kernel, server: Echoing, fake: str
) -> None:
    boxes = kernel.agents.login_boxes
    made = await boxes.open(fake, owner="local")
    record = await kernel.get(made.sandbox)
    assert record.labels == {LABEL: "fake"}
    assert record.ttl_seconds is not None
    assert "inside the sandbox" in made.warning
    login = json.dumps({"access": "access-token-0123456789", "refresh": "refresh-token-0123456789"})
    done = await kernel.run(
        made.sandbox, made.command, ProcessOptions(env=made.env), stdin=login.encode() + b"\n"
    )
    assert done.status.exit_code == 0
    with pytest.raises(NotFoundError):
        await boxes.harvest(made.sandbox, fake, owner="token:ci")
    status = await boxes.harvest(made.sandbox, fake, owner="local")
    assert (status.kind, status.refreshable) == ("oauth", True)
    kept = await kernel.secrets.values_of(["local"])
    assert kept[f"local/{access_name(fake)}"] == b"access-token-0123456789"
    assert kept[f"local/{refresh_name(fake)}"] == b"refresh-token-0123456789"
    with pytest.raises(NotFoundError):
        await kernel.get(made.sandbox)
    await kernel.agents.logins.remove(fake, owner="local")


@pytest.mark.parametrize(
    "left",
    [
        "true",
        "mkdir ~/.fake; echo nonsense >~/.fake/auth",
        "mkdir ~/.fake; yes | head -c 100000 >~/.fake/auth",
        "mkdir ~/.fake; mkfifo ~/.fake/auth",
        "mkdir ~/.fake; ln -s /dev/zero ~/.fake/auth",
        "mkdir -p ~/.fake/auth",
    ],
)
async def test_a_sandbox_that_has_no_login_is_gone_all_the_same(
    kernel: Kernel, fake: str, left: str
) -> None:
    made = await kernel.agents.login_boxes.open(fake, owner="local")
    await kernel.run(made.sandbox, ["sh", "-c", left])
    with pytest.raises((NotFoundError, InvalidInputError)):
        await kernel.agents.login_boxes.harvest(made.sandbox, fake, owner="local")
    with pytest.raises(NotFoundError):
        await kernel.get(made.sandbox)
    assert (await kernel.agents.logins.status(fake, owner="local")).kind == "none"


async def test_only_a_sandbox_for_a_login_is_harvested(kernel: Kernel, fake: str) -> None:
    record = await kernel.create(SandboxSpec(workspace="none"), owner="local")
    with pytest.raises(InvalidInputError, match="not a sandbox for a login"):
        await kernel.agents.login_boxes.harvest(record.id, fake, owner="local")
    assert (await kernel.get(record.id)).state == "running"


def _about_to_end(kernel: Kernel) -> None:
    """The access token has a minute left, of the hour it was given for."""
    record = msgspec.structs.replace(record_of(kernel), expires_at=time.time() + 60)
    kernel.agents.logins._records.put(msgspec.structs.replace(record, obtained_at=0.0))
    kernel.agents.logins._refreshing.wake()


# -- waiting -------------------------------------------------------------------------------------


async def _until(true: Any) -> None:
    async with asyncio.timeout(SECONDS):
        # Another thread makes it so.
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def _event(kernel: Kernel, id: str, kind: str) -> dict[str, Any]:
    async with asyncio.timeout(SECONDS):
        while True:
            for event in (await kernel.events(limit=1000)).records:
                if event.kind == kind and event.sandbox_id == id:
                    return event.body
            await asyncio.sleep(0.02)
