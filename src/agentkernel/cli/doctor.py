"""`agentkernel doctor`: the machine and the install in one report."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sqlite3
import sys
from collections.abc import Iterator

import msgspec

from agentkernel import __version__
from agentkernel.cli import project
from agentkernel.cli.tables import span
from agentkernel.cli.values import printable
from agentkernel.client._sync.sandbox import Sandbox
from agentkernel.client._sync.transport import Transport
from agentkernel.config.finding import NONE, project_file
from agentkernel.errors import AgentKernelError
from agentkernel.kernel import health
from agentkernel.kernel.health import Finding
from agentkernel.places import state_path

_UNFIT = 1
_COLOURS = {"ok": "\x1b[32m", "warn": "\x1b[33m", "fail": "\x1b[31m"}


def main(options: argparse.Namespace) -> int:
    if options.probe is not None:
        from agentkernel.cli import probing

        return probing.main(options.probe, as_json=options.json)
    findings = []
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for finding in _all():
        findings.append(finding)
        if not options.json:
            _print(finding, coloured)
    unfit = [finding.what for finding in findings if finding.state == "fail"]
    if options.json:
        body = {"version": __version__, "fit": not unfit}
        print(json.dumps({**body, "findings": [msgspec.to_builtins(f) for f in findings]}))
    elif unfit:
        print(f"\nunfit: {', '.join(unfit)}")
    return _UNFIT if unfit else 0


def _print(finding: Finding, coloured: bool) -> None:
    mark = f"{finding.state:<5}"
    if coloured:
        mark = f"{_COLOURS[finding.state]}{mark}\x1b[0m"
    print(f"{mark} {finding.what:<18}  {printable(finding.detail)}", flush=True)
    if finding.hint and finding.state != "ok":
        print(f"{'':<5} {'':<18}  hint: {printable(finding.hint)}", flush=True)


def _all() -> Iterator[Finding]:
    state_dir = state_path()
    yield Finding("agentkernel", "ok", f"{__version__}, Python {sys.version.split()[0]}")
    # Looked for first: the sandboxes that `examine` makes remove what runs have left.
    before = list(_daemon(state_dir))
    yield from asyncio.run(health.examine(state_dir))
    yield health.records(state_dir)
    yield from before
    yield from _config()


def _daemon(state_dir: str) -> Iterator[Finding]:
    """The daemon, and what only it knows for sure."""
    transport = Transport(start=False)
    try:
        if transport.daemon.answers():
            version = transport.call("GET", "/v1/version")
            status = transport.call("GET", "/v1/status")
            yield _running(version, status)
            known: set[str] | None = {s.id for s in Sandbox.list(transport=transport)}
        else:
            yield _not_running(transport.daemon.socket_path)
            known = health.rows(state_dir)
    except AgentKernelError as exc:
        yield Finding("daemon", "fail", exc.message, exc.hint)
        return
    except sqlite3.Error:
        return  # `records` says so
    finally:
        transport.close()
    yield health.leftovers(state_dir, known)


def _running(version: dict[str, object], status: dict[str, float]) -> Finding:
    words = f"{version['version']}, process {version['pid']}, up {span(status['uptime_seconds'])}"
    if version["version"] == __version__:
        return Finding("daemon", "ok", words)
    return Finding(
        "daemon", "warn", f"{words}; this is {__version__}",
        "`agentkernel daemon restart` loses nothing: sandboxes and jobs go on",
    )  # fmt: skip


def _not_running(socket_path: str) -> Finding:
    if os.path.lexists(socket_path):
        return Finding(
            "daemon", "warn", f"nobody answers at {socket_path}: the last one did not end in order",
            "the next command starts another, which finds its sandboxes again",
        )  # fmt: skip
    return Finding("daemon", "ok", "not running; the first command that needs it starts it")


def _config() -> Iterator[Finding]:
    from agentkernel.config import trust
    from agentkernel.config.widening import widenings

    user = None
    _, path = project.paths(NONE)
    try:
        _, user = project.read(None, path)
        if user is not None:
            yield Finding("config.toml", "ok", user.path)
    except AgentKernelError as exc:
        yield Finding("config.toml", "fail", exc.message, exc.hint)
    try:
        own, _ = project.read(project_file(), None)
        if own is not None:
            found = [] if trust.is_trusted(own) else widenings(own, user, {}, agent="")
            words = f"{own.path}: not trusted, and it widens {', '.join(w.key for w in found)}"
            hint = f"read it, then `agentkernel trust {own.path}`"
            if found:
                yield Finding("agentkernel.toml", "warn", words, hint)
            else:
                yield Finding("agentkernel.toml", "ok", own.path)
    except AgentKernelError as exc:
        yield Finding("agentkernel.toml", "fail", exc.message, exc.hint)
    try:
        count = len(trust.entries())
        if count:
            yield Finding("trust", "ok", f"{count} files are trusted")
    except AgentKernelError as exc:
        yield Finding("trust", "fail", exc.message, exc.hint)
