"""Tar as a tree, a piece at a time. The archive is hostile: what it may say is listed here.

Files, directories and links, in the formats v7, ustar, GNU (long names, large numbers) and PAX,
each path relative and without `..`. Anything else is InvalidInputError: hard links, devices, FIFOs,
sparse files, sizes where none belong, bytes behind the end. Where parsers are known to disagree
(two sizes, two names, an archive inside an archive) there is one reading, POSIX's, or none.

What is held is bounded: one header, and at most 64 KiB of what comes before an entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from agentkernel.errors import InvalidInputError
from agentkernel.trees.entries import (
    PATH_MAX,
    FileType,
    Part,
    TreeCount,
    TreeEntry,
    TreeSummary,
    is_clean,
    to_text,
)
from agentkernel.trees.tar_writer import BLOCK

_META_BYTES: Final = 1 << 16
# Headers before an entry that are not the entry: names, PAX records.
_META_COUNT: Final = 8
# GNU tar fills its last record; nobody has larger ones.
_ZERO_BLOCKS: Final = 1 << 13
_NUMBER_MAX: Final = (1 << 62) - 1
_ZERO: Final = bytes(BLOCK)
_DECIMAL: Final = re.compile(rb"[0-9]{1,19}\Z")
_TIME: Final = re.compile(rb"(-?)([0-9]{1,15})(?:\.([0-9]{1,30}))?\Z")
_META: Final = (b"x", b"g", b"L", b"K")
_ENTRIES: Final = (b"0", b"\0", b"7", b"5", b"2")
_USED: Final = ("path", "linkpath", "size", "mtime", "uid", "gid", "comment")
_REFUSED: Final = {
    b"1": ("a hard link", "pack with `tar --hard-dereference`"),
    b"3": ("a device", "leave it out"),
    b"4": ("a device", "leave it out"),
    b"6": ("a FIFO", "leave it out"),
    b"S": ("a sparse file", "pack without `--sparse`"),
}


class TarReader:
    """`feed` gives the parts that are complete, `finish` says that there are no more bytes."""

    def __init__(self, **limits: int) -> None:
        # The last PAX comment: where our own archives say whether they are whole.
        self.comment = b""
        # What it says of the tree's root itself.
        self.root: TreeEntry | None = None
        self._count = TreeCount(**limits)
        self._buffer = bytearray()
        self._content = 0  # bytes of the file that are still to come
        self._padding = 0  # bytes to be skipped before the next header
        self._meta_kind = b""  # type of the header whose body is gathered; empty: none
        self._meta_size = 0
        self._meta_count = 0
        self._meta_bytes = 0
        self._pax: dict[str, bytes] = {}
        self._long: dict[bytes, bytes] = {}
        self._zeros = 0

    @property
    def summary(self) -> TreeSummary:
        return TreeSummary(self._count.files, self._count.bytes)

    def feed(self, data: bytes) -> Iterator[Part]:
        """Exhaust it before the next call."""
        self._buffer += data
        while self._buffer:
            if self._content:
                piece = bytes(self._buffer[: self._content])
                del self._buffer[: len(piece)]
                self._content -= len(piece)
                yield piece
            elif self._meta_kind:
                if len(self._buffer) < self._meta_size:
                    return
                self._take_meta(self._take(self._meta_size))
            elif self._padding:
                skipped = min(self._padding, len(self._buffer))
                del self._buffer[:skipped]
                self._padding -= skipped
            elif len(self._buffer) < BLOCK:
                return
            else:
                entry = self._header(self._take(BLOCK))
                if entry is not None:
                    yield entry

    def finish(self) -> None:
        whole = self._zeros >= 2 and not any(self._buffer)
        if not whole or self._content or self._padding or self._meta_kind:
            raise _bad("it ends before its end: it was cut off, or is no tar archive")

    def _take(self, size: int) -> bytes:
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    # -- headers --------------------------------------------------------------------------------

    def _header(self, block: bytes) -> TreeEntry | None:
        if block == _ZERO:
            self._zeros += 1
            if self._pax or self._long or self._zeros > _ZERO_BLOCKS:
                raise _bad("it ends where an entry is due, or never")
            return None
        if self._zeros:
            raise _bad("it goes on behind its end", "unpack archives that were joined one by one")
        _check_sum(block)
        kind, size = block[156:157], _number(block[124:136])
        if kind in _META:
            self._begin_meta(kind, size)
            return None
        if kind not in _ENTRIES:
            what, hint = _REFUSED.get(kind, (f"an entry of type {kind!r}", None))
            raise _bad(f"it has {what}: {_shown(self._path(block))}", hint)
        try:
            return self._entry(block, kind, size)
        finally:
            self._pax, self._long, self._meta_count, self._meta_bytes = {}, {}, 0, 0

    def _entry(self, block: bytes, kind: bytes, size: int) -> TreeEntry | None:
        raw = self._path(block)
        target = self._pax.get("linkpath") or self._long.get(b"K") or _text(block[157:257])
        if "size" in self._pax:
            size = _decimal(self._pax["size"])
        if kind not in (b"5", b"2"):
            # Before POSIX a directory was a file whose name ends with a slash.
            type = FileType.DIRECTORY if raw.endswith(b"/") else FileType.FILE
        else:
            type = FileType.DIRECTORY if kind == b"5" else FileType.LINK
        if type is not FileType.FILE and size:
            raise _bad(f"it has content where none belongs: {_shown(raw)}")
        path = _relative(raw)
        if not path:
            if type is not FileType.DIRECTORY or not raw:
                raise _bad("its root is not a directory")
            self.root = self._tree_entry(block, ".", type, 0, b"")
            return None
        if not is_clean(path):
            raise _bad(f"it has a path that leads outside or is too long: {_shown(raw)}")
        if type is FileType.LINK and (not target or b"\0" in target or len(target) >= PATH_MAX):
            raise _bad(f"it has a link that leads nowhere: {_shown(raw)}")
        self._count.add(size)
        self._content, self._padding = size, -size % BLOCK
        return self._tree_entry(block, path, type, size, target)

    def _tree_entry(
        self, block: bytes, path: str, type: FileType, size: int, target: bytes
    ) -> TreeEntry:
        return TreeEntry(
            path,
            type,
            size=size,
            mode=_number(block[100:108]) & 0o7777,
            mtime_ms=self._mtime_ms(block),
            uid=self._id("uid", block[108:116]),
            gid=self._id("gid", block[116:124]),
            target=to_text(target) if type is FileType.LINK else "",
        )

    def _path(self, block: bytes) -> bytes:
        if path := self._pax.get("path") or self._long.get(b"L"):
            return path
        name = _text(block[:100])
        # GNU's own format has other things there.
        prefix = _text(block[345:500]) if block[257:263] == b"ustar\0" else b""
        return prefix + b"/" + name if prefix else name

    def _mtime_ms(self, block: bytes) -> int:
        if "mtime" not in self._pax:
            return min(_number(block[136:148]), _NUMBER_MAX // 1000) * 1000
        match = _TIME.match(self._pax["mtime"])
        if not match:
            raise _bad("it has a time that is none")
        sign, seconds, fraction = match.groups()
        return 0 if sign else int(seconds) * 1000 + int((fraction or b"")[:3].ljust(3, b"0"))

    def _id(self, key: str, field: bytes) -> int:
        return min(_decimal(self._pax[key]) if key in self._pax else _number(field), 0xFFFFFFFF)

    # -- what comes before an entry -------------------------------------------------------------

    def _begin_meta(self, kind: bytes, size: int) -> None:
        self._meta_count += 1
        self._meta_bytes += size
        if self._meta_count > _META_COUNT or self._meta_bytes > _META_BYTES:
            raise _bad("it has a name or attributes that are too long")
        self._meta_kind, self._meta_size = kind, size
        self._padding = -size % BLOCK
        if not size:
            self._take_meta(b"")

    def _take_meta(self, body: bytes) -> None:
        kind, self._meta_kind = self._meta_kind, b""
        if kind in (b"L", b"K"):
            self._long[kind] = _text(body)
            return
        records = _pax_records(body)
        if kind == b"g":
            # One for all entries can only be meant for what we do not take over anyway.
            if any(key in records for key in ("path", "linkpath", "size")):
                raise _bad("it gives all entries the same name or size")
            return
        for key, value in records.items():
            self._pax[key] = value
        self.comment = records.get("comment", b"")


def _pax_records(body: bytes) -> dict[str, bytes]:
    """`LENGTH KEY=VALUE\\n` again and again. Of a key that comes twice the last one holds."""
    records: dict[str, bytes] = {}
    at = 0
    while at < len(body):
        space = body.find(b" ", at, at + 7)
        if space < 0 or not _DECIMAL.match(body[at:space]):
            raise _bad("it has PAX records that are none")
        end = at + int(body[at:space])
        key, equals, value = body[space + 1 : end].partition(b"=")
        if end > len(body) or end <= space or not equals or value[-1:] != b"\n":
            raise _bad("it has PAX records that are none")
        if key.startswith(b"GNU.sparse"):
            raise _bad("it has a sparse file", "pack without `--sparse`")
        name = key.decode("ascii", "replace")
        records.pop(name, None)
        if name in _USED and value != b"\n":
            records[name] = value[:-1]
        at = end
    return records


def _check_sum(block: bytes) -> None:
    told = block[148:156].strip(b" \0")
    unsigned = sum(block[:148]) + sum(block[156:]) + 8 * 32
    # Some old programs added signed bytes.
    signed = unsigned - 256 * sum(byte > 127 for byte in block[:148] + block[156:])
    if told.lstrip(b"0") not in (b"%o" % unsigned, b"%o" % signed):
        raise _bad("a header's checksum is wrong: it is damaged, or compressed, or no tar archive")


def _number(field: bytes) -> int:
    """Octal text, or GNU's binary form for large ones."""
    if field[0] & 0x80:
        value = int.from_bytes(bytes((field[0] & 0x7F,)) + field[1:], "big")
        if field[0] & 0x40 or value > _NUMBER_MAX:
            raise _bad("it has a number that is negative or too large")
        return value
    text = field.strip(b" \0")
    if not text:
        return 0
    if not all(byte in b"01234567" for byte in text):
        raise _bad("it has a number that is none")
    return int(text, 8)


def _decimal(text: bytes) -> int:
    if not _DECIMAL.match(text) or int(text) > _NUMBER_MAX:
        raise _bad("it has a number that is none")
    return int(text)


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _relative(raw: bytes) -> str:
    """Without the `./` that tar puts in front and the `/` behind a directory's name."""
    path = to_text(raw)
    while path.startswith("./"):
        path = path[2:]
    path = path[:-1] if path.endswith("/") and path != "/" else path
    return "" if path == "." else path


def _shown(path: bytes) -> str:
    return repr(to_text(path[:200]))[1:-1]


def _bad(why: str, hint: str | None = None) -> InvalidInputError:
    return InvalidInputError(f"the archive can't be unpacked: {why}", hint=hint)
