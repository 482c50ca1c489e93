"""Proves that a log is the one that was written, as far as its own chain and a kept head can."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import msgspec

from agentkernel.audit.entries import (
    GAP,
    SEQ_LEAP,
    START,
    Entry,
    Head,
    decode_line,
    split_hash,
)
from agentkernel.audit.files import first_seq, log_files, read_lines, unreadable

MAX_PROBLEMS: Final = 100
# A line that is being written while we read is whole a moment later.
_ATTEMPTS: Final = 5
_PAUSE: Final = 0.05


class Problem(msgspec.Struct, frozen=True):
    """`line` counts from 1 in its file; 0: the file as a whole, or the log."""

    kind: str
    file: str
    line: int
    message: str


class Report(msgspec.Struct, kw_only=True):
    """`head` is the end of the chain, `first` its first line that is there; `gaps` what the log
    says of itself: stops of the machine, lines that could not be written, torn ends."""

    files: int = 0
    lines: int = 0
    first: int | None = None
    head: Head | None = None
    pruned_before: int | None = None
    gaps: list[str] = []
    problems: list[Problem] = []

    @property
    def ok(self) -> bool:
        return not self.problems


def verify(directory: Path, against: Head | None = None) -> Report:
    """All that is wrong with a log, at most MAX_PROBLEMS. A log may be written meanwhile."""
    for attempt in range(_ATTEMPTS):
        try:
            report = _Verifier(directory, against).run()
        except FileNotFoundError:
            # Pruned while we read: the rest is linked to it by another line now.
            if attempt + 1 < _ATTEMPTS:
                continue
            raise unreadable(directory, FileNotFoundError(2, "files vanish")) from None
        except OSError as exc:
            raise unreadable(directory, exc) from None
        if not any(problem.kind == "torn" for problem in report.problems):
            break
        time.sleep(_PAUSE)
    return report


class _Verifier:
    def __init__(self, directory: Path, against: Head | None) -> None:
        self._directory = directory
        self._against = against
        self._against_seen = False
        self._report = Report()
        self._head: Head | None = None
        self._opening: Head | None = None
        self._pruned: list[tuple[int, Head]] = []
        self._skipped: list[tuple[int, int]] = []

    def run(self) -> Report:
        files = log_files(self._directory)
        if not files:
            self._problem("missing", self._directory.name, 0, "there is no log")
        for path in files:
            self._file(path)
        self._check_beginning(files)
        self._check_against()
        report = self._report
        report.files, report.head = len(files), self._head
        return report

    def _file(self, path: Path) -> None:
        number = 0
        for _, raw in read_lines(path):
            number += 1
            line = raw.removesuffix(b"\n")
            if line == raw:
                self._problem("torn", path.name, number, "the line has no end")
                return
            entry, digest = decode_line(line), split_hash(line)
            if entry is None:
                self._problem("changed", path.name, number, "this is no line of a log")
            elif digest is None:
                self._problem(
                    "changed", path.name, number, f"line {entry.seq} is not what was written"
                )
                # Go on from what it says of itself, so that one change is one problem.
                told = line[-66:-2].decode("ascii", "replace")
                self._head = Head(entry.seq, told)
            else:
                self._line(path.name, number, entry, digest)
        if number == 0:
            self._problem("missing", path.name, 0, "the file is empty")

    def _line(self, file: str, number: int, entry: Entry, digest: str) -> None:
        report = self._report
        if self._head is None:
            self._opening = Head(entry.seq - 1, entry.prev)
            report.first = entry.seq
        elif problem := _link(self._head, entry):
            self._problem("unlinked", file, number, problem)
        if number == 1 and (entry.action != "log.file" or entry.seq != first_seq(file)):
            self._problem("unlinked", file, number, "the file does not begin as its name says")
        if self._against == (entry.seq, digest):
            self._against_seen = True
        elif self._against and self._against.seq == entry.seq:
            self._problem("head", file, number, f"line {entry.seq} is not the one that was kept")
            self._against_seen = True
        if entry.action == "log.pruned":
            seq, hash = entry.details.get("last_seq"), entry.details.get("last_hash")
            if isinstance(seq, int) and isinstance(hash, str):
                self._pruned.append((entry.seq, Head(seq, hash)))
        elif entry.action in (GAP, "log.lost", "log.repaired", "log.unsynced"):
            report.gaps.append(f"line {entry.seq}: {entry.action}")
            if entry.action == GAP and self._head:
                self._skipped.append((self._head.seq, entry.seq))
        report.lines += 1
        self._head = Head(entry.seq, digest)

    def _check_beginning(self, files: list[Path]) -> None:
        """The first line is the first ever, or the log says that those before it were removed."""
        opening = self._opening
        if opening is None or opening == START:
            return
        if opening in (head for _, head in self._pruned):
            self._report.pruned_before = opening.seq + 1
            return
        self._problem(
            "missing", files[0].name, 0, f"the lines up to {opening.seq} are gone without a word"
        )

    def _check_against(self) -> None:
        kept = self._against
        if kept is None or self._against_seen:
            return
        end = self._head.seq if self._head else 0
        first = self._report.first
        if kept.seq > end:
            message = f"the log ends at line {end}, before the one that was kept ({kept.seq})"
        elif first is not None and kept.seq < first:
            if (self._report.pruned_before or 0) > kept.seq:
                message = f"line {kept.seq} was removed by retention: keep a newer head"
            else:
                message = f"the log begins after the line that was kept ({kept.seq})"
        elif any(low < kept.seq < high for low, high in self._skipped):
            message = (
                f"line {kept.seq} is not there; the log says that it was lost when the machine"
                " stopped, which nothing proves"
            )
        else:
            message = f"line {kept.seq}, which was kept, is not there"
        self._problem("head", self._directory.name, 0, message)

    def _problem(self, kind: str, file: str, line: int, message: str) -> None:
        if len(self._report.problems) < MAX_PROBLEMS:
            self._report.problems.append(Problem(kind, file, line, message))


def _link(before: Head, entry: Entry) -> str | None:
    """What is wrong between a line and the one before it."""
    expected = before.seq + 1 + (SEQ_LEAP if entry.action == GAP else 0)
    if entry.prev == before.hash and entry.seq == expected:
        return None
    if entry.seq > expected:
        return f"lines {expected} to {entry.seq - 1} are missing before line {entry.seq}"
    if entry.seq < expected:
        return f"line {entry.seq} stands after line {before.seq}"
    return f"line {entry.seq} does not follow line {before.seq} as it stands here"
