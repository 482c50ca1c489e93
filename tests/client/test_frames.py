"""Bytes of HTTP and WebSockets: what comes in pieces, what is broken, what is too much."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel import errors
from agentkernel.client import frames, wire


def unmasked(data: bytes) -> bytes:
    """A client's frame as a server would have sent it."""
    size, start = data[1] & 0x7F, 2
    if size >= 126:
        start = 4 if size == 126 else 10
    key, payload = data[start : start + 4], data[start + 4 :]
    plain = bytes(byte ^ key[index % 4] for index, byte in enumerate(payload))
    return data[:1] + bytes((data[1] & 0x7F,)) + data[2:start] + plain


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65535, 65536, 70001])
def test_frames_of_every_length_come_back(size: int) -> None:
    payload = os.urandom(size)
    decoder = frames.Decoder(unmasked(frames.encode(frames.BINARY, payload)))
    assert decoder.next() == (frames.BINARY, payload)
    assert decoder.next() is None


@given(st.lists(st.binary(max_size=300), max_size=5), st.integers(1, 7))
def test_any_split_gives_the_same_messages(messages: list[bytes], step: int) -> None:
    data = b"".join(unmasked(frames.encode(frames.BINARY, message)) for message in messages)
    decoder, found = frames.Decoder(), []
    for start in range(0, len(data), step):
        decoder.feed(data[start : start + step])
        while (message := decoder.next()) is not None:
            found.append(message[1])
    assert found == messages


def test_pieces_are_joined_and_a_ping_may_come_between() -> None:
    decoder = frames.Decoder(b"\x02\x01a" + b"\x89\x01p" + b"\x00\x01b" + b"\x80\x01c")
    assert decoder.next() == (frames.PING, b"p")
    assert decoder.next() == (frames.BINARY, b"abc")


@pytest.mark.parametrize(
    "data",
    [
        b"\xc2\x00",  # an extension nobody agreed on
        b"\x82\x80\x00\x00\x00\x00",  # masked by a server
        b"\x83\x00",  # an opcode that does not exist
        b"\x80\x01a",  # the rest of nothing
        b"\x09\x00",  # a control frame in pieces
        b"\x82\x7f" + (1 << 40).to_bytes(8, "big"),
    ],
)
def test_what_breaks_the_protocol_is_an_error(data: bytes) -> None:
    with pytest.raises(errors.DaemonError):
        frames.Decoder(data).next()


def test_a_message_in_pieces_is_bounded_too() -> None:
    piece = b"\x02\x7f" + (3 << 20).to_bytes(8, "big") + bytes(3 << 20)
    decoder = frames.Decoder(piece + b"\x00" + piece[1:])
    with pytest.raises(errors.DaemonError, match="too large"):
        decoder.next()


def test_heads() -> None:
    head = wire.parse_head(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-A:  b ")
    assert (head.status, head.length, head.headers["x-a"]) == (200, 3, "b")
    assert wire.parse_head(b"HTTP/1.1 204 No Content").length == 0
    for data in (b"SSH-2.0-x", b"HTTP/1.1 2x0 OK", b"HTTP/1.1 200 OK\r\nnonsense"):
        with pytest.raises(errors.DaemonError):
            wire.parse_head(data)


def test_targets_carry_any_file_name() -> None:
    name = b"/tmp/a b&c=\xff%\xc3\xa4".decode("utf-8", "surrogateescape")
    wanted = "/f?path=/tmp/a%20b%26c%3D%FF%25%C3%A4&append=1&label=a%3Db&label=c%3Dd"
    query = {"path": name, "append": True, "mode": None, "label": ["a=b", "c=d"]}
    assert wire.target("/f", query) == wanted


def test_a_header_can_not_smuggle_another() -> None:
    with pytest.raises(ValueError):
        wire.request("GET", "/", {"A": "b\r\nC: d"})


@pytest.mark.parametrize("kind", errors.all_error_types())
def test_every_error_comes_back_as_itself(kind: type[errors.AgentKernelError]) -> None:
    if kind.__module__ != errors.__name__:
        pytest.skip("a server's own refinement")
    problem = {"code": kind.code, "detail": "d", "hint": "h", "details": {"path": "/x"}}
    error = wire.error_of(problem)
    assert type(error) is kind
    assert (error.message, error.hint, error.details) == ("d", "h", {"path": "/x"})


def test_an_error_of_a_newer_daemon_keeps_its_code() -> None:
    error = wire.error_of({"code": "from_the_future", "detail": "d", "details": {"message": 1}})
    assert type(error) is errors.AgentKernelError
    assert error.details == {"code": "from_the_future"}


@pytest.mark.parametrize("id", ["", "a/b", "..", "A", "a b", "ä"])
def test_what_can_not_be_a_name_is_not_found(id: str) -> None:
    with pytest.raises(errors.NotFoundError):
        wire.segment(id)
