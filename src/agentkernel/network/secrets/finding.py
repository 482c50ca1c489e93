"""Looks for secrets and placeholders, in all their forms, in bytes that come in pieces.

What must hold: of a form that is there, however it is cut into pieces, no caller is told to let a
piece go before the whole has been seen. What is held back for that is no more than could begin a
form, so that streams go on at once.

It is fast where there is nothing, which is nearly always. A form has two *anchors*: stretches of
characters that need no escape. If a form is there, either an anchor stands there as it is, or
something breaks both of them: escapes that nobody needs, one of them and a line's end. So a text
without anchors has to be looked at closely only where such escapes are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from agentkernel.network.secrets.forms import (
    CUT_ESCAPE,
    ESCAPES,
    LONGEST_ESCAPE,
    NEEDLESS_ESCAPES,
    WRAPPED,
    Folded,
    Form,
    forms,
)

T = TypeVar("T")

_LEAST_ANCHOR: Final = 6
_ANCHOR: Final = re.compile(rb"[A-Za-z0-9_.~-]{6,}")
# Beyond so many anchors one pass over eight bytes at a time is faster than one pass each.
_FEW: Final = 64
_HEAD: Final = 3
_LONG: Final = 1024
_WRITTEN: Final = (b"%%%02X", b"%%%02x", b"%%25%02X", b"%%25%02x", b"\\u%04x")


class Match(NamedTuple, Generic[T]):
    """`exact`: it stands there as the form says, without escapes."""

    start: int
    end: int
    form: Form
    whose: T
    exact: bool


class Finder(Generic[T]):
    """`sought`: values and whose they are. Immutable, for any number of texts at once."""

    def __init__(self, sought: Iterable[tuple[bytes, T]]) -> None:
        self._forms: list[tuple[Form, T]] = [
            (form, whose) for value, whose in sought for form in forms(value)
        ]
        # A value may look like an escape itself. Then it is not the same once escapes are undone.
        self._undone: list[tuple[bytes, Form, T]] = []
        anchors: dict[bytes, None] = {}
        self._bare: list[bytes] = []  # those without two anchors
        self._heads: dict[bytes, list[bytes]] = {}
        self._starts: set[bytes] = set()
        for form, whose in self._forms:
            undone = Folded(form.text).text
            found = _anchors(form.text)
            anchors.update(dict.fromkeys(found))
            if len(found) < 2 or undone != form.text:
                self._bare.append(form.text)
            for text in {form.text, undone}:
                if len(text) >= _LEAST_ANCHOR:
                    self._undone.append((text, form, whose))
                    self._heads.setdefault(text[:_HEAD], []).append(text)
                    self._starts.update(text[:size] for size in range(1, _HEAD))
        self._longest = max((len(form.text) for form, _ in self._forms), default=0)
        self._anchors = tuple(anchors)
        self._grid: frozenset[int] = frozenset()
        self._needed: list[tuple[bytes, bytes]] = []
        if len(anchors) > _FEW:
            self._needed = _needed_escapes({byte for form, _ in self._forms for byte in form.text})
            self._grid = frozenset(
                int.from_bytes(form.text[at : at + 8], "little")
                for form, _ in self._forms
                for at in range(len(form.text) - 7)
            )

    def find(self, text: bytes) -> list[Match[T]]:
        """From left to right; where two overlap, the one that begins first, or else the longer."""
        found = [
            match for first, last in self._regions(text) for match in self._in(text, first, last)
        ]
        found.sort(key=lambda match: (match.start, -match.end, not match.exact))
        kept: list[Match[T]] = []
        for match in found:
            if not kept or match.start >= kept[-1].end:
                kept.append(match)
        return kept

    def _in(self, text: bytes, first: int, last: int) -> Iterable[Match[T]]:
        region = text[first:last]
        for form, whose in self._forms:
            for at in _all(region, form.text):
                yield Match(first + at, first + at + len(form.text), form, whose, True)
        folded = Folded(region)
        if folded.text == region:
            return
        for undone, form, whose in self._undone:
            for at in _all(folded.text, undone):
                start, end = folded.begins(at), folded.ends(at + len(undone))
                exact = region[start:end] == form.text
                yield Match(first + start, first + end, form, whose, exact)

    def unfinished(self, text: bytes) -> int:
        """Where that begins, at the end of a text, which may become a form with what follows; the
        text's length if there is no such thing."""
        if not self._forms:
            return len(text)
        least = self._beginning(text)
        region = max(0, len(text) - self._longest * LONGEST_ESCAPE)
        tail = text[region:]
        if cut := CUT_ESCAPE.search(tail):
            tail = tail[: cut.start()]
            least = min(least, region + cut.start())
        folded = Folded(tail)
        at = self._beginning(folded.text)
        if at < len(folded.text):
            least = min(least, region + folded.begins(at))
        return least

    def _beginning(self, text: bytes) -> int:
        first = max(0, len(text) - self._longest + 1)
        tail = text[first:]
        for at in range(len(tail) - _HEAD + 1):
            if (sought := self._heads.get(tail[at : at + _HEAD])) and any(
                form.startswith(tail[at:]) and len(form) > len(tail) - at for form in sought
            ):
                return first + at
        for size in range(min(_HEAD - 1, len(tail)), 0, -1):
            if tail[-size:] in self._starts:
                return len(text) - size
        return len(text)

    def _regions(self, text: bytes) -> Iterable[tuple[int, int]]:
        """Where to look closely."""
        if not self._forms:
            return []
        if self._stands_there(text) or any(form in text for form in self._bare):
            return [(0, len(text))]
        sorts = (*ESCAPES, WRAPPED) if self._bare else NEEDLESS_ESCAPES
        breaks = sorted(match.start() for sort in sorts for match in sort.finditer(text))
        span = self._longest * LONGEST_ESCAPE
        regions: list[tuple[int, int]] = []
        for at in breaks:
            first, last = max(0, at - span), at + span
            if regions and first <= regions[-1][1]:
                regions[-1] = (regions[-1][0], last)
            else:
                regions.append((first, last))
        return regions

    def _stands_there(self, text: bytes) -> bool:
        if not self._grid:
            return any(anchor in text for anchor in self._anchors)
        # Fifteen bytes of a form have eight that stand on the grid, wherever they begin.
        plain = text.translate(None, b"\r\n")
        for escape, byte in self._needed:
            plain = plain.replace(escape, byte)
        return not self._grid.isdisjoint(memoryview(plain)[: len(plain) & ~7].cast("Q"))


