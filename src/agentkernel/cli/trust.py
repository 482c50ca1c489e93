"""`agentkernel trust`: what a project's file would widen, and the user's yes to it."""

from __future__ import annotations

import argparse
import json
import os

from agentkernel.cli import project
from agentkernel.cli.tables import ago, show
from agentkernel.cli.values import printable
from agentkernel.config import trust
from agentkernel.config.finding import is_foreign
from agentkernel.config.foreign import mcp_servers
from agentkernel.config.reading import read_file, read_foreign
from agentkernel.config.widening import widenings
from agentkernel.errors import AgentKernelError, InvalidInputError, NotFoundError


def main(options: argparse.Namespace) -> int:
    if options.list:
        return _list(options)
    return _remove(options) if options.remove else _trust(options)


def _chosen(options: argparse.Namespace) -> str:
    path, _ = project.paths(options.file)
    if path is None:
        raise NotFoundError("there is no agentkernel.toml here", hint="agentkernel trust FILE")
    return path


def _trust(options: argparse.Namespace) -> int:
    if options.file is not None and is_foreign(options.file):
        return _trust_foreign(options)
    path, user_path = project.paths(_chosen(options))
    file, user = project.read(path, user_path)
    assert file is not None
    found = widenings(file, user, {}, agent="")
    known = trust.is_trusted(file)
    if not known:
        trust.trust(file)
    if options.json:
        body = {"file": file.path, "sha256": file.sha256, "was_trusted": known}
        print(json.dumps({**body, "widens": [entry.to_dict() for entry in found]}))
        return 0
    print(f"trusted: {printable(file.path)}  sha256 {file.sha256[:16]}")
    for entry in found:
        print(f"  {printable(entry.words())}")
    if not found:
        print("  it widens nothing that your defaults give")
    return 0


def _trust_foreign(options: argparse.Namespace) -> int:
    """An agent's own file of the project: the MCP servers in it count from now on."""
    file, data = read_foreign(options.file)
    known = trust.is_trusted(file)
    if not known:
        trust.trust(file)
    servers = mcp_servers(data, file.path)
    if options.json:
        body = {"file": file.path, "sha256": file.sha256, "was_trusted": known}
        print(json.dumps({**body, "servers": servers}))
        return 0
    print(f"trusted: {printable(file.path)}  sha256 {file.sha256[:16]}")
    for name, words in servers.items():
        print(f"  MCP server {printable(name)}: {printable(words)}")
    if not servers:
        print("  no MCP server was found in it")
    return 0


def _list(options: argparse.Namespace) -> int:
    if options.file is not None:
        raise InvalidInputError("--list takes no FILE")
    rows = [
        {"file": path, **entry, "state": _state(path, entry["sha256"])}
        for path, entry in sorted(trust.entries().items())
    ]
    if options.json:
        print(json.dumps({"files": rows}))
    else:
        show(
            ("FILE", "STATE", "TRUSTED", "SHA256"),
            [
                (r["file"], r["state"], f"{ago(r['trusted_at'])} ago", r["sha256"][:16])
                for r in rows
            ],
        )
    return 0


def _state(path: str, sha256: str) -> str:
    """Whether the trust still has an effect."""
    try:
        file = read_foreign(path)[0] if is_foreign(path) else read_file(path, "project")
        return "trusted" if file.sha256 == sha256 else "changed"
    except NotFoundError:
        return "gone"
    except AgentKernelError:
        return "changed"


def _remove(options: argparse.Namespace) -> int:
    path = os.path.abspath(options.file) if options.file else _chosen(options)
    place = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    removed = trust.distrust(place)
    if options.json:
        print(json.dumps({"file": place, "removed": removed}))
    elif removed:
        print(f"not trusted any more: {printable(place)}")
    else:
        raise NotFoundError(f"{place} was not trusted", hint="agentkernel trust --list")
    return 0
