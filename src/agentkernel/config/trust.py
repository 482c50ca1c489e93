"""Which files the user has said yes to: place and content, in the state directory.

    trust.json   {"version": 1, "files": {path: {"sha256": …, "trusted_at": …}}}, mode 0600

There whole or not at all. A file that moved or changed by one byte is not trusted.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from typing import Any

from agentkernel.config.reading import ConfigFile
from agentkernel.errors import StateCorruptError, StateError
from agentkernel.places import make_state_directory, state_path

_NAME = "trust.json"
_VERSION = 1


def store_path() -> str:
    return os.path.join(state_path(), _NAME)


def is_trusted(file: ConfigFile) -> bool:
    entry = entries().get(file.path)
    return entry is not None and entry["sha256"] == file.sha256


def entries() -> dict[str, dict[str, Any]]:
    """By path. Raises StateCorruptError: what can't be read trusts nobody."""
    path = store_path()
    try:
        with open(path, "rb") as store:
            body = json.load(store)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):
        raise _corrupt(path) from None
    try:
        found = {
            str(place): {"sha256": str(entry["sha256"]), "trusted_at": float(entry["trusted_at"])}
            for place, entry in body["files"].items()
        }
        known = body["version"] == _VERSION
    except (AttributeError, KeyError, TypeError, ValueError):
        raise _corrupt(path) from None
    if not known:
        raise _corrupt(path)
    return found


def trust(file: ConfigFile) -> None:
    """Trusts this content at this place, in the stead of any other there."""
    with _changing() as files:
        files[file.path] = {"sha256": file.sha256, "trusted_at": time.time()}


def distrust(path: str) -> bool:
    """False if it was not trusted. The file itself may be gone."""
    with _changing() as files:
        return files.pop(path, None) is not None


@contextlib.contextmanager
def _changing() -> Iterator[dict[str, dict[str, Any]]]:
    """What is trusted, to be changed; one process at a time, and written whole."""
    import fcntl

    directory = make_state_directory()
    path = os.path.join(directory, _NAME)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        lock = os.open(os.path.join(directory, "trust.lock"), flags, 0o600)
    except OSError as exc:
        raise StateError(f"{path} can't be changed: {exc.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        files = entries()
        before = json.dumps(files)
        yield files
        if json.dumps(files) != before:
            write_whole(path, json.dumps({"version": _VERSION, "files": files}, indent=1) + "\n")
    finally:
        os.close(lock)


def write_whole(path: str, text: str) -> None:
    """Replaces a file's content: after a crash it has the old one or the new one. Mode 0600."""
    new = f"{path}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with open(os.open(new, flags, 0o600), "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError as exc:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise StateError(f"{path} can't be written: {exc.strerror}") from None


def _corrupt(path: str) -> StateCorruptError:
    return StateCorruptError(
        f"{path} can't be read, so no project's file is trusted",
        hint=f"remove it, and trust the files again: rm {path}",
    )
