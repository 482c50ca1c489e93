"""Putting this server into a client's configuration, and taking it out again.

Of an entry that is there already only what has to be ours is changed: variables or timeouts that
somebody added stay. Doing it twice gives the same bytes.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from agentkernel.errors import InvalidInputError
from agentkernel.mcp import jsonc, require_extra
from agentkernel.mcp.clients import CLIENTS, Client, Scope
from agentkernel.mcp.config_files import Change, change

NAME = "agentkernel"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")


def install(
    client: str,
    *,
    scope: Scope = "user",
    name: str = NAME,
    flags: Sequence[str] = (),
    dry: bool = False,
) -> Change:
    """`flags`: what stands behind `agentkernel mcp` in the entry."""
    known, path = _place(client, scope, name)
    words = [*server_words(), "mcp", *flags]
    entry = known.entry(words)

    def edit(text: str) -> str:
        if known.format == "toml":
            return _toml(text, path, known.table, name, entry)
        return _json(text, path, known.table, name, entry)

    return change(path, edit, dry=dry)


def uninstall(client: str, *, scope: Scope = "user", name: str = NAME, dry: bool = False) -> Change:
    """Nothing happens if it is not there."""
    known, path = _place(client, scope, name)

    def edit(text: str) -> str:
        if not text:
            return text
        if known.format == "toml":
            return _toml(text, path, known.table, name, None)
        try:
            return jsonc.remove_value(text, (known.table, name))
        except jsonc.NotJsonError as exc:
            raise _broken(path, str(exc)) from None

    return change(path, edit, dry=dry)


def _place(client: str, scope: Scope, name: str) -> tuple[Client, str]:
    if not _NAME.match(name):
        raise InvalidInputError("a server's name has letters, digits, _ and -, at most 64")
    known = CLIENTS[client]
    return known, known.path(scope, os.getcwd(), os.environ)


def server_words() -> list[str]:
    """What starts this agentkernel from anywhere, whatever is on the PATH there."""
    called = os.path.abspath(sys.argv[0])
    beside = os.path.join(os.path.dirname(sys.executable), NAME)
    candidates = [called] if os.path.basename(called) in (NAME, "ak") else []
    for path in (*candidates, beside, shutil.which(NAME)):
        if path and os.path.isfile(path) and os.access(path, os.X_OK):
            return [os.path.abspath(path)]
    return [sys.executable, "-P", "-m", NAME]


def _json(text: str, path: str, table: str, name: str, entry: Mapping[str, Any]) -> str:
    try:
        old = jsonc.parse(text) if text.strip("\ufeff \t\r\n") else {}
        if not isinstance(old, dict) or not isinstance(old.get(table, {}), dict):
            raise _broken(path, f"{table} is not an object")
        there = old.get(table, {}).get(name)
        if not isinstance(there, dict):
            return text if there == entry else jsonc.set_value(text, (table, name), entry)
        for key, value in entry.items():
            # Whether it is switched on is its user's choice.
            if there.get(key) != value and not (key == "enabled" and key in there):
                text = jsonc.set_value(text, (table, name, key), value)
        return text
    except jsonc.NotJsonError as exc:
        raise _broken(path, str(exc)) from None


def _toml(text: str, path: str, table: str, name: str, entry: Mapping[str, Any] | None) -> str:
    """With `entry`, or without if that is None."""
    require_extra("tomlkit")
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        before = tomllib.loads(text)
        document = tomlkit.parse(text)
    except (tomllib.TOMLDecodeError, TOMLKitError, RecursionError) as exc:
        raise _broken(path, str(exc)) from None
    wanted = _merged(before, path, table, name, entry)
    if wanted == before:
        return text
    try:
        if table not in document:
            document[table] = tomlkit.table(is_super_table=True)
        servers: Any = document[table]
        if entry is None:
            del servers[name]
        elif name in servers:
            for key, value in entry.items():
                if servers[name].get(key) != value:
                    servers[name][key] = value
        else:
            servers[name] = dict(entry)
        after = tomlkit.dumps(document)
        same = tomllib.loads(after) == wanted
    except (tomllib.TOMLDecodeError, TOMLKitError, TypeError, AttributeError, RecursionError):
        same = False
    if not same:
        raise InvalidInputError(
            f"{path} is written in a way that can't be changed in one place", hint="edit it by hand"
        )
    return after


def _merged(
    before: dict[str, Any], path: str, table: str, name: str, entry: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What the file is to say."""
    servers = before.get(table, {})
    if not isinstance(servers, dict) or not isinstance(servers.get(name, {}), dict):
        raise _broken(path, f"{table} is not a table of tables")
    rest = {key: value for key, value in servers.items() if key != name}
    if entry is None:
        return {**before, table: rest} if name in servers else before
    return {**before, table: {**servers, name: {**servers.get(name, {}), **entry}}}


def _broken(path: str, what: str) -> InvalidInputError:
    return InvalidInputError(
        f"{path} can't be understood: {what}", hint="nothing was changed; mend it and try again"
    )
