"""Formats in which programs keep the authorities they trust: Java's stores, OpenSSL's names.

An image's store is read by nobody but to add one certificate: what can't be understood is left as
it is.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator

PASSWORD = "changeit"
"""What every Java has it by; it protects nothing."""
ALIAS = "agentkernel"

_JKS_MAGIC = 0xFEEDFEED
_JKS_VERSIONS = (1, 2)
_JKS_HEADER = struct.Struct(">III")
_JKS_TRUSTED = 2
_SEASONING = b"Mighty Aphrodite"
_DIGEST_BYTES = 20
_MOST_CERTIFICATES = 4096

# DER tags.
_SEQUENCE, _SET, _OID = 0x30, 0x31, 0x06
_UTF8, _INTEGER, _VERSION = 0x0C, 0x02, 0xA0
# Texts that OpenSSL turns into UTF-8 of small letters before it hashes: with the codec of each.
_TEXTS = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1E: "utf-16-be"}


def add_to_java_store(store: bytes, certificate: bytes, trusted: Iterable[bytes]) -> bytes | None:
    """The store with one more certificate, as JKS, which every Java reads whatever the file's name.
    One of another format (PKCS #12, which asks for as much work as its maker likes before it
    tells anything) becomes a store of `trusted`. None: this store can't be changed."""
    if store[:4] == _JKS_MAGIC.to_bytes(4, "big"):
        return _add_to_jks(store, certificate)
    if store[:1] != bytes([_SEQUENCE]):
        return None
    others = list(trusted)[:_MOST_CERTIFICATES]
    entries = b"".join(_jks_entry(f"trusted-{number}", der) for number, der in enumerate(others))
    return _sealed(len(others) + 1, 2, entries + _jks_entry(ALIAS, certificate))


def _add_to_jks(store: bytes, certificate: bytes) -> bytes | None:
    if len(store) < _JKS_HEADER.size + _DIGEST_BYTES:
        return None
    _, version, count = _JKS_HEADER.unpack_from(store)
    entries = store[_JKS_HEADER.size : -_DIGEST_BYTES]
    if version not in _JKS_VERSIONS or count >= _MOST_CERTIFICATES:
        return None
    if store[-_DIGEST_BYTES:] != _jks_digest(store[:-_DIGEST_BYTES]):
        return None  # another password, or damaged
    entry = _jks_entry(ALIAS, certificate, typed=version == 2)
    return _sealed(count + 1, version, entries + entry)


def _sealed(count: int, version: int, entries: bytes) -> bytes:
    body = _JKS_HEADER.pack(_JKS_MAGIC, version, count) + entries
    return body + _jks_digest(body)


def _jks_entry(alias: str, certificate: bytes, *, typed: bool = True) -> bytes:
    """A trusted certificate, of no date: the same bytes whenever it is made."""
    kind = _utf("X.509") if typed else b""
    head = struct.pack(">I", _JKS_TRUSTED) + _utf(alias) + struct.pack(">Q", 0) + kind
    return head + struct.pack(">I", len(certificate)) + certificate


def _utf(text: str) -> bytes:
    data = text.encode("ascii")
    return struct.pack(">H", len(data)) + data


def _jks_digest(body: bytes) -> bytes:
    seasoned = PASSWORD.encode("utf-16-be") + _SEASONING + body
    return hashlib.sha1(seasoned, usedforsecurity=False).digest()


# -- OpenSSL's names -----------------------------------------------------------------------------


def hashed_name(certificate: bytes) -> str:
    """The name under which OpenSSL looks for this certificate: a hash of its subject, ".0". Raises
    ValueError for what is no certificate."""
    canonical = b"".join(_canonical(rdn) for _, rdn in _parts(_subject(certificate)))
    number = int.from_bytes(hashlib.sha1(canonical, usedforsecurity=False).digest()[:4], "little")
    return f"{number:08x}.0"


def _subject(certificate: bytes) -> bytes:
    fields = list(_parts(_inside(_inside(certificate))))
    if fields and fields[0][0] == _VERSION:
        fields = fields[1:]
    # serial, algorithm, issuer, validity, subject
    if len(fields) < 5 or fields[0][0] != _INTEGER or fields[4][0] != _SEQUENCE:
        raise ValueError("not a certificate")
    return fields[4][1]


def _canonical(rdn: bytes) -> bytes:
    """A part of a name as OpenSSL compares it: blanks folded, in small letters, UTF-8."""
    pairs = []
    for _, pair in _parts(rdn):
        (kind, oid), (tag, value) = list(_parts(pair))[:2]
        if tag in _TEXTS:
            text = value.decode(_TEXTS[tag])
            folded = " ".join("".join(map(_small, text)).split())
            tag, value = _UTF8, folded.encode()
        pairs.append(_der(_SEQUENCE, _der(kind, oid) + _der(tag, value)))
    return _der(_SET, b"".join(pairs))


def _small(character: str) -> str:
    return character.lower() if character.isascii() else character


def _inside(der: bytes) -> bytes:
    for _, value in _parts(der):
        return value
    raise ValueError("not a certificate")


def _parts(der: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(der):
        if len(der) - at < 2:
            raise ValueError("not a certificate")
        tag, size = der[at], der[at + 1]
        at += 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(der[at : at + count], "big")
            at += count
        if size > len(der) - at:
            raise ValueError("not a certificate")
        yield tag, der[at : at + size]
        at += size


def _der(tag: int, value: bytes) -> bytes:
    if len(value) < 0x80:
        return bytes((tag, len(value))) + value
    size = len(value).to_bytes((len(value).bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(size))) + size + value
