"""Answers to a guest's DNS queries. Nothing here asks anybody: no query leaves the host.

Every proper name gets a synthetic address, allowed or not: a refusal by DNS would look like a
passing fault and be tried again, where a connection can be answered with the reason. TTL is a
minute: the address never changes, but a program that kept it longer than a sandbox's file of names
lives (the sandbox is made anew from a snapshot, say) would reach nothing, and asking costs nothing.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset

from agentkernel.errors import InvalidInputError
from agentkernel.network.gateway.names import NamesFull
from agentkernel.network.policy.names import canonical_name

TTL_SECONDS = 60
QUERY_BYTES = 4096
_UDP_BYTES = 1232
_SOA = "gateway.agentkernel.invalid. nobody.agentkernel.invalid. 1 3600 600 86400 60"
_POINTERS = dns.name.from_text("in-addr.arpa.")
_NOT_NAMES = (_POINTERS, dns.name.from_text("ip6.arpa."))

AddressOf = Callable[[str], str]
NameOf = Callable[[str], str | None]


def answer_query(
    packet: bytes, address_of: AddressOf, name_of: NameOf, *, stream: bool
) -> bytes | None:
    """The answer's bytes, or None for what gets none. `address_of` may raise NamesFull or OSError.
    `stream`: over TCP, where answers may be longer."""
    # An answer to an answer would let two of us talk for ever.
    if len(packet) < 12 or packet[2] & 0x80:
        return None
    opcode = (packet[2] >> 3) & 15
    if opcode:
        return _bare(packet, dns.rcode.NOTIMP)
    counts = [int.from_bytes(packet[at : at + 2], "big") for at in (4, 6, 8, 10)]
    if len(packet) > QUERY_BYTES or counts[:3] != [1, 0, 0] or counts[3] > 2:
        return _bare(packet, dns.rcode.FORMERR)
    try:
        query = dns.message.from_wire(packet, ignore_trailing=False)
        response = _respond(query, address_of, name_of)
        return response.to_wire(max_size=65535 if stream else _room(query))
    except (dns.exception.DNSException, ValueError, IndexError, KeyError):
        return _bare(packet, dns.rcode.FORMERR)


def _room(query: dns.message.Message) -> int:
    """What the asker can take, within what passes everywhere. Nothing of ours is longer."""
    return max(512, min(query.payload, _UDP_BYTES)) if query.edns >= 0 else 512


def _bare(packet: bytes, code: int) -> bytes:
    """A header alone, for what can't be read."""
    flags = (packet[2] & 0x79) | 0x80
    return packet[:2] + bytes((flags, 0x80 | code)) + bytes(8)


def _respond(
    query: dns.message.Message, address_of: AddressOf, name_of: NameOf
) -> dns.message.Message:
    if query.edns > 0:
        response = dns.message.make_response(query, recursion_available=True)
        response.set_rcode(dns.rcode.BADVERS)
        return response
    response = dns.message.make_response(query, recursion_available=True)
    response.flags &= ~dns.flags.AD
    question = query.question[0]
    if question.rdclass not in (dns.rdataclass.IN, dns.rdataclass.ANY):
        response.set_rcode(dns.rcode.REFUSED)
        return response
    owner, kind = question.name, question.rdtype
    if any(owner.is_subdomain(zone) for zone in _NOT_NAMES):
        _respond_pointer(response, owner, kind, name_of)
        return response
    try:
        name = canonical_name(owner.to_text(omit_final_dot=True))
    except InvalidInputError:
        response.set_rcode(dns.rcode.NXDOMAIN)
        _no_data(response)
        return response
    if kind not in (dns.rdatatype.A, dns.rdatatype.ANY):
        # The name exists, and has nothing of this kind: programs go on with A at once.
        _no_data(response)
        return response
    try:
        address = "127.0.0.1" if _is_localhost(name) else address_of(name)
    except (NamesFull, OSError):
        response.set_rcode(dns.rcode.SERVFAIL)
        return response
    response.answer.append(dns.rrset.from_text(owner, TTL_SECONDS, "IN", "A", address))
    return response


def _respond_pointer(
    response: dns.message.Message, owner: dns.name.Name, kind: int, name_of: NameOf
) -> None:
    address = _pointed_at(owner)
    name = name_of(address) if address else None
    if name is None:
        response.set_rcode(dns.rcode.NXDOMAIN)
        _no_data(response)
    elif kind == dns.rdatatype.PTR:
        response.answer.append(dns.rrset.from_text(owner, TTL_SECONDS, "IN", "PTR", f"{name}."))
    else:
        _no_data(response)


def _pointed_at(owner: dns.name.Name) -> str | None:
    labels = owner.relativize(_POINTERS).labels
    if len(labels) != 4:
        return None
    text = b".".join(reversed(labels)).decode("ascii", "replace")
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        return None


def _no_data(response: dns.message.Message) -> None:
    """With the SOA that tells how long to remember that there is nothing."""
    response.authority.append(dns.rrset.from_text(dns.name.root, TTL_SECONDS, "IN", "SOA", _SOA))


def _is_localhost(name: str) -> bool:
    return name == "localhost" or name.endswith(".localhost")
