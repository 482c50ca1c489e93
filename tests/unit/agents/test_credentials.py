"""Files of logins: read from whoever wrote them, and made for inside without a token."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.agents.credentials import (
    MOST_BYTES,
    USELESS,
    claims_of,
    file_inside,
    read_answer,
    read_login,
    unsigned_jwt,
)
from agentkernel.agents.definition import OAuth
from agentkernel.agents.reading import Definitions
from agentkernel.errors import InvalidInputError

DEFINITIONS = Definitions(Path("/nonexistent"))
ACCESS = "access-" + "A1b2C3d4" * 4
REFRESH = "refresh-" + "Z9y8X7w6" * 4
PLACEHOLDER = "placeholder-0123456789"
SOON = int(time.time()) + 3600


def jwt(claims: dict[str, Any]) -> str:
    def part(data: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(data).encode()).rstrip(b"=").decode()

    return ".".join([part({"alg": "RS256"}), part(claims), "c2lnbmF0dXJlLXNpZ25hdHVyZQ"])


ID_CLAIMS = {
    "email": "me@example.org",
    "sid": "session-of-the-browser",
    "https://api.openai.com/auth": {
        "chatgpt_account_id": "acc-1",
        "chatgpt_plan_type": "plus",
        "chatgpt_user_id": "user-1",
        "organizations": [{"id": "org-1"}],
    },
}
CODEX_ACCESS = jwt({"exp": SOON, "aud": ["x"]})
FILES: dict[str, dict[str, Any]] = {
    "claude": {
        "claudeAiOauth": {
            "accessToken": ACCESS,
            "refreshToken": REFRESH,
            "expiresAt": SOON * 1000,
            "scopes": ["user:inference", "user:profile"],
            "subscriptionType": "max",
            "rateLimitTier": None,
        },
        "organizationUuid": "0000",
    },
    "codex": {
        "auth_mode": "chatgpt",
        "OPENAI_API_KEY": None,
        "tokens": {
            "id_token": jwt(ID_CLAIMS),
            "access_token": CODEX_ACCESS,
            "refresh_token": REFRESH,
            "account_id": "acc-1",
        },
        "last_refresh": "2026-11-16T00:00:00Z",
    },
    "gemini": {
        "access_token": ACCESS,
        "refresh_token": REFRESH,
        "scope": "https://www.googleapis.com/auth/cloud-platform",
        "token_type": "Bearer",
        "id_token": jwt({"email": "me@example.org"}),
        "expiry_date": SOON * 1000,
    },
    "opencode": {
        "openai": {
            "type": "oauth",
            "access": ACCESS,
            "refresh": REFRESH,
            "expires": SOON * 1000,
            "accountId": "acc-1",
        },
        "anthropic": {"type": "api", "key": "sk-ant-api03-another-provider"},
    },
}
LABELS = {"claude": "max", "codex": "me@example.org", "gemini": "me@example.org",
          "opencode": "acc-1"}  # fmt: skip


def oauth_of(agent: str) -> OAuth:
    oauth = DEFINITIONS.get(agent).login.oauth
    assert oauth is not None
    return oauth


CLAUDE = oauth_of("claude")


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def changed(agent: str, path: str, value: Any) -> bytes:
    """The agent's file with another value at `path`; ... removes it."""
    document = json.loads(encoded(FILES[agent]))
    *parents, last = path.split(".")
    at = document
    for name in parents:
        at = at[name]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return encoded(document)


@pytest.mark.parametrize("agent", FILES)
def test_a_login_is_read_as_its_agent_writes_it(agent: str) -> None:
    tokens = read_login(oauth_of(agent), encoded(FILES[agent]))
    expected = CODEX_ACCESS if agent == "codex" else ACCESS
    assert tokens.access.reveal().decode() == expected
    assert tokens.refresh is not None
    assert tokens.refresh.reveal().decode() == REFRESH
    assert tokens.expires_at == SOON
    assert tokens.label == LABELS[agent]
    assert REFRESH not in repr(tokens)
    assert expected not in repr(tokens)


@pytest.mark.parametrize("agent", FILES)
def test_inside_there_is_the_placeholder_and_no_token(agent: str) -> None:
    oauth = oauth_of(agent)
    given = FILES[agent]
    tokens = read_login(oauth, encoded(given))
    made = file_inside(oauth, tokens.kept, PLACEHOLDER)
    for secret in (ACCESS, REFRESH, CODEX_ACCESS, "another-provider", "session-of-the-browser"):
        assert secret.encode() not in made
    inside = json.loads(made)
    again = read_login(
        msgspec.structs.replace(oauth, refresh_token=""), made
    )  # the agent can read it as its own
    assert again.access.reveal() == PLACEHOLDER.encode()
    assert USELESS in made.decode()
    if oauth.expires:
        assert again.expires_at is not None
        assert again.expires_at > time.time() + 10 * 365 * 86400
    if agent == "claude":
        assert inside["claudeAiOauth"]["scopes"] == ["user:inference", "user:profile"]
        assert inside["claudeAiOauth"]["subscriptionType"] == "max"
    if agent == "codex":
        claims = claims_of(inside["tokens"]["id_token"])
        assert claims["email"] == "me@example.org"
        account = claims["https://api.openai.com/auth"]
        assert account["chatgpt_account_id"] == "acc-1"
        assert "organizations" not in account
        assert inside["last_refresh"].startswith("2100")


