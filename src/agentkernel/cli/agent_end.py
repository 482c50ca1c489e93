"""The end of an agent's session: what it did, and what becomes of it.

The summary goes to stderr, since stdout is the agent's. On a terminal one is asked; elsewhere the
sandbox is kept, stopped, and the commands that go on from there are said. When all of the changes
are applied, or there are none, the sandbox is removed: what the agent said and knows is kept with
the session, so that it can be gone on with, and replayed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from typing import Any, Final

from agentkernel.cli.outcome import say
from agentkernel.cli.tables import span
from agentkernel.cli.values import printable
from agentkernel.cli.workspaces import show_applied, show_notes, show_patch
from agentkernel.client._sync.agent_sessions import AgentSession
from agentkernel.client._sync.sandbox import Sandbox
from agentkernel.client._sync.transport import Transport
from agentkernel.client._sync.workspace import Workspace
from agentkernel.errors import (
    AgentKernelError,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
)

NOT_ALL: Final = 1
_LABEL: Final = "agentkernel.agent"
_MOST_FILES: Final = 20
_MOST_COMMANDS: Final = 10
_MOST_HOSTS: Final = 10
_MOST_TEXT: Final = 100
# Of git's own files: agents look at a repository, which leaves these, and nothing of worth in them.
_TRACES: Final = frozenset({
    ".git", ".git/index", ".git/opencode", ".git/FETCH_HEAD", ".git/ORIG_HEAD", ".git/gc.log",
    ".git/COMMIT_EDITMSG", ".git/logs", ".git/info",
})  # fmt: skip
_SIGNS: Final = {"added": "A", "deleted": "D", "modified": "M", "renamed": "R"}
_QUESTION: Final = "[d]iff, [a]pply, [k]eep for later, or e[x]: forget its changes? "


def decide(transport: Transport, session: AgentSession, options: argparse.Namespace) -> int:
    """Tells what became of a session that has ended, asks if there is somebody to ask, and carries
    it out. 1: there were conflicts, or what could not be applied."""
    session.wait()  # until what the agent knows is taken out: without its sandbox it is gone
    own = _is_its_own(transport, session.info["sandbox"])
    end = _End(transport, session.summary(), own_sandbox=own, quiet=options.quiet)
    return end.decide(options)


def remove_own_sandbox(transport: Transport, id: str) -> None:
    """If it was made for a session."""
    if _is_its_own(transport, id):
        with contextlib.suppress(NotFoundError):
            Sandbox.connect(id, transport=transport).remove()


def _is_its_own(transport: Transport, id: str) -> bool:
    """Whether a sandbox was made for a session, and not by somebody for other things, too."""
    try:
        return _LABEL in Sandbox.connect(id, transport=transport).info.labels
    except NotFoundError:
        return False


class _End:
    """One session's. `own_sandbox`: the sandbox is this session's, and goes when it is not needed
    any more."""

    def __init__(
        self, transport: Transport, summary: dict[str, Any], *, own_sandbox: bool, quiet: bool
    ) -> None:
        self._transport = transport
        self._summary = summary
        self._session: dict[str, Any] = summary["session"]
        self._own_sandbox = own_sandbox
        self._quiet = quiet
        self._workspace = Workspace(transport, self._session["sandbox"])
        self._has_project = self._session["project"] is not None
        self._diff: dict[str, Any] | None = None
        self._is_kept = False

    def decide(self, options: argparse.Namespace) -> int:
        diff = self._changes()
        if not self._quiet:
            tell(self._summary, diff)
        if options.summary is not None:
            write_summary(options.summary, self._summary, diff)
        self._is_kept = options.keep
        code = 0
        if all(change["path"] in _TRACES for change in diff["changes"]):
            self._leave()
        elif options.rm and not options.yes:
            self._remove("its changes are forgotten with it")
        elif options.yes:
            code = self._apply()
        elif options.keep or not _can_ask():
            self._keep()
        else:
            code = self._ask()
        if options.rm and options.yes:
            self._remove("with what was not applied" if code else "")
        return code

    def _changes(self) -> dict[str, Any]:
        empty: dict[str, Any] = {"changes": [], "patch": "", "truncated": False}
        if not self._has_project:
            return empty
        if self._diff is None:
            try:
                self._diff = self._workspace.diff()
            except (NotFoundError, InvalidInputError, UnsupportedError):
                return empty  # it is gone, or was no copy of the project
        return self._diff

    def _ask(self) -> int:
        while True:
            try:
                sys.stderr.write(_QUESTION)
                sys.stderr.flush()
                answer = sys.stdin.readline().strip().lower()
            except KeyboardInterrupt:
                answer = "k"
                print(file=sys.stderr)
            if answer in ("d", "diff"):
                show_patch(self._changes()["patch"])
                show_notes(self._changes())
            elif answer in ("a", "apply"):
                return self._apply()
            elif answer in ("x", "exit", "discard"):
                self._remove("its changes are forgotten with it")
                return 0
            elif answer in ("k", "keep", ""):
                self._keep()
                return 0

    def _apply(self) -> int:
        """What is held back is left inside, as was said; only what else is not applied counts."""
        done = self._workspace.apply()
        files = done["files"]
        show_applied(
            {**done, "files": [file for file in files if not _is_gits(file["path"])]},
            stream=sys.stderr,
        )
        left = [file for file in files if file["outcome"] not in ("applied", "merged")]
        if all(file["path"] in _TRACES for file in left):
            self._leave()
        else:
            self._keep()
        return NOT_ALL if any(file["outcome"] != "held" for file in left) else 0

    def _leave(self) -> None:
        """Nothing of it is needed any more."""
        if self._is_kept:
            self._keep()
        elif self._own_sandbox:
            self._remove("")

    def _remove(self, why: str) -> None:
        if not self._own_sandbox:
            return
        with contextlib.suppress(NotFoundError):
            Sandbox.connect(self._session["sandbox"], transport=self._transport).remove()
        if not self._quiet:
            words = f", {why}" if why else ""
            say(f"the sandbox is removed{words}; {self._again()}")

    def _keep(self) -> None:
        """Stopped: an agent that has ended leaves nothing that should go on."""
        name, id = self._name(), self._session["id"]
        if self._own_sandbox and not self._is_kept:
            with contextlib.suppress(AgentKernelError):
                Sandbox.connect(self._session["sandbox"], transport=self._transport).stop()
        if not self._quiet:
            say(f"kept: {name}")
            lines = [
                ("what it changed", f"agentkernel agent diff {id}"),
                ("into the project", f"agentkernel agent apply {id}"),
                ("go on", f"agentkernel agent run {self._session['agent']} --session {id}"),
                ("forget it", f"agentkernel sandbox remove {name}"),
            ]
            for about, command in lines if self._has_project else lines[2:]:
                print(f"  {about.ljust(16)}  {command}", file=sys.stderr)

    def _again(self) -> str:
        agent, id = self._session["agent"], self._session["id"]
        return f"`agentkernel agent run {agent} --session {id}` goes on"

    def _name(self) -> str:
        return printable(self._session["sandbox_name"] or self._session["sandbox"])


def _can_ask() -> bool:
    return os.isatty(0) and os.isatty(2)


def tell(summary: dict[str, Any], diff: dict[str, Any]) -> None:
    for line in summary_lines(summary, diff):
        print(line, file=sys.stderr)


def summary_lines(summary: dict[str, Any], diff: dict[str, Any]) -> list[str]:
    """For people. All of it comes from inside."""
    session = summary["session"]
    heads = [f"{session['agent']} {session['version']}", span(summary["seconds"])]
    usage = summary.get("usage") or {}
    if usage.get("cost_usd") is not None:
        heads.append(f"${usage['cost_usd']:.4f}")
    if usage.get("output_tokens") is not None:
        heads.append(f"{usage.get('input_tokens') or 0} + {usage['output_tokens']} tokens")
    lines = ["", _text(f"── {', '.join(heads)}, session {session['id']}")]
    if session.get("error"):
        lines.append(f"  {_text(session['error'])}")
    lines += _changed(diff)
    lines += _listed("ran", summary["commands"], _MOST_COMMANDS)
    hosts = list(_by_name(summary["hosts"]))
    lines += _listed("reached", [", ".join(hosts)] if hosts else [], 1)
    denied = _by_name(summary["denied"])
    for host, times in list(denied.items())[:_MOST_HOSTS]:
        lines.append(f"  denied    {_text(host)}, {'once' if times == 1 else f'{times} times'}")
    if len(denied) > _MOST_HOSTS:
        lines.append(f"            and {len(denied) - _MOST_HOSTS} more")
    if denied:
        name, first = session["sandbox_name"] or session["sandbox"], _text(next(iter(denied)))
        command = f"agentkernel network allow {_text(name)} {first}"
        lines.append(f"            allow: --allow {first}, or `{command}`")
    for wish in summary.get("asked", ())[:_MOST_HOSTS]:
        host = f"{wish['host']}:{wish['port']}"
        what = host if wish["what"] == "host" else f"port {wish['port']}"
        lines.append(f"  asks for  {_text(what)}: {_text(wish['reason'])}")
        lines.append(f"            `{_text(wish['change'])}`")
    if not summary.get("complete", True):
        lines.append("  there is more than is listed here")
    return lines


def _by_name(seen: list[dict[str, Any]]) -> dict[str, int]:
    """As `--allow` takes them, with how often. Port 0: only the name was asked for."""
    found: dict[str, int] = {}
    for entry in seen:
        port = entry["port"]
        host = entry["host"] if port in (0, 443) else f"{entry['host']}:{port}"
        found[host] = found.get(host, 0) + entry["times"]
    return found


def _is_gits(path: str) -> bool:
    return path == ".git" or path.startswith(".git/")


def _changed(diff: dict[str, Any]) -> list[str]:
    changes = [change for change in diff["changes"] if not _is_gits(change["path"])]
    gits = [change["path"] for change in diff["changes"] if _is_gits(change["path"])]
    inside = [] if set(gits) <= _TRACES else ["  held back .git: commits made inside stay inside"]
    if not changes:
        return ["  changed   nothing", *inside]
    added = sum(change["added_lines"] or 0 for change in changes)
    removed = sum(change["removed_lines"] or 0 for change in changes)
    files = "1 file" if len(changes) == 1 else f"{len(changes)} files"
    lines = [f"  changed   {files}, +{added} -{removed} lines"]
    for change in changes[:_MOST_FILES]:
        mark = "!" if change["held_back"] else " "
        counts = ""
        if change["added_lines"] is not None:
            counts = f"  +{change['added_lines']} -{change['removed_lines']}"
        lines.append(f"            {_SIGNS[change['kind']]}{mark} {_text(change['path'])}{counts}")
    if len(changes) > _MOST_FILES:
        lines.append(f"            and {len(changes) - _MOST_FILES} more")
    held = [change for change in changes if change["held_back"]]
    tops = [
        change
        for number, change in enumerate(held)
        if not any(change["path"].startswith(f"{other['path']}/") for other in held[:number])
    ]
    lines += [
        f"  held back {_text(change['path'])}: {_text(change['held_back'])}"
        for change in tops[:_MOST_FILES]
    ]
    lines += [
        f"  look at   {_text(change['path'])}: {_text(change['note'])}"
        for change in changes
        if change["note"]
    ][:_MOST_FILES]
    return [*lines, *inside]


def _listed(name: str, entries: list[str], most: int) -> list[str]:
    lines = [
        f"  {name.ljust(9) if number == 0 else ' ' * 9} {_text(entry)}"
        for number, entry in enumerate(entries[:most])
    ]
    if len(entries) > most:
        lines.append(f"            and {len(entries) - most} more")
    return lines


def _text(value: object) -> str:
    text = printable(" ".join(str(value).split()))
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 1]}…"


def write_summary(path: str, summary: dict[str, Any], diff: dict[str, Any]) -> None:
    """As JSON, whole or not at all. Raises StateError."""
    from agentkernel.config.trust import write_whole

    body = {**summary, "changes": diff["changes"]}
    write_whole(path, json.dumps(body, indent=1) + "\n")
