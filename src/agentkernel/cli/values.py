"""Values people type, and text that is safe to print."""

from __future__ import annotations

import argparse
import os
import time

from agentkernel.quantities import parse_duration, parse_size

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from typing import Literal

UNLIMITED: Literal["unlimited"] = "unlimited"


def size_value(text: str) -> int:
    """`512M`, `2GiB`, `1048576`: bytes, by powers of 1024."""
    try:
        return parse_size(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None


def size_or_unlimited(text: str) -> int | Literal["unlimited"]:
    return UNLIMITED if text == UNLIMITED else size_value(text)


def duration(text: str) -> float:
    """`30`, `1.5s`, `5m`: seconds."""
    try:
        return parse_duration(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None


def duration_or_none(text: str) -> float | None:
    """The same, or `none`: no such clock."""
    return None if text == "none" else duration(text)


def moment(text: str) -> float:
    """`2h` (ago) or `2026-01-31T12:00` (here): a time in Unix seconds."""
    try:
        return time.time() - parse_duration(text)
    except ValueError:
        pass
    from datetime import datetime

    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time; write 2h or 2026-01-31T12:00"
        ) from None


def count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def port_entry(text: str) -> str:
    """`8000`, `8080:8000`, `127.0.0.1:8080:8000`, `preview:8000`; the daemon knows it better."""
    if not text or not text.rpartition(":")[2].isdigit() or any(map(str.isspace, text)):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a port; write PORT, HOST_PORT:PORT, ADDRESS:HOST_PORT:PORT or "
            "preview:PORT"
        )
    return text


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
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def names(text: str) -> list[str]:
    """Words with commas between."""
    return [word.strip() for word in text.split(",") if word.strip()]
