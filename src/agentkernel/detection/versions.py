"""Versions as projects ask for them: pins, ranges, wildcards, in the dialects of many tools.

Everything becomes half-open ranges of three numbers, so that one comparison serves all. What is not
understood asks for nothing: a wish that nobody can read must not stop a command.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

Version = tuple[int, int, int]

MAX_TEXT = 200
MAX_ATOMS = 16
_TOP: Version = (1 << 30, 0, 0)
_ZERO: Version = (0, 0, 0)
_NUMBERS = re.compile(
    r"[vV=]?(\d{1,6})(?!\d)(?:\.(\d{1,6}(?!\d)|[xX*]))?(?:\.(\d{1,6}(?!\d)|[xX*]))?"
)
_ATOM = re.compile(r"(>=|<=|==|!=|~=|~>|=>|\^|~|>|<|=)?[ ]?([vV]?\d[\w.*+-]{0,40}|[*xX])")


@dataclass(frozen=True, slots=True)
class Span:
    """From `low` to just below `high`, without `holes`."""

    low: Version = _ZERO
    high: Version = _TOP
    holes: tuple[tuple[Version, Version], ...] = ()

    def has(self, version: Version) -> bool:
        inside = self.low <= version < self.high
        return inside and not any(low <= version < high for low, high in self.holes)


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for. `text` as it was written; any one of `spans` will do. `exact`: one single
    version, of which no other will do."""

    text: str
    spans: tuple[Span, ...]
    exact: Version | None = None

    def allows(self, version: Version) -> bool:
        return any(span.has(version) for span in self.spans)

    def allows_series(self, series: Sequence[int]) -> bool:
        """Whether the newest of a series, such as 3.12, will do."""
        head = tuple(series)[:3]
        return self.allows(_three(head + (9999,) * (3 - len(head))))

    @property
    def least(self) -> Version:
        return min(span.low for span in self.spans)


def parse_version(text: str) -> Version | None:
    """The first number in a program's words about itself, such as `Python 3.12.1`."""
    found = re.search(r"(?<![\d.])(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?", text[:2000])
    if found is None:
        whole = re.search(r"(?<![\d.])[vV]?(\d{1,6})(?![\d.])", text[:2000])
        return None if whole is None else (int(whole[1]), 0, 0)
    return int(found[1]), int(found[2]), int(found[3] or 0)


def parse_wish(text: str, precision: int, *, wide_tilde: bool = False) -> Wish | None:
    """`3.12`, `>=3.11,<4`, `^20 || ^22`, `~> 3.2`, `20.x`, `18 - 20`; None: nothing is asked for,
    or nothing that can be read.

    A bare version asks for it or a newer one of its series, which are the first `precision`
    numbers. `wide_tilde`: `~1.2` is what Composer means by it, below 2.
    """
    text = " ".join(text[: MAX_TEXT + 1].split())
    if not text or len(text) > MAX_TEXT or not text.isprintable():
        return None
    spans: list[Span] = []
    exact: list[Version | None] = []
    for part in text.replace("||", "|").split("|"):
        found = _alternative(part.strip(), precision, wide_tilde)
        if found is None:
            return None
        spans.append(found[0])
        exact.append(found[1])
    if spans == [Span()]:
        return None
    return Wish(text, tuple(spans), exact[0] if len(exact) == 1 else None)


def at_least(text: str) -> Wish | None:
    """What a bare version means where newer ones will do, as in go.mod."""
    parts = _parts(text)
    if parts is None or len(text) > MAX_TEXT:
        return None
    return Wish(f">={text.strip()}", (Span(_three(parts)),))


def _alternative(text: str, precision: int, wide: bool) -> tuple[Span, Version | None] | None:
    if " - " in text:
        low, _, high = text.partition(" - ")
        first, last = _parts(low), _parts(high)
        if first is None or last is None:
            return None
        return Span(_three(first), _after(last)), None
    atoms: list[tuple[str, str]] = []
    at = 0
    text = text.strip(" ,")
    while at < len(text):
        found = _ATOM.match(text, at)
        if found is None or len(atoms) == MAX_ATOMS:
            return None
        atoms.append((found[1] or "", found[2]))
        at = found.end()
        while at < len(text) and text[at] in " ,":
            at += 1
    span, exact = Span(), None
    for operator, version in atoms:
        if version in ("*", "x", "X"):
            continue
        parts = _parts(version)
        if parts is None:
            return None
        span = _narrowed(span, operator, parts, precision, wide)
        if operator in ("=", "==") and len(parts) == 3:
            exact = _three(parts)
    return (span, exact) if atoms and span.low < span.high else None


def _narrowed(
    span: Span, operator: str, parts: tuple[int, ...], precision: int, wide: bool
) -> Span:
    here = _three(parts)
    match operator:
        case ">=" | "=>":
            low, high = here, _TOP
        case ">":
            low, high = _after(parts), _TOP
        case "<":
            low, high = _ZERO, here
        case "<=":
            low, high = _ZERO, _after(parts)
        case "!=":
            return Span(span.low, span.high, (*span.holes, (here, _after(parts))))
        case "=" | "==":
            low, high = here, _after(parts)
        case "^":
            fixed = 1 if parts[0] or len(parts) < 2 else 2
            low, high = here, _after(parts[:fixed])
        case "~=" | "~>":
            low, high = here, _after(parts[: max(1, len(parts) - 1)])
        case "~":
            kept = max(1, len(parts) - 1) if wide else min(2, len(parts))
            low, high = here, _after(parts[:kept])
        case _:
            low, high = here, _after(parts[:precision])
    return Span(max(span.low, low), min(span.high, high), span.holes)


def _parts(text: str) -> tuple[int, ...] | None:
    """The numbers before the first wildcard: 3.12.x is (3, 12)."""
    found = _NUMBERS.match(text.strip())
    if found is None:
        return None
    parts: list[int] = []
    for group in found.groups():
        if group is None or not group.isdigit():
            break
        parts.append(int(group))
    return tuple(parts)


def _three(parts: Sequence[int]) -> Version:
    first, second, third = (*parts, 0, 0, 0)[:3]
    return first, second, third


def _after(parts: Sequence[int]) -> Version:
    """The first version that does not begin with these numbers."""
    return _three((*parts[:-1], parts[-1] + 1))
