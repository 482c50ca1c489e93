"""What a sandbox's rules have refused, asked of the kernel over a netlink socket of its namespace.

The rules (agentd/src/network_rules.c) count by named counters. A dump of those is parsed strictly:
whatever is not exactly what the kernel says is an error, never a number.
"""

from __future__ import annotations

import os
import socket
import struct

KINDS = ("udp", "icmp", "other", "limit")
"""The named counters there are."""

_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_FAMILY_HEAD = struct.Struct("!BBH")
_NUMBER = struct.Struct("!Q")
_SIGNED = struct.Struct("=i")
# linux/netlink.h, linux/netfilter/nf_tables.h: ABI.
_REQUEST_DUMP = 0x301
_DONE, _ERROR = 3, 2
_NEW_OBJECT, _GET_OBJECT = 0xA12, 0xA13
_FAMILY_IP = 2
_OBJECT_TABLE, _OBJECT_NAME, _OBJECT_TYPE, _OBJECT_DATA = 1, 2, 3, 4
_COUNTER_PACKETS = 2
_TYPE_MASK = 0x3FFF
_TABLE = "agentkernel"
_ANSWER_BYTES = 32768
_MOST_ANSWERS = 16


class BadAnswer(Exception):
    """The kernel's answer is not what was asked for; the words say how."""


def read_counters(sock: socket.socket) -> dict[str, int]:
    """Packets by kind. Raises OSError, or BadAnswer. The socket is used by one caller at a time."""
    serial = int.from_bytes(os.urandom(4), "little") | 1
    sock.sendto(dump_request(serial), socket.MSG_DONTWAIT, (0, 0))
    found: dict[str, int] = {}
    for _ in range(_MOST_ANSWERS):
        # The kernel has written the first part by now, and writes the next as this one is read.
        part, _ancillary, flags, _address = sock.recvmsg(_ANSWER_BYTES, 0, socket.MSG_DONTWAIT)
        if flags & socket.MSG_TRUNC:
            raise BadAnswer("an answer is too long")
        if parse_counters(part, serial, found):
            return found
    raise BadAnswer("an answer has no end")


def dump_request(serial: int) -> bytes:
    body = _FAMILY_HEAD.pack(_FAMILY_IP, 0, 0) + _attribute(_OBJECT_TABLE, _TABLE.encode() + b"\0")
    size = _HEADER.size + len(body)
    return _HEADER.pack(size, _GET_OBJECT, _REQUEST_DUMP, serial, 0) + body


def parse_counters(data: bytes, serial: int, found: dict[str, int]) -> bool:
    """Adds the counters of one datagram to `found`; True if it was the last. An answer to another
    question is passed over. Raises BadAnswer, or OSError with the kernel's own error."""
    at = 0
    while at < len(data):
        if len(data) - at < _HEADER.size:
            raise BadAnswer("a message is cut off")
        size, kind, _flags, number, _port = _HEADER.unpack_from(data, at)
        if not _HEADER.size <= size <= len(data) - at:
            raise BadAnswer("a message has a wrong length")
        body = data[at + _HEADER.size : at + size]
        at += _aligned(size)
        if number != serial:
            continue
        if kind in (_DONE, _ERROR):
            _raise_error(body)
            return True
        if kind != _NEW_OBJECT:
            raise BadAnswer(f"a message of type {kind}")
        _take(body, found)
    return False


def _take(body: bytes, found: dict[str, int]) -> None:
    if len(body) < _FAMILY_HEAD.size:
        raise BadAnswer("an object is cut off")
    attributes = _attributes(body[_FAMILY_HEAD.size :])
    if _text(attributes.get(_OBJECT_TABLE)) != _TABLE:
        return
    name = _text(attributes.get(_OBJECT_NAME))
    if name not in KINDS:
        return
    packets = _attributes(attributes.get(_OBJECT_DATA, b"")).get(_COUNTER_PACKETS, b"")
    if len(packets) != _NUMBER.size:
        raise BadAnswer("a counter has no number")
    found[name] = _NUMBER.unpack(packets)[0]


def _raise_error(body: bytes) -> None:
    if len(body) < 4:
        raise BadAnswer("an error without a number")
    (number,) = _SIGNED.unpack_from(body)
    if number == 0:
        return
    if not -4095 <= number < 0:
        raise BadAnswer(f"an error of number {number}")
    raise OSError(-number, os.strerror(-number))


def _attributes(data: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    while at < len(data):
        if len(data) - at < _ATTRIBUTE.size:
            raise BadAnswer("an attribute is cut off")
        size, kind = _ATTRIBUTE.unpack_from(data, at)
        if not _ATTRIBUTE.size <= size <= len(data) - at:
            raise BadAnswer("an attribute has a wrong length")
        found[kind & _TYPE_MASK] = data[at + _ATTRIBUTE.size : at + size]
        at += _aligned(size)
    return found


def _attribute(kind: int, value: bytes) -> bytes:
    size = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(size, kind) + value.ljust(_aligned(len(value)), b"\0")


def _text(value: bytes | None) -> str:
    if value is None or not value.endswith(b"\0"):
        raise BadAnswer("a name is missing")
    return value[:-1].decode("utf-8", "replace")


def _aligned(size: int) -> int:
    return (size + 3) & ~3


def unreachable_ipv6(pid: int) -> int:
    """How often something in the network namespace of `pid` found no route by IPv6."""
    try:
        with open(f"/proc/{pid}/net/snmp6", encoding="ascii", errors="replace") as lines:
            for line in lines:
                words = line.split()
                if words[:1] == ["Ip6OutNoRoutes"]:
                    return int(words[1])
    except (OSError, ValueError, IndexError):
        pass  # a kernel without IPv6, or a sandbox that has just ended
    return 0
