"""Who calls: whose sandboxes there are for a request, and what it may do.

On the daemon's socket a caller is the user the daemon works for, who may do everything. It can ask
to be taken for less, as a program that acts on somebody else's word (`Agentkernel-Owner:
mcp:claude`): then it sees that owner's sandboxes, and may not do what is the user's alone. Where
what it asks of a new sandbox is the user's own word all the same, it says so (`Agentkernel-Spec:
user`): then the sandbox may have the user's network and secrets. Over a network a caller is what
its token says.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import HTTPConnection

from agentkernel.config.ports import parse_port
from agentkernel.errors import InvalidInputError, PolicyDeniedError
from agentkernel.images.model import image_kind
from agentkernel.images.oci.reference import LOCAL as LOCAL_REGISTRY
from agentkernel.images.oci.reference import parse_reference
from agentkernel.kernel.life import LOCAL_OWNER
from agentkernel.kernel.network_control import RuleChange
from agentkernel.kernel.spec import SandboxSpec
from agentkernel.kernel.store import Overseer, TokenRecord
from agentkernel.kernel.tokens import OWNER, SCOPES, Scope
from agentkernel.network.policy.request import NetworkRequest, parse_target
from agentkernel.network.policy.targets import check_rule as canonical_rule
from agentkernel.workspaces.model import NONE

__all__ = [
    "LOCAL",
    "OWNER_HEADER",
    "SPEC_HEADER",
    "Caller",
    "Scope",
    "caller_of",
    "check_network",
    "check_rule",
    "may_name",
    "may_publish",
    "on_the_socket",
    "owner_of",
    "permitted",
    "secrets_owner",
    "serving",
]

S = TypeVar("S", bound=SandboxSpec)
OWNER_HEADER: Final = b"agentkernel-owner"
SPEC_HEADER: Final = b"agentkernel-spec"

_EVERYTHING: Final[frozenset[Scope]] = frozenset(SCOPES)
# Of an owner that somebody on the socket acts for.
_DELEGATED: Final[frozenset[Scope]] = frozenset({"read", "exec", "manage"})
# Whoever the request that is being served comes from.
serving: Final[ContextVar[Caller | None]] = ContextVar("agentkernel_caller", default=None)


@dataclass(frozen=True)
class Caller:
    owner: str
    scopes: frozenset[Scope]
    # The id of the token it came with; without one it came by the socket.
    token: str | None = None
    # What it asks of a sandbox's network, ports and secrets is the user's own word.
    users_spec: bool = False

    @classmethod
    def of_token(cls, record: TokenRecord) -> Caller:
        return cls(record.owner, frozenset(_EVERYTHING & set(record.scopes)), record.id)

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
    if len(named) > 1 or not OWNER.fullmatch(owner):
        raise InvalidInputError(
            "Agentkernel-Owner is one name of small letters, digits and : . _ / -, at most 128"
        )
    words = [value for name, value in scope["headers"] if name == SPEC_HEADER]
    if words not in ([], [b"user"]):
        raise InvalidInputError('Agentkernel-Spec is "user", or not there')
    return LOCAL if owner == LOCAL_OWNER else Caller(owner, _DELEGATED, users_spec=bool(words))


def caller_of(connection: HTTPConnection) -> Caller:
    caller: Caller = connection.scope["state"]["caller"]
    return caller


def permitted(connection: HTTPConnection, spec: S) -> S:
    """What the caller may ask of a sandbox. Which of the host's directories it shows is a matter of
    those who may see them."""
    caller = caller_of(connection)
    if not caller.users_spec:
        for port in spec.ports:
            may_publish(connection, port)
        check_network(connection, spec.network)
    if "host-paths" in caller.scopes:
        return spec
    if spec.workspace not in (None, NONE):
        caller.check("host-paths")
    if image_kind(spec.image) == "directory":
        caller.check("host-paths")
    return msgspec.structs.replace(spec, host_env={})


def may_publish(connection: HTTPConnection, port: str, *, public: bool = False) -> None:
    """What can be reached by others than this machine's own programs, or takes a port of its
    services, is a matter of those who may see the machine. Raises PolicyDeniedError."""
    widening = "needs no token" if public else parse_port(port).widening
    if widening and not {"host-paths", "admin"} & caller_of(connection).scopes:
        raise PolicyDeniedError(
            f"a port that {widening} needs the scope host-paths, which the caller has not",
            hint="publish on 127.0.0.1 and a port above 1023, or as a preview with a token",
            needed="host-paths",
        )


def may_name(connection: HTTPConnection, name: str) -> None:
    """Names of images are everybody's. One of a registry is what that registry says, or else the
    word of those who may see the machine: others would run what somebody put in its place. Raises
    PolicyDeniedError."""
    if {"host-paths", "admin"} & caller_of(connection).scopes:
        return
    reference = parse_reference(name)
    if reference.registry != LOCAL_REGISTRY:
        raise PolicyDeniedError(
            f"to call an image {reference.familiar[:200]}, as one of {reference.registry}, needs "
            "the scope host-paths, which the caller has not",
            hint=f"call it {LOCAL_REGISTRY}/NAME",
            needed="host-paths",
        )


def check_network(connection: HTTPConnection, request: NetworkRequest | None) -> None:
    """What is not public belongs to this machine and its network: a matter of those who may see
    the host."""
    if request is None or "host-paths" in caller_of(connection).scopes:
        return
    for phase in (request, *request.phases.values()):
        targets = [parse_target(text, source="") for text in phase.allow]
        # As they are stored: an address that is not public makes its rule a private one.
        rules = [canonical_rule(rule) for rule in phase.rules]
        if any(rule.private and rule.action == "allow" for rule in (*targets, *rules)):
            caller_of(connection).check("host-paths")


def check_rule(connection: HTTPConnection, change: RuleChange) -> None:
    if change.action == "allow":
        # What is stored has the change's action, whatever the rule itself says.
        rule = change.rule
        rules = [] if rule is None else [msgspec.structs.replace(rule, action="allow")]
        allow = [] if change.target is None else [change.target]
        check_network(connection, NetworkRequest(rules=rules, allow=allow))


def secrets_owner(connection: HTTPConnection) -> str:
    """Whose secrets a new sandbox may be bound to."""
    caller = caller_of(connection)
    return LOCAL_OWNER if caller.users_spec else caller.owner


def owner_of(connection: HTTPConnection) -> str:
    """Whose sandboxes the caller finds: its own, and with `admin` all others by their ids."""
    caller = caller_of(connection)
    return Overseer(caller.owner) if "admin" in caller.scopes else caller.owner
