"""Sizes and times as people write them, on the command line and in files. Light."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\Z", re.IGNORECASE | re.ASCII)
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)\Z", re.IGNORECASE | re.ASCII)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SECONDS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST = 32
# Beyond these no limit means anything, and other doors refuse them too.
_MAX_SIZE = 1 << 60
_MAX_SECONDS = 1e9


def parse_size(text: str) -> int:
    """`512M`, `2GiB`, `1048576`: bytes, by powers of 1024. ValueError for anything else."""
    match = _SIZE.match(text.strip()) if len(text) <= _LONGEST else None
    size = float(match[1]) * _UNITS[match[2].lower()] if match else None
    if size is None or size > _MAX_SIZE:
        raise ValueError(f"{text[:40]!r} is not a size; write 512M or 2G")
    return int(size)


def parse_duration(text: str) -> float:
    """`30`, `1.5s`, `5m`: seconds, more than 0. ValueError for anything else."""
    match = _TIME.match(text.strip()) if len(text) <= _LONGEST else None
    seconds = float(match[1]) * _SECONDS[match[2].lower()] if match else 0.0
    if not 0 < seconds <= _MAX_SECONDS:
        raise ValueError(f"{text[:40]!r} is not a time; write 30, 90s or 5m")
    return seconds


def size_text(size: int) -> str:
    """The shortest that `parse_size` reads back as the same number."""
    for letter in "tgmk":
        if size and size % _UNITS[letter] == 0:
            return f"{size // _UNITS[letter]}{letter.upper()}"
    return str(size)


def duration_text(seconds: float) -> str:
    for letter in "dhms":
        if seconds and seconds % _SECONDS[letter] == 0:
            return f"{seconds / _SECONDS[letter]:.0f}{letter}"
    return f"{seconds:g}"


def short_size(size: int) -> str:
    """For people: three figures and a unit."""
    value, unit = float(size), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1000:
            break
        value, unit = value / 1024, larger
    if unit == "bytes":
        return f"{size} bytes"
    return f"{value:.0f} {unit}" if value >= 99.95 else f"{value:.1f} {unit}"
