"""`agentkernel sandbox …`: sandboxes that stay, and what becomes of them."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

from agentkernel.cli import project
from agentkernel.cli.fields import spec_fields
from agentkernel.cli.notices import Connected, tell_once
from agentkernel.cli.outcome import OURS, say_progress
from agentkernel.cli.several import for_each
from agentkernel.cli.tables import ago, show, until
from agentkernel.cli.values import printable
from agentkernel.client._sync.sandbox import Sandbox
from agentkernel.client._sync.transport import Transport
from agentkernel.client.wire import segment
from agentkernel.errors import AgentKernelError, InvalidInputError, NotFoundError
from agentkernel.places import state_path

_EVERYONE = "*"


def main(options: argparse.Namespace) -> int:
    verbs: dict[str, Callable[[argparse.Namespace, Transport], int]] = {
        "create": _create,
        "list": _list,
        "info": _info,
        "start": _each(lambda sandbox, _: sandbox.start()),
        "stop": _each(lambda sandbox, wanted: sandbox.stop(grace_seconds=wanted.grace)),
        "remove": _remove,
        "extend": _extend,
        "update": _update,
        "gc": _gc,
        "logs": _logs,
        "cp": _cp,
    }
    with Connected() as transport:
        return verbs[options.verb](options, transport)


def _create(options: argparse.Namespace, transport: Transport) -> int:
    project.apply(options)
    if options.branch is not None:
        return _create_of_branch(options, transport)
    sandbox = Sandbox.create(
        name=options.name,
        kept=not options.ephemeral,
        labels=dict(options.label),
        ttl_seconds=options.ttl,
        idle_seconds=options.idle_timeout,
        on_ttl=options.on_ttl,
        on_idle=options.on_idle,
        env=dict(options.env),
        progress=_nothing if options.json else say_progress,
        transport=transport,
        **spec_fields(options, transport.daemon),
    )
    if not options.json:
        name = sandbox.name or sandbox.id
        tell_once(
            state_path(), sandbox.info.raw.get("notices", ()), f"agentkernel sandbox info {name}"
        )
    print(json.dumps(sandbox.info.raw) if options.json else sandbox.name or sandbox.id)
    return 0


def _create_of_branch(options: argparse.Namespace, transport: Transport) -> int:
    """One that is there already is the one that is meant."""
    from agentkernel.cli.kept import choose_branch, found_or_made

    if options.ephemeral:
        raise InvalidInputError("the sandbox of a branch stays", hint="leave --ephemeral out")
    name = choose_branch(options)
    sandbox = found_or_made(
        options,
        transport,
        options.name or name or "",
        labels=dict(options.label),
        idle_seconds=options.idle_timeout,
        on_ttl=options.on_ttl,
        on_idle=options.on_idle,
        env=dict(options.env),
    )
    print(json.dumps(sandbox.info.raw) if options.json else sandbox.name or sandbox.id)
    return 0


def _nothing(sentence: str) -> None:
    """A stream all the same: what is made for it takes as long as it takes."""


def _list(options: argparse.Namespace, transport: Transport) -> int:
    owner = _EVERYONE if options.all else options.owner
    found = Sandbox.list(
        labels=dict(options.label), state=options.state, owner=owner, transport=transport
    )
    if options.json:
        print(json.dumps({"sandboxes": [sandbox.info.raw for sandbox in found]}))
        return 0
    rows = [
        (
            # Another's name means nothing to us: what can be said to other verbs is its id.
            sandbox.id if owner else sandbox.name or sandbox.id,
            *((sandbox.name or "-", sandbox.info.raw.get("owner", "-")) if owner else ()),
            sandbox.info.state,
            sandbox.info.backend,
            str(sandbox.info.raw.get("image") or "-"),
            ago(sandbox.info.created_at),
            until(sandbox.info.expires_at),
            ",".join(f"{key}={value}" for key, value in sandbox.info.labels.items()) or "-",
        )
        for sandbox in found
    ]
    heads = ("ID", "NAME", "OWNER") if owner else ("NAME",)
    show((*heads, "STATUS", "BACKEND", "IMAGE", "AGE", "ENDS IN", "LABELS"), rows)
    return 0


def _info(options: argparse.Namespace, transport: Transport) -> int:
    raw = Sandbox.connect(options.name, transport=transport).info.raw
    if options.json:
        print(json.dumps(raw))
        return 0
    apart = ("effective", "notices", "config")  # the lines below say the same
    lines = [(key, _plain(value)) for key, value in raw.items() if key not in apart]
    lines += _config_lines(raw.get("config"))
    for line in raw.get("effective", ()):
        by = f"  [{line['enforced_by']}]" if line.get("enforced_by") else ""
        lines.append((line["what"], f"{line['value']}{by}"))
    width = max(len(key) for key, _ in lines)
    for key, value in lines:
        print(f"{printable(key):<{width}}  {printable(value)}")
    return 0


def _config_lines(config: dict[str, Any] | None) -> list[tuple[str, str]]:
    """The files it was made from, and what they said."""
    if config is None:
        return []
    lines = [
        (f"{file['kind']} file", f"{file['path']}  sha256 {file['sha256'][:16]}"
         + ("" if file["trusted"] else "  (not trusted)"))
        for file in config["files"]
    ]  # fmt: skip
    said = {
        name: entry["value"]
        for name, entry in config["values"].items()
        if entry["from"] in ("project", "user")
    }
    return [*lines, ("from files", _plain(said))]


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}={_plain(entry)}" for key, entry in value.items()) or "-"
    return "-" if value is None else str(value)


def _each(
    act: Callable[[Sandbox, argparse.Namespace], Any],
) -> Callable[[argparse.Namespace, Transport], int]:
    """One verb for many names: each is tried, what failed is said, and makes the exit status."""

    def verb(options: argparse.Namespace, transport: Transport) -> int:
        return _for_names(options, lambda name: _acted(name, options, transport))

    def _acted(name: str, options: argparse.Namespace, transport: Transport) -> dict[str, Any]:
        sandbox = Sandbox.connect(name, transport=transport)
        act(sandbox, options)
        return sandbox.info.raw

    return verb


def _for_names(options: argparse.Namespace, act: Callable[[str], dict[str, Any]]) -> int:
    return for_each(options.names, act, as_json=options.json, what="sandboxes")


def _remove(options: argparse.Namespace, transport: Transport) -> int:
    def act(name: str) -> dict[str, Any]:
        try:
            sandbox = Sandbox.connect(name, transport=transport)
            sandbox.remove()
        except NotFoundError:
            if not options.force:
                raise
            return {"name": name, "id": None}
        return {"name": sandbox.name, "id": sandbox.id}

    return _for_names(options, act)


def _extend(options: argparse.Namespace, transport: Transport) -> int:
    sandbox = Sandbox.connect(options.name, transport=transport)
    info = sandbox.extend(options.ttl)
    print(json.dumps(info.raw) if options.json else f"ends in {until(info.expires_at)}")
    return 0


def _update(options: argparse.Namespace, transport: Transport) -> int:
    """Only what was given is among the options."""
    fields = {
        "new_name": "name", "ttl": "ttl_seconds", "idle_timeout": "idle_seconds",
        "on_ttl": "on_ttl", "on_idle": "on_idle",
    }  # fmt: skip
    changes = {field: getattr(options, key) for key, field in fields.items() if key in options}
    labels = dict(options.label) | dict.fromkeys(options.remove_label)
    if labels:
        changes["labels"] = labels
    if not changes:
        raise InvalidInputError("nothing to change is given", hint="such as --label team=web")
    info = Sandbox.connect(options.name, transport=transport).update(**changes)
    print(json.dumps(info.raw) if options.json else info.name or info.id)
    return 0


def _gc(options: argparse.Namespace, transport: Transport) -> int:
    """Removes sandboxes with all the labels that are older than the age, and nothing else."""
    if not options.label and options.older_than is None:
        raise InvalidInputError(
            "gc needs to know which ones", hint="give --label KEY=VALUE, --older-than TIME or both"
        )
    latest = time.time() - (options.older_than or 0.0)
    found = [
        sandbox
        for sandbox in Sandbox.list(labels=dict(options.label), transport=transport)
        if sandbox.info.created_at <= latest
    ]
    removed, failed = [], []
    for sandbox in found:
        entry: dict[str, Any] = {"id": sandbox.id, "name": sandbox.name}
        try:
            if not options.dry_run:
                sandbox.remove()
            removed.append(entry)
        except NotFoundError:
            continue
        except AgentKernelError as error:
            failed.append(entry | {"error": error.to_dict()})
    if options.json:
        print(json.dumps({"removed": removed, "failed": failed, "dry_run": options.dry_run}))
        return OURS if failed else 0
    word = "would remove" if options.dry_run else "removed"
    for entry in removed:
        print(f"{word} {entry['name'] or entry['id']}")
    for entry in failed:
        name, why = entry["name"] or entry["id"], entry["error"]["message"]
        print(f"can't remove {name}: {printable(why)}")
    if not found:
        print("nothing to remove")
    return OURS if failed else 0


def _logs(options: argparse.Namespace, transport: Transport) -> int:
    """The sandbox's events. They outlive it, so an id that is gone still has some."""
    query = {"after": 0, "sandbox": segment(options.name), "follow": options.follow}
    for line in transport.lines("/v1/events", query=query):
        if not line.startswith("data: "):
            continue
        event = json.loads(line.removeprefix("data: "))
        if options.json:
            print(json.dumps(event), flush=True)
        elif "kind" in event:
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event["at"]))
            print(f"{when}  {event['kind']}  {printable(_plain(event['body']))}", flush=True)
        else:
            print("some events are not kept any more", flush=True)
    return 0


def _cp(options: argparse.Namespace, transport: Transport) -> int:
    from agentkernel.cli.copying import copy

    if options.json and options.target == "-":
        raise InvalidInputError("--json and an archive can't both go to stdout")
    summary = copy(options.source, options.target, transport, user=options.user, quiet=options.json)
    if options.json:
        print(json.dumps(summary._asdict()))
    return 0
