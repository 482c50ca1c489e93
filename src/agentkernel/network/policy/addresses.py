"""Which addresses the gateway may dial for a guest.

The guest names a host, this side resolves it, and anybody who runs a name server decides what comes
back. So every address is judged by itself before it is dialled.
"""

from __future__ import annotations

import time
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Literal, NamedTuple

from agentkernel.network.policy.names import Address

Kind = Literal["never", "metadata", "loopback", "own", "private"]
"""What can make an address that is not public reachable: nothing; a rule for just this address; a
rule for this host that names ports; the same; a rule for private addresses."""

_SPECIAL: tuple[tuple[str, Kind, str], ...] = (
    # Single addresses first: they lie within ranges below, or among public ones.
    ("169.254.169.254/32", "metadata", "a cloud's metadata service"),
    ("169.254.170.2/32", "metadata", "a cloud's credential service"),
    ("100.100.100.200/32", "metadata", "a cloud's metadata service"),
    ("168.63.129.16/32", "metadata", "a cloud's own service for its machines"),
    ("192.0.0.192/32", "metadata", "a cloud's metadata service"),
    ("0.0.0.0/8", "never", "unspecified: the machine itself"),
    ("10.0.0.0/8", "private", "private"),
    ("100.64.0.0/10", "private", "private: a carrier's shared range"),
    ("127.0.0.0/8", "loopback", "the machine's loopback"),
    ("169.254.0.0/16", "metadata", "link-local, where clouds keep metadata services"),
    ("172.16.0.0/12", "private", "private"),
    ("192.0.0.0/24", "never", "reserved for protocols"),
    ("192.0.2.0/24", "private", "reserved for documentation"),
    ("192.88.99.0/24", "never", "a 6to4 relay"),
    ("192.168.0.0/16", "private", "private"),
    ("198.18.0.0/15", "private", "reserved for benchmarks; inside sandboxes it stands for names"),
    ("198.51.100.0/24", "private", "reserved for documentation"),
    ("203.0.113.0/24", "private", "reserved for documentation"),
    ("224.0.0.0/4", "never", "multicast"),
    ("255.255.255.255/32", "never", "broadcast"),
    ("240.0.0.0/4", "never", "reserved"),
    ("fd00:ec2::254/128", "metadata", "a cloud's metadata service"),
    ("fd00:ec2::23/128", "metadata", "a cloud's credential service"),
    ("fd20:ce::254/128", "metadata", "a cloud's metadata service"),
    ("::/128", "never", "unspecified: the machine itself"),
    ("::1/128", "loopback", "the machine's loopback"),
    ("::ffff:0:0/96", "never", "an IPv4 address in IPv6 form"),
    ("::ffff:0:0:0/96", "never", "a translated IPv4 address"),
    ("::/96", "never", "an IPv4 address in IPv6 form"),
    ("64:ff9b::/96", "never", "a translated IPv4 address (NAT64)"),
    ("64:ff9b:1::/48", "never", "a translated IPv4 address (NAT64)"),
    ("100::/64", "never", "a range that discards"),
    ("2001::/32", "never", "a tunnelled IPv4 address (Teredo)"),
    ("2001:db8::/32", "private", "reserved for documentation"),
    ("2001::/23", "never", "reserved for protocols"),
    ("2002::/16", "never", "a tunnelled IPv4 address (6to4)"),
    ("3fff::/20", "private", "reserved for documentation"),
    ("fc00::/7", "private", "private"),
    ("fe80::/10", "metadata", "link-local"),
    ("fec0::/10", "private", "private (site-local)"),
    ("ff00::/8", "never", "multicast"),
)  # fmt: skip
_PUBLIC_6 = IPv6Network("2000::/3")
_ISATAP = (0x00005EFE, 0x02005EFE)
_FRESH_SECONDS = 1.0
_FIB = "/proc/net/fib_trie"
_INET6 = "/proc/net/if_inet6"


class Special(NamedTuple):
    """Why an address is not one of the public internet."""

    kind: Kind
    words: str


def _ranges(version: int) -> tuple[tuple[int, int, Special], ...]:
    network = IPv4Network if version == 4 else IPv6Network
    return tuple(
        (int(net.network_address), int(net.netmask), Special(kind, words))
        for text, kind, words in _SPECIAL
        if (":" in text) == (version == 6)
        for net in (network(text),)
    )


_RANGES = {4: _ranges(4), 6: _ranges(6)}


@lru_cache(maxsize=4096)
def special(address: Address) -> Special | None:
    """What is known of an address by its number alone; None: it is a public one."""
    number = int(address)
    for base, mask, found in _RANGES[address.version]:
        if number & mask == base:
            return found
    if isinstance(address, IPv6Address):
        if (number >> 32) & 0xFFFFFFFF in _ISATAP:
            return Special("never", "a tunnelled IPv4 address (ISATAP)")
        if address not in _PUBLIC_6:
            return Special("never", "reserved")
    return None


def special_range(network: IPv4Network | IPv6Network) -> Special | None:
    """The same of a whole range; None: part of it is public, or it is of several kinds."""
    first, last = int(network.network_address), int(network.broadcast_address)
    for base, mask, found in _RANGES[network.version]:
        if first & mask == base == last & mask:
            return found
    return None


def vet(
    address: Address, rule_private: bool, port_named: bool, *, exact: bool = False
) -> str | None:
    """Why `address` may not be dialled, in words that follow "it is"; None: it may.

    `rule_private`: the rule that allowed the connection is for private addresses. `port_named`: it
    names ports, for just this host. `exact`: its host is this very address. A verdict has all
    three.
    """
    found = _found(address)
    if found is None:
        return None
    if not rule_private or found.kind == "never":
        return found.words
    if found.kind in ("loopback", "own") and not port_named:
        return f"{found.words}, which only a rule for this host with a port allows"
    if found.kind == "metadata" and not exact:
        return f"{found.words}, which only a rule for just this address allows"
    return None


def _found(address: Address) -> Special | None:
    known = special(address)
    if known is not None and known.kind in ("never", "metadata", "loopback"):
        return known
    try:
        own = own_addresses()
    except OSError as exc:
        return Special("never", f"perhaps this machine's own: they can't be read ({exc})")
    if address in own:
        return Special("own", "one of this machine's own addresses")
    return known


_own: tuple[float, frozenset[Address]] = (float("-inf"), frozenset())


def own_addresses() -> frozenset[Address]:
    """The addresses of this machine's interfaces, not older than a second. Raises OSError."""
    global _own
    now = time.monotonic()
    if now - _own[0] > _FRESH_SECONDS:
        _own = (now, frozenset([*_own_4(), *_own_6()]))
    return _own[1]


def _own_4() -> list[Address]:
    """Every leaf of the routing table whose route ends in this machine."""
    found: list[Address] = []
    leaf = ""
    with open(_FIB, encoding="ascii") as lines:
        for line in lines:
            words = line.split()
            if words[:1] == ["|--"]:
                leaf = words[1]
            elif words[1:] == ["host", "LOCAL"] and words[0] == "/32":
                found.append(IPv4Address(leaf))
    return found


def _own_6() -> list[Address]:
    try:
        with open(_INET6, encoding="ascii") as lines:
            return [IPv6Address(int(line.split()[0], 16)) for line in lines]
    except FileNotFoundError:  # a kernel without IPv6
        return []
