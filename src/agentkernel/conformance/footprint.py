"""What of a machine belongs to a sandbox, and what of that is still there when it is gone.

A footprint is taken while the sandbox runs and names things, not counts: processes with their start
times, namespaces by number, files by path. So whatever else happens on the machine meanwhile does
not matter. The kernel drops some things late (network namespaces by 250 ms): ask `remains` again
until it is empty or the patience is over.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

_CGROUPS = Path("/sys/fs/cgroup")
_ID_RANGES = Path("/var/lib/agentkernel/id-ranges")
_NAMESPACE = re.compile(r"\w+:\[\d+\]")
# At every place: what stands before an id may look like part of it.
_ID = re.compile(r"(?=([a-z0-9]{20}))")


class Footprint(msgspec.Struct, frozen=True, kw_only=True):
    """That of one sandbox or many. `namespaces` are those that are not the machine's own."""

    ids: frozenset[str]
    state_dir: Path
    processes: frozenset[tuple[int, str]]
    namespaces: frozenset[str]

    @classmethod
    def of(cls, id: str, state_dir: Path, first_pids: Iterable[int]) -> Footprint:
        """`first_pids`: processes of the host that everything else inside descends from."""
        return cls.of_many([id], state_dir, first_pids)

    @classmethod
    def of_many(cls, ids: Iterable[str], state_dir: Path, first_pids: Iterable[int]) -> Footprint:
        pids = _descendants(first_pids)
        own = _namespaces(os.getpid())
        return cls(
            ids=frozenset(ids),
            state_dir=state_dir,
            processes=frozenset((pid, start) for pid in pids if (start := _start_time(pid))),
            namespaces=frozenset().union(*(_namespaces(pid) for pid in pids)) - own,
        )

    def remains(self) -> list[str]:
        """A line for each thing that is still there."""
        return [
            *(f"process {pid}" for pid, start in self.processes if _start_time(pid) == start),
            *self._held_namespaces(),
            *self._mounts(),
            *(f"control group {path}" for path in self._groups()),
            *(f"file {path}" for path in self._files()),
            *(f"socket {line}" for line in _lines("/proc/net/unix") if self._named(line)),
            *(f"loop device {path}" for path in self._loops()),
            *(f"id range {path}" for path in self._ranges()),
        ]

    def _named(self, text: str) -> bool:
        return not self.ids.isdisjoint(_ID.findall(text))

    def _held_namespaces(self) -> Iterator[str]:
        """By a process that is in it, or that has it open. The kernel gives numbers out again: a
        process that is in others besides, which are not the machine's, is somebody else's."""
        machine = _namespaces(os.getpid())
        for pid in _all_pids():
            own = _namespaces(pid) - machine
            for name in sorted(own if own <= self.namespaces else ()):
                yield f"namespace {name} of process {pid}"
            for link in _links(f"/proc/{pid}/fd"):
                if link in self.namespaces:
                    yield f"namespace {link} open in process {pid}"

    def _mounts(self) -> Iterator[str]:
        for pid in _all_pids():
            for line in _lines(f"/proc/{pid}/mountinfo"):
                if self._named(line):
                    yield f"mount of process {pid}: {line.strip()}"

    def _files(self) -> Iterator[Path]:
        for directory, names, files in os.walk(self.state_dir):
            yield from (Path(directory, name) for name in (*names, *files) if self._named(name))

    def _groups(self) -> Iterator[Path]:
        for directory, names, _ in os.walk(_CGROUPS):
            yield from (Path(directory, name) for name in names if self._named(name))

    def _loops(self) -> Iterator[str]:
        for path in Path("/sys/block").glob("loop*/loop/backing_file"):
            if any(self._named(line) for line in _lines(str(path))):
                yield str(path)

    def _ranges(self) -> Iterator[Path]:
        for path in _ID_RANGES.glob("*"):
            if any(self._named(line) for line in _lines(str(path))):
                yield path


def wait_until_gone(footprint: Footprint, seconds: float = 10.0) -> list[str]:
    """What is left of it when the time is over; empty as soon as nothing is."""
    deadline = time.monotonic() + seconds
    while left := footprint.remains():
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return left


def _descendants(first: Iterable[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid in _all_pids():
        if (fields := _stat(pid)) is not None:
            children.setdefault(int(fields[1]), []).append(pid)
    found: set[int] = set()
    todo = list(first)
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += children.get(pid, ())
    return found


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> list[str] | None:
    """The fields after the name, which may hold anything: state, parent, …"""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(") ")[2].split()
    except OSError:
        return None


def _start_time(pid: int) -> str | None:
    fields = _stat(pid)
    return None if fields is None else fields[19]


def _namespaces(pid: int) -> frozenset[str]:
    """None where we may not look: a process of another user, or one that guards itself."""
    return frozenset(_links(f"/proc/{pid}/ns"))


def _links(directory: str) -> Iterator[str]:
    try:
        names = os.listdir(directory)
    except OSError:
        return
    for name in names:
        try:
            target = os.readlink(f"{directory}/{name}")
        except OSError:
            continue
        if _NAMESPACE.fullmatch(target):
            yield target


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readlines()
    except OSError:
        return []
