"""What is known of a login with an agent, and what is shown of it. No token is in here."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

Kind = Literal["none", "key", "oauth"]
LoginState = Literal["none", "ok", "failing", "ended"]
_MARGIN: Final = 300.0
# A provider whose tokens end at once is not asked more often.
_LEAST_PAUSE: Final = 10.0
_FIRST_RETRY: Final = 15.0
_LAST_RETRY: Final = 900.0


class LoginRecord(msgspec.Struct, frozen=True, kw_only=True):
    """As kept. `key`: the secret that was set for it, if it is an API key. `kept`: fields of the
    agent's file that are no secret. `obtained_at`: when the access token was given. `failures`: how
    often in a row there was no new one."""

    agent: str
    owner: str
    created_at: float
    key: str = ""
    account: str = ""
    expires_at: float | None = None
    obtained_at: float = 0.0
    refreshed_at: float | None = None
    refreshable: bool = True
    kept: dict[str, Any] = {}
    problem: str = ""
    failures: int = 0
    failed_at: float = 0.0
    ended: bool = False

    @property
    def due_at(self) -> float | None:
        """When a new access token is to be asked for; None: never."""
        if self.expires_at is None or not self.refreshable or self.ended:
            return None
        lifetime = max(0.0, self.expires_at - self.obtained_at)
        due = self.expires_at - min(_MARGIN, lifetime / 4)
        if self.refreshed_at is not None:
            due = max(due, self.refreshed_at + _LEAST_PAUSE)
        if self.failures:
            wait = min(_LAST_RETRY, _FIRST_RETRY * 2.0 ** min(self.failures - 1, 16))
            due = max(due, self.failed_at + wait)
        return due

    @property
    def state(self) -> LoginState:
        if self.ended:
            return "ended"
        return "failing" if self.failures else "ok"


class LoginStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A login as shown. `kind`: "key": API keys, which are the secrets `secrets`; "oauth": a
    subscription. `state`: "failing": the last request for a new token came to nothing, and is
    repeated; "ended": log in again; `problem` says why. `enters`: what of it is inside a sandbox.
    `keys`: secrets that the agent takes as API keys. `file`: where the agent itself keeps its
    login. `can_log_in`: whether its own login can be run in a sandbox."""

    agent: str
    kind: Kind = "none"
    state: LoginState = "none"
    account: str = ""
    secrets: list[str] = []
    created_at: float | None = None
    expires_at: float | None = None
    refreshed_at: float | None = None
    refreshable: bool = False
    problem: str = ""
    enters: str = ""
    keys: list[str] = []
    file: str = ""
    can_log_in: bool = False
    about: str = ""
    sandboxes: list[str] = []


class LoginBox(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox for one login. `command` is to be run in it, on a terminal; `warning` is to be said
    first, and `hint` if there is one: what to do there."""

    sandbox: str
    command: list[str]
    env: dict[str, str]
    warning: str
    hint: str = ""
