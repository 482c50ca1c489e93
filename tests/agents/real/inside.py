"""Looks for bytes inside a sandbox: in what processes have, and in files. Runs there, alone.

Wanted words come in hex, so that looking for them does not put them where they are looked for.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Callable

_SKIPPED = ("/proc", "/sys", "/dev", "/usr", "/opt", "/lib", "/lib64", "/bin", "/sbin")
_MOST = 64 << 20
_MOST_MEMORY = 8 << 20
"""Of a mapping: an engine's reserved room is not worth the time."""


def main() -> None:
    wanted = {word: bytes.fromhex(word) for word in sys.argv[2:]}
    variable = sys.argv[1]
    found: dict[str, list[str]] = {word: [] for word in wanted}
    looked = {"processes": 0, "memories": 0, "files": 0}
    values: set[str] = set()

    def look(place: str, data: bytes) -> None:
        for word, value in wanted.items():
            if value in data:
                found[word].append(place)

    for pid in filter(str.isdigit, os.listdir("/proc")):
        for name in ("environ", "cmdline"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as file:
                data = file.read()
                look(f"/proc/{pid}/{name}", data)
                looked["processes"] += 1
                for pair in data.split(b"\0"):
                    if pair.startswith(variable.encode() + b"="):
                        values.add(pair.partition(b"=")[2].decode())
        if int(pid) != os.getpid():
            looked["memories"] += _memory(pid, look)
    for base, directories, files in os.walk("/"):
        directories[:] = [d for d in directories if _may_hold(os.path.join(base, d))]
        for name in files:
            path = os.path.join(base, name)
            with contextlib.suppress(OSError):
                if os.path.isfile(path) and os.path.getsize(path) < _MOST:
                    with open(path, "rb") as file:
                        look(path, file.read())
                    looked["files"] += 1
    sys.stdout.write(json.dumps({"found": found, "looked": looked, "values": sorted(values)}))


def _may_hold(directory: str) -> bool:
    """Whether anybody could have written there: programs of the machine are mounted read-only."""
    if directory in _SKIPPED or os.path.islink(directory):
        return False
    try:
        return not os.statvfs(directory).f_flag & os.ST_RDONLY
    except OSError:
        return False


def _memory(pid: str, look: Callable[[str, bytes], None]) -> int:
    """1 if the process let us."""
    try:
        with open(f"/proc/{pid}/maps") as file, open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for line in file:
                if not (match := re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)):
                    continue
                begin, end = (int(part, 16) for part in match.groups())
                if end - begin > _MOST_MEMORY:
                    continue
                with contextlib.suppress(OSError, OverflowError, ValueError):
                    memory.seek(begin)
                    look(f"/proc/{pid}/mem", memory.read(end - begin))
        return 1
    except OSError:
        return 0


main()
