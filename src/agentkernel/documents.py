"""JSON, JSON with comments and TOML that somebody else wrote: a value, or DocumentError.

Parsers trust their input more than we may: nesting ends Python's stack, and `tomllib` keeps every
beginning of a dotted key, so that 64 KiB of `a.a.a…` take gigabytes. What is refused here for that
no real file has. How long a text may be is the caller's to say.
"""

from __future__ import annotations

import json
from typing import Any

# A line with more is a bomb: what a dotted key takes grows with the square of its parts.
_MOST_DOTS = 256
_MOST_LEVELS = 100


class DocumentError(ValueError):
    """The text is not what it should be; the message says why."""


def parse_json(text: str) -> Any:
    _check_depth(text)
    try:
        return json.loads(text.removeprefix("\ufeff"))
    except ValueError as exc:
        raise DocumentError(str(exc)) from None
    except RecursionError:
        raise DocumentError("nested too deeply") from None


def parse_jsonc(text: str) -> Any:
    """With `//` and `/* */` comments and a comma after the last entry."""
    return parse_json(_without_comments(text))


def parse_toml(text: str) -> dict[str, Any]:
    import tomllib

    if any(line.count(".") > _MOST_DOTS for line in text.split("\n")):
        raise DocumentError(f"more than {_MOST_DOTS} dots in a line")
    _check_depth(text)
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as exc:
        raise DocumentError(str(exc)) from None
    except (RecursionError, ValueError, OverflowError):
        raise DocumentError("nested too deeply, or a number that is none") from None


def _check_depth(text: str) -> None:
    """Brackets in strings count, too: what has so many in a row is no document of people's."""
    depth = 0
    for character in text:
        if character in "[{":
            depth += 1
            if depth > _MOST_LEVELS:
                raise DocumentError("nested too deeply")
        elif character in "]}":
            depth = max(0, depth - 1)


def _without_comments(text: str) -> str:
    """The same with comments and last commas gone. One pass, whatever the text is."""
    kept: list[str] = []
    at, end = 0, len(text)
    comma = -1  # where in `kept` the last comma is that nothing but blanks follow
    while at < end:
        character = text[at]
        if character == '"':
            close = at + 1
            while close < end and text[close] not in '"\n':
                close += 2 if text[close] == "\\" else 1
            kept.append(text[at : close + 1])
            at, comma = close + 1, -1
            continue
        if text.startswith("//", at):
            line = text.find("\n", at)
            at = end if line < 0 else line
            continue
        if text.startswith("/*", at):
            close = text.find("*/", at + 2)
            if close < 0:
                raise DocumentError("a comment that does not end")
            at = close + 2
            continue
        if character == ",":
            comma = len(kept)
        elif character in "]}":
            if comma >= 0:
                kept[comma] = ""
            comma = -1
        elif not character.isspace():
            comma = -1
        kept.append(character)
        at += 1
    return "".join(kept)
