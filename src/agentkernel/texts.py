"""Values as JSON can hold them. Paths of guests are bytes, and may stand in any message."""

from __future__ import annotations

from typing import Any


def encodable(value: Any) -> Any:
    """The same value in text that is UTF-8; what JSON has no form for as its own words."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {encodable(key): encodable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [encodable(entry) for entry in value]
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def printable(text: str, most: int = 300) -> str:
    """Words of a stranger, for a message: a line, no control characters, not too long."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text[:most])
