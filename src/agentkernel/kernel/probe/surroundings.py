"""Rules about files, devices, the agent and limits: lists of what was found, and numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from agentkernel.backends.base import NOT_ENFORCED
from agentkernel.kernel.probe.report import Seen
from agentkernel.kernel.probe.rules import CLOSED, FILE, Context, Rule, Verdict, judged, opened

_OWN_TYPES = frozenset({"overlay", "tmpfs", "devpts", "proc", "mqueue"})
# null zero full random urandom, tty, ptmx and the pseudo-terminals
_NODE = re.compile(r"\S+ c (1:[35789]|5:[02]|13[6-9]:\d+|14[0-3]:\d+)", re.ASCII)
_NO_LIMIT = "by the profile: no limit"
_ROUNDING = 1 << 16


def _unless(values: list[str], reason: str, *seen: str) -> Verdict:
    """`values` are too many; without any, what was seen is meant."""
    return opened(None, *values) if values else opened(reason, *seen)


def _devices(values: tuple[str, ...], at: Context) -> Verdict:
    wrong = [point for point in values if point != "/dev" and not point.startswith("/dev/")]
    return _unless(wrong, "in /dev alone, where the nodes are")


def writable(also: Collection[str] = ()) -> Rule:
    """File systems of the sandbox's own, and the mounts `also`, each a path and a type."""

    def check(values: tuple[str, ...], at: Context) -> Verdict:
        wrong = []
        for value in values:
            point, _, kind = value.partition(" ")
            is_node = kind == "devtmpfs" and point.startswith("/dev/")
            is_meant = value in also or point in _volumes(at, read_only=False)
            if kind not in _OWN_TYPES and not is_node and not is_meant:
                wrong.append(value)
        points = (value.partition(" ")[0] for value in values)
        return _unless(wrong, "the sandbox's own files and nodes", *points)

    return judged(check)


def _volumes(at: Context, *, read_only: bool) -> set[str]:
    """Where its volumes are, as the mount table writes it; `read_only`: also those that are so."""
    return {
        volume.path.replace("\\", "\\134").replace(" ", "\\040")
        for volume in at.blueprint.volumes
        if read_only or not volume.read_only
    }


def _host_paths(values: tuple[str, ...], at: Context) -> Verdict:
    volumes = _volumes(at, read_only=True)
    others = [value for value in values if value.partition(" ")[0] not in volumes]
    wrong = [value for value in others if not _is_same_path(value)]
    reasons = ["toolchains, which are at the same path inside"] if others else []
    if len(others) < len(values):
        reasons.append("volumes, whose place on the machine's disk can be read")
    return _unless(wrong, "; ".join(reasons))


def _is_same_path(value: str) -> bool:
    words = value.split(" ")
    if len(words) != 5 or "dir=/" in words[4]:
        return False
    point, kind, root = words[:3]
    return kind == "proc" or point == root != "/"


def nodes(reason: str = "those that every program expects", also: Collection[str] = ()) -> Rule:
    """The harmless ones, and those of `also`, as the probe names them."""

    def check(values: tuple[str, ...], at: Context) -> Verdict:
        wrong = [value for value in values if not _NODE.fullmatch(value) and value not in also]
        return _unless(wrong, reason, *(value.split(" ")[0] for value in values))

    return judged(check)


def _agent_line(values: tuple[str, ...], at: Context) -> Verdict:
    """One that was started under a longer name has nothing in its place: the probe shows blanks."""
    known = len(values) == 1 and values[0].rstrip(" ") == "agentd"
    return opened("its name and nothing else" if known else None, *values)


def _agent_descriptors(values: tuple[str, ...], at: Context) -> Verdict:
    """The kernel gives a process's directory to root of its namespace; what is in it, it guards."""
    numbers = at.user == "root" and all(value.isdigit() for value in values)
    return opened("guest root sees their numbers, not what they are" if numbers else None, *values)


def _oom_order(values: tuple[str, ...], at: Context) -> Verdict:
    try:
        own, agents = (int(value) for value in values)
    except ValueError:
        return opened(None, *values)
    return CLOSED if own > agents else opened(None, *values)


def _limited(
    what: str, wanted: Callable[[Context], float | None], read: Callable[[tuple[str, ...]], float]
) -> Rule:
    """A bound as it is seen inside. Where it can't be seen, what the engine says counts."""

    def rule(seen: Seen, at: Context) -> Verdict:
        line, bound = at.effective.get(what), wanted(at)
        if bound is None:
            return opened(_NO_LIMIT)
        if line is not None and line.enforced_by.startswith(NOT_ENFORCED):
            return opened(f"{line.enforced_by}; `info` says so")
        if seen.answer == "timeout":
            return Verdict("unknown")
        if not seen.values:
            return CLOSED if line is not None else opened(None)
        try:
            value = read(seen.values)
        except (ValueError, ZeroDivisionError, IndexError):
            return opened(None, *seen.values)
        return CLOSED if value <= bound * 1.01 else opened(None, *seen.values)

    return rule


def _cpus(values: tuple[str, ...]) -> float:
    quota, period = values[0].split() if len(values) == 1 else values
    if quota in ("max", "-1"):
        return float("inf")
    return int(quota) / int(period)


def _number(values: tuple[str, ...]) -> float:
    return float("inf") if values[0] in ("max", "unlimited") else int(values[0])


def processes_of_user(seen: Seen, at: Context) -> Verdict:
    """Counts only where no control group does."""
    line = at.effective.get("pids")
    if line is not None and "control group" in line.enforced_by:
        return opened("the pids control group bounds them together", *seen.values)
    return _limited("pids", lambda it: it.blueprint.limits.pids, _number)(seen, at)


def core(seen: Seen, at: Context) -> Verdict:
    """1 never starts a core dump handler; 0 does, if the machine has one that is a program."""
    if seen.values == ("1",) or (seen.values == ("0",) and not at.host.core_handler):
        return CLOSED
    return opened(None, *seen.values) if seen.values else Verdict("unknown")


def size(limit: str) -> Rule:
    """A file system of its own, no larger than the limit; else its files are the disk's."""

    def rule(seen: Seen, at: Context) -> Verdict:
        if seen.answer in ("none", "ENOENT"):
            return CLOSED if at.blueprint.limits.disk_bytes is not None else opened(None)
        if seen.answer != "ok" or len(seen.values) != 2:
            return Verdict("unknown")
        bound = getattr(at.blueprint.limits, limit) + _ROUNDING
        fits = seen.values[0].isdigit() and 0 < int(seen.values[0]) <= bound
        return CLOSED if fits else opened(None, *seen.values)

    return rule


devices = judged(_devices)
host_paths = judged(_host_paths)
agent_line = judged(_agent_line, FILE)
agent_descriptors = judged(_agent_descriptors, FILE)
oom_order = judged(_oom_order)
memory = _limited("memory", lambda it: it.blueprint.limits.memory_bytes, _number)
pids = _limited("pids", lambda it: it.blueprint.limits.pids, _number)
cpus = _limited("cpus", lambda it: it.blueprint.limits.cpus, _cpus)
open_files = _limited("open files", lambda it: it.blueprint.limits.nofile, _number)
