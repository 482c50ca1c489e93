"""Values people type, and text that is safe to print."""

from __future__ import annotations

import argparse
import math
import os
import re
from typing import Literal

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\Z", re.IGNORECASE)
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)\Z", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SECONDS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
# Beyond these no limit means anything, and other doors refuse them too.
_MAX_SIZE = 1 << 60
_MAX_SECONDS = 1e9
UNLIMITED: Literal["unlimited"] = "unlimited"


def size_value(text: str) -> int:
    """`512M`, `2GiB`, `1048576`: bytes, by powers of 1024."""
    match = _SIZE.match(text.strip())
    size = float(match[1]) * _UNITS[match[2].lower()] if match else math.inf
    if size > _MAX_SIZE:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a size; write 512M or 2G")
    return int(size)


def size_or_unlimited(text: str) -> int | Literal["unlimited"]:
    return UNLIMITED if text == UNLIMITED else size_value(text)


def duration(text: str) -> float:
    """`30`, `1.5s`, `5m`: seconds."""
    match = _TIME.match(text.strip())
    seconds = float(match[1]) * _SECONDS[match[2].lower()] if match else 0.0
    if not 0 < seconds <= _MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a time; write 30, 90s or 5m")
    return seconds


def environment_entry(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME or NAME=VALUE")
    if not equals:
        if name not in os.environ:
            raise argparse.ArgumentTypeError(f"{name} is not set here; write {name}=VALUE")
        value = os.environ[name]
    return name, value


def label_entry(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def printable(text: str) -> str:
    """No control character of a guest's (or a file name's) making reaches the terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
