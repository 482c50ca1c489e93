"""Bodies: read as their head says, in pieces as they come, never as a whole."""

from __future__ import annotations

import h11

from agentkernel.network.intercept.heads import Head, Header, Malformed
from agentkernel.network.intercept.wire import STALLED_SECONDS, Wire


class Body:
    """The body that follows `head` on `wire`. `complete` once its end was seen; `trailers` then
    holds what stood behind it. What comes after it is left on the wire."""

    def __init__(self, head: Head, wire: Wire) -> None:
        self._head = head
        self._wire = wire
        self._left = head.length
        self.complete = head.framing == "none"
        self.trailers: list[Header] = []

    async def read(self, seconds: float = STALLED_SECONDS) -> bytes:
        """The next piece; nothing at its end. Raises Malformed if it is cut off or wrongly framed,
        Lost, TimeoutError, after which it can be asked again."""
        if self.complete:
            return b""
        match self._head.framing:
            case "length":
                return await self._read_counted(seconds)
            case "chunked":
                return await self._read_chunked(seconds)
            case _:
                piece = await self._wire.read(seconds)
                self.complete = not piece
                if self.complete and self._wire.cut:
                    raise Malformed("its body was cut off")
                return piece

    async def _read_counted(self, seconds: float) -> bytes:
        piece = await self._wire.read(seconds)
        if not piece:
            raise Malformed("its body ends before its content-length")
        if len(piece) > self._left:
            self._wire.unread(piece[self._left :])
            piece = piece[: self._left]
        self._left -= len(piece)
        self.complete = not self._left
        return piece

    async def _read_chunked(self, seconds: float) -> bytes:
        connection = self._head.connection
        while True:
            try:
                event = connection.next_event()
            except h11.RemoteProtocolError:
                raise Malformed("its body is wrongly chunked") from None
            if event is h11.NEED_DATA:
                data = await self._wire.read(seconds)
                if not data:
                    raise Malformed("its body ends within its chunks")
                connection.receive_data(data)
            elif isinstance(event, h11.Data):
                return bytes(event.data)
            else:
                if isinstance(event, h11.EndOfMessage):
                    self.trailers = event.headers.raw_items()
                self._wire.unread(connection.trailing_data[0])
                self.complete = True
                return b""
