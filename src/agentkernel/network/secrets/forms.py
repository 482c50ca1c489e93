"""The forms a secret may take on its way: as it is, in base64, in hex; escaped in any of these.

    forms(value)    what to look for, apart from escapes
    fold(text)      the text with its escapes undone, and where everything was before

Base64 has no fixed form inside of other data: it depends on how many bytes stand before, modulo
three, and the characters at both ends are shared with the neighbours. So three cores are looked
for, made of the characters that depend on the value alone.
"""

from __future__ import annotations

import base64
import bisect
import re
from typing import Final, Literal, NamedTuple

Kind = Literal["raw", "base64", "base64url", "hex", "HEX"]

_HEX: Final = rb"[0-9A-Fa-f]"
# Each begins with a fixed character, which is what makes looking for it fast.
ESCAPES: Final = (
    re.compile(rb"%(?:25){0,2}" + _HEX + rb"{2}"),
    re.compile(rb"\\(?:u00" + _HEX + rb"{2}|x" + _HEX + rb'{2}|["/\\])'),
    re.compile(rb"&(?:#[0-9]{1,4}|#[xX]" + _HEX + rb"{1,4}|amp|lt|gt|quot|apos);"),
)
# Escapes of characters that need none: no encoder makes them, but one who hides something does.
_NEEDLESS: Final = rb"(?:2[DdEe]|3[0-9]|[46][1-9A-Fa-f]|[57][0-9Aa]|5[Ff]|7[Ee])"
NEEDLESS_ESCAPES: Final = (
    re.compile(rb"%(?:25){0,2}" + _NEEDLESS),
    re.compile(rb"\\(?:u00|x)" + _NEEDLESS),
    re.compile(rb"&#(?:[0-9]{1,4}|[xX]" + _HEX + rb"{1,4});"),
)
# A line's end inside of base64, as mail and JSON wrap it, stands for nothing.
_WRAP: Final = rb"(?P<wrap>(?:\r?\n|(?:\\r)?\\n)[ \t]?)"
# So much of it has to stand before, or all there is: what is held back has lost what was before it.
_BASE64_LINE: Final = re.compile(rb"[A-Za-z0-9+/_-]{1,16}")
WRAPPED: Final = re.compile(rb"[A-Za-z0-9+/_-]{16}[\r\n]")
_ALL: Final = re.compile(_WRAP + b"|" + b"|".join(escape.pattern for escape in ESCAPES))
# The beginning of an escape, at the end of what there is so far.
CUT_ESCAPE: Final = re.compile(
    rb"(?:%(?:2|(?:25){1,2}2?|(?:25){0,2}" + _HEX + rb")?"
    rb"|\\(?:u0{0,2}|u00" + _HEX + rb"|x" + _HEX + rb"?|r\\?)?"
    rb"|&(?:[#a-z]|#[0-9]{1,4}|#[xX]" + _HEX + rb"{0,4}|a[mp]|amp|ap|apo|apos|qu|quo|quot|lt|gt)?"
    rb"|\r)\Z"
)
LONGEST_ESCAPE: Final = 8
_ENTITIES: Final = {b"amp": b"&", b"lt": b"<", b"gt": b">", b"quot": b'"', b"apos": b"'"}


class Form(NamedTuple):
    """`shift`: how many bytes stand before it, modulo three; for base64 alone."""

    kind: Kind
    text: bytes
    shift: int = 0


def forms(value: bytes) -> list[Form]:
    """All there are; those that look the same come once."""
    found = [Form("raw", value)]
    for kind in ("base64", "base64url"):
        found += [encoded(value, kind, shift) for shift in range(3)]
    found += [encoded(value, "hex"), encoded(value, "HEX")]
    return list({form.text: form for form in reversed(found)}.values())[::-1]


def encoded(value: bytes, kind: Kind, shift: int = 0) -> Form:
    """One form of a value: how a match of one is replaced by the same form of another."""
    if kind == "hex":
        return Form(kind, value.hex().encode())
    if kind == "HEX":
        return Form(kind, value.hex().upper().encode())
    if kind == "raw":
        return Form(kind, value)
    data = bytes(shift) + value
    text = base64.b64encode(data) if kind == "base64" else base64.urlsafe_b64encode(data)
    first = -(-8 * shift // 6)
    return Form(kind, text[first : 8 * len(data) // 6], shift)


class Folded:
    """A text without its escapes. Offsets into it can be led back to the original."""

    def __init__(self, original: bytes) -> None:
        pieces: list[bytes] = []
        # At `_here[i]` of the folded text the original is at `_there[i]`; the stretch goes on as
        # far as both grow alike. An escape is a stretch of one byte.
        self._here: list[int] = []
        self._there: list[int] = []
        self._ends: list[int] = []
        size = at = 0
        for match in _ALL.finditer(original):
            start = match.start()
            if match["wrap"] is not None:
                if not _BASE64_LINE.fullmatch(original, max(start - 16, 0), start):
                    continue
                size += self._stretch(size, at, start, original, pieces)
            else:
                size += self._stretch(size, at, start, original, pieces)
                pieces.append(_meaning(match[0]))
                self._here.append(size)
                self._there.append(start)
                self._ends.append(match.end())
                size += 1
            at = match.end()
        self._stretch(size, at, len(original), original, pieces)
        self.text = b"".join(pieces)

    def _stretch(
        self, size: int, start: int, end: int, original: bytes, pieces: list[bytes]
    ) -> int:
        if start < end:
            pieces.append(original[start:end])
            self._here.append(size)
            self._there.append(start)
            self._ends.append(0)
        return end - start

    def begins(self, at: int) -> int:
        """Where the byte at this offset begins in the original."""
        stretch = bisect.bisect_right(self._here, at) - 1
        return self._there[stretch] + at - self._here[stretch]

    def ends(self, at: int) -> int:
        """Where the byte before this offset ends in the original."""
        stretch = bisect.bisect_right(self._here, at - 1) - 1
        if end := self._ends[stretch]:
            return end
        return self._there[stretch] + at - self._here[stretch]


def _meaning(escape: bytes) -> bytes:
    """The byte that an escape stands for."""
    kind, second = escape[:1], escape[1:2]
    if kind == b"&":
        word = escape[1:-1]
        if second != b"#":
            return _ENTITIES[word]
        number = int(word[2:], 16) if word[1:2] in (b"x", b"X") else int(word[1:])
        return bytes([number]) if number < 256 else b"?"
    if kind == b"%" or second in (b"u", b"x"):
        return bytes.fromhex(escape[-2:].decode())
    return second
