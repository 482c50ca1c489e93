"""`agentkernel audit`: reads the log's files; it needs no daemon and asks none."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from agentkernel.audit.entries import Actor, Entry, parse_head
from agentkernel.audit.files import DIRECTORY
from agentkernel.audit.reading import Follower, Line, newest
from agentkernel.audit.verify import verify
from agentkernel.cli import tables
from agentkernel.errors import NotFoundError
from agentkernel.places import state_path

_POLL_SECONDS = 0.2
_DEFAULT_LINES = 100
_WRONG = 1
_HEADS = ("TIME", "WHO", "SANDBOX", "ACTION", "RESULT", "WHAT")
_WIDTHS = (19, 14, 20, 14, 12)
_MAX_WHAT = 200


def main(options: argparse.Namespace) -> int:
    directory = Path(state_path()) / DIRECTORY
    if options.verify or options.against is not None:
        return _verify(directory, options)
    if options.head:
        return _head(directory, options)
    most = options.lines
    if most is None and options.since is None:
        most = _DEFAULT_LINES

    def wanted(entry: Entry) -> bool:
        return options.sandbox is None or options.sandbox in (
            entry.sandbox,
            entry.name,
            entry.args.get("asked"),
        )

    lines, position = newest(directory, wanted, most=most, since=options.since)
    if options.json:
        _print_json(lines)
    elif options.follow:
        _print_row(_HEADS)
        for line in lines:
            _print_row(_row(line.entry))
    else:
        tables.show(_HEADS, [_row(entry) for entry in _joined(lines)])
    if options.follow:
        _follow(Follower(directory, position), wanted, options)
    return 0


def _follow(follower: Follower, wanted: Any, options: argparse.Namespace) -> None:
    while True:
        lines = [line for line in follower.more() if wanted(line.entry)]
        if options.json:
            _print_json(lines)
        else:
            for line in lines:
                _print_row(_row(line.entry))
        sys.stdout.flush()
        time.sleep(_POLL_SECONDS)


def _head(directory: Path, options: argparse.Namespace) -> int:
    lines, _ = newest(directory, lambda entry: True, most=1)
    if not lines:
        raise NotFoundError(f"there is no audit log in {directory}")
    digest = json.loads(lines[-1].raw).get("hash", "")
    head = parse_head(f"{lines[-1].entry.seq}:{digest}")
    print(json.dumps({"seq": head.seq, "hash": head.hash}) if options.json else head)
    return 0


def _verify(directory: Path, options: argparse.Namespace) -> int:
    against = None if options.against is None else parse_head(options.against)
    report = verify(directory, against)
    if options.json:
        body = msgspec.to_builtins(report)
        body["head"] = report.head and {"seq": report.head.seq, "hash": report.head.hash}
        print(json.dumps({"ok": report.ok, **body}))
        return 0 if report.ok else _WRONG
    for problem in report.problems:
        place = f"{problem.file}:{problem.line}" if problem.line else problem.file
        print(_plain(f"{place}: {problem.kind}: {problem.message}"))
    for gap in report.gaps:
        print(_plain(f"note: {gap}"))
    if report.pruned_before is not None:
        print(f"note: lines before {report.pruned_before} were removed by retention")
    if report.problems:
        if report.files:
            print("the log is not what was written")
        return _WRONG
    print(f"{report.lines} lines in {report.files} files are linked; head {report.head}")
    if against is None:
        print("note: without --against a cut end or a log written anew would not show")
    return 0


def _print_json(lines: Iterable[Line]) -> None:
    """As they stand, so that their hashes can be checked; lines of ours are ASCII."""
    for line in lines:
        text = line.raw.decode("ascii") if line.raw.isascii() else json.dumps(json.loads(line.raw))
        print(text.rstrip("\n"))


def _joined(lines: Iterable[Line]) -> list[Entry]:
    """Actions with their results, by their beginning."""
    rows: dict[int, Entry] = {}
    for _, entry in lines:
        begun = rows.get(entry.of or 0)
        if entry.of is not None and begun is not None and begun.action == entry.action:
            rows[entry.of] = msgspec.structs.replace(
                begun, result=entry.result, code=entry.code, details=entry.details
            )
        else:
            rows[entry.seq] = entry
    return list(rows.values())


def _row(entry: Entry) -> tuple[str, ...]:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.time))
    what = _plain(_what(entry))
    if len(what) > _MAX_WHAT:
        what = what[: _MAX_WHAT - 1] + "…"
    row = (when, _who(entry.actor), entry.name or entry.sandbox or "-", entry.action)
    return (*(_plain(cell) for cell in row), _plain(_result(entry)), what)


def _who(actor: Actor | None) -> str:
    if actor is None:
        return "-"
    through = (actor.client or actor.door).removeprefix("agentkernel-").partition("/")[0]
    whose = actor.owner or (f"uid {actor.uid}" if actor.uid is not None else "")
    return f"{whose} {through}".strip()


def _result(entry: Entry) -> str:
    if entry.result is None:
        return "-" if entry.action.startswith("log.") else "…"
    if entry.result == "error":
        return entry.code or "error"
    details = entry.details
    outcome = details.get("outcome")
    if outcome == "exited":
        return f"exit {details.get('exit_code')}"
    if outcome == "signaled":
        return f"signal {details.get('signal')}"
    return str(outcome or entry.result)


def _what(entry: Entry) -> str:
    words = []
    for key, value in (entry.args or entry.details).items():
        if key == "argv" and isinstance(value, list):
            words.append(" ".join(map(str, value)))
        elif key in ("path", "asked"):
            words.append(str(value))
        else:
            words.append(f"{key}={value}")
    return "  ".join(words)


def _print_row(row: Iterable[str]) -> None:
    *cells, last = row
    padded = [cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)]
    print("  ".join((*padded, last)).rstrip())


def _plain(text: str) -> str:
    """Guests choose names and words: what a terminal would obey is written out."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )
