"""Frames: any cut, any bytes."""

from __future__ import annotations

import contextlib
import hmac
import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.errors import GuestProtocolError
from agentkernel.guest import protocol
from agentkernel.guest.protocol import Channel, Frame, FrameParser, FrameType

frames = st.builds(
    Frame,
    st.integers(0, 2**32 - 1),
    st.sampled_from(list(FrameType)),
    st.binary(max_size=200),
)


@given(st.lists(frames, max_size=8), st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_frames_survive_any_cut(sent: list[Frame], cuts: list[int]) -> None:
    data = b"".join(protocol.frame(*frame) for frame in sent)
    parser = FrameParser()
    received: list[Frame] = []
    while data:
        size = cuts[len(data) % len(cuts)]
        received += parser.feed(data[:size])
        data = data[size:]
    assert received == sent


@given(st.binary(max_size=400))
def test_any_bytes_give_frames_or_a_typed_error(data: bytes) -> None:
    parser = FrameParser()
    try:
        for frame in parser.feed(data):
            assert isinstance(frame.type, FrameType)
    except GuestProtocolError:
        pass


@given(st.binary(max_size=100))
def test_any_payload_gives_a_value_or_a_typed_error(payload: bytes) -> None:
    for parse in (protocol.parse_map, protocol.parse_credit, protocol.parse_data):
        with contextlib.suppress(GuestProtocolError):
            parse(payload)


@pytest.mark.parametrize("length", [0, 4, protocol.MAX_LENGTH + 1, 2**32 - 1])
def test_bad_lengths_are_refused_before_they_are_buffered(length: int) -> None:
    with pytest.raises(GuestProtocolError, match="length"):
        list(FrameParser().feed(struct.pack("<I", length)))


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(GuestProtocolError):
        protocol.parse_map(b"\x81\xa1a" * 100_000 + b"\xc0")


def agent_hello(token: bytes, nonce: bytes, /, **changes: object) -> Frame:
    own = os.urandom(protocol.NONCE_BYTES)
    body: dict[str, object] = {
        "gen": 1,
        "nonce": own,
        "proof": hmac.digest(token, b"agentkernel agent" + nonce + own, "sha256"),
        "version": "0",
        "guard": {"dumpable": 0, "uid": 0, "caps": 0},
    } | changes
    wire = protocol.map_frame(0, FrameType.HELLO, body)
    return next(iter(FrameParser().feed(wire)))


def test_a_guarded_agent_that_knows_the_token_is_accepted() -> None:
    token, nonce = os.urandom(32), os.urandom(16)
    hello = protocol.check_agent_hello(agent_hello(token, nonce), token, nonce)
    assert hello.generation == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"proof": bytes(32)},
        {"proof": b""},
        {"gen": 2},
        {"nonce": b"short"},
        {"guard": {"dumpable": 1, "uid": 0, "caps": 0}},
        {"guard": {}},
        {"guard": None},
        {"version": 7},
    ],
)
def test_anybody_else_is_not(changes: dict[str, object]) -> None:
    token, nonce = os.urandom(32), os.urandom(16)
    with pytest.raises(GuestProtocolError):
        protocol.check_agent_hello(agent_hello(token, nonce, **changes), token, nonce)


def test_a_replayed_proof_is_not_accepted() -> None:
    token = os.urandom(32)
    old = agent_hello(token, os.urandom(16))
    with pytest.raises(GuestProtocolError, match="token"):
        protocol.check_agent_hello(old, token, os.urandom(16))


def test_credit_only_for_stdin() -> None:
    with pytest.raises(GuestProtocolError):
        protocol.parse_credit(struct.pack("<BI", Channel.STDOUT, 1))
