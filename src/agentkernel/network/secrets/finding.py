"""Looks for secrets and placeholders, in all their forms, in bytes that come in pieces.

What must hold: of a form that is there, however it is cut into pieces, no caller is told to let a
piece go before the whole has been seen. What is held back for that is no more than could begin a
form, so that streams go on at once.

It is fast where there is nothing, which is nearly always. A form has two *anchors*: stretches that
no encoder escapes. If a form is there, either an anchor stands there as it is, or something breaks
both of them; so a text without anchors and without two escapes close to each other has no form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from agentkernel.network.secrets.forms import (
    CUT_ESCAPE,
    ESCAPES,
    LONGEST_ESCAPE,
    WRAPPED,
    Folded,
    Form,
    forms,
)

T = TypeVar("T")

_ANCHOR_BYTES: Final = 8
_ANCHOR: Final = re.compile(rb"[A-Za-z0-9_.~-]{8}")
# Beyond so many anchors one pass over eight bytes at a time is faster than one pass each.
_FEW: Final = 64
_HEAD: Final = 3
_LONG: Final = 1024


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
                if len(text) >= _ANCHOR_BYTES:
                    self._undone.append((text, form, whose))
                    self._heads.setdefault(text[:_HEAD], []).append(text)
                    self._starts.update(text[:size] for size in range(1, _HEAD))
        self._longest = max((len(form.text) for form, _ in self._forms), default=0)
        self._anchors = tuple(anchors)
        self._grid: frozenset[int] = frozenset()
        if len(anchors) > _FEW:
            self._grid = frozenset(
                int.from_bytes(form.text[at : at + 8], "little")
                for form, _ in self._forms
                for at in range(len(form.text) - 7)
            )

    def find(self, text: bytes) -> list[Match[T]]:
        """From left to right; where two overlap, the one that begins first, or else the longer."""
        if not self._forms or not self._suspicious(text):
            return []
        found = [
            Match(at, at + len(form.text), form, whose, True)
            for form, whose in self._forms
            for at in _all(text, form.text)
        ]
        folded = Folded(text)
        if folded.text != text:
            for undone, form, whose in self._undone:
                for at in _all(folded.text, undone):
                    start = folded.begins(at)
                    end = folded.ends(at + len(undone))
                    exact = text[start:end] == form.text
                    found.append(Match(start, end, form, whose, exact))
        found.sort(key=lambda match: (match.start, -match.end, not match.exact))
        kept: list[Match[T]] = []
        for match in found:
            if not kept or match.start >= kept[-1].end:
                kept.append(match)
        return kept

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

    def _suspicious(self, text: bytes) -> bool:
        if self._grid:
            # Fifteen bytes of a form have eight that stand on the grid, wherever they begin.
            lines = text.translate(None, b"\r\n")
            if not self._grid.isdisjoint(memoryview(lines)[: len(lines) & ~7].cast("Q")):
                return True
        elif any(anchor in text for anchor in self._anchors):
            return True
        escapes = [match.start() for escape in ESCAPES for match in escape.finditer(text)]
        if self._bare or self._grid:
            return bool(escapes) or any(form in text for form in self._bare)
        escapes.sort()
        span = self._longest * LONGEST_ESCAPE
        return any(
            right - left <= span for left, right in zip(escapes, escapes[1:], strict=False)
        ) or any(WRAPPED.search(text, max(0, at - span), at + span) for at in escapes)


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
    """Two at most, that do not touch, from the end: what forms have in common is their prefix."""
    found: list[bytes] = []
    end = len(form)
    while end >= _ANCHOR_BYTES and len(found) < 2:
        if _ANCHOR.fullmatch(form, end - _ANCHOR_BYTES, end):
            found.append(form[end - _ANCHOR_BYTES : end])
            end -= _ANCHOR_BYTES
        else:
            end -= 1
    return found


def _all(text: bytes, form: bytes) -> Iterable[int]:
    at = text.find(form)
    while at >= 0:
        yield at
        at = text.find(form, at + len(form))
