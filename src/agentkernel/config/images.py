"""Registries of images in files: whether what is said of them is well formed. Each check raises
ValueError.
"""

from __future__ import annotations

import re
from typing import Any

from agentkernel.config.addresses import check_host

_MOST_REGISTRIES = 64
_MOST_MIRRORS = 8
_MIRROR = re.compile(r"(https?)://([^/\s?#@]{1,300})((?:/[a-z0-9][a-z0-9._-]{0,63}){0,8})/?\Z")


def check_mirrors(value: Any) -> dict[str, tuple[str, ...]]:
    """`[images.mirrors]`: registry = ["https://HOST"], or one text."""
    if not isinstance(value, dict) or len(value) > _MOST_REGISTRIES:
        raise ValueError
    return {check_host(name): _addresses(entries) for name, entries in value.items()}


def _addresses(value: Any) -> tuple[str, ...]:
    entries = [value] if isinstance(value, str) else value
    if not isinstance(entries, list | tuple) or not 1 <= len(entries) <= _MOST_MIRRORS:
        raise ValueError
    return tuple(_address(entry) for entry in entries)


def _address(value: Any) -> str:
    match = _MIRROR.match(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError
    scheme, host, path = match.groups()
    return f"{scheme}://{check_host(host)}{path}"


def check_insecure(value: Any) -> tuple[str, ...]:
    entries = [each.strip() for each in value.split(",")] if isinstance(value, str) else value
    if not isinstance(entries, list | tuple) or len(entries) > _MOST_REGISTRIES:
        raise ValueError
    return tuple(check_host(entry) for entry in entries)
