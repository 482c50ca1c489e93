"""`.dockerignore`: which files of a directory are no part of the context.

A line is a pattern of Go's filepath.Match for a path from the top, `**` for any number of
directories, `!` for an exception, `#` for a comment. The last that matches decides; what is below a
match is matched too.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from agentkernel.errors import InvalidInputError

MAX_IGNORE_BYTES = 1 << 20
_MAX_PATTERNS = 4096
_MAX_DEEP = 4


@dataclass(frozen=True)
class _Pattern:
    expression: re.Pattern[str]
    is_exception: bool
    parts: tuple[str, ...]


class Ignore:
    """See the module."""

    def __init__(self, content: bytes = b"") -> None:
        """Raises InvalidInputError with the line."""
        if len(content) > MAX_IGNORE_BYTES:
            raise InvalidInputError("the .dockerignore has more than 1 MiB")
        self._patterns: list[_Pattern] = []
        text = content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
        for number, raw in enumerate(text.split("\n"), start=1):
            line = raw.strip()
            if not line or raw.startswith("#"):
                continue
            if len(self._patterns) >= _MAX_PATTERNS:
                raise InvalidInputError(f"the .dockerignore has over {_MAX_PATTERNS} patterns")
            self._add(line, number)
        self._has_exceptions = any(pattern.is_exception for pattern in self._patterns)

    def _add(self, line: str, number: int) -> None:
        is_exception = line.startswith("!")
        text = line[1:].strip() if is_exception else line
        if not text:
            raise InvalidInputError(f".dockerignore, line {number}: an exception of nothing")
        clean = posixpath.normpath(text).lstrip("/")
        if clean in ("", "."):
            return
        try:
            expression = re.compile(to_expression(clean) + r"\Z", re.DOTALL)
        except (re.error, ValueError):
            raise InvalidInputError(
                f".dockerignore, line {number}: {text[:100]!r} is no pattern"
            ) from None
        self._patterns.append(_Pattern(expression, is_exception, tuple(clean.split("/"))))

    def leaves_out(self, path: str) -> bool:
        """`path` from the top, without `./`."""
        ignored = False
        tries = [path]
        while (parent := posixpath.dirname(tries[-1])) != "":
            tries.append(parent)
        for pattern in self._patterns:
            if pattern.is_exception != ignored:
                continue
            if any(pattern.expression.match(one) for one in tries):
                ignored = not pattern.is_exception
        return ignored

    def leaves_out_all_below(self, directory: str) -> bool:
        """True if nothing below an ignored directory can be an exception: it need not be read."""
        if not self._has_exceptions:
            return True
        depth = directory.count("/") + 1
        parts = directory.split("/")
        for pattern in self._patterns:
            if not pattern.is_exception:
                continue
            if any("**" in part for part in pattern.parts[: depth + 1]):
                return False
            if len(pattern.parts) <= depth:
                continue  # what it matches, it has matched above
            if all(
                re.match(to_expression(one) + r"\Z", part, re.DOTALL)
                for one, part in zip(pattern.parts, parts, strict=False)
            ):
                return False
        return True


def to_expression(pattern: str, *, any_depth: bool = True) -> str:
    """The regular expression of a pattern. Raises ValueError for one that can't be read, or has so
    many `**` that matching could take for ever. Without `any_depth`, `**` is a `*` like any other.

    A `*` before another `*` of the same path takes as little as it can and never more (an atomic
    group): what follows can be found as well by the second. So the time is that of the length.
    """
    found: list[str] = []
    fixed: list[str] = []
    star = ""
    deep = 0

    def close(before_star: bool) -> None:
        nonlocal star
        text = "".join(fixed)
        fixed.clear()
        found.append(f"(?>{star}?{text})" if star and before_star else star + text)
        star = ""

    position = 0
    while position < len(pattern):
        char = pattern[position]
        position += 1
        if char == "*":
            is_deep = any_depth and pattern[position : position + 1] == "*"
            while pattern[position : position + 1] == "*":
                position += 1
            close(not is_deep)
            if not is_deep:
                star = "[^/]*"
                continue
            deep += 1
            if deep > _MAX_DEEP:
                raise ValueError("too many **")
            if pattern[position : position + 1] == "/":
                position += 1
                found.append("(?:[^/]+/)*")
            else:
                found.append(".*")
        elif char == "?":
            fixed.append("[^/]")
        elif char == "\\":
            if position >= len(pattern):
                raise ValueError("a pattern ends with an escape")
            fixed.append(re.escape(pattern[position]))
            position += 1
        elif char == "[":
            position = _class(pattern, position, fixed)
        else:
            fixed.append(re.escape(char))
    close(False)
    return "".join(found)


def _class(pattern: str, position: int, found: list[str]) -> int:
    """`[abc]`, `[a-z]`, `[^a]`; the position behind it."""
    is_negated = pattern[position : position + 1] == "^"
    position += is_negated
    ranges: list[str] = []
    while True:
        if position >= len(pattern):
            raise ValueError("[ has no ]")
        char = pattern[position]
        position += 1
        if char == "]" and ranges:
            break
        if char == "\\":
            if position >= len(pattern):
                raise ValueError("[ has no ]")
            char = pattern[position]
            position += 1
        if pattern[position : position + 1] == "-" and pattern[position + 1 : position + 2] != "]":
            end = pattern[position + 1 : position + 2]
            position += 2
            if end == "\\":
                end = pattern[position : position + 1]
                position += 1
            if not end:
                raise ValueError("[ has no ]")
            # One that ends before it begins has nothing in it.
            ranges.append(f"{re.escape(char)}-{re.escape(end)}" if end >= char else "")
        else:
            ranges.append(re.escape(char))
    text = "".join(ranges)
    if not text:
        found.append(r"(?!)")
    elif is_negated:
        found.append(f"(?!/)[^{text}]")
    else:
        found.append(f"(?!/)[{text}]")
    return position
