"""One request that is allowed, passed on, and its response, passed back."""

from __future__ import annotations

import asyncio
import contextlib

import h11

from agentkernel.network.gateway.flow import CapReached, Flow
from agentkernel.network.intercept import answers
from agentkernel.network.intercept.answers import Answer
from agentkernel.network.intercept.bodies import Body
from agentkernel.network.intercept.guarding import Guard
from agentkernel.network.intercept.heads import (
    HEAD_BYTES,
    Header,
    Malformed,
    RequestHead,
    ResponseHead,
    read_response_head,
)
from agentkernel.network.intercept.relaying import relay
from agentkernel.network.intercept.wire import Lost, Wire

BODY_SECONDS = 300.0
"""How long a guest may let a request's body wait."""
INFORMATIONAL = 16
"""How many responses of the kind "100 Continue" may precede the real one."""
HALF_CLOSED_SECONDS = 60.0
"""How long the far side may take for a guest that has closed its half."""


class FarClosed(Exception):
    """The far side closed without a byte of a response."""


class Exchange:
    """`answering`: part of the response is out, so no other one can be given any more. After `run`,
    `keeps_client` and `keeps_far` say which connection can be used again."""

    def __init__(
        self,
        flow: Flow,
        client: Wire,
        far: Wire,
        head: RequestHead,
        target: bytes,
        guard: Guard,
        *,
        alone: bool,
    ) -> None:
        self._flow = flow
        self._client = client
        self._far = far
        self._head = head
        self._target = target
        self._guard = guard
        self._trouble: Exception | None = None
        self._towards_client = head.connection
        self._towards_far = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
        self.answering = False
        self.keeps_client = head.keeps and not alone
        self.keeps_far = False

    async def run(self) -> None:
        """Raises Answer, FarClosed, CapReached, Lost, TimeoutError."""
        loop = asyncio.get_running_loop()
        patience: list[asyncio.TimerHandle] = []

        def half_closed() -> None:
            patience.append(loop.call_later(HALF_CLOSED_SECONDS, self._far.abort))

        self._client.on_lost, self._client.on_ended = self._far.abort, half_closed
        if self._client.ended:
            half_closed()
        uploading: asyncio.Task[None] | None = None
        try:
            await self._ask()
            if self._head.framing != "none":
                uploading = asyncio.create_task(self._upload())
            try:
                await self._respond()
            except Malformed as exc:
                raise self._trouble or answers.fault(
                    f"the response of {self._flow.host} was refused: {exc.words}", check="response"
                ) from None
            except (Lost, FarClosed):
                if self._trouble is not None:
                    raise self._trouble from None
                raise
        finally:
            self._client.on_lost = self._client.on_ended = None
            for timer in patience:
                timer.cancel()
            if uploading is not None:
                await self._end_upload(uploading)

    async def _end_upload(self, uploading: asyncio.Task[None]) -> None:
        if not uploading.done():
            # Answered before the whole was read: the rest would be taken for the next request.
            self.keeps_client = self.keeps_far = False
            uploading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await uploading

    # --- the request ---

    async def _ask(self) -> None:
        head = self._head
        headers = head.passed_on()
        if head.framing == "none":
            headers = [each for each in headers if each[0].lower() != b"expect"]
        elif head.framing == "chunked":
            headers.append((b"Transfer-Encoding", b"chunked"))
        if self._wants_websocket():
            headers += [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
        await self._flow.subject.take(up=head.size)
        request = h11.Request(method=head.method, target=self._target, headers=headers)
        self._far.write(self._send(self._towards_far, request))
        if head.framing == "none":
            self._send(self._towards_far, h11.EndOfMessage())

    def _wants_websocket(self) -> bool:
        head = self._head
        return (
            head.method == "GET"
            and head.framing == "none"
            and head.version == b"1.1"
            and head.tokens(b"upgrade") == {b"websocket"}
            and b"upgrade" in head.tokens(b"connection")
        )

    async def _upload(self) -> None:
        """Never raises; what went wrong is `_trouble`, and the far side is dropped for it, which
        ends the wait for a response."""
        body = Body(self._head, self._client, seconds=BODY_SECONDS)
        try:
            while piece := await body.read():
                await self._flow.subject.take(up=len(piece))
                if self._head.framing == "chunked":
                    piece = self._send(self._towards_far, h11.Data(data=piece))
                self._far.write(piece)
                await self._far.drain()
            if self._head.framing == "chunked":
                end = h11.EndOfMessage(headers=body.trailers)
                self._far.write(self._send(self._towards_far, end))
        except Malformed as exc:
            self._fail(answers.malformed(exc.words))
        except (Answer, CapReached) as exc:
            self._fail(exc)
        except TimeoutError:
            self._fail(
                Answer(408, "network_bad_request", "the request's body did not come in time")
            )
        except Lost:
            if self._client.lost:
                self._fail(Lost())
            # Else the far side has closed its ear. It may have said why: that is to be read.

    def _fail(self, trouble: Exception) -> None:
        self._trouble = trouble
        self._far.abort()

    # --- the response ---

    async def _respond(self) -> None:
        response = await self._final_head()
        if response is None:
            return
        headers = response.passed_on()
        raw = response.framing == "length"
        if not raw and response.framing != "none":
            headers = [each for each in headers if each[0].lower() != b"content-length"]
        if not self.keeps_client:
            headers.append((b"Connection", b"close"))
        self.answering = True
        start = h11.Response(status_code=response.status, headers=headers, reason=response.reason)
        await self._give(self._send(self._towards_client, start))
        body = Body(response, self._far)
        while piece := await body.read():
            await self._give(
                piece if raw else self._send(self._towards_client, h11.Data(data=piece))
            )
        if not raw:
            end = h11.EndOfMessage(headers=body.trailers)
            await self._give(self._send(self._towards_client, end))
            if self._towards_client.our_state is h11.MUST_CLOSE:
                self.keeps_client = False
        self.keeps_far = response.keeps and response.framing != "close" and not self._far.held

    async def _final_head(self) -> ResponseHead | None:
        """None if it was a switch of protocols, and that is over."""
        for _ in range(INFORMATIONAL):
            head = await read_response_head(self._far, self._towards_far, self._head.method)
            if head is None:
                raise FarClosed
            if head.status >= 200:
                return head
            if head.status == 101:
                await self._switch(head)
                return None
            if self._head.version >= b"1.1":
                await self._inform(head, head.passed_on())
        raise Malformed("it begins again and again")

    async def _inform(self, head: ResponseHead, headers: list[Header]) -> None:
        event = h11.InformationalResponse(
            status_code=head.status, headers=headers, reason=head.reason
        )
        await self._give(self._send(self._towards_client, event))

    async def _switch(self, head: ResponseHead) -> None:
        if not self._wants_websocket() or head.tokens(b"upgrade") != {b"websocket"}:
            raise Malformed("it switches to a protocol that was not asked for")
        self.answering = True
        self.keeps_client = False
        switch = [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
        await self._inform(head, head.passed_on() + switch)
        await relay(self._client, self._far, self._flow.subject)

    async def _give(self, data: bytes) -> None:
        await self._flow.subject.take(down=len(data))
        self._client.write(data)
        await self._client.drain()

    def _send(self, connection: h11.Connection, event: h11.Event) -> bytes:
        try:
            return connection.send(event) or b""
        except h11.LocalProtocolError:
            raise Malformed("it can't be written down as HTTP") from None
