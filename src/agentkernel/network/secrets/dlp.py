r"""Patterns of the user's that no request may contain, such as `AKIA[0-9A-Z]{16}`.

A guest chooses the text they are matched with, and Python's `re` can't be stopped once it runs. So
a pattern has to be one whose work is bounded by its own words: repeats have a bound, what is
repeated a varying number of times is one character, and all the ways to match from one place are
few. Their width is bounded too, so it is known how much has to be held back of a body.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from importlib import import_module
from typing import Any, Final

from agentkernel.errors import InvalidInputError

# What `re` itself reads patterns with; the same since 3.11, and nobody's types know it.
_codes: Any = import_module("re._constants")
_parser: Any = import_module("re._parser")

MOST_PATTERNS: Final = 64
MOST_WIDTH: Final = 1024
_MOST_TEXT: Final = 512
# Ways to match from one place: variable repeats multiply.
_MOST_WAYS: Final = 512
_PLAIN: Final = frozenset(
    (_codes.LITERAL, _codes.NOT_LITERAL, _codes.IN, _codes.ANY, _codes.AT, _codes.CATEGORY)
)


class Patterns:
    """Compiled once. `width`: the longest text that any of them can match."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._compiled = [check_pattern(text) for text in texts]
        if len(self._compiled) > MOST_PATTERNS:
            raise InvalidInputError(f"there are more than {MOST_PATTERNS} patterns")
        self.width = max(
            (_parser.parse(each.pattern).getwidth()[1] for each in self._compiled), default=0
        )

    def __bool__(self) -> bool:
        return bool(self._compiled)

    def find(self, text: bytes) -> str | None:
        """The pattern that is in it: its own words, never what it matched."""
        for pattern in self._compiled:
            if pattern.search(text):
                return pattern.pattern.decode()
        return None


def check_pattern(text: str) -> re.Pattern[bytes]:
    """Raises InvalidInputError that says what is wrong with it."""
    if len(text) > _MOST_TEXT:
        raise InvalidInputError(f"a pattern has at most {_MOST_TEXT} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            parsed = _parser.parse(text.encode("ascii"))
            compiled = re.compile(text.encode("ascii"))
    except UnicodeEncodeError:
        raise InvalidInputError(
            "a pattern is matched with bytes: write what is not ASCII as \\xNN"
        ) from None
    except (re.error, OverflowError, RecursionError, Warning) as error:
        raise InvalidInputError(f"{text!r} is not a regular expression: {error}") from None
    low, high = parsed.getwidth()
    if low == 0:
        raise InvalidInputError(
            f"the pattern {text!r} matches nothing at all, which is in every request"
        )
    if high > MOST_WIDTH:
        raise InvalidInputError(
            f"the pattern {text!r} can match more than {MOST_WIDTH} bytes",
            hint="give its repeats a bound: {1,200} instead of +, {0,200} instead of *",
        )
    if _ways(parsed, text) > _MOST_WAYS:
        raise InvalidInputError(
            f"the pattern {text!r} can match in too many ways from one place",
            hint=f"the ranges of its varying repeats may multiply to {_MOST_WAYS} at most",
        )
    return compiled


def _ways(parsed: Any, text: str) -> int:
    """How many ways there are through it, at most."""
    ways = 1
    for code, words in parsed:
        if code in _PLAIN:
            continue
        if code is _codes.SUBPATTERN:
            ways *= _ways(words[3], text)
        elif code is _codes.BRANCH:
            ways *= sum(_ways(branch, text) for branch in words[1])
        elif code in (_codes.MAX_REPEAT, _codes.MIN_REPEAT, _codes.POSSESSIVE_REPEAT):
            least, most, inner = words
            inside = _ways(inner, text)
            if most > MOST_WIDTH:
                raise InvalidInputError(
                    f"the pattern {text!r} repeats something without a bound",
                    hint="{1,200} instead of +, {0,200} instead of *",
                )
            if inside > 1 and most > 1:
                raise InvalidInputError(
                    f"the pattern {text!r} repeats what itself can match in several ways",
                    hint="repeat single characters or classes only, as in [a-z]{1,40}",
                )
            ways *= (most - least + 1) * inside
        else:
            raise InvalidInputError(
                f"the pattern {text!r} uses a feature that is not for guarding requests",
                hint="characters, classes, groups, alternatives and bounded repeats are there",
            )
        if ways > 1 << 40:
            break
    return ways
