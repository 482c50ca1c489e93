"""What a 401 asks for: the WWW-Authenticate header (RFC 9110, section 11), from a stranger."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_MOST_BYTES = 8 << 10
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_SCHEME = re.compile(rf"[ \t,]*({_TOKEN})(?:[ \t]+|\Z|(?=,))")
_PARAMETER = re.compile(
    rf'[ \t,]*({_TOKEN})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|({_TOKEN}(?:=*)))[ \t]*(?:,|\Z)'
)


@dataclass(frozen=True)
class Challenge:
    """One way to get in. `scheme` and names of parameters are in lower case."""

    scheme: str
    parameters: dict[str, str] = field(default_factory=dict)


def parse_challenges(headers: Sequence[str]) -> list[Challenge]:
    """What can't be read is left out."""
    found: list[Challenge] = []
    for text in headers:
        if len(text) <= _MOST_BYTES:
            found.extend(_parse(text))
    return found


def _parse(text: str) -> list[Challenge]:
    found: list[Challenge] = []
    position = 0
    while match := _SCHEME.match(text, position):
        if text[match.end() : match.end() + 1] == "=":
            break
        parameters: dict[str, str] = {}
        position = match.end()
        while parameter := _PARAMETER.match(text, position):
            name, quoted, plain = parameter.groups()
            value = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain
            parameters.setdefault(name.lower(), value)
            position = parameter.end()
        found.append(Challenge(match.group(1).lower(), parameters))
    return found
