"""Looks for a value in whatever form it may have left: raw, base64, hex, escaped, compressed."""

from __future__ import annotations

import base64
import os
import re
import urllib.parse
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_MOST = 1 << 20
_PACKED = re.compile(rb"\x1f\x8b\x08|\x78[\x01\x5e\x9c\xda]")
_PACKED_MOST = 65536
_WINDOW = 256


class Scanner:
    """`find` tells in which forms a value stands in data."""

    def __init__(self, value: bytes) -> None:
        self.forms = {
            "raw": value,
            "reversed": value[::-1],
            "utf-16": value.decode().encode("utf-16-le"),
            "hex": value.hex().encode(),
            "HEX": value.hex().upper().encode(),
            "url": "".join(f"%{byte:02x}" for byte in value).encode(),
            "URL": "".join(f"%{byte:02X}" for byte in value).encode(),
            "quoted": urllib.parse.quote(value, safe="").encode(),
        }
        for shift in range(3):
            # Only the digits that depend on nothing but the value, whatever stands around it.
            text = base64.b64encode(b"\0" * shift + value)
            inner = text[-(-shift * 8 // 6) : len(value) * 8 // 6 - 2]
            self.forms[f"base64 {shift}"] = inner
            self.forms[f"base64url {shift}"] = inner.replace(b"+", b"-").replace(b"/", b"_")

    def find(self, data: bytes) -> list[str]:
        found = [form for form, text in self.forms.items() if text in data]
        for match in _PACKED.finditer(data):
            plain = _unpack(data[match.start() : match.start() + _PACKED_MOST])
            found += [f"compressed {form}" for form, text in self.forms.items() if text in plain]
        return found

    def in_files(
        self, *places: Path, without: frozenset[str] = frozenset()
    ) -> dict[str, list[str]]:
        """Files below these whose content or name has it; not below directories `without`. What
        can't be read is no file."""
        found: dict[str, list[str]] = {}
        for path in _files(places, without):
            forms = self.find(os.fsencode(path))
            with suppress(OSError), path.open("rb") as file:
                before = b""
                while data := file.read(_MOST):
                    forms += self.find(before + data)
                    before = data[-_WINDOW:]
            if forms:
                found[str(path)] = forms
        return found


def _unpack(data: bytes) -> bytes:
    """What is packed there, as far as it can be read: something may stand behind it or cut it."""
    machine, plain = zlib.decompressobj(wbits=47), b""
    for start in range(0, len(data), 64):
        piece, before = data[start : start + 64], machine.copy()
        try:
            plain += machine.decompress(piece, _MOST)
        except zlib.error:
            with suppress(zlib.error):
                for number in range(len(piece)):
                    plain += before.decompress(piece[number : number + 1])
            break
    return plain


def _files(places: tuple[Path, ...], without: frozenset[str]) -> Iterator[Path]:
    for place in places:
        if place.is_file() and not place.is_symlink():
            yield place
        for directory, below, names in os.walk(place):
            below[:] = [name for name in below if os.path.join(directory, name) not in without]
            for name in names:
                path = Path(directory, name)
                if path.is_file() and not path.is_symlink():
                    yield path
