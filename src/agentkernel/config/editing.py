"""One key of a file changed, every other line left as it is."""

from __future__ import annotations

import os
import re

from agentkernel.config.reading import MAX_BYTES, ConfigFile, parse
from agentkernel.config.schema import KEYS, TABLES, FileKind
from agentkernel.config.trust import write_whole
from agentkernel.errors import InvalidInputError, StateError

_HEADER = re.compile(r"\s*\[\s*([A-Za-z0-9_-]+)\s*\]\s*(#.*)?$")
_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")
_NUMBER = re.compile(r"-?\d+(\.\d+)?\Z")


def set_key(path: str, kind: FileKind, name: str, text: str | None) -> None:
    """Writes `name` into the file at `path`; None: takes it out. The file is made if need be."""
    section, _, word = name.partition(".")
    if name not in KEYS and not (section in TABLES and word):
        raise InvalidInputError(
            f"{name!r} is not a key", hint="`agentkernel config show` lists them"
        )
    if section in ("agents", "mcp"):
        raise InvalidInputError(f"[{name}] is a section", hint=f"write it into {path} by hand")
    # A link, such as one into a directory of dotfiles, stays a link.
    path = os.path.realpath(path)
    try:
        with open(path, encoding="utf-8") as file:
            before = file.read(MAX_BYTES)
    except FileNotFoundError:
        before = ""
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidInputError(f"{path} can't be read: {exc}") from None
    old = parse(before.encode(), path, kind, owner=os.getuid())
    after = _edited(before, section, word, None if text is None else _literal(name, text))
    new = parse(after.encode(), path, kind, owner=os.getuid())
    if _others(old, section, word) != _others(new, section, word):
        raise InvalidInputError(
            f"{path} is written in a way that can't be changed line by line", hint="edit it by hand"
        )
    if after == before:
        return
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    except OSError as exc:
        raise StateError(f"{os.path.dirname(path)} can't be made: {exc.strerror}") from None
    write_whole(path, after)


def _others(file: ConfigFile, section: str, word: str) -> object:
    values = {name: value for name, value in file.values.items() if name != f"{section}.{word}"}
    tables = {
        (table, name): value
        for table, entries in file.tables.items()
        for name, value in entries.items()
        if (table, name) != (section, word)
    }
    return values, tables


def _literal(name: str, text: str) -> str:
    """The TOML of a value typed on a command line: bare where it is a number or a truth."""
    section = name.partition(".")[0]
    if section not in TABLES and (text in ("true", "false") or _NUMBER.match(text)):
        return text
    if not text.isprintable():
        raise InvalidInputError("a value has no control characters")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _edited(text: str, section: str, word: str, literal: str | None) -> str:
    lines = text.splitlines()
    key = word if _BARE.match(word) else f'"{word}"'
    begin = next((n for n, line in enumerate(lines) if _header(line) == section), None)
    if begin is None:
        if literal is None:
            return text
        gap = [""] if lines and lines[-1].strip() else []
        return "\n".join([*lines, *gap, f"[{section}]", f"{key} = {literal}"]) + "\n"
    end = next((n for n in range(begin + 1, len(lines)) if lines[n].lstrip().startswith("[")), None)
    stop = len(lines) if end is None else end
    at = next((n for n in range(begin + 1, stop) if _key(lines[n]) in (word, key)), None)
    if at is not None:
        lines[at : at + 1] = [] if literal is None else [f"{key} = {literal}"]
    elif literal is not None:
        while stop > begin + 1 and not lines[stop - 1].strip():
            stop -= 1
        lines.insert(stop, f"{key} = {literal}")
    return "\n".join(lines) + ("\n" if lines else "")


def _header(line: str) -> str | None:
    match = _HEADER.match(line)
    return match[1] if match else None


def _key(line: str) -> str | None:
    name, equals, _ = line.partition("=")
    return name.strip() if equals and not line.lstrip().startswith("#") else None
