"""The format of a line: JSON whose last field is the hash of every byte before it.

    {"seq":7,"time":…,"prev":"<hash of line 6>", … ,"hash":"<sha256 of the line up to here>"}

The hash is of the bytes as they stand, so nothing has to be put into a canonical form, and any
change of a byte shows. Lines are ASCII: no control character reaches whoever looks at the file.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final, NamedTuple

import msgspec

from agentkernel.errors import InvalidInputError

GENESIS: Final = "0" * 64
MAX_LINE_BYTES: Final = 64 << 10
# Lines that a power cut took may have been seen, or kept as a head: their numbers are not given to
# others. More than can be written between two syncs.
SEQ_LEAP: Final = 1_000_000
GAP: Final = "log.gap"

_HASH_FIELD: Final = b',"hash":"'
_TAIL: Final = len(_HASH_FIELD) + 64 + len(b'"}')


class Actor(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Who asked. `client` is what the other end calls itself; the rest the kernel vouches for.
    `token`: the id of the one that was shown; `address`: where from."""

    door: str
    owner: str | None = None
    uid: int | None = None
    pid: int | None = None
    token: str | None = None
    address: str | None = None
    client: str | None = None


class Entry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line without its hash. `of`: the line whose result this is. Without `result` an action
    began here; what became of it is in another line, or nobody knows."""

    seq: int
    time: float
    prev: str
    action: str
    of: int | None = None
    actor: Actor | None = None
    sandbox: str | None = None
    name: str | None = None
    args: dict[str, Any] = {}
    result: str | None = None
    code: str | None = None
    details: dict[str, Any] = {}


class Head(NamedTuple):
    """The end of a chain. Whoever keeps one elsewhere can show that nothing before it changed."""

    seq: int
    hash: str

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"


START: Final = Head(0, GENESIS)


def parse_head(text: str) -> Head:
    seq, _, digest = text.strip().partition(":")
    if not (seq.isascii() and seq.isdigit() and len(seq) < 19 and _is_hash(digest)):
        raise InvalidInputError(
            f"{text!r} is not a head", hint="a head is what `agentkernel audit --head` prints"
        )
    return Head(int(seq), digest)


def encode_line(entry: Entry) -> tuple[bytes, str]:
    """The line with its newline, and its hash."""
    body = _ascii_json(entry)[:-1]
    digest = hashlib.sha256(body).hexdigest()
    return body + _HASH_FIELD + digest.encode() + b'"}\n', digest


def _ascii_json(entry: Entry) -> bytes:
    try:
        text = msgspec.json.encode(entry)
        if text.isascii() and b"\x7f" not in text:
            return text
    except UnicodeEncodeError:  # names that are not UTF-8 came as surrogates
        pass
    safe = json.dumps(_encodable(msgspec.to_builtins(entry)), separators=(",", ":"))
    return safe.replace("\x7f", "\\u007f").encode()


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(entry) for entry in value]
    return value


def split_hash(line: bytes) -> str | None:
    """The hash of a line (without newline) if it is the one of its other bytes, else None."""
    told = line[-66:-2]
    if line[-_TAIL:] != _HASH_FIELD + told + b'"}':
        return None
    actual = hashlib.sha256(line[:-_TAIL]).hexdigest()
    return actual if told == actual.encode() else None


def decode_line(line: bytes) -> Entry | None:
    """What a line says, whether or not its hash is right. None: it is no line of ours."""
    try:
        return msgspec.json.decode(line, type=Entry)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _is_hash(text: str) -> bool:
    return len(text) == 64 and all(c in "0123456789abcdef" for c in text)
