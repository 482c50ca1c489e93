"""WebSocket frames (RFC 6455, client side) as bytes and back, without any input or output."""

from __future__ import annotations

import os

from agentkernel.errors import DaemonError

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
MAX_MESSAGE = 4 << 20
# What the key is for, to tell a cached answer of a proxy from a true one, can't happen on a unix
# socket; a fixed one saves the hash, and its import.
_KEY, _ACCEPT = "YWdlbnRrZXJuZWwtd3MtMQ==", "TGZ0qAd6xXmyqAjAOEp/oZABG4U="
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": _KEY,
}


def accepted(headers: dict[str, str]) -> bool:
    return headers.get("sec-websocket-accept") == _ACCEPT


def encode(opcode: int, payload: bytes) -> bytes:
    """One whole message as one masked frame."""
    size = len(payload)
    if size < 126:
        head = bytes((0x80 | opcode, 0x80 | size))
    elif size < 1 << 16:
        head = bytes((0x80 | opcode, 0x80 | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, 0x80 | 127)) + size.to_bytes(8, "big")
    key = os.urandom(4)
    mask = (key * (size // 4 + 1))[:size]
    masked = int.from_bytes(payload, "big") ^ int.from_bytes(mask, "big")
    return head + key + masked.to_bytes(size, "big")


class Decoder:
    """Bytes in, whole messages out. Holds at most one message and what was fed."""

    def __init__(self, data: bytes = b"") -> None:
        self._buffer = bytearray(data)
        self._opcode = 0
        self._parts = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> tuple[int, bytes] | None:
        """Opcode and payload of the next message, or None: more bytes are needed."""
        while (frame := self._frame()) is not None:
            last, opcode, payload = frame
            if opcode >= CLOSE:
                if not last or len(payload) > 125:
                    raise _broken("a control frame in pieces")
                return opcode, payload
            if bool(opcode) == bool(self._opcode):
                raise _broken("a message inside another")
            self._opcode = self._opcode or opcode
            self._parts += payload
            if len(self._parts) > MAX_MESSAGE:
                raise _broken("a message that is too large")
            if last:
                message = self._opcode, bytes(self._parts)
                self._opcode = 0
                self._parts.clear()
                return message
        return None

    def _frame(self) -> tuple[bool, int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        first, second = buffer[0], buffer[1]
        opcode, size, start = first & 0x0F, second & 0x7F, 2
        if first & 0x70 or second & 0x80 or opcode not in (0, TEXT, BINARY, CLOSE, PING, PONG):
            raise _broken("a frame that was not agreed on")
        if size >= 126:
            start = 4 if size == 126 else 10
            if len(buffer) < start:
                return None
            size = int.from_bytes(buffer[2:start], "big")
        if size > MAX_MESSAGE:
            raise _broken("a frame that is too large")
        if len(buffer) < start + size:
            return None
        payload = bytes(buffer[start : start + size])
        del buffer[: start + size]
        return bool(first & 0x80), opcode, payload


def _broken(what: str) -> DaemonError:
    return DaemonError(f"the daemon broke the stream's protocol: {what}")
