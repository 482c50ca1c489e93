"""`agentkernel volume …`: directories with names that outlive sandboxes."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

from agentkernel.cli.notices import Connected
from agentkernel.cli.outcome import say
from agentkernel.cli.several import for_each
from agentkernel.cli.tables import ago, show
from agentkernel.client._sync.volumes import Volumes
from agentkernel.errors import InvalidInputError
from agentkernel.ids import new_id
from agentkernel.quantities import short_size

_PIECE = 1 << 18
_STREAM = "-"


def main(options: argparse.Namespace) -> int:
    verbs = {
        "create": _create,
        "list": _list,
        "inspect": _inspect,
        "remove": _remove,
        "export": _export,
        "import": _import,
    }
    with Connected() as transport:
        return verbs[options.verb](options, Volumes(transport))


def _create(options: argparse.Namespace, volumes: Volumes) -> int:
    def act(name: str) -> dict[str, Any]:
        return volumes.create(name, quota_bytes=options.quota, exclusive=options.exclusive)

    return for_each(options.names, act, as_json=options.json, what="volumes")


def _remove(options: argparse.Namespace, volumes: Volumes) -> int:
    def act(name: str) -> dict[str, Any]:
        volumes.remove(name, force=options.force)
        return {"removed": name}

    return for_each(options.names, act, as_json=options.json, what="volumes")


def _list(options: argparse.Namespace, volumes: Volumes) -> int:
    found = volumes.list(owner="*" if options.all else None, usage=True)
    if options.json:
        print(json.dumps({"volumes": found}))
        return 0
    rows = [
        (
            volume["name"],
            volume["id"],
            used_text(volume),
            "-" if volume["quota_bytes"] is None else short_size(volume["quota_bytes"]),
            "exclusive" if volume["exclusive"] else "shared",
            ago(volume["created_at"]),
            ",".join(user["name"] or user["id"] for user in volume["sandboxes"]) or "-",
        )
        for volume in found
    ]
    show(("NAME", "ID", "USED", "QUOTA", "MODE", "AGE", "SANDBOXES"), rows)
    return 0


def used_text(volume: dict[str, Any]) -> str:
    if volume["used_bytes"] is None:
        return "-"
    size = short_size(volume["used_bytes"])
    return size if volume["used_complete"] else f"over {size}"


def _inspect(options: argparse.Namespace, volumes: Volumes) -> int:
    volume = volumes.get(options.name)
    if options.json:
        print(json.dumps(volume))
        return 0
    rows = [
        ("name", volume["name"]),
        ("id", volume["id"]),
        ("owner", volume["owner"]),
        ("state", volume["state"]),
        ("mode", "exclusive" if volume["exclusive"] else "shared"),
        ("quota", "-" if volume["quota_bytes"] is None else short_size(volume["quota_bytes"])),
        ("used", f"{used_text(volume)}, {volume['used_files']} files and directories"),
        ("age", ago(volume["created_at"])),
    ]
    rows += [
        (
            "sandbox",
            f"{user['name'] or user['id']} ({user['state']}) at {user['path']}"
            + (", read-only" if user["read_only"] else ""),
        )
        for user in volume["sandboxes"]
    ]
    show(("WHAT", "VALUE"), rows)
    return 0


def _export(options: argparse.Namespace, volumes: Volumes) -> int:
    if options.file == _STREAM and sys.stdout.isatty():
        raise InvalidInputError(
            "an archive is nothing for a terminal", hint="name a file, or redirect the output"
        )
    pieces = volumes.export(options.name)
    if options.file == _STREAM:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        return 0
    size = _write_whole(options.file, pieces)
    if options.json:
        print(json.dumps({"volume": options.name, "file": options.file, "bytes": size}))
    else:
        say(f"{short_size(size)} written to {options.file}")
    return 0


def _write_whole(path: str, pieces: Iterator[bytes]) -> int:
    """Nobody sees half an archive under its own name."""
    new = f"{path}.{new_id()}"
    size = 0
    try:
        with open(new, "xb") as file:
            for piece in pieces:
                size += file.write(piece)
        os.rename(new, path)
    except BaseException:
        if os.path.lexists(new):
            os.unlink(new)
        raise
    return size


def _import(options: argparse.Namespace, volumes: Volumes) -> int:
    if options.file == _STREAM:
        made = _send(options, volumes, sys.stdin.buffer)
    else:
        with open(options.file, "rb") as file:
            made = _send(options, volumes, file)
    print(json.dumps(made) if options.json else made["name"])
    return 0


def _send(options: argparse.Namespace, volumes: Volumes, file: BinaryIO) -> dict[str, Any]:
    pieces = iter(lambda: file.read(_PIECE), b"")
    return volumes.import_archive(
        options.name, pieces, quota_bytes=options.quota, exclusive=options.exclusive
    )
