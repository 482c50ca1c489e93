"""Addresses and names of a network, as people write them. Each check raises ValueError."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*\Z")
_ORIGIN = re.compile(r"(https?|[a-z][a-z0-9+.-]{1,31})://([^/\s?#@]+)\Z")


def split_address(text: str) -> tuple[str, int]:
    """`127.0.0.1:8700`, `[::1]:8700`, `localhost:0` → host and port."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = str(ipaddress.IPv6Address(host[1:-1]))
    elif ":" in host or not _NAME.match(host.lower()):
        raise ValueError
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError
    return host.lower(), int(port)


def joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_address(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return joined(*split_address(value))


def check_host(value: Any) -> str:
    """What a Host header may say: a name or an address, alone or with a port."""
    if not isinstance(value, str):
        raise ValueError
    text = value.lower()
    if text.startswith("[") and text.endswith("]"):
        return f"[{ipaddress.IPv6Address(text[1:-1])}]"
    if ":" in text:
        return joined(*split_address(text))
    if not _NAME.match(text):
        raise ValueError
    return text


def check_domain(value: Any) -> str:
    """A name below which others are made."""
    if not isinstance(value, str) or not _NAME.match(value.lower()) or is_address(value):
        raise ValueError
    return value.lower()


def check_origin(value: Any) -> str:
    """A web page's origin: scheme, host and port, nothing behind them."""
    if not isinstance(value, str) or not _ORIGIN.match(value.lower()):
        raise ValueError
    return value.lower()


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
