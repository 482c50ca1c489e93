"""An index's address, as people write it: host and port for a rule, credentials apart."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

MAX_URL = 2048
PORTS = {"http": 80, "https": 443}
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*\Z")
_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)\Z")
_ODD = re.compile(r"[\x00-\x20\x7f\"'<>\\^`{|}]")


class UnusableAddress(ValueError):
    """Says what is wrong with an address in words that hold nothing of it."""


@dataclass(frozen=True)
class Address:
    """`url` is without credentials, and without a query, which may hold some; `prefix` is what
    clients put before a scheme (sparse+)."""

    scheme: str
    host: str
    port: int
    path: str
    prefix: str = ""
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if PORTS[self.scheme] == self.port else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.prefix}{self.scheme}://{self.authority}{self.path}"


def parse(text: str) -> Address:
    """Raises UnusableAddress. The host is an exact name or an address, as rules have it: a star or
    a number in another notation would make a rule say more than the machine's file does."""
    if len(text) > MAX_URL:
        raise UnusableAddress("is longer than an address may be")
    if _ODD.search(text):
        raise UnusableAddress("has characters that no address has")
    prefix, plus, bare = text.partition("+")
    if not plus or not prefix.isalpha():
        prefix, bare = "", text
    try:
        parts = urlsplit(bare)
        port = parts.port
        host = parts.hostname or ""
    except ValueError:
        raise UnusableAddress("is no address") from None
    if parts.scheme not in PORTS:
        raise UnusableAddress("is neither http nor https")
    if port == 0:
        raise UnusableAddress("has no usable port")
    return Address(
        scheme=parts.scheme,
        host=canonical_host(host),
        port=port or PORTS[parts.scheme],
        path=parts.path,
        prefix=f"{prefix}+" if prefix else "",
        username=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
    )


def canonical_host(text: str) -> str:
    try:
        return _canonical_address(ipaddress.ip_address(text))
    except ValueError as error:
        if isinstance(error, UnusableAddress):
            raise
    name = text.removesuffix(".").lower()
    if not name.isascii():
        try:
            name = name.encode("idna").decode()
        except UnicodeError:
            raise UnusableAddress("has a host that is no name") from None
    if not _NAME.match(name):
        raise UnusableAddress("has a host that is no name")
    if _NUMBER.match(name.rpartition(".")[2]):
        raise UnusableAddress("has a host that is a number")
    if name == "localhost" or name.endswith(".localhost"):
        raise UnusableAddress("is on this machine's loopback, which inside is the sandbox's own")
    return name


def _canonical_address(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    mapped = getattr(address, "ipv4_mapped", None)
    address = mapped or address
    if address.is_loopback or address.is_unspecified:
        raise UnusableAddress("is on this machine's loopback, which inside is the sandbox's own")
    if address.is_link_local or address.is_multicast:
        raise UnusableAddress("is a link-local or multicast address")
    if "%" in str(address):
        raise UnusableAddress("has a host with a zone")
    return str(address)
