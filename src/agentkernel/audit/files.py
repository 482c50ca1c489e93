"""Where the lines are: files named by the number of their first line, read in that order."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agentkernel.audit.entries import MAX_LINE_BYTES, Head, decode_line, split_hash
from agentkernel.errors import StateError

DIRECTORY: Final = "audit"
_NAME: Final = re.compile(r"[0-9]{16}\.jsonl", re.ASCII)
_CHUNK: Final = 1 << 20


def file_name(first_seq: int) -> str:
    return f"{first_seq:016d}.jsonl"


def first_seq(name: str) -> int:
    return int(name.partition(".")[0])


def log_files(directory: Path) -> list[Path]:
    """The files of a log, oldest first. None if there is no log."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise unreadable(directory, exc) from None
    return [directory / name for name in sorted(names) if _NAME.fullmatch(name)]


def unreadable(path: Path, error: OSError) -> StateError:
    return StateError(f"the audit log can't be read: {path}: {error.strerror}")


def read_lines(path: Path, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """Lines with the place behind them. What is not ended by a newline comes last, with its
    newline missing; a piece that is longer than any line of ours comes as it is."""
    with path.open("rb") as handle:
        handle.seek(offset)
        rest = b""
        while chunk := handle.read(_CHUNK):
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            for line in lines:
                offset += len(line) + 1
                yield offset, line + b"\n"
            if len(rest) > MAX_LINE_BYTES:
                offset += len(rest)
                yield offset, rest
                rest = b""
        if rest:
            yield offset + len(rest), rest


def last_line(path: Path) -> tuple[Head | None, int, bytes]:
    """The last line whose hash is right, the place behind it, and what stands after that."""
    size = path.stat().st_size
    start = max(0, size - 4 * MAX_LINE_BYTES)
    with path.open("rb") as handle:
        handle.seek(start)
        data = handle.read()
    end = len(data)
    while (end := data.rfind(b"\n", 0, end)) >= 0:
        line = data[data.rfind(b"\n", 0, end) + 1 : end]
        digest, entry = split_hash(line), decode_line(line)
        if digest is not None and entry is not None:
            return Head(entry.seq, digest), start + end + 1, data[end + 1 :]
    return None, 0, data
