"""`agentkernel trust`: what a project's file would widen, and the user's yes to it."""

from __future__ import annotations

import argparse
import json
import os

from agentkernel.cli import project
from agentkernel.cli.tables import ago, show
from agentkernel.cli.values import printable
from agentkernel.config import trust
from agentkernel.config.reading import read_file
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
    path, user_path = project.paths(_chosen(options))
    file, user = project.read(path, user_path)
    assert file is not None
    found = widenings(file, user, {})
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
        return "trusted" if read_file(path, "project").sha256 == sha256 else "changed"
    except NotFoundError:
        return "gone"
    except AgentKernelError:
        return "changed"


def _remove(options: argparse.Namespace) -> int:
    path = _chosen(options)
    place = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    removed = trust.distrust(place)
    if options.json:
        print(json.dumps({"file": place, "removed": removed}))
    elif removed:
        print(f"not trusted any more: {printable(place)}")
    else:
        raise NotFoundError(f"{place} was not trusted", hint="agentkernel trust --list")
    return 0
