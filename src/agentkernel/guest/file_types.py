"""What the guest says of files, checked, and the records it says it in.

Preconditions: none. Every byte comes from a sandbox: a value that the protocol does not allow is a
GuestProtocolError, and nothing here holds more than one record.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final

import msgspec

from agentkernel.errors import GuestProtocolError
from agentkernel.guest import protocol
from agentkernel.trees.entries import (
    NAME_MAX,
    PATH_MAX,
    FileType,
    Part,
    TreeEntry,
    is_clean,
    to_bytes,
    to_text,
)

RECORD_MAX: Final = 1 << 16
NOBODY: Final = 65534
_COUNT_MAX: Final = (1 << 63) - 1
_encode = msgspec.msgpack.Encoder().encode


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the sandbox. Names that are not UTF-8 hold surrogates, as in the os module.

    `name` is the last component.
    """

    name: str
    type: FileType
    size: int
    mode: int
    uid: int
    gid: int
    mtime_ms: int
    target: str | None = None


class ChangeKind(StrEnum):
    """`ready` comes once, when nothing can be missed any more; `overflow`: look for yourself."""

    READY = "ready"
    CREATE = "create"
    MODIFY = "modify"
    REMOVE = "remove"
    MOVE = "move"
    OVERFLOW = "overflow"


class Change(msgspec.Struct, frozen=True):
    """Something happened to `path`, relative to what is watched ("": to that itself)."""

    kind: ChangeKind
    path: str = ""
    to: str | None = None


def count(body: dict[str, Any], key: str, maximum: int = _COUNT_MAX) -> int:
    value = body.get(key)
    if type(value) is not int or not 0 <= value <= maximum:
        raise GuestProtocolError(f"agentd sent no valid {key}")
    return value


def flag(body: dict[str, Any], key: str) -> bool:
    value = body.get(key)
    if type(value) is not bool:
        raise GuestProtocolError(f"agentd sent no valid {key}")
    return value


def text(body: dict[str, Any], key: str, maximum: int = PATH_MAX) -> str:
    value = body.get(key)
    if not isinstance(value, bytes) or len(value) > maximum or b"\0" in value:
        raise GuestProtocolError(f"agentd sent no valid {key}")
    return to_text(value)


def parse_entry(body: dict[str, Any], name: str) -> FileEntry:
    try:
        kind = FileType(body.get("type", ""))
    except ValueError:
        raise GuestProtocolError("agentd sent a type of file that does not exist") from None
    return FileEntry(
        name=name,
        type=kind,
        size=count(body, "size"),
        mode=count(body, "mode", 0o7777),
        uid=count(body, "uid", (1 << 32) - 1),
        gid=count(body, "gid", (1 << 32) - 1),
        mtime_ms=count(body, "mtime_ms"),
        target=text(body, "target") if "target" in body else None,
    )


def parse_named_entry(body: dict[str, Any]) -> FileEntry:
    """An entry of `file.list`: its name is one component."""
    name = text(body, "name", NAME_MAX)
    if name in ("", ".", "..") or "/" in name:
        raise GuestProtocolError("agentd sent a file name that is none")
    return parse_entry(body, name)


def parse_tree_entry(body: dict[str, Any]) -> TreeEntry:
    """An entry of a tree: relative, every component a name, of a type that a tree can have."""
    path = text(body, "path", PATH_MAX - 1)
    if not is_clean(path):
        raise GuestProtocolError("agentd sent a path that leads out of its tree")
    entry = parse_entry(body, path)
    if entry.type not in (FileType.FILE, FileType.DIRECTORY, FileType.LINK):
        raise GuestProtocolError("agentd sent a tree with a special file")
    if entry.type is FileType.LINK and not entry.target:
        raise GuestProtocolError("agentd sent a link without a target")
    return TreeEntry(
        path,
        entry.type,
        size=entry.size if entry.type is FileType.FILE else 0,
        mode=entry.mode,
        mtime_ms=entry.mtime_ms,
        uid=entry.uid,
        gid=entry.gid,
        target=entry.target or "",
    )


def parse_change(body: dict[str, Any]) -> Change:
    try:
        kind = ChangeKind(body.get("kind", ""))
    except ValueError:
        raise GuestProtocolError("agentd sent a change of an unknown kind") from None
    if kind in (ChangeKind.READY, ChangeKind.OVERFLOW):
        return Change(kind)
    to = text(body, "to") if kind is ChangeKind.MOVE else None
    return Change(kind, text(body, "path"), to)


def record(body: dict[str, Any]) -> bytes:
    payload = _encode(body)
    return len(payload).to_bytes(4, "little") + payload


def tree_bytes(part: Part, *, owners: bool = False) -> bytes:
    """A part of a tree as it goes to the guest. Ids stay behind, as they are not the guest's,
    unless `owners`."""
    if isinstance(part, bytes):
        return part
    body: dict[str, Any] = {
        "path": to_bytes(part.path),
        "type": part.type.value,
        "mode": part.mode & (0o7777 if owners else 0o777),
        "mtime_ms": part.mtime_ms,
    }
    if owners:
        body |= {"uid": _known_id(part.uid), "gid": _known_id(part.gid)}
    if part.type is FileType.FILE:
        body["size"] = part.size
    elif part.type is FileType.LINK:
        body["target"] = to_bytes(part.target)
    return record(body)


def _known_id(id: int) -> int:
    """What no process can be is nobody's."""
    return id if id < 0xFFFFFFFF else NOBODY


class RecordReader:
    """Cuts the bytes of channel 1 into records, and for trees into the content between them."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._content = 0

    def records(self, data: bytes) -> Iterator[dict[str, Any]]:
        """The records that are complete with `data`. Exhaust it before the next call."""
        self._buffer += data
        while (body := self._take()) is not None:
            yield body

    def tree(self, data: bytes) -> Iterator[Part]:
        """The same of a tree: entries, each file followed by the pieces of its content."""
        self._buffer += data
        while self._buffer:
            if self._content:
                piece = bytes(self._buffer[: self._content])
                del self._buffer[: len(piece)]
                self._content -= len(piece)
                yield piece
            elif (body := self._take()) is not None:
                entry = parse_tree_entry(body)
                if entry.type is FileType.FILE:
                    self._content = entry.size
                yield entry
            else:
                return

    def finish(self) -> None:
        if self._buffer or self._content:
            raise GuestProtocolError("agentd ended in the middle of a record")

    def _take(self) -> dict[str, Any] | None:
        if len(self._buffer) < 4:
            return None
        size = int.from_bytes(self._buffer[:4], "little")
        if size > RECORD_MAX:
            raise GuestProtocolError(f"agentd sent a record of {size} bytes")
        if len(self._buffer) < 4 + size:
            return None
        payload = bytes(self._buffer[4 : 4 + size])
        del self._buffer[: 4 + size]
        return protocol.parse_map(payload)
