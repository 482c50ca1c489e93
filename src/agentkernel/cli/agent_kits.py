"""`agentkernel agent list`, `show`, `install`, `update` and `remove`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from agentkernel.cli.builds import _Lines
from agentkernel.cli.layer_bars import size_words
from agentkernel.cli.several import for_each
from agentkernel.cli.tables import show as show_table
from agentkernel.cli.values import printable
from agentkernel.client._sync.agents import Agents
from agentkernel.client._sync.transport import Transport
from agentkernel.errors import AgentInstallError, InvalidInputError


def main(options: argparse.Namespace) -> int:
    agents = Agents(Transport())
    match options.verb:
        case "list":
            return _list(options, agents)
        case "show":
            return _show(options, agents.get(options.agent))
        case "install":
            return _install(options, agents, options.agents)
        case "update":
            return _update(options, agents)
        case _:

            def remove(name: str) -> dict[str, Any]:
                agents.remove(name)
                return {"name": name}

            return for_each(options.agents, remove, as_json=options.json, what="removed")


def _list(options: argparse.Namespace, agents: Agents) -> int:
    found = agents.list()
    if options.json:
        print(json.dumps(found))
        return 0
    rows = [(entry["name"], entry.get("version") or "-", _state(entry), _title(entry))
            for entry in found]  # fmt: skip
    show_table(("NAME", "VERSION", "INSTALLED", "TITLE"), rows)
    for entry in found:
        if entry.get("problem"):
            print(f"{entry['name']}: {printable(entry['problem'])}", file=sys.stderr)
    return 0


def _title(entry: dict[str, Any]) -> str:
    untested = not entry.get("tested") and not entry.get("own") and not entry.get("problem")
    return str(entry["title"]) + (" (not tested)" if untested else "")


def _state(entry: dict[str, Any]) -> str:
    if entry.get("problem"):
        return "broken file"
    if entry.get("kit"):
        return "yes"
    older = [kit["version"] for kit in entry.get("older", ())]
    if entry["version"] in older:
        return "no (made in another way)"
    return f"no ({', '.join(older)} is)" if older else "no"


def _show(options: argparse.Namespace, entry: dict[str, Any]) -> int:
    if options.json:
        print(json.dumps(entry))
        return 0
    definition = entry["definition"]
    version = entry["version"]
    if entry["pinned"] != version:
        version += f" (chosen; its file says {entry['pinned']})"
    install, network, login = (definition[part] for part in ("install", "network", "login"))
    lines = [
        ("name", entry["name"]),
        ("title", _title(entry)),
        ("note", definition["notes"]),
        ("home", entry.get("home")),
        ("version", version),
        ("file", "your own" if entry["own"] else "comes with agentkernel"),
        ("modes", ", ".join(entry["modes"])),
        ("reaches", ", ".join([*network["presets"], *network["allow"]])),
        ("keys", ", ".join(key["secret"] for key in login["keys"])),
        ("needs", ", ".join(install["needs"])),
        ("comes from", ", ".join(["package registries", *install["hosts"]])),
        *(("installs by", " ".join(words)) for words in install["steps"]),
    ]
    for key, value in lines:
        for number, line in enumerate(str(value or "").rstrip().splitlines()):
            print(f"{'' if number else key:<13}{printable(line)}")
    kits = [entry["kit"]] if entry.get("kit") else []
    for kit in [*kits, *entry["older"]]:
        _show_kit(kit)
    if not entry.get("kit"):
        print(f"{'installed':<13}no; agentkernel agent install {printable(entry['name'])}")
    return 0


def _show_kit(kit: dict[str, Any]) -> None:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(kit["installed_at"]))
    count = kit["sandboxes"]
    users = f", in {count} sandbox{'es' if count > 1 else ''}" if count else ""
    size = size_words(kit.get("used_bytes") or 0)
    older = "" if kit["current"] else " (older)"
    print(f"{'installed':<13}{printable(kit['version'])}{older}, {when}, {size}{users}")
    for lock in kit["locks"]:
        count = f" of {lock['files']} files" if lock["files"] > 1 else ""
        print(f"{'':<13}{printable(lock['path'])}{count} sha256:{printable(lock['sha256'])}")


def _install(options: argparse.Namespace, agents: Agents, names: list[str]) -> int:
    def install(name: str) -> dict[str, Any]:
        return _told(options, lambda shown: agents.install(name, progress=shown.tell))

    return for_each(names, install, as_json=options.json, what="installed")


def _update(options: argparse.Namespace, agents: Agents) -> int:
    names = options.agents
    version = options.version_wanted
    if version is not None and len(names) != 1:
        raise InvalidInputError(
            "--version is that of one agent", hint="agentkernel agent update claude --version 1.2.3"
        )
    if not names:
        names = [one["name"] for one in agents.list() if one.get("kit") or one.get("older")]
        if not names and not options.json:
            print("no agent is installed", file=sys.stderr)

    def update(name: str) -> dict[str, Any]:
        return _told(
            options, lambda shown: agents.update(name, version=version, progress=shown.tell)
        )

    return for_each(names, update, as_json=options.json, what="updated")


def _told(options: argparse.Namespace, work: Any) -> dict[str, Any]:
    """What is written meanwhile goes to stderr; of one that fails at least its end."""
    try:
        kit: dict[str, Any] = work(_Lines(options))
    except AgentInstallError as error:
        if options.quiet and not options.json:
            for line in error.details.get("output", ()):
                print(f"  {printable(line)}", file=sys.stderr)
        raise
    return {"name": kit["agent"], **kit}
