"""The answer to "what did it change": changes in words, and a patch. Blocking."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

import msgspec

from agentkernel.workspaces.changes import Change, Item, Reader, with_renames
from agentkernel.workspaces.noting import note_of
from agentkernel.workspaces.patch import MOST_PATCH, MOST_TEXT, make_patch
from agentkernel.workspaces.risky import why_held_back


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """`path` in text, with marks for what is none (`path_b64` then has the bytes). `host_changed`:
    the host has changed it, too, since the sandbox was made. Modes are octal. `added_lines` and
    `removed_lines`: null for what is no text, and for what was not looked into. `held_back`: why
    it is not applied unless risky ones are allowed; null: it is. `note`: why to look twice."""

    path: str
    kind: Literal["added", "deleted", "modified", "renamed"]
    type: Literal["file", "symlink", "directory", "special"]
    old_path: str | None = None
    path_b64: str | None = None
    old_mode: str | None = None
    new_mode: str | None = None
    binary: bool = False
    added_lines: int | None = None
    removed_lines: int | None = None
    host_changed: bool = False
    held_back: str | None = None
    note: str | None = None
    problem: str | None = None


class WorkspaceDiff(msgspec.Struct, frozen=True, kw_only=True):
    """`truncated`: there are more changes, or more of the patch, than an answer holds."""

    changes: list[FileChange]
    patch: str = ""
    truncated: bool = False


def diff(
    upper: str,
    project: str,
    *,
    began_ns: int,
    hidden: frozenset[str],
    ours: Mapping[str, tuple[int, int]],
) -> WorkspaceDiff:
    """Raises OSError where one of the two can't be opened."""
    above, below = _open(upper), -1
    try:
        below = _open(project)
        reader = Reader(above, below, began_ns=began_ns, hidden=hidden, ours=ours)
        found = reader.read()
        entries = with_renames(found.entries, above, below, MOST_TEXT)
        shown: list[FileChange] = []
        texts: list[str] = []
        size, truncated = 0, found.truncated
        for change in entries:
            if size > MOST_PATCH or change.problem or _is_directory(change):
                truncated = truncated or size > MOST_PATCH
                shown.append(_shown(change, above, below))
                continue
            patch = make_patch(change, above, below)
            shown.append(
                msgspec.structs.replace(
                    _shown(change, above, below),
                    binary=patch.binary,
                    added_lines=patch.added,
                    removed_lines=patch.removed,
                )
            )
            size += len(patch.text)
            if size <= MOST_PATCH:
                texts.append(patch.text)
        return WorkspaceDiff(
            changes=shown, patch="".join(texts), truncated=truncated or size > MOST_PATCH
        )
    finally:
        os.close(above)
        if below >= 0:
            os.close(below)


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _is_directory(change: Change) -> bool:
    """git knows none."""
    item = change.after or change.before
    return item is not None and item.type == "directory"


def _shown(change: Change, upper: int, project: int) -> FileChange:
    item = change.after or change.before
    text = text_of(change.path)
    try:
        held_back = why_held_back(change, upper)
    except OSError as exc:  # what can't be read is not applied either
        held_back = exc.strerror or "it can't be read"
    return FileChange(
        path=text,
        kind="renamed" if change.renamed_from else change.kind,
        type="special" if item is None else item.type,
        old_path=None if change.renamed_from is None else text_of(change.renamed_from),
        path_b64=None if text == change.path else _base64(change.path),
        old_mode=_octal(change.before),
        new_mode=_octal(change.after),
        host_changed=change.host_changed,
        held_back=held_back or None,
        note=note_of(change, upper, project) or None,
        problem=change.problem or None,
    )


def text_of(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "replace")


def _base64(path: str) -> str:
    from base64 import b64encode

    return b64encode(os.fsencode(path)).decode()


def _octal(item: Item | None) -> str | None:
    return None if item is None else f"{item.mode:04o}"
