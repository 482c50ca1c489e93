"""ClientHellos by hand, right and wrong ones."""

from __future__ import annotations


def extension(kind: int, body: bytes) -> bytes:
    return kind.to_bytes(2, "big") + len(body).to_bytes(2, "big") + body


def server_name(*names: str, kind: int = 0) -> bytes:
    listed = b"".join(bytes((kind,)) + len(n).to_bytes(2, "big") + n.encode() for n in names)
    return extension(0, len(listed).to_bytes(2, "big") + listed)


def message(*extensions: bytes, tail: bytes = b"") -> bytes:
    body = b"\x03\x03" + bytes(32) + b"\0" + b"\0\2\x13\x01" + b"\1\0"
    joined = b"".join(extensions)
    body += len(joined).to_bytes(2, "big") + joined + tail
    return b"\1" + len(body).to_bytes(3, "big") + body


def records(data: bytes, size: int = 16384) -> bytes:
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return b"".join(b"\x16\3\1" + len(p).to_bytes(2, "big") + p for p in pieces)


GREASE = extension(0x0A0A, b"")
ECH = extension(0xFE0D, b"\0" + bytes(40))
