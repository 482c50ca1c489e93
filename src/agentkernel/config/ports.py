"""Published ports as people write them.

8000                    port 8000 of the sandbox on port 8000 of 127.0.0.1
8080:8000               on port 8080 of it
0:8000                  on a port that is free
127.0.0.2:8080:8000     on another address; [::1]:8080:8000 with IPv6
preview:8000            on no port of this machine: as a preview alone
"""

from __future__ import annotations

import ipaddress

from agentkernel.errors import InvalidInputError

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from typing import Final

LOCAL_ADDRESS: Final = "127.0.0.1"
PREVIEW: Final = "preview"
# Those below belong to the machine's own services.
FIRST_FREE_PORT: Final = 1024
_HINT: Final = "write PORT, HOST_PORT:PORT, ADDRESS:HOST_PORT:PORT or preview:PORT"


class PortMapping:
    """`address` None: as a preview alone. `host_port` 0: one that is free."""

    __slots__ = ("address", "host_port", "port")

    def __init__(self, port: int, host_port: int = 0, address: str | None = LOCAL_ADDRESS) -> None:
        self.port = port
        self.host_port = host_port
        self.address = address

    @property
    def widening(self) -> str | None:
        """What of it is more than a port of this machine's own programs; None: nothing."""
        if self.address is None:
            return None
        if not ipaddress.ip_address(self.address).is_loopback:
            return f"listens on {self.address}, which others can reach"
        if 0 < self.host_port < FIRST_FREE_PORT:
            return f"takes port {self.host_port}, which belongs to the machine's own services"
        return None


def parse_port(text: str) -> PortMapping:
    """Raises InvalidInputError."""
    before, _, last = text.rpartition(":")
    port = _number(last, text)
    if not port:
        raise InvalidInputError(f"{text!r}: a sandbox has no port 0", hint=_HINT)
    if not before:
        if text.startswith(":"):
            raise _wrong(text)
        return PortMapping(port, port)
    if before == PREVIEW:
        return PortMapping(port, 0, None)
    address, colon, host_port = before.rpartition(":")
    number = _number(host_port, text)
    if not colon:
        return PortMapping(port, number)
    return PortMapping(port, number, _address(address, text))


def _number(digits: str, text: str) -> int:
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 5 and int(digits) <= 65535):
        raise _wrong(text)
    return int(digits)


def _address(word: str, text: str) -> str:
    if word == "localhost":
        return LOCAL_ADDRESS
    six = word.startswith("[") and word.endswith("]")
    try:
        if six:
            return str(ipaddress.IPv6Address(word[1:-1]))
        return str(ipaddress.IPv4Address(word))
    except ValueError:
        raise _wrong(text) from None


def _wrong(text: str) -> InvalidInputError:
    return InvalidInputError(f"{text[:64]!r} is not a port to publish", hint=_HINT)
