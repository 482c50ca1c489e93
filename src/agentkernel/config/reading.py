"""From a file's bytes to checked values. What is wrong is named with file, line, key and the
nearest key that is known; nothing of a wrong file is used.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from agentkernel.config.schema import (
    KEYS,
    LATER,
    SECTIONS,
    TABLES,
    FileKind,
    check_table_key,
    check_table_size,
)
from agentkernel.config.templates import check_template
from agentkernel.documents import DocumentError, parse_toml
from agentkernel.errors import HostError, InvalidInputError, NotFoundError

MAX_BYTES = 64 << 10
TEMPLATE = "template"


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file that was read. `values` by dotted key; of `tables`, by section, what each holds."""

    kind: FileKind
    path: str
    sha256: str
    owner: int
    values: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    # [template], as the HTTP API takes it, with its `name`; it has no say in any sandbox.
    template: dict[str, Any] | None = None

    @property
    def directory(self) -> str:
        return os.path.dirname(self.path)


def read_file(path: str, kind: FileKind) -> ConfigFile:
    """Reads once: what is checked, hashed and used is the same bytes.

    Raises NotFoundError, InvalidInputError, and HostError for a user's file that others may write.
    """
    # The directory as it really is, the name as it was given: trust is about a place.
    path = os.path.join(os.path.realpath(os.path.dirname(path) or "."), os.path.basename(path))
    data, info = _bytes_of(path)
    if kind == "user" and (info.st_uid not in (0, os.getuid()) or info.st_mode & 0o002):
        raise HostError(
            f"{path} can be written by others, and it decides what sandboxes may do",
            hint=f"chown it to you and chmod 600 {path}",
        )
    return parse(data, path, kind, owner=info.st_uid)


def read_foreign(path: str) -> tuple[ConfigFile, bytes]:
    """A file of another program's, which the user may trust: here it is its place and content
    alone. Raises NotFoundError, InvalidInputError."""
    path = os.path.join(os.path.realpath(os.path.dirname(path) or "."), os.path.basename(path))
    data, info = _bytes_of(path)
    return ConfigFile("project", path, hashlib.sha256(data).hexdigest(), info.st_uid), data


def parse(data: bytes, path: str, kind: FileKind, *, owner: int) -> ConfigFile:
    try:
        text = data.decode()
        document = parse_toml(text)
    except UnicodeDecodeError:
        raise InvalidInputError(f"{path} is not UTF-8", file=path) from None
    except DocumentError as exc:
        raise InvalidInputError(f"{path} is not TOML: {exc}", file=path) from None
    lines = _lines(text)
    file = ConfigFile(kind, path, hashlib.sha256(data).hexdigest(), owner, lines=lines)
    if kind == "project" and isinstance(document.get(TEMPLATE), dict):
        try:
            file = replace(file, template=check_template(document.pop(TEMPLATE)))
        except ValueError as exc:
            raise _wrong(file, TEMPLATE, str(exc)) from None
    for section, entries in document.items():
        _check_section(file, section, entries)
        for name, value in entries.items():
            if section in TABLES:
                file.tables.setdefault(section, {})[name] = _table_value(file, section, name, value)
            else:
                file.values[f"{section}.{name}"] = _value(file, f"{section}.{name}", value)
    return file


def _bytes_of(path: str) -> tuple[bytes, os.stat_result]:
    try:
        # Not to hang on a FIFO, nor to read a device: both can stand in a cloned directory's place.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(f"there is no file {path}", file=path) from None
    except OSError as exc:
        raise InvalidInputError(f"{path} can't be read: {exc.strerror}", file=path) from None
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise InvalidInputError(f"{path} is not a file", file=path)
        with open(fd, "rb", closefd=False) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as exc:
        raise InvalidInputError(f"{path} can't be read: {exc.strerror}", file=path) from None
    finally:
        os.close(fd)
    if len(data) > MAX_BYTES:
        raise InvalidInputError(f"{path} is larger than {MAX_BYTES >> 10} KiB", file=path)
    return data, info


