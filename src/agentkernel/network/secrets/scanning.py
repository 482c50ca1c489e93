"""Takes secrets out of what comes back: a value that a server reflects arrives as its placeholder.

It is looked for as it is, in base64 at any alignment, in hex, and escaped in any of these as URLs,
JSON and HTML do; however it is cut into pieces. The text may get shorter where an escaped form is
replaced, so a body that passes here can't keep its Content-Length.
"""

from __future__ import annotations

import os.path
import zlib
from collections.abc import Iterable
from typing import Final

from agentkernel.network.secrets.finding import Finder, Held
from agentkernel.network.secrets.forms import encoded

MOST_INFLATED: Final = 1 << 16
"""How much of an inflated body there is in memory at a time."""
_MOST_RELEASED: Final = 6
CODINGS: Final = ("gzip", "x-gzip", "deflate")


class Scanner:
    """One response."""

    def __init__(self, replacer: Replacer) -> None:
        self._replacer = replacer
        self._held = Held()
        self._shown = 0
        """How much of the beginning of what is held was given out all the same."""

    def response_headers(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Names are left alone: a server does not choose them by what it was sent."""
        return [(name, self._replacer.replace(value)) for name, value in headers]

    def feed(self, chunk: bytes) -> bytes:
        """What may go on."""
        text = self._held.add(chunk)
        if text is None:
            return b""
        ready, rest = self._replacer.split(text)
        self._held.keep(rest)
        return self._unseen(ready)

    def release(self) -> bytes:
        """What is held back, when nothing follows for a while: a few bytes that may begin a value,
        by chance nearly always. They stay in mind: should the rest of a value follow, it is
        replaced. More than a few are not given out, or a server that pauses could have a value
        pass but for its end."""
        held = self._held.rest()
        self._held.keep(held)
        if len(held) > self._replacer.most_released:
            return b""
        fresh, self._shown = held[self._shown :], len(held)
        return fresh

    def finish(self) -> bytes:
        """The rest."""
        return self._unseen(self._replacer.replace(self._held.rest()))

    def _unseen(self, ready: bytes) -> bytes:
        seen = min(self._shown, len(ready))
        self._shown -= seen
        return ready[seen:]


class Replacer:
    """Values and their placeholders, ready to be looked for in any number of responses."""

    def __init__(self, pairs: Iterable[tuple[bytes, str]]) -> None:
        known = [(value, name.encode("ascii")) for value, name in pairs]
        self._finder = Finder(known)
        # The vendor's prefix is in the placeholder, too, and no secret.
        public = (len(os.path.commonprefix(pair)) for pair in known)
        self.most_released = min(public, default=0) + _MOST_RELEASED

    def replace(self, text: bytes) -> bytes:
        return self._replaced(text, len(text))[0]

    def split(self, text: bytes) -> tuple[bytes, bytes]:
        """What is certain, with its values replaced, and what has to wait for more."""
        return self._replaced(text, self._finder.unfinished(text))

    def _replaced(self, text: bytes, limit: int) -> tuple[bytes, bytes]:
        pieces: list[bytes] = []
        at = 0
        for match in self._finder.find(text):
            if match.start >= limit:
                break
            limit = max(limit, match.end)
            form = match.form
            pieces += [text[at : match.start], encoded(match.whose, form.kind, form.shift).text]
            at = match.end
        if not pieces:
            return text[:limit], text[limit:]
        return b"".join((*pieces, text[at:limit])), text[limit:]


class Inflater:
    """Undoes gzip or deflate, a bounded piece at a time. Raises ValueError for what is damaged, or
    more than `most` bytes in all."""

    def __init__(self, coding: str, most: int | None = None) -> None:
        if coding not in CODINGS:
            raise ValueError(f"{coding} can't be undone here")
        self._deflate = coding == "deflate"
        self._left = most
        self._engine: zlib._Decompress | None = None

    def feed(self, chunk: bytes) -> Iterable[bytes]:
        """Pieces of at most MOST_INFLATED bytes. They have to be taken before the next call."""
        more = bool(chunk)
        while more:
            if self._engine is None:
                self._engine = zlib.decompressobj(self._window(chunk))
            try:
                piece = self._engine.decompress(chunk, MOST_INFLATED)
            except zlib.error as error:
                raise ValueError(f"damaged: {error}") from None
            if self._left is not None:
                self._left -= len(piece)
                if self._left < 0:
                    raise ValueError("it inflates to more than is allowed")
            if piece:
                yield piece
            if self._engine.eof:  # gzip may have several members, one after the other
                chunk, self._engine = self._engine.unused_data, None
                more = bool(chunk)
            else:
                chunk = self._engine.unconsumed_tail
                more = bool(chunk) or len(piece) == MOST_INFLATED

    def finish(self) -> None:
        """Raises ValueError if the end is missing."""
        if self._engine is not None and not self._engine.eof:
            raise ValueError("damaged: its end is missing")

    def _window(self, chunk: bytes) -> int:
        if not self._deflate:
            return 31
        # "deflate" means zlib's format; some servers send the bare stream.
        return 15 if chunk[0] & 0x0F == 8 else -15
