"""A tree as tar: POSIX headers, PAX records only where a field is too small for what it has to say.

The last entry is the root itself, `./`, whose PAX comment is the summary: an archive without it is
not whole. One that fails midway ends with a comment that says why, and has no end.
"""

from __future__ import annotations

from typing import Final

from agentkernel.trees.entries import FileType, Part, TreeEntry, TreeSummary, below, to_bytes

BLOCK: Final = 512
SUMMARY_MARK: Final = "agentkernel-tree"
ERROR_MARK: Final = "agentkernel-error"
_TYPES: Final = {FileType.FILE: b"0", FileType.DIRECTORY: b"5", FileType.LINK: b"2"}
_NAME_BYTES: Final = 100
_ID_MAX: Final = 0o7777777
_SIZE_MAX: Final = 0o77777777777
_MTIME_MS_MAX: Final = 253_402_300_799_000  # the year 9999


class TarWriter:
    """Feed it the parts of a tree, then `end` or `error`; each gives the bytes to send."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._left = 0
        self._padding = 0

    def feed(self, part: Part) -> bytes:
        if isinstance(part, TreeEntry):
            self._left = part.size if part.type is FileType.FILE else 0
            self._padding = -self._left % BLOCK
            return _header(part, below(self._prefix, part.path), {})
        self._left -= len(part)
        return part if self._left else part + bytes(self._padding)

    def end(self, root: TreeEntry, summary: TreeSummary) -> bytes:
        told = f"files={summary.files} bytes={summary.bytes} skipped={summary.skipped}"
        comment = {"comment": f"{SUMMARY_MARK} {told}".encode()}
        return _header(root, self._prefix or ".", comment) + bytes(2 * BLOCK)

    def error(self, problem: bytes) -> bytes:
        """Only between two parts of a tree can it be told why there are no more."""
        if self._left:
            return b""
        return _pax({"comment": ERROR_MARK.encode() + b" " + problem})


def _header(entry: TreeEntry, path: str, records: dict[str, bytes]) -> bytes:
    name, target = to_bytes(path), to_bytes(entry.target)
    if entry.type is FileType.DIRECTORY:
        name += b"/"
    size = entry.size if entry.type is FileType.FILE else 0
    mtime_ms = min(entry.mtime_ms, _MTIME_MS_MAX)
    seconds, thousandths = divmod(mtime_ms, 1000)
    if len(name) > _NAME_BYTES:
        records["path"] = name
    if len(target) > _NAME_BYTES:
        records["linkpath"] = target
    if size > _SIZE_MAX:
        records["size"] = b"%d" % size
    if thousandths or seconds > _SIZE_MAX:
        records["mtime"] = b"%d.%03d" % (seconds, thousandths)
    for key, id in (("uid", entry.uid), ("gid", entry.gid)):
        if id > _ID_MAX:
            records[key] = b"%d" % id
    block = _block(
        name,
        _TYPES[entry.type],
        size,
        mode=entry.mode & 0o7777,
        uid=entry.uid,
        gid=entry.gid,
        mtime=seconds,
        target=target,
    )
    return _pax(records) + block if records else block


def _pax(records: dict[str, bytes]) -> bytes:
    body = b"".join(_record(key.encode(), value) for key, value in records.items())
    return _block(b"./PaxHeaders/entry", b"x", len(body)) + body + bytes(-len(body) % BLOCK)


def _record(key: bytes, value: bytes) -> bytes:
    """`LENGTH KEY=VALUE\\n`, where the length counts its own digits too."""
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest)
    while length != len(rest) + len(str(length)):
        length = len(rest) + len(str(length))
    return b"%d" % length + rest


def _block(
    name: bytes,
    kind: bytes,
    size: int,
    *,
    mode: int = 0o644,
    uid: int = 0,
    gid: int = 0,
    mtime: int = 0,
    target: bytes = b"",
) -> bytes:
    head = name[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0")
    head += b"%07o\0%07o\0%07o\0" % (mode, min(uid, _ID_MAX), min(gid, _ID_MAX))
    head += b"%011o\0%011o\0" % (min(size, _SIZE_MAX), min(mtime, _SIZE_MAX))
    tail = kind + target[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0") + b"ustar\x0000"
    tail = tail.ljust(BLOCK - len(head) - 8, b"\0")
    return head + b"%06o\0 " % (sum(head) + sum(tail) + 8 * 32) + tail
