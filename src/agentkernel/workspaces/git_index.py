"""git's index: which files a repository knows, as which objects, and how they were on disk then.

Read by our own code, because git would obey the repository's configuration meanwhile. Versions 2, 3
and 4; of a split one, whose rest is elsewhere, nothing is believed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

MOST_BYTES = 256 << 20
_HEAD = struct.Struct(">4sII")
_STAT = struct.Struct(">10I")
_EXTENDED, _NAME = 0x4000, 0x0FFF
_SKIP_WORKTREE, _INTENT_TO_ADD, _VALID = 0x4000, 0x2000, 0x8000


class BadIndexError(Exception):
    """It is none, or of a kind that is not known here."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file. `is_plain`: it is meant to be on disk, and no merge is under way in it."""

    mode: int
    object: str
    ctime_ns: int
    mtime_ns: int
    inode: int
    size: int
    is_plain: bool


def parse(content: bytes, *, hash_bytes: int = 20) -> dict[bytes, Entry]:
    """By path from the repository's top. Raises BadIndexError."""
    try:
        return _parse(content, hash_bytes)
    except (struct.error, IndexError, ValueError):
        raise BadIndexError("it ends in the middle") from None


def _parse(content: bytes, hash_bytes: int) -> dict[bytes, Entry]:
    magic, version, count = _HEAD.unpack_from(content, 0)
    if magic != b"DIRC" or version not in (2, 3, 4):
        raise BadIndexError("not an index of a known version")
    found: dict[bytes, Entry] = {}
    at, end = _HEAD.size, len(content) - hash_bytes
    path = b""
    for _ in range(count):
        start = at
        c_s, c_ns, m_s, m_ns, _dev, inode, mode, _uid, _gid, size = _STAT.unpack_from(content, at)
        at += _STAT.size
        object = content[at : at + hash_bytes].hex()
        (flags,) = struct.unpack_from(">H", content, at + hash_bytes)
        at += hash_bytes + 2
        more = 0
        if flags & _EXTENDED and version > 2:
            (more,) = struct.unpack_from(">H", content, at)
            at += 2
        if version == 4:
            strip, at = _number(content, at)
            stop = content.index(b"\0", at)
            path = path[: len(path) - strip] + content[at:stop]
            at = stop + 1
        else:
            stop = content.index(b"\0", at)
            path = content[at:stop]
            at = start + (stop - start + 8) // 8 * 8
        if at > end:
            raise BadIndexError("it ends in the middle")
        stage = flags >> 12 & 3
        plain = not stage and not flags & _VALID and not more & (_SKIP_WORKTREE | _INTENT_TO_ADD)
        found[path] = Entry(
            mode, object, c_s * 10**9 + c_ns, m_s * 10**9 + m_ns, inode, size, plain
        )
    while at + 8 <= end:
        name, length = struct.unpack_from(">4sI", content, at)
        if name == b"link":
            raise BadIndexError("it is split")
        at += 8 + length
    if at != end:
        raise BadIndexError("it ends in the middle")
    return found


def _number(content: bytes, at: int) -> tuple[int, int]:
    """As git packs it: seven bits a byte, and one is added for each further byte."""
    byte = content[at]
    value = byte & 0x7F
    while byte & 0x80:
        at += 1
        byte = content[at]
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, at + 1
