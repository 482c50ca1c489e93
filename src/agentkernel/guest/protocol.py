"""Frames and handshake of the guest protocol, without any I/O.

Preconditions: none. Whatever bytes arrive, `FrameParser` yields well-formed frames or raises
GuestProtocolError, and never holds more than one frame of unparsed input.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

import msgspec

from agentkernel.errors import GuestProtocolError

GENERATION = 1
MAX_LENGTH = 1 << 20
# A greeting is short; decoded, a megabyte of MessagePack may take a hundred.
MAX_HELLO = 1024
# An event may name a path.
MAX_CONTROL = 8192
STDIN_CREDIT = 1 << 18
DEFAULT_WINDOW = 1 << 18
TOKEN_BYTES = 32
NONCE_BYTES = 16

_HEADER = struct.Struct("<IIB")
_CREDIT = struct.Struct("<BI")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, Any]).decode


class FrameType(IntEnum):
    HELLO = 1
    OPEN = 2
    DATA = 3
    CREDIT = 4
    END = 5
    ERROR = 6


class Channel(IntEnum):
    STDIN = 0
    STDOUT = 1
    STDERR = 2
    CONTROL = 3


class Frame(NamedTuple):
    stream: int
    type: FrameType
    payload: bytes


def frame(stream: int, kind: FrameType, payload: bytes = b"") -> bytes:
    return _HEADER.pack(5 + len(payload), stream, kind) + payload


def map_frame(stream: int, kind: FrameType, body: dict[str, Any]) -> bytes:
    return frame(stream, kind, _encode(body))


def data_frame(stream: int, channel: Channel, data: bytes) -> bytes:
    return _HEADER.pack(6 + len(data), stream, FrameType.DATA) + bytes((channel,)) + data


def control_frame(stream: int, body: dict[str, Any]) -> bytes:
    return data_frame(stream, Channel.CONTROL, _encode(body))


def credit_frame(stream: int, channel: Channel, amount: int) -> bytes:
    return frame(stream, FrameType.CREDIT, _CREDIT.pack(channel, amount))


def _parse_hello(payload: bytes) -> dict[str, Any]:
    if len(payload) > MAX_HELLO:
        raise GuestProtocolError(f"agentd sent a greeting of {len(payload)} bytes")
    return parse_map(payload)


def parse_map(payload: bytes) -> dict[str, Any]:
    try:
        return _decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise GuestProtocolError(f"agentd sent a map that is none: {exc}") from None


def parse_credit(payload: bytes) -> tuple[Channel, int]:
    if len(payload) != _CREDIT.size:
        raise GuestProtocolError("agentd sent a CREDIT of the wrong size")
    channel, amount = _CREDIT.unpack(payload)
    if channel != Channel.STDIN:
        raise GuestProtocolError("agentd granted credit on a channel that is not stdin")
    return Channel.STDIN, amount


def parse_data(payload: bytes) -> tuple[Channel, bytes]:
    if not payload or payload[0] not in (Channel.STDOUT, Channel.STDERR, Channel.CONTROL):
        raise GuestProtocolError("agentd sent DATA on a channel that does not exist")
    return Channel(payload[0]), payload[1:]


class FrameParser:
    """Cuts a byte stream into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Frame]:
        """Yields the frames that are complete with `data`. Exhaust it before feeding again."""
        buffer = self._buffer
        buffer += data
        start, size = 0, len(buffer)
        try:
            while size - start >= 4:
                length = int.from_bytes(buffer[start : start + 4], "little")
                if not 5 <= length <= MAX_LENGTH:
                    raise GuestProtocolError(f"agentd sent a frame of length {length}")
                end = start + 4 + length
                if end > size:
                    break
                _, stream, kind = _HEADER.unpack_from(buffer, start)
                if not FrameType.HELLO <= kind <= FrameType.ERROR:
                    raise GuestProtocolError(f"agentd sent a frame of unknown type {kind}")
                payload = bytes(buffer[start + 9 : end])
                start = end
                yield Frame(stream, FrameType(kind), payload)
        finally:
            del buffer[:start]


def host_hello(nonce: bytes) -> bytes:
    return map_frame(0, FrameType.HELLO, {"gen": [GENERATION, GENERATION], "nonce": nonce})


def host_proof(token: bytes, agent_nonce: bytes, host_nonce: bytes) -> bytes:
    proof = hmac.digest(token, b"agentkernel host" + agent_nonce + host_nonce, "sha256")
    return map_frame(0, FrameType.HELLO, {"proof": proof})


class AgentHello(msgspec.Struct, frozen=True):
    """What agentd says of itself once it has proved that it holds the token."""

    generation: int
    version: str
    nonce: bytes
    uid: int
    capabilities: int


def check_agent_hello(frame_: Frame, token: bytes, host_nonce: bytes) -> AgentHello:
    """Raises GuestProtocolError unless the other side is this sandbox's guarded agentd."""
    if frame_.stream != 0 or frame_.type is FrameType.ERROR:
        reason = _parse_hello(frame_.payload).get("code") if frame_.type is FrameType.ERROR else "?"
        if reason == "generation":
            raise GuestProtocolError(
                "agentd in this sandbox speaks another protocol generation",
                hint="the sandbox was made by another version; use that version or recreate it",
            )
        raise GuestProtocolError("agentd refused the handshake")
    if frame_.type is not FrameType.HELLO:
        raise GuestProtocolError("agentd did not begin with HELLO")
    body = _parse_hello(frame_.payload)
    nonce, proof, guard = body.get("nonce"), body.get("proof"), body.get("guard")
    version, generation = body.get("version"), body.get("gen")
    if not (
        isinstance(nonce, bytes)
        and len(nonce) == NONCE_BYTES
        and isinstance(proof, bytes)
        and isinstance(guard, dict)
        and isinstance(version, str)
        and generation == GENERATION
    ):
        raise GuestProtocolError("agentd sent a HELLO that is none")
    expected = hmac.digest(token, b"agentkernel agent" + host_nonce + nonce, "sha256")
    if not hmac.compare_digest(expected, proof):
        raise GuestProtocolError("somebody answers in agentd's place: it does not know the token")
    uid, caps = guard.get("uid"), guard.get("caps")
    if guard.get("dumpable") != 0 or not isinstance(uid, int) or not isinstance(caps, int):
        raise GuestProtocolError("agentd did not guard itself")
    return AgentHello(
        generation=GENERATION, version=version[:64], nonce=nonce, uid=uid, capabilities=caps
    )
