"""Looking at a log, also while it is written: the newest lines, and those that come.

Nothing is checked here: what can't be read is left out, and `verify` says what is wrong with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from agentkernel.audit.entries import MAX_LINE_BYTES, Entry, decode_line
from agentkernel.audit.files import first_seq, log_files, read_lines, unreadable


class Line(NamedTuple):
    raw: bytes
    entry: Entry


class Position(NamedTuple):
    """Behind a line. A log that is not there yet has none."""

    file: Path
    offset: int


def newest(
    directory: Path,
    wanted: Callable[[Entry], bool],
    *,
    most: int | None = None,
    since: float | None = None,
) -> tuple[list[Line], Position | None]:
    """The newest lines that are wanted, in their order, and where more will come.

    `most` counts actions: the result of one belongs to its beginning, if that is found too.
    """
    found: list[Line] = []
    position: Position | None = None
    actions: set[int] = set()
    for path in reversed(log_files(directory)):
        lines, end = _file(path)
        if position is None:
            position = Position(path, end)
        kept = []
        for line in reversed(lines):
            entry = line.entry
            if since is not None and entry.time < since:
                continue
            if wanted(entry):
                number = entry.of or entry.seq
                if number not in actions and most is not None and len(actions) >= most:
                    continue
                actions.add(number)
                kept.append(line)
        found += kept
        if most is not None and len(actions) >= most:
            break
        if since is not None and lines and lines[0].entry.time < since:
            break
    return found[::-1], position


def lines_after(directory: Path, seq: int | None, most: int) -> list[Line]:
    """Lines with a number above `seq`, the oldest of them first; None: the newest there are."""
    if seq is None:
        found: list[Line] = []
        for path in reversed(log_files(directory)):
            found = _file(path)[0] + found
            if len(found) >= most:
                break
        return found[-most:]
    files = log_files(directory)
    # A file that begins behind `seq` is preceded by one that may end behind it.
    behind = [path for path in files if first_seq(path.name) > seq]
    lines: list[Line] = []
    for path in files[max(0, len(files) - len(behind) - 1) :]:
        lines += [line for line in _file(path)[0] if line.entry.seq > seq]
        if len(lines) >= most:
            break
    return lines[:most]


def follow_after(directory: Path, seq: int | None) -> Follower:
    """Gives what is behind line `seq`, and maybe some before it; None: what comes from now on."""
    files = log_files(directory)
    if seq is None:
        return Follower(directory, Position(files[-1], files[-1].stat().st_size) if files else None)
    earlier = [path for path in files if first_seq(path.name) <= seq]
    first = earlier[-1:] or files[:1]
    return Follower(directory, Position(first[0], 0) if first else None)


def _file(path: Path) -> tuple[list[Line], int]:
    lines, end = [], 0
    try:
        for offset, raw in read_lines(path):
            if not raw.endswith(b"\n"):
                break
            end = offset
            if entry := decode_line(raw):
                lines.append(Line(raw, entry))
    except FileNotFoundError:
        pass  # pruned meanwhile
    except OSError as exc:
        raise unreadable(path, exc) from None
    return lines, end


class Follower:
    """Lines as they come, from file to file."""

    def __init__(self, directory: Path, position: Position | None) -> None:
        self._directory = directory
        self._position = position
        # Kept open: a file that is removed by retention is read to its end all the same.
        self._fd = -1

    def more(self) -> Iterator[Line]:
        """What is there by now."""
        while True:
            files = log_files(self._directory)
            if self._position is None:
                if not files:
                    return
                self._position = Position(files[0], 0)
            # A file that has a next one gets no more lines: what is read now is all of it.
            later = [path for path in files if path.name > self._position.file.name]
            yield from self._rest(self._position)
            if not later:
                return
            self.close()
            self._position = Position(later[0], 0)

    def _rest(self, position: Position) -> Iterator[Line]:
        try:
            if self._fd < 0:
                self._fd = os.open(position.file, os.O_RDONLY | os.O_CLOEXEC)
            offset = position.offset
            while data := os.pread(self._fd, 4 * MAX_LINE_BYTES, offset):
                whole = data[: data.rfind(b"\n") + 1]
                if not whole:
                    return
                offset += len(whole)
                self._position = Position(position.file, offset)
                for raw in whole.splitlines(keepends=True):
                    if entry := decode_line(raw):
                        yield Line(raw, entry)
        except FileNotFoundError:
            return
        except OSError as exc:
            raise unreadable(position.file, exc) from None

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