def _check_section(file: ConfigFile, section: str, entries: Any) -> None:
    if section in LATER:
        raise _wrong(file, section, f"[{section}] is not supported by this version")
    known = [s for s in SECTIONS if s in TABLES or any(_in(s, n, file) for n in KEYS)]
    if section not in known:
        name = next((n for n in KEYS if n.endswith(f".{section}") and _in("", n, file)), None)
        where = f"it stands in [{name.partition('.')[0]}]" if name else None
        if section in SECTIONS:
            where = "it belongs in the user's config.toml"
        raise _unknown(file, section, section, known, where)
    if not isinstance(entries, dict):
        raise _wrong(file, section, f"{section} must be a section, [{section}]")
    if section in TABLES:
        try:
            check_table_size(section, len(entries))
        except ValueError as exc:
            raise _wrong(file, section, str(exc)) from None


def _in(section: str, name: str, file: ConfigFile) -> bool:
    return name.startswith(f"{section}." if section else "") and file.kind in KEYS[name].files


def _value(file: ConfigFile, name: str, value: Any) -> Any:
    key = KEYS.get(name)
    if key is None or file.kind not in key.files:
        section = name.partition(".")[0]
        known = [n.partition(".")[2] for n in KEYS if _in(section, n, file)]
        other = next((n for n in KEYS if n.endswith(f".{name.partition('.')[2]}")), None)
        where = f"it stands in [{other.partition('.')[0]}]" if other else None
        if key is not None:
            where = f"it belongs in {_OTHER[file.kind]}"
        raise _unknown(file, name, name.partition(".")[2], known, where)
    try:
        return key.check(value)
    except (ValueError, TypeError) as exc:
        raise _bad(file, name, key.wants, value, exc) from None


def _table_value(file: ConfigFile, section: str, name: str, value: Any) -> Any:
    check, wants = TABLES[section]
    try:
        check_table_key(section, name)
    except ValueError as exc:
        raise _wrong(file, section, f"{section}.{name!r}: {exc}") from None
    try:
        return check(value)
    except (ValueError, TypeError) as exc:
        raise _bad(file, f"{section}.{name}", wants, value, exc) from None


_OTHER = {"project": "the user's config.toml", "user": "a project's agentkernel.toml"}


def _bad(file: ConfigFile, name: str, wants: str, value: Any, exc: Exception) -> InvalidInputError:
    shown = "a table" if isinstance(value, dict) else "a list" if isinstance(value, list) else None
    return _wrong(file, name, f"{name} must be {wants}, not {shown or _short(value)}")


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, bool) else str(value).lower()
    return text if len(text) <= 60 else text[:57] + "…"


def _unknown(
    file: ConfigFile, name: str, word: str, known: Iterable[str], where: str | None
) -> InvalidInputError:
    from difflib import get_close_matches

    known = list(known)
    near = get_close_matches(word, known, n=1)
    hint = where or (f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}")
    return _wrong(file, name, f"{_short(name)} is not a key that is known here", hint)


def _wrong(file: ConfigFile, name: str, message: str, hint: str | None = None) -> InvalidInputError:
    line = file.lines.get(name)
    place = file.path if line is None else f"{file.path}:{line}"
    details: dict[str, Any] = {"file": file.path, "key": name}
    if line is not None:
        details["line"] = line
    return InvalidInputError(f"{place}: {message}", hint=hint, **details)


def _lines(text: str) -> dict[str, int]:
    """Where keys stand. tomllib does not tell, so this looks for the usual forms; a key in an
    unusual one has no line. Only for messages: nothing is decided by it.
    """
    found: dict[str, int] = {}
    section, quote = "", ""
    for number, line in enumerate(text.split("\n"), 1):
        if quote:
            if line.count(quote) % 2:
                quote = ""
            continue
        words = line.strip()
        if words.startswith("[") and "]" in words and not words.startswith("[["):
            section = words[1 : words.index("]")].strip().strip("\"'")
            parts = section.split(".")
            for count in range(1, len(parts) + 1):
                found.setdefault(".".join(parts[:count]), number)
        elif "=" in words and not words.startswith("#"):
            name = words.partition("=")[0].strip().strip("\"'")
            found.setdefault(f"{section}.{name}" if section else name, number)
            first = name.partition(".")[0]
            found.setdefault(section or first, number)
        for mark in ('"""', "'''"):
            if words.count(mark) % 2:
                quote = mark
    return found
