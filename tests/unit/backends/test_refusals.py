"""What the kernel says of a sandbox's rules, taken apart strictly."""

from __future__ import annotations

import contextlib
import errno
import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.backends.local.refusals import (
    KINDS,
    BadAnswer,
    dump_request,
    parse_counters,
    unreachable_ipv6,
)

SERIAL = 77
NEW_OBJECT, DONE, ERROR, NOOP = 0xA12, 3, 2, 1


def attribute(kind: int, value: bytes) -> bytes:
    size = 4 + len(value)
    return struct.pack("=HH", size, kind) + value + b"\0" * (-size % 4)


def message(kind: int, body: bytes, serial: int = SERIAL) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 2, serial, 9) + body


def counter(name: str, packets: int, table: str = "agentkernel") -> bytes:
    data = attribute(1, struct.pack("!Q", 1000)) + attribute(2, struct.pack("!Q", packets))
    body = b"\x02\0\0\0" + attribute(1, table.encode() + b"\0")
    body += attribute(2, name.encode() + b"\0") + attribute(3, struct.pack("!I", 1))
    return message(NEW_OBJECT, body + attribute(0x8004, data))


END = message(DONE, struct.pack("=i", 0))


def test_a_dump_in_several_parts() -> None:
    found: dict[str, int] = {}
    assert not parse_counters(counter("udp", 3) + counter("limit", 1 << 40), SERIAL, found)
    assert parse_counters(counter("icmp", 0) + END, SERIAL, found)
    assert found == {"udp": 3, "limit": 1 << 40, "icmp": 0}


def test_other_answers_are_passed_over() -> None:
    found: dict[str, int] = {}
    earlier = message(DONE, struct.pack("=i", 0), serial=SERIAL - 1)
    strangers = counter("mine", 5) + counter("udp", 9, table="another")
    assert parse_counters(earlier + strangers + counter("other", 4) + END, SERIAL, found)
    assert found == {"other": 4}


def test_the_kernels_error_is_one() -> None:
    with pytest.raises(OSError, match=os.strerror(errno.EPERM)) as caught:
        parse_counters(message(ERROR, struct.pack("=i", -errno.EPERM) + b"\0" * 16), SERIAL, {})
    assert caught.value.errno == errno.EPERM


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 4,
        counter("udp", 1)[:-1],
        struct.pack("=IHHII", 4, NEW_OBJECT, 0, SERIAL, 0),
        struct.pack("=IHHII", 1 << 20, NEW_OBJECT, 0, SERIAL, 0),
        message(NOOP, b""),
        message(NEW_OBJECT, b"\2"),
        message(NEW_OBJECT, b"\2\0\0\0" + attribute(1, b"agentkernel")),
        message(NEW_OBJECT, b"\2\0\0\0" + struct.pack("=HH", 3, 1)),
        message(NEW_OBJECT, b"\2\0\0\0\1\0"),
        counter("udp", 1).replace(struct.pack("=HH", 12, 2), struct.pack("=HH", 12, 7)),
        message(ERROR, b"\1"),
        message(ERROR, struct.pack("=i", 5)),
    ],
)
def test_what_is_no_answer_is_no_number(data: bytes) -> None:
    found: dict[str, int] = {}
    with pytest.raises(BadAnswer):
        parse_counters(data, SERIAL, found)
    assert found == {}


@given(st.binary(max_size=400), st.lists(st.sampled_from(KINDS), max_size=3), st.integers(0, 60))
def test_any_bytes_are_numbers_or_an_error(noise: bytes, names: list[str], at: int) -> None:
    good = b"".join(counter(name, 1) for name in names)
    found: dict[str, int] = {}
    with contextlib.suppress(BadAnswer, OSError):
        parse_counters(good[:at] + noise + good[at:], SERIAL, found)
    assert set(found) <= set(KINDS)
    assert all(0 <= value < 1 << 64 for value in found.values())


def test_the_request_is_a_dump_of_our_table() -> None:
    request = dump_request(SERIAL)
    size, kind, flags, serial, _ = struct.unpack_from("=IHHII", request)
    assert (size, kind, flags, serial) == (len(request), 0xA13, 0x301, SERIAL)
    assert b"agentkernel\0" in request


def test_ipv6_of_nobody_is_nothing() -> None:
    assert unreachable_ipv6(0) == 0
    assert unreachable_ipv6(os.getpid()) >= 0
