"""`agentkernel diff`, `apply`, `discard`: what a sandbox has changed in its workspace."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from agentkernel.cli.notices import Connected
from agentkernel.cli.values import printable
from agentkernel.client._sync.sandbox import Sandbox

_SIGNS = {"added": "A", "deleted": "D", "modified": "M", "renamed": "R"}


@contextlib.contextmanager
def _sandbox(name: str) -> Iterator[Sandbox]:
    with Connected() as transport:
        yield Sandbox.connect(name, transport=transport)


def apply(options: argparse.Namespace) -> int:
    """Status 1: not all that was asked for is applied."""
    with _sandbox(options.name) as sandbox:
        done = sandbox.workspace.apply(
            options.paths,
            allow_risky=options.allow_risky,
            mark_conflicts=options.conflicts == "markers",
            commit=options.message or "" if options.commit or options.message else None,
        )
    if options.json:
        print(json.dumps(done))
        return 0 if done["complete"] else 1
    show_applied(done)
    return 0 if done["complete"] else 1


def show_applied(done: dict[str, Any], stream: TextIO | None = None) -> None:
    """What became of each file; what was not applied, on stderr."""
    for file in done["files"]:
        name = printable(file["path"])
        if file["outcome"] in ("applied", "merged"):
            merged = "  (merged)" if file["outcome"] == "merged" else ""
            print(f"{_SIGNS[file['kind']]}  {name}{merged}", file=stream)
        else:
            words = f"{file['outcome']}: {name}: {printable(file['why'])}"
            print(f"agentkernel: {words}", file=sys.stderr)
    if done["ref"] is not None:
        what = f"commit {done['commit']} on" if done["commit"] else "nothing to commit on"
        print(printable(f"{what} {done['ref']}"), file=stream)
    if any(file["outcome"] == "held" for file in done["files"]):
        print("hint: look at it with `diff`, then --allow-risky", file=sys.stderr)


def discard(options: argparse.Namespace) -> int:
    with _sandbox(options.name) as sandbox:
        sandbox.workspace.discard()
    if options.json:
        print(json.dumps({"discarded": options.name}))
    return 0


def diff(options: argparse.Namespace) -> int:
    with _sandbox(options.name) as sandbox:
        show_diff(sandbox.workspace.diff(), options)
    return 0


def show_diff(found: dict[str, Any], options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(found))
        return
    if options.stat:
        _show_stat(found["changes"])
    else:
        show_patch(found["patch"])
    show_notes(found)


def show_patch(text: str) -> None:
    """Exactly, for `git apply`; on a terminal without what a guest could do to it."""
    if sys.stdout.isatty():
        text = "\n".join(printable(line.replace("\t", "    ")) for line in text.split("\n"))
    sys.stdout.write(text)


def _show_stat(changes: list[dict[str, Any]]) -> None:
    added = removed = 0
    for change in changes:
        plus, minus = change["added_lines"], change["removed_lines"]
        lines = "binary" if change["binary"] else ""
        if plus is not None:
            added, removed = added + plus, removed + minus
            lines = f"+{plus} -{minus}"
        name = change["path"]
        if change["old_path"]:
            name = f"{change['old_path']} => {name}"
        mark = "!" if change["held_back"] else " "
        print(f"{_SIGNS[change['kind']]}{mark} {printable(name)}  {lines}".rstrip())
    print(f"{len(changes)} changed, +{added} -{removed} lines")


def show_notes(found: dict[str, Any]) -> None:
    for change in found["changes"]:
        name = printable(change["path"])
        if change["held_back"]:
            why = f"held back from apply: {printable(change['held_back'])}"
            print(f"agentkernel: {name}: {why}", file=sys.stderr)
        if change["note"]:
            print(f"agentkernel: {name}: {printable(change['note'])}", file=sys.stderr)
        if change["problem"]:
            print(f"agentkernel: {name}: {printable(change['problem'])}", file=sys.stderr)
        elif change["host_changed"]:
            print(f"agentkernel: {name}: changed here, too, since then", file=sys.stderr)
        elif change["type"] in ("directory", "special"):
            what = "a directory" if change["type"] == "directory" else "neither file nor link"
            print(f"agentkernel: {name}: {change['kind']}, {what}", file=sys.stderr)
    if found["truncated"]:
        print("agentkernel: there is more than is shown", file=sys.stderr)
