"""How the answer to a try becomes closed or open, and why an open one is meant to be.

A rule knows one kind of try. It never guesses: what was not answered is unknown, and an open door
that no line of the blueprint asks for has no reason, which makes it a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

import msgspec

from agentkernel.backends.base import THROUGH_GATEWAY, Blueprint, EffectiveLine
from agentkernel.kernel.probe.findings import State
from agentkernel.kernel.probe.report import Seen

# What a system call that does not get past filter and rights answers.
CALL: Final = frozenset({"EPERM", "EACCES", "ENOSYS", "SIGSYS", "none"})
# A file that is not there, hidden, empty, or not for this user.
FILE: Final = CALL | {"ENOENT", "EROFS", "ENXIO", "ENODEV", "ENOTDIR", "EIO", "ELOOP"}
SOCKET: Final = CALL | {
    "EAFNOSUPPORT",
    "EPROTONOSUPPORT",
    "ESOCKTNOSUPPORT",
    "EINVAL",
    "ENETUNREACH",
    "EHOSTUNREACH",
    "EADDRNOTAVAIL",
    "ECONNREFUSED",
    "ENOENT",
}


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the probe's answers are compared with. Empty: not known here, so nothing is equal."""

    uid: int = 0
    gid: int = 0
    namespaces: dict[str, str] = {}
    hostname: str = ""
    boot_id: str = ""
    machine_id: str = ""
    version: str = ""
    core_handler: bool = False
    """Core dumps of this machine go to a program."""
    uid_map: str = ""
    """Of the sandbox's PID 1, as seen from outside."""
    gid_map: str = ""


class Engine(NamedTuple):
    """What an engine's own way of doing things changes: where the guest's capabilities count and
    its sockets are, for reasons that say so, and the rules of tries that mean something else there
    than the catalogue says."""

    rights: str = "in the guest's own user namespace"
    network: str = "in the sandbox's own network namespace"
    rules: Mapping[str, Rule] = {}


class Context(NamedTuple):
    """The sandbox and the user that a report is of."""

    blueprint: Blueprint
    effective: Mapping[str, EffectiveLine]
    host: HostFacts
    user: str
    engine: Engine = Engine()

    def has_way_out(self) -> bool:
        """Its traffic comes to the gateway."""
        line = self.effective.get("network")
        return line is not None and line.value == THROUGH_GATEWAY

    def capabilities(self) -> frozenset[str]:
        return self.blueprint.capabilities if self.user == "root" else frozenset()


class Verdict(NamedTuple):
    """`reason`: why it is meant to be open; None if it is not. `detail`: what was seen."""

    state: State
    reason: str | None = None
    detail: str = ""


Rule = Callable[[Seen, Context], Verdict]

CLOSED: Final = Verdict("closed")


def _is_no_answer(seen: Seen) -> bool:
    return seen.answer == "timeout" or seen.answer.startswith(("SIG", "signal "))


def opened(reason: str | None, *seen: str) -> Verdict:
    return Verdict("open", reason, " ".join(seen))


def denied(
    answers: frozenset[str] = CALL,
    *,
    also: tuple[str, ...] = (),
    cap: str | None = None,
    seccomp: tuple[str, ...] = (),
    nested: bool = False,
    meant: str | Callable[[Engine], str] | None = None,
) -> Rule:
    """Closed by an answer out of `answers`; open is meant with `cap`, in these seccomp profiles,
    with nested user namespaces asked for, or always for the reason `meant`."""
    closed = answers | set(also)

    def rule(seen: Seen, at: Context) -> Verdict:
        if seen.answer in closed:
            return CLOSED
        if _is_no_answer(seen):
            return Verdict("unknown")
        reason = meant(at.engine) if callable(meant) else meant
        if cap is not None and cap in at.capabilities():
            reason = f"by the profile: {cap} {at.engine.rights}"
        elif seccomp and at.blueprint.seccomp in seccomp:
            reason = f"by the system call filter {at.blueprint.seccomp}"
        elif nested and at.blueprint.nested_userns:
            reason = "asked for: nested user namespaces"
        return Verdict("open", reason)

    return rule


def by_way_out(without: Rule, through: Rule) -> Rule:
    """One rule for sandboxes that have loopback only, another for those with a gateway."""
    return lambda seen, at: (through if at.has_way_out() else without)(seen, at)


def judged(
    check: Callable[[tuple[str, ...], Context], Verdict], closed: frozenset[str] = frozenset()
) -> Rule:
    """By its values. Without any it is closed, as it is by an answer out of `closed`; if they could
    not be read, nobody knows."""

    def rule(seen: Seen, at: Context) -> Verdict:
        if seen.answer == "ok" and seen.values:
            return check(seen.values, at)
        return CLOSED if seen.answer in closed | {"ok", "none"} else Verdict("unknown")

    return rule


def nothing(answers: frozenset[str] = FILE) -> Rule:
    """Nothing may be found."""
    return nothing_but((), "", answers)


def nothing_but(meant: Collection[str], reason: str, answers: frozenset[str] = FILE) -> Rule:
    """Nothing may be found, except what is `meant`, for that reason."""

    def rule(seen: Seen, at: Context) -> Verdict:
        if wrong := [value for value in seen.values if value not in meant]:
            return opened(None, *wrong)
        if seen.values:
            return opened(reason, *seen.values)
        return Verdict("unknown") if seen.answer not in answers | {"ok"} else CLOSED

    return rule


def found(reason: str, answers: frozenset[str] = FILE) -> Rule:
    """Whatever is found is meant, for that reason."""

    def rule(seen: Seen, at: Context) -> Verdict:
        if seen.values:
            return opened(reason, *seen.values)
        return Verdict("unknown") if seen.answer not in answers | {"ok"} else CLOSED

    return rule


def only(wanted: str) -> Rule:
    """Closed if exactly this was read, and open if anything else was, or nothing could be."""

    def rule(seen: Seen, at: Context) -> Verdict:
        if _is_no_answer(seen):
            return Verdict("unknown")
        return CLOSED if seen.values == (wanted,) else opened(None, *seen.values)

    return rule
