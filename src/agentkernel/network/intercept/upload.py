"""A request on its way to the far side: its head at once, its body while the response is waited
for."""

from __future__ import annotations

import asyncio

import h11

from agentkernel.network.gateway.flow import CapReached, Flow
from agentkernel.network.intercept import answers
from agentkernel.network.intercept.bodies import Body
from agentkernel.network.intercept.guarding import Guard
from agentkernel.network.intercept.heads import (
    HEAD_BYTES,
    Header,
    Malformed,
    RequestHead,
    written,
)
from agentkernel.network.intercept.wire import Lost, Wire
from agentkernel.network.secrets.swapping import Blocked, BodySwapper

BODY_SECONDS = 300.0
"""How long a guest may let a request's body wait."""
SMALL_BYTES = 64 << 10
"""A body whose length changes is sent with its new length if it is no bigger, else in chunks, which
not every server takes."""
COMPRESSED_BYTES = 4 << 10
SWITCH: list[Header] = [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]


class Upload:
    """`connection` reads the response. `switching`: it asks for a WebSocket. `trouble`: why the
    body could not be passed on; the far side is dropped then, which ends the wait for it."""

    def __init__(
        self, flow: Flow, client: Wire, far: Wire, head: RequestHead, guard: Guard
    ) -> None:
        self._flow = flow
        self._client = client
        self._far = far
        self._head = head
        self._guard = guard
        self._body = Body(head, client)
        self._stream = guard.body(head)
        self._chunked = head.framing == "chunked"
        self.connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
        self.switching = (
            head.method == "GET"
            and head.framing == "none"
            and head.version == b"1.1"
            and head.tokens(b"upgrade") == {b"websocket"}
            and b"upgrade" in head.tokens(b"connection")
        )
        self.going_on = head.framing != "none"
        self.complete = not self.going_on
        self.trouble: Exception | None = None

    async def begin(self, target: bytes, headers: list[Header]) -> None:
        """Sends the head. Raises Answer, CapReached, Lost."""
        await self._flow.subject.take(up=self._head.size)
        data: bytes | None = None
        if not self.going_on:
            headers = _without(headers, b"expect")
        elif self._stream is not None and not self._stream.keeps_length and not self._chunked:
            headers = _without(headers, b"content-length")
            if self._head.length <= SMALL_BYTES and not self._head.values(b"expect"):
                data = await self._whole()
                headers.append((b"Content-Length", b"%d" % len(data)))
            else:
                self._chunked = True
        if self._chunked:
            headers.append((b"Transfer-Encoding", b"chunked"))
        if self.switching:
            headers += SWITCH
        request = written(
            self.connection,
            h11.Request,
            method=self._head.method,
            target=target,
            headers=headers,
        )
        await self._far.write(request + (data or b""))
        if not self.going_on and data is None:
            written(self.connection, h11.EndOfMessage)

    async def _whole(self) -> bytes:
        data = b""
        try:
            while piece := await self._read():
                data += piece
        except Blocked as exc:
            raise self._guard.stopped(exc) from None
        except TimeoutError:
            raise answers.late("body") from None
        self.going_on, self.complete = False, True
        return data

    async def go_on(self) -> None:
        """Sends the body. Never raises; what went wrong is `trouble`."""
        try:
            while piece := await self._read():
                if self._chunked:
                    piece = written(self.connection, h11.Data, data=piece)
                await self._far.write(piece)
            if self._chunked:
                trailers = self._guard.trailers(self._body.trailers)
                end = written(self.connection, h11.EndOfMessage, headers=trailers)
                await self._far.write(end)
            self.complete = True
        except Malformed as exc:
            self._fail(answers.malformed(exc.words))
        except Blocked as exc:
            self._fail(self._guard.stopped(exc))
        except CapReached as exc:
            self._fail(exc)
        except TimeoutError:
            self._fail(answers.late("body"))
        except Lost:
            if self._client.lost:
                self._fail(Lost())
            # Else the far side has closed its ear. It may have said why: that is to be read.

    async def _read(self) -> bytes:
        """The next piece to send; nothing at the end."""
        while piece := await self._body.read(BODY_SECONDS):
            await self._flow.subject.take(up=len(piece))
            if self._stream is None:
                return piece
            if ready := await self._looked_through(self._stream, piece):
                return ready
        stream, self._stream = self._stream, None
        return b"" if stream is None else stream.finish()

    async def _looked_through(self, stream: BodySwapper, piece: bytes) -> bytes:
        """A compressed one may be a thousand times as big: others get their turn in between."""
        if not self._head.values(b"content-encoding"):
            return stream.feed(piece)
        ready = []
        for at in range(0, len(piece), COMPRESSED_BYTES):
            ready.append(stream.feed(piece[at : at + COMPRESSED_BYTES]))
            await asyncio.sleep(0)
        return b"".join(ready)

    def _fail(self, trouble: Exception) -> None:
        self.trouble = trouble
        self._far.abort()


def _without(headers: list[Header], name: bytes) -> list[Header]:
    return [each for each in headers if each[0].lower() != name]