class Held:
    """The end of a stream that has to wait, and what came since.

    A piece of one byte after a long beginning of a form is not worth another look: such pieces are
    gathered until they are a fraction of it, so that the work stays in proportion to the bytes.
    """

    def __init__(self) -> None:
        self._text = b""
        self._fresh = bytearray()

    def add(self, chunk: bytes) -> bytes | None:
        """All there is to look through; None: wait for more."""
        self._fresh += chunk
        if len(self._text) >= _LONG and len(self._fresh) < len(self._text) // 8:
            return None
        return self.rest()

    def rest(self) -> bytes:
        text = self._text + bytes(self._fresh)
        self._text, self._fresh = b"", bytearray()
        return text

    def keep(self, text: bytes) -> None:
        self._text = text


def _anchors(form: bytes) -> Sequence[bytes]:
    """Two at most, that do not touch: the longest there are, for they are the fastest to find."""
    runs = sorted(_ANCHOR.findall(form), key=len)[-2:]
    if runs and len(runs[-1]) >= 2 * _LEAST_ANCHOR + 1:
        longest = runs[-1]
        middle = len(longest) // 2
        if len(runs) == 1 or len(runs[0]) < middle:
            return [longest[:middle], longest[middle + 1 :]]
    return runs


def _needed_escapes(used: set[int]) -> list[tuple[bytes, bytes]]:
    """How URLs and JSON write those of the bytes that can't stand there as they are."""
    made = []
    for byte in used:
        plain = bytes([byte])
        if not _ANCHOR.match(plain * _LEAST_ANCHOR):
            made += [(escape % byte, plain) for escape in _WRITTEN]
            if plain in b'"/\\':
                made.append((b"\\" + plain, plain))
    return made


def _all(text: bytes, form: bytes) -> Iterable[int]:
    at = text.find(form)
    while at >= 0:
        yield at
        at = text.find(form, at + len(form))
