"""Output as much of which is shown as an answer should hold, and the rest page by page.

Nothing is ever cut inside a character. What is not UTF-8 is shown with replacement marks, and said.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from agentkernel.errors import InvalidInputError, NotFoundError
from agentkernel.ids import new_id

# Of each of stdout and stderr in one answer: the beginning, and more of the end, where what went
# wrong usually stands.
HEAD_BYTES = 8 << 10
TAIL_BYTES = 24 << 10
PAGE_BYTES = 32 << 10
# All that is kept for paging, of everybody together.
KEPT_BYTES = 64 << 20
KEPT_OUTPUTS = 64
_LONGEST_CHARACTER = 4


def whole(data: bytes) -> int:
    """How much of `data` does not end inside a character; all of it if that is not UTF-8."""
    for back in range(1, min(_LONGEST_CHARACTER, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 2 if byte & 0xE0 == 0xC0 else 3 if byte & 0xF0 == 0xE0 else 4
        begins = byte & 0xC0 == 0xC0 and byte < 0xF8
        return len(data) - back if begins and back < length else len(data)
    return len(data)


def begin_of_character(data: bytes, at: int) -> int:
    """The first place at or after `at` where a character begins."""
    for place in range(at, at + _LONGEST_CHARACTER):
        if place >= len(data) or data[place] & 0xC0 != 0x80:
            return min(place, len(data))
    return at  # not UTF-8: any place is as good


def decoded(data: bytes) -> tuple[str, bool]:
    """As text, and whether it is exactly that."""
    try:
        return data.decode(), True
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace"), False


class Shown(NamedTuple):
    """What of an output stands in an answer. `cursor`: where the part that was left out begins."""

    text: str
    exact: bool
    cursor: str | None


class Page(NamedTuple):
    """`next`: the cursor of the following page, None after the last. Offsets are bytes."""

    text: str
    exact: bool
    offset: int
    total: int
    next: str | None


class Outputs:
    """Outputs that were too long for their answer. The one that was read longest ago goes first."""

    def __init__(self, *, most_bytes: int = KEPT_BYTES, most: int = KEPT_OUTPUTS) -> None:
        self._kept: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._bytes = 0
        self._most_bytes = most_bytes
        self._most = most

    def shown(self, owner: str, data: bytes) -> Shown:
        """All of it, or its two ends with a mark between them that says how to get the rest."""
        if len(data) <= HEAD_BYTES + TAIL_BYTES:
            return Shown(*decoded(data), None)
        head = data[: whole(data[:HEAD_BYTES])]
        tail = data[begin_of_character(data, len(data) - TAIL_BYTES) :]
        cursor = self._keep(owner, data, len(head))
        left_out = len(data) - len(head) - len(tail)
        mark = f'\n[… {left_out} bytes left out: the tool output shows them, cursor "{cursor}" …]\n'
        (first, first_exact), (last, last_exact) = decoded(head), decoded(tail)
        return Shown(first + mark + last, first_exact and last_exact, cursor)

    def page(self, owner: str, cursor: str, most: int = PAGE_BYTES) -> Page:
        id, _, digits = cursor.partition(".")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 12):
            raise InvalidInputError(
                "this is not a cursor", hint="take it as it is from the answer that was cut"
            )
        data = self._kept.get((owner, id))
        if data is None:
            raise NotFoundError(
                "the output of this cursor is not kept any more",
                hint="run the command again, with its output in a file, and read that in pieces",
            )
        self._kept.move_to_end((owner, id))
        offset = min(int(digits), len(data))
        piece = data[offset : offset + most]
        end = offset + (whole(piece) if offset + len(piece) < len(data) else len(piece))
        text, exact = decoded(data[offset:end])
        return Page(text, exact, offset, len(data), f"{id}.{end}" if end < len(data) else None)

    def _keep(self, owner: str, data: bytes, offset: int) -> str:
        id = new_id()
        self._kept[owner, id] = data
        self._bytes += len(data)
        while len(self._kept) > self._most or self._bytes > self._most_bytes:
            _, old = self._kept.popitem(last=False)
            self._bytes -= len(old)
        return f"{id}.{offset}"
