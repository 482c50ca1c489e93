"""Processes as the host sees them: the gateway's, and those of a sandbox, with their memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_CHUNK = 8 << 20


def gateway_pid(state_dir: Path) -> int | None:
    """The gateway of a state directory, if it runs."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                words = (process / "cmdline").read_bytes().split(b"\0")
                if b"agentkernel.network.gateway" in words and os.fsencode(state_dir) in words:
                    return int(process.name)
    return None


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident(pid: int) -> int:
    """Bytes of memory that belong to it alone or to it and others."""
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^VmRSS:\s+(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def pids_of(first: int) -> list[int]:
    """All processes in the pid namespace of this one, as the host numbers them."""
    space = os.readlink(f"/proc/{first}/ns/pid")
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                if os.readlink(process / "ns/pid") == space:
                    found.append(int(process.name))
    return found


def read_only_mounts(pid: int) -> frozenset[str]:
    """Directories that a process can't write to, as the host reaches them through its root."""
    lines = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    points = [line.split()[4] for line in lines if "ro" in line.split()[5].split(",")]
    return frozenset(f"/proc/{pid}/root{point}" for point in points)


def memory(pid: int) -> Iterator[bytes]:
    """What a process has in memory beyond files that are mapped to be read, piece by piece,
    overlapping so that nothing falls between."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as file:
        for line in maps:
            span, rights, _, _, inode, name = [*line.split(maxsplit=5), ""][:6]
            if "r" not in rights or name.startswith(("[vvar", "[vsyscall")):
                continue
            if "w" not in rights and inode != "0":
                continue
            begin, end = (int(part, 16) for part in span.split("-"))
            while begin < end:
                with suppress(OSError, OverflowError):
                    file.seek(begin)
                    yield file.read(min(_CHUNK, end - begin) + 4096)
                begin += _CHUNK
