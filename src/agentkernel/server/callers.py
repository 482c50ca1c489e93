"""Who calls: whose sandboxes there are for a request, and what it may do.

On the daemon's socket a caller is the user the daemon works for, who may do everything. It can ask
to be taken for less, as a program that acts on somebody else's word (`Agentkernel-Owner:
mcp:claude`): then it sees that owner's sandboxes, and may not do what is the user's alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

import msgspec
from starlette.requests import HTTPConnection

from agentkernel.errors import InvalidInputError, PolicyDeniedError
from agentkernel.kernel.kernel import LOCAL_OWNER
from agentkernel.kernel.spec import SandboxSpec

S = TypeVar("S", bound=SandboxSpec)
Scope = Literal["read", "exec", "manage", "host-paths", "admin"]
OWNER_HEADER: Final = b"agentkernel-owner"

_EVERYTHING: Final[frozenset[Scope]] = frozenset({"read", "exec", "manage", "host-paths", "admin"})
# Of an owner that somebody on the socket acts for.
_DELEGATED: Final[frozenset[Scope]] = frozenset({"read", "exec", "manage"})
_OWNER: Final = re.compile(r"[a-z0-9][a-z0-9:._/-]{0,127}")


@dataclass(frozen=True)
class Caller:
    owner: str
    scopes: frozenset[Scope]

    def check(self, scope: Scope) -> None:
        if scope not in self.scopes:
            raise PolicyDeniedError(
                f"this needs the scope {scope}, which the caller has not", needed=scope
            )


LOCAL: Final = Caller(LOCAL_OWNER, _EVERYTHING)


def on_the_socket(scope: Any) -> Caller:
    """Preconditions: the peer's uid is the daemon's."""
    named = [value for name, value in scope["headers"] if name == OWNER_HEADER]
    if not named:
        return LOCAL
    owner = named[0].decode("latin-1")
    if len(named) > 1 or not _OWNER.fullmatch(owner):
        raise InvalidInputError(
            "Agentkernel-Owner is one name of small letters, digits and : . _ / -, at most 128"
        )
    return LOCAL if owner == LOCAL_OWNER else Caller(owner, _DELEGATED)


def caller_of(connection: HTTPConnection) -> Caller:
    caller: Caller = connection.scope["state"]["caller"]
    return caller


def permitted(connection: HTTPConnection, spec: S) -> S:
    """What the caller may ask of a sandbox. Which of the host's directories it shows is a matter of
    those who may see them."""
    caller = caller_of(connection)
    if "host-paths" in caller.scopes:
        return spec
    if spec.image != "host":
        caller.check("host-paths")
    return msgspec.structs.replace(spec, host_env={})


def owner_of(connection: HTTPConnection) -> str:
    return caller_of(connection).owner
