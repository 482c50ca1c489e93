"""`agentkernel template`: build, list, show and remove templates."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from agentkernel.cli.builds import _Lines, _network
from agentkernel.cli.local_files import local_errors
from agentkernel.cli.several import for_each
from agentkernel.cli.tables import show as show_table
from agentkernel.cli.values import printable
from agentkernel.client._sync.templates import Templates
from agentkernel.client._sync.transport import Transport
from agentkernel.config.finding import PROJECT_NAME
from agentkernel.config.reading import read_file
from agentkernel.errors import InvalidInputError, NotFoundError
from agentkernel.quantities import size_text


def main(options: argparse.Namespace) -> int:
    templates = Templates(Transport())
    match options.verb:
        case "build":
            return _build(options, templates)
        case "list":
            return _list(options, templates)
        case "show":
            return _show(options, templates.get(options.name))
        case _:

            def remove(name: str) -> dict[str, Any]:
                templates.remove(name, force=options.force)
                return {"name": name}

            return for_each(options.names, remove, as_json=options.json, what="removed")


def _build(options: argparse.Namespace, templates: Templates) -> int:
    shown = _Lines(options)
    if options.source is not None:
        made = templates.build_source(
            _name(options, {}), options.source, base=options.base, start=options.start,
            run=_commands(options), ready=_ready(options), no_cache=options.no_cache,
            progress=shown.tell,
        )  # fmt: skip
        return _done(options, made)
    directory, spec = _of_file(options)
    name = _name(options, spec)
    spec.pop("name", None)
    with local_errors(directory):
        made = templates.build(
            name, spec, context=directory, no_cache=options.no_cache,
            network=_network(options), progress=shown.tell,
        )  # fmt: skip
    return _done(options, made)


def _of_file(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """The project's directory, and what its file says of a template."""
    path = os.path.abspath(os.path.expanduser(options.file or PROJECT_NAME))
    file = read_file(path, "project")
    if file.template is None:
        raise NotFoundError(
            f"{path} has no section [template]", hint='write one, with base = "IMAGE" and steps'
        )
    for option in ("base", "start", "run"):
        if getattr(options, option) is not None:
            raise InvalidInputError(
                f"--{option} is for --source", hint=f"write it into {path}, under [template]"
            )
    return file.directory, dict(file.template)


def _name(options: argparse.Namespace, spec: dict[str, Any]) -> str:
    name = options.name or spec.get("name")
    if name is None:
        raise InvalidInputError("the template has no name", hint="agentkernel template build NAME")
    return str(name)


def _commands(options: argparse.Namespace) -> list[str] | None:
    return None if options.run is None else [text for text in options.run if text.strip()]


def _ready(options: argparse.Namespace) -> dict[str, Any] | None:
    if options.ready_port is None:
        return None
    return {"port": options.ready_port}


def _done(options: argparse.Namespace, made: dict[str, Any]) -> int:
    if options.json:
        print(json.dumps({"event": "template", **made}), flush=True)
    else:
        print(printable(made["name"]), flush=True)
    return 0


def _list(options: argparse.Namespace, templates: Templates) -> int:
    found = templates.list()
    if options.json:
        print(json.dumps(found))
        return 0
    rows = [
        (entry["name"], entry["base"], size_text(entry["size_bytes"]), entry.get("start") or "-")
        for entry in found
    ]
    show_table(("NAME", "BASE", "SIZE", "START"), rows)
    return 0


def _show(options: argparse.Namespace, entry: dict[str, Any]) -> int:
    if options.json:
        print(json.dumps(entry))
        return 0
    for key in ("name", "image", "digest", "created", "source", "description", "base"):
        if entry.get(key):
            print(f"{key:<13}{printable(str(entry[key]))}")
    for step in entry["steps"]:
        kind, value = next((k, v) for k, v in step.items() if v is not None)
        if isinstance(value, dict):
            value = " ".join(map(str, value.values() if kind == "copy" else value))
        print(f"{kind:<13}{printable(str(value))}")
    if entry.get("start"):
        print(f"{'start':<13}{printable(entry['start'])}")
    if ready := entry.get("ready"):
        kind = next(key for key in ("command", "port", "log") if ready.get(key) is not None)
        print(f"{'ready':<13}{kind} {printable(str(ready[kind]))}, within {ready['seconds']:g} s")
    return 0
