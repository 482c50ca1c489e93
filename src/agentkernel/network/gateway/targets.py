"""Targets as guests write them to a proxy: HOST:PORT, in the one form that is judged."""

from __future__ import annotations

import re

from agentkernel.errors import InvalidInputError
from agentkernel.network.policy.names import canonical_host

_PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_LONGEST = 300


def is_address(host: str) -> bool:
    """Of a host that is canonical already: no name has a colon, or ends in a number."""
    return ":" in host or host[-1:].isdecimal() and host.rpartition(".")[2].isdecimal()


def parse_authority(text: str, default_port: int | None = None) -> tuple[str, int]:
    """HOST:PORT, or HOST where the port is known without. Raises InvalidInputError.

    No user, no escapes, no spaces: a name has none of their characters.
    """
    if len(text) > _LONGEST:
        raise InvalidInputError("the target is too long")
    if text.startswith("["):
        host, bracket, rest = text.partition("]")
        host += bracket
        colon, port = rest[:1], rest[1:]
        if rest and colon != ":":
            raise InvalidInputError("something follows the address")
    else:
        host, colon, port = text.partition(":")
    if not colon:
        if default_port is None:
            raise InvalidInputError("the target has no port")
        return canonical_host(host), default_port
    return canonical_host(host), parse_port(port)


def parse_port(text: str) -> int:
    if not _PORT.fullmatch(text) or int(text) > 65535:
        raise InvalidInputError("a port is a number from 1 to 65535")
    return int(text)


def written(host: str, port: int) -> str:
    """HOST:PORT as it stands in a CONNECT or a Host line."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
