"""Names and addresses as guests write them, in the one form that is judged.

What programs read in different ways ("127.1", "0x7f.0.0.1", a NUL, a percent sign) is refused, so
that nobody down the line can read another host than the one that was judged.
"""

from __future__ import annotations

import ipaddress
import re

_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)


class TargetError(Exception):
    """Not a host, or not in a form that has one meaning; the words say why."""


def canonical_name(text: str) -> str:
    """Lower-case, without the trailing dot. Raises TargetError, for addresses too."""
    if not text.isascii():
        raise TargetError("the name is not ASCII: write it in its xn-- form")
    name = text.lower().removesuffix(".")
    if not name or len(name) > 253:
        raise TargetError("a name has 1 to 253 characters")
    labels = name.split(".")
    if not all(_LABEL.fullmatch(label) for label in labels):
        raise TargetError("the name has a part that no host name has")
    if _NUMBER.fullmatch(labels[-1]):
        raise TargetError("a name whose last part is a number is no name and no proper address")
    return name


def canonical_host(text: str) -> str:
    """A name as above, or an address in its usual form. IPv4 within IPv6 is that IPv4 address."""
    if text.startswith("["):
        if not text.endswith("]"):
            raise TargetError("the bracket is not closed")
        return canonical_address(text[1:-1], only_six=True)
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        return canonical_name(text)


def canonical_address(text: str, *, only_six: bool = False) -> str:
    if "%" in text:
        raise TargetError("an address with a zone")
    try:
        address = ipaddress.IPv6Address(text) if only_six else ipaddress.ip_address(text)
    except ValueError:
        raise TargetError("not an address") from None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(address)


def is_address(host: str) -> bool:
    """Of a host that is canonical already."""
    return ":" in host or host.rpartition(".")[2].isdecimal()


def parse_authority(text: str, default_port: int | None = None) -> tuple[str, int]:
    """HOST:PORT, or HOST where a port is known without. Raises TargetError."""
    if len(text) > 300:
        raise TargetError("the target is too long")
    if "@" in text:
        raise TargetError("a target has no user")
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port:
        if default_port is None:
            raise TargetError("the target has no port")
        return canonical_host(text), default_port
    return canonical_host(host), parse_port(port)


def parse_port(text: str) -> int:
    if not _PORT.fullmatch(text) or not 1 <= int(text) <= 65535:
        raise TargetError("a port is a number from 1 to 65535")
    return int(text)


def written(host: str, port: int) -> str:
    """HOST:PORT as it stands in a CONNECT or a Host line."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
