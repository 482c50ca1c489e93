"""Rules about who a guest is, which namespaces it is in, and what of the machine it can name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from agentkernel.errors import InvalidInputError
from agentkernel.kernel.probe.report import Seen
from agentkernel.kernel.probe.rules import CLOSED, FILE, Context, Rule, Verdict, judged, opened
from agentkernel.security.capabilities import from_mask

_WHOLE = "0 0 4294967295"
_NOBODY = "65534"
_NO_TIME = "no engine separates the clocks: the time since boot is the machine's"


def ids(kind: Literal["uid", "gid"]) -> Rule:
    outside = outside_ids(kind)

    def check(values: tuple[str, ...], at: Context) -> Verdict:
        if _WHOLE in (" ".join(value.split()) for value in values):
            return opened(None, "every id is the machine's own")
        return outside(Seen("ok", values), at) if _lines(kind, at)[0] else CLOSED

    return judged(check)


def outside_ids(kind: Literal["uid", "gid"]) -> Rule:
    """By what the sandbox's process has outside, whatever a kernel inside says of its own ids."""

    def check(values: tuple[str, ...], at: Context) -> Verdict:
        lines, own = _lines(kind, at)
        for line in lines.splitlines():
            inside, first, count = (int(word) for word in line.split())
            if first == 0:
                return opened(None, f"{kind} {inside} inside is the machine's root")
            if first <= own < first + count:
                said = at.effective.get("ids")
                reason = f"by its ids: {said.value}" if said else None
                return opened(reason, f"{kind} {own - first + inside} inside is {own} outside")
        return CLOSED if lines else Verdict("unknown")

    return judged(check)


def _lines(kind: Literal["uid", "gid"], at: Context) -> tuple[str, int]:
    host = at.host
    return (host.uid_map, host.uid) if kind == "uid" else (host.gid_map, host.gid)


def _groups(values: tuple[str, ...], at: Context) -> Verdict:
    line = at.effective.get("supplementary groups")
    if line is not None:
        return opened(f"{line.value}, {line.enforced_by}", *values)
    return opened(None if _NOBODY in values else "by the image's /etc/group", *values)


def _capabilities(values: tuple[str, ...], at: Context) -> Verdict:
    try:
        have = from_mask(int(values[0], 16))
    except (ValueError, IndexError, InvalidInputError):
        return opened(None, *values)
    if extra := have - at.capabilities():
        return opened(None, *sorted(extra))
    return opened(f"by the profile, {at.engine.rights}", *sorted(have))


def _no_capabilities(values: tuple[str, ...], at: Context) -> Verdict:
    return opened(None, *values)


def namespace(kind: str) -> Rule:
    def check(values: tuple[str, ...], at: Context) -> Verdict:
        outside = at.host.namespaces.get(kind)
        if outside is None:
            return Verdict("unknown")
        if values != (outside,):
            return CLOSED
        return opened(_NO_TIME if kind == "time" else None, outside)

    return judged(check, frozenset({"ENOENT"}))  # a kernel that has none of this kind


def same(of_host: Callable[[Context], str]) -> Rule:
    """Open if it is what the host has."""

    def check(values: tuple[str, ...], at: Context) -> Verdict:
        text = "\n".join(values).strip()
        return opened(None, text) if text and text == of_host(at).strip() else CLOSED

    return judged(check, FILE)


def host_name(seen: Seen, at: Context) -> Verdict:
    if seen.values == (at.blueprint.hostname,):
        return CLOSED
    return same(lambda it: it.host.hostname)(seen, at)


groups = judged(_groups)
capabilities = judged(_capabilities)
no_capabilities = judged(_no_capabilities)
