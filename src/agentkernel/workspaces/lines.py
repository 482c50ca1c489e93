"""Where two texts differ, line by line, and what two changes of one text come to together.

The texts may be made by somebody who wants this to take for ever: so the work is counted, and what
is beyond it is taken for replaced as a whole.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

Line = TypeVar("Line", str, bytes)
Block = tuple[int, int, int, int]
"""Where two texts differ: from, to in the one; from, to in the other."""

# Lines and cells of tables that are looked at for one comparison; about a second of work.
_MOST_WORK = 4_000_000
# Up to this many cells every line is compared with every other.
_SMALL = 4096
_MOST_CELLS = 1_000_000


@dataclass(frozen=True)
class Merged:
    """`conflicts`: how often both have changed the same lines; then these stand between marks."""

    content: bytes
    conflicts: int


def line_blocks(left: Sequence[Line], right: Sequence[Line]) -> list[Block]:
    """In order; nothing for texts that are the same."""
    blocks: list[Block] = []
    at_left = at_right = 0
    for i, j in [*_pairs(left, right), (len(left), len(right))]:
        if i > at_left or j > at_right:
            blocks.append((at_left, i, at_right, j))
        at_left, at_right = i + 1, j + 1
    return blocks


def _pairs(left: Sequence[Line], right: Sequence[Line]) -> list[tuple[int, int]]:
    """Lines that stay, by their numbers in both. Lines that are there once on each side come first;
    between them all is compared with all, where that is little."""
    numbers: dict[Line, int] = {}
    a = [numbers.setdefault(line, len(numbers)) for line in left]
    b = [numbers.setdefault(line, len(numbers)) for line in right]
    found: list[tuple[int, int]] = []
    work = _MOST_WORK
    pending = [(0, len(a), 0, len(b))]
    while pending:
        a1, a2, b1, b2 = pending.pop()
        while a1 < a2 and b1 < b2 and a[a1] == b[b1]:
            found.append((a1, b1))
            a1, b1 = a1 + 1, b1 + 1
        while a1 < a2 and b1 < b2 and a[a2 - 1] == b[b2 - 1]:
            a2, b2 = a2 - 1, b2 - 1
            found.append((a2, b2))
        cells = (a2 - a1) * (b2 - b1)
        work -= (a2 - a1) + (b2 - b1)
        if not cells or work < 0:
            continue
        anchors: list[tuple[int, int]] = []
        if cells > _SMALL:
            anchors = _anchors(a, b, (a1, a2, b1, b2))
        if anchors:
            for i, j in [*anchors, (a2, b2)]:
                pending.append((a1, i, b1, j))
                a1, b1 = i + 1, j + 1
            found += anchors
        elif cells <= min(_MOST_CELLS, work):
            work -= cells
            found += _longest_common(a, b, (a1, a2, b1, b2))
    return sorted(found)


def _anchors(a: list[int], b: list[int], within: Block) -> list[tuple[int, int]]:
    """Lines that are there once on each side, as many as stand in the same order on both."""
    a1, a2, b1, b2 = within
    in_a = _once(a, a1, a2)
    in_b = _once(b, b1, b2)
    shared = [(i, in_b[line]) for line, i in in_a.items() if line in in_b]
    ends: list[int] = []  # of runs of each length, the least end
    last: list[int] = []  # which of `shared` that is
    before: list[int] = []
    for number, (_, j) in enumerate(shared):
        at = bisect_left(ends, j)
        before.append(last[at - 1] if at else -1)
        ends[at : at + 1] = [j]
        last[at : at + 1] = [number]
    run: list[tuple[int, int]] = []
    number = last[-1] if last else -1
    while number >= 0:
        run.append(shared[number])
        number = before[number]
    return run[::-1]


def _once(lines: list[int], start: int, end: int) -> dict[int, int]:
    """Lines that are there once, and where, in order."""
    seen: dict[int, int] = {}
    for number in range(start, end):
        seen[lines[number]] = -1 if lines[number] in seen else number
    return {line: number for line, number in seen.items() if number >= 0}


def _longest_common(a: list[int], b: list[int], within: Block) -> list[tuple[int, int]]:
    a1, a2, b1, b2 = within
    rows = [[0] * (b2 - b1 + 1)]
    for i in range(a2 - 1, a1 - 1, -1):
        below, line = rows[-1], a[i]
        row = [0] * (b2 - b1 + 1)
        best = 0
        for j in range(b2 - b1 - 1, -1, -1):
            if line == b[b1 + j]:
                best = below[j + 1] + 1
            elif below[j] > best:
                best = below[j]
            row[j] = best
        rows.append(row)
    rows.reverse()
    found = []
    i, j = a1, b1
    while i < a2 and j < b2:
        here = rows[i - a1][j - b1]
        if a[i] == b[j]:
            found.append((i, j))
            i, j = i + 1, j + 1
        elif rows[i - a1 + 1][j - b1] == here:
            i += 1
        else:
            j += 1
    return found


def split_lines(content: bytes) -> list[bytes]:
    """By newlines alone: what else ends a line somewhere is part of it."""
    lines = [part + b"\n" for part in content.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def merge(base: bytes, ours: bytes, theirs: bytes, *, our_name: str, their_name: str) -> Merged:
    """Both changes of `base` at once. Changes of lines beside each other are changes of the same
    lines: whether they belong together nobody knows."""
    old, left, right = split_lines(base), split_lines(ours), split_lines(theirs)
    changes = [line_blocks(old, left), line_blocks(old, right)]
    at = [0, 0]
    shift = [0, 0]
    texts = (left, right)
    out: list[bytes] = []
    conflicts = done = 0
    while at[0] < len(changes[0]) or at[1] < len(changes[1]):
        start = min(changes[k][at[k]][0] for k in (0, 1) if at[k] < len(changes[k]))
        out += old[done:start]
        end = start
        first, before = list(at), list(shift)
        grows = True
        while grows:
            grows = False
            for k in (0, 1):
                while at[k] < len(changes[k]) and changes[k][at[k]][0] <= end:
                    i1, i2, j1, j2 = changes[k][at[k]]
                    end = max(end, i2)
                    shift[k] += (j2 - j1) - (i2 - i1)
                    at[k] += 1
                    grows = True
        here, there = (texts[k][start + before[k] : end + shift[k]] for k in (0, 1))
        if at[1] == first[1] or here == there:
            out += here
        elif at[0] == first[0]:
            out += there
        else:
            conflicts += 1
            out += _marked(here, there, our_name, their_name)
        done = end
    out += old[done:]
    return Merged(b"".join(out), conflicts)


def _marked(here: list[bytes], there: list[bytes], our_name: str, their_name: str) -> list[bytes]:
    def ended(lines: list[bytes]) -> list[bytes]:
        if lines and not lines[-1].endswith(b"\n"):
            return [*lines[:-1], lines[-1] + b"\n"]
        return lines

    return [
        f"<<<<<<< {our_name}\n".encode(), *ended(here),
        b"=======\n", *ended(there),
        f">>>>>>> {their_name}\n".encode(),
    ]  # fmt: skip
