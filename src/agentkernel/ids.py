"""Identifiers: sandbox and process ids, and the names people give."""

from __future__ import annotations

import os
import re

from agentkernel.errors import InvalidInputError

_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z")


def new_id() -> str:
    """20 characters of `[a-z0-9]`: about 103 bits, no character that a URL or label splits on."""
    # 252 is the largest multiple of 36 below 256: what is above it would favour some letters.
    letters: list[str] = []
    while len(letters) < 20:
        letters.extend(_ALPHABET[b % 36] for b in os.urandom(24) if b < 252)
    return "".join(letters[:20])


def is_id(text: str) -> bool:
    """Whether it looks like one of ours."""
    return len(text) == 20 and all(letter in _ALPHABET for letter in text)


def check_name(name: str, what: str = "sandbox") -> str:
    """Returns `name` if it may name a sandbox, or whatever else has such names."""
    if not _NAME.match(name):
        raise InvalidInputError(
            f"{name[:64]!r} is not a {what} name",
            hint="use lower-case letters, digits and '-', at most 63, no '-' at the start",
        )
    return name