def test_a_file_that_was_made_for_inside_is_no_login() -> None:
    oauth = oauth_of("claude")
    made = file_inside(oauth, {}, PLACEHOLDER)
    with pytest.raises(InvalidInputError, match="made for a sandbox"):
        read_login(oauth, made)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"null", b"[]", b"7", b"\xff\xfe", b"{", b'{"claudeAiOauth":' * 5000,
        b"[" * 100_000, encoded({"claudeAiOauth": ACCESS}), encoded({"claudeAiOauth": [ACCESS]}),
        encoded({"claudeAiOauth": None}), encoded({"x": ACCESS * (MOST_BYTES // 10)}),
    ],
    ids=lambda data: repr(data[:20]),
)  # fmt: skip
def test_what_is_no_login_is_refused_without_its_words(data: bytes) -> None:
    with pytest.raises(InvalidInputError) as refused:
        read_login(oauth_of("claude"), data)
    assert ACCESS not in str(refused.value.to_dict())


@pytest.mark.parametrize(
    ("agent", "path", "value"),
    [
        ("claude", "claudeAiOauth.accessToken", ...),
        ("claude", "claudeAiOauth.accessToken", 7),
        ("claude", "claudeAiOauth.accessToken", ""),
        ("claude", "claudeAiOauth.accessToken", "short"),
        ("claude", "claudeAiOauth.accessToken", "A" * 5000),
        ("claude", "claudeAiOauth.accessToken", "two\r\nlines-of-a-header"),
        ("claude", "claudeAiOauth.refreshToken", {"a": 1}),
        ("claude", "claudeAiOauth.expiresAt", "tomorrow"),
        ("claude", "claudeAiOauth.expiresAt", True),
        ("claude", "claudeAiOauth.expiresAt", -1),
        ("claude", "claudeAiOauth.expiresAt", float("inf")),
        ("claude", "claudeAiOauth.expiresAt", float("nan")),
        ("claude", "claudeAiOauth.expiresAt", 10**400),
        ("claude", "claudeAiOauth.subscriptionType", {"deep": "thing"}),
        ("claude", "claudeAiOauth.scopes", ["x"] * 100),
        ("claude", "claudeAiOauth.scopes", ["x" * 1000]),
        # A token where it would go into other sandboxes, or be shown.
        ("claude", "claudeAiOauth.scopes", ["user:inference", REFRESH]),
        ("claude", "claudeAiOauth.subscriptionType", ACCESS),
        ("codex", "tokens.id_token", "not.a.jwt"),
        ("codex", "tokens.id_token", jwt({"email": f"{REFRESH}@example.org"})),
        ("codex", "tokens.id_token", jwt({"email": {"a": ["b"]}})),
        ("codex", "tokens.account_id", REFRESH),
    ],
)
def test_a_field_that_is_not_as_it_should_be_is_refused(agent: str, path: str, value: Any) -> None:
    oauth = oauth_of(agent)
    read_login(oauth, encoded(FILES[agent]))  # control: without that it is one
    with pytest.raises(InvalidInputError) as refused:
        read_login(oauth, changed(agent, path, value))
    words = str(refused.value.to_dict())
    assert ACCESS not in words
    assert REFRESH not in words


def test_without_a_refresh_token_and_a_time_it_is_a_login_still() -> None:
    oauth = oauth_of("claude")
    data = json.loads(changed("claude", "claudeAiOauth.refreshToken", ...))
    del data["claudeAiOauth"]["expiresAt"]
    tokens = read_login(oauth, encoded(data))
    assert tokens.refresh is None
    assert tokens.expires_at is None


@given(st.binary(max_size=400) | st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=30),
    lambda inner: st.dictionaries(
        st.sampled_from(["claudeAiOauth", "accessToken", "expiresAt", "scopes", "tokens"]), inner
    ) | st.lists(inner, max_size=3),
    max_leaves=8,
).map(encoded))  # fmt: skip
def test_any_bytes_are_a_login_or_refused(data: bytes) -> None:
    with contextlib.suppress(InvalidInputError):
        read_login(CLAUDE, data)


def test_an_answer_has_what_the_provider_gave() -> None:
    oauth = oauth_of("codex")
    answer = {"access_token": CODEX_ACCESS, "refresh_token": REFRESH, "id_token": jwt(ID_CLAIMS)}
    tokens = read_answer(oauth, encoded(answer), now=1000.0)
    assert tokens.expires_at == SOON  # said by the token itself
    assert tokens.kept["tokens.id_token"]["email"] == "me@example.org"
    tokens = read_answer(oauth, encoded({**answer, "expires_in": 60}), now=1000.0)
    assert tokens.expires_at == 1060.0
    del answer["refresh_token"]
    assert read_answer(oauth, encoded(answer), now=0.0).refresh is None
    opaque = read_answer(oauth_of("claude"), encoded({"access_token": ACCESS}), now=1000.0)
    assert opaque.expires_at == 4600.0


@pytest.mark.parametrize(
    "answer",
    [
        b"<html>", b"{}", encoded({"access_token": None}), encoded({"access_token": "short"}),
        encoded({"access_token": ACCESS, "expires_in": -5}),
        encoded({"access_token": ACCESS, "expires_in": float("nan")}),
        encoded({"access_token": ACCESS, "refresh_token": 7}),
        encoded({"access_token": "A" * 70_000}),
    ],
    ids=lambda data: repr(data[:40]),
)  # fmt: skip
def test_an_answer_that_is_none_is_refused_without_its_words(answer: bytes) -> None:
    with pytest.raises(InvalidInputError) as refused:
        read_answer(oauth_of("claude"), answer, now=0.0)
    assert ACCESS not in str(refused.value.to_dict())


def test_an_unsigned_jwt_is_read_and_taken_by_nobody() -> None:
    made = unsigned_jwt({"email": "me@example.org", "exp": 5})
    header = json.loads(base64.urlsafe_b64decode(made.split(".")[0] + "=="))
    assert header["alg"] == "none"
    assert claims_of(made)["email"] == "me@example.org"
    assert claims_of(made)["exp"] > time.time()
