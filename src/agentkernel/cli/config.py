"""`agentkernel config …`: the settings that hold here, and where they come from."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentkernel.cli import project
from agentkernel.cli.tables import show as show_table
from agentkernel.cli.values import printable
from agentkernel.config.finding import user_file
from agentkernel.config.resolving import Setting, resolve
from agentkernel.config.schema import KEYS, HostVariable, is_operators
from agentkernel.config.widening import show, widenings
from agentkernel.errors import InvalidInputError

if TYPE_CHECKING:
    from agentkernel.config.reading import ConfigFile

_UNTRUSTED = 1


def main(options: argparse.Namespace) -> int:
    verbs = {"show": _show, "path": _path, "get": _get, "set": _set, "unset": _set, "check": _check}
    return verbs[options.verb](options)


def _read(options: argparse.Namespace) -> tuple[ConfigFile | None, ConfigFile | None]:
    return project.read(*project.paths(options.config))


def _settings(own: ConfigFile | None, user: ConfigFile | None) -> dict[str, Setting]:
    """Every key, those of all sandboxes included; variables and labels below their sections'
    names."""
    resolved = resolve({}, own, user)
    settings = dict(resolved.settings)
    settings |= {f"env.{name}": setting for name, setting in resolved.env.items()}
    settings |= {f"labels.{name}": setting for name, setting in resolved.labels.items()}
    for agent, entries in resolved.agents.items():
        settings |= {f"agents.{agent}.{key}": setting for key, setting in entries.items()}
    settings |= {  # what is sent to one, or put into its environment, may be a secret
        f"mcp.{name}": replace(
            setting, value=" ".join(setting.value.get("command", ())) or setting.value["url"]
        )
        for name, setting in resolved.mcp.items()
    }
    return {**settings, **_daemon(user)}


def _daemon(user: ConfigFile | None) -> dict[str, Setting]:
    from agentkernel.kernel.admission import Admission

    found = {
        "daemon.max_sandboxes": Setting(Admission.max_sandboxes, "default"),
        "daemon.memory_floor": Setting(Admission.memory_floor_bytes, "default"),
        "network.upstream_proxy": Setting("auto", "default"),
    }
    if user is not None:
        found |= {
            name: Setting(value, "user", user.lines.get(name))
            for name, value in user.values.items()
            if is_operators(name)
        }
    return found


def _show(options: argparse.Namespace) -> int:
    own, user = _read(options)
    settings = _settings(own, user)
    if options.json:
        body = {
            name: {"value": _plain(setting.value), "from": setting.origin, "line": setting.line}
            for name, setting in settings.items()
        }
        print(json.dumps({"settings": body, "files": _files(own, user)}))
        return 0
    rows = [
        (name, show(name, setting.value), _origin(setting, settings, own, user))
        for name, setting in settings.items()
    ]
    show_table(("KEY", "VALUE", "FROM"), rows)
    if own is not None and not _is_trusted(own) and widenings(own, user, {}, agent=""):
        print(f"\n{printable(own.path)} is not trusted: `agentkernel config check` says more")
    return 0


def _origin(
    setting: Setting,
    settings: dict[str, Setting],
    own: ConfigFile | None,
    user: ConfigFile | None,
) -> str:
    if setting.origin == "profile":
        return f"profile {settings['sandbox.profile'].value}"
    file = {"project": own, "user": user}.get(setting.origin)
    if file is None:
        return setting.origin
    return file.path if setting.line is None else f"{file.path}:{setting.line}"


def _plain(value: Any) -> Any:
    if isinstance(value, HostVariable):
        return {"from": value.name, "default": value.default}
    return value


def _is_trusted(file: ConfigFile) -> bool:
    from agentkernel.config.trust import is_trusted

    return is_trusted(file)


def _files(own: ConfigFile | None, user: ConfigFile | None) -> dict[str, Any]:
    return {
        "project": None if own is None else {
            "path": own.path, "sha256": own.sha256, "trusted": _is_trusted(own),
        },
        "user": None if user is None else {"path": user.path, "sha256": user.sha256},
    }  # fmt: skip


def _path(options: argparse.Namespace) -> int:
    own, _ = project.paths(None)
    user = user_file()
    if options.json:
        there = os.path.lexists(user)
        print(json.dumps({"project": own, "user": user, "user_exists": there}))
        return 0
    print(f"project  {printable(own or 'none from here upwards')}")
    print(f"user     {printable(user)}{'' if os.path.lexists(user) else '  (not there)'}")
    return 0


def _get(options: argparse.Namespace) -> int:
    settings = _settings(*_read(options))
    if options.key not in settings:
        from difflib import get_close_matches

        near = get_close_matches(options.key, list(settings), n=1)
        raise InvalidInputError(
            f"{options.key!r} is not a setting",
            hint=f"did you mean {near[0]}?" if near else "agentkernel config show lists them",
        )
    setting = settings[options.key]
    if options.json:
        print(json.dumps({"value": _plain(setting.value), "from": setting.origin}))
    else:
        print(printable(show(options.key, setting.value)))
    return 0


def _set(options: argparse.Namespace) -> int:
    from agentkernel.config.editing import set_key

    path = user_file()
    value = getattr(options, "value", None)
    set_key(path, "user", options.key, value)
    if options.json:
        print(json.dumps({"file": path, "key": options.key, "value": value}))
        return 0
    print(f"{'unset' if value is None else 'set'} {options.key} in {printable(path)}")
    if options.key.startswith("daemon.") and options.key in KEYS:
        print("the daemon reads it when it starts: `agentkernel daemon restart`")
    return 0


def _check(options: argparse.Namespace) -> int:
    own_path, user_path = project.paths(options.file)
    if own_path is None and user_path is None:
        if options.json:
            print(json.dumps({"files": {"project": None, "user": None}, "widens": []}))
        else:
            print("there are no files to check")
        return 0
    own, user = project.read(own_path, user_path)
    found = [] if own is None else widenings(own, user, {}, agent="")
    trusted = own is not None and _is_trusted(own)
    if options.json:
        body = {"files": _files(own, user), "widens": [entry.to_dict() for entry in found]}
        print(json.dumps(body))
        return _UNTRUSTED if found and not trusted else 0
    if user is not None:
        print(f"ok  {printable(user.path)}")
    if own is not None:
        state = "trusted" if trusted else "not trusted" if found else "widens nothing"
        print(f"ok  {printable(own.path)}  ({state})")
        for entry in found:
            print(f"    {printable(entry.words())}")
        if found and not trusted:
            print(f"    to allow this: agentkernel trust {printable(own.path)}")
    return _UNTRUSTED if found and not trusted else 0
