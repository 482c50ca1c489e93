"""One request that is allowed, passed on, and its response, passed back."""

from __future__ import annotations

import asyncio
from typing import Any

import h11

from agentkernel.network.gateway.flow import Flow
from agentkernel.network.intercept import answers
from agentkernel.network.intercept.bodies import Body
from agentkernel.network.intercept.guarding import Guard
from agentkernel.network.intercept.heads import (
    Header,
    Malformed,
    RequestHead,
    ResponseHead,
    read_response_head,
    written,
)
from agentkernel.network.intercept.relaying import HELD_SECONDS, relay
from agentkernel.network.intercept.upload import SWITCH, Upload
from agentkernel.network.intercept.wire import STALLED_SECONDS, Lost, Wire

INFORMATIONAL = 16
"""How many responses of the kind "100 Continue" may precede the real one."""
HALF_CLOSED_SECONDS = 15.0
"""How long the far side may take for a guest that has closed its half, or has gone: both look the
same."""


class FarClosed(Exception):
    """The far side closed without a byte of a response."""


class Exchange:
    """`answering`: part of the response is out, so no other one can be given any more. After `run`,
    `keeps_client` and `keeps_far` say which connection can be used again."""

    def __init__(
        self, flow: Flow, client: Wire, far: Wire, head: RequestHead, guard: Guard, *, alone: bool
    ) -> None:
        self._flow = flow
        self._client = client
        self._far = far
        self._head = head
        self._guard = guard
        self._upload = Upload(flow, client, far, head, guard)
        self._search = guard.search()
        self._patience: asyncio.TimerHandle | None = None
        self.answering = False
        self.keeps_client = head.keeps and not alone
        self.keeps_far = False

    async def run(self, target: bytes, headers: list[Header]) -> None:
        """Raises Answer, FarClosed, CapReached, Lost, TimeoutError."""
        uploading: asyncio.Task[None] | None = None
        try:
            await self._begin(target, headers)
            self._guard.tell()
            if self._upload.going_on:
                uploading = asyncio.create_task(self._upload_and_watch())
            else:
                self._client.watch(self._client_ended)
            await self._respond_or_say_why()
        finally:
            if uploading is not None and not uploading.done():
                uploading.cancel()
                await asyncio.wait([uploading])
            self._client.unwatch()
            if self._patience is not None:
                self._patience.cancel()
            self._guard.tell()
            if not self._upload.complete:
                # Answered before the whole was read: the rest is no request.
                self.keeps_client = self.keeps_far = False

    async def _begin(self, target: bytes, headers: list[Header]) -> None:
        try:
            await self._upload.begin(target, headers)
        except Lost:
            if self._client.lost:
                raise
            raise FarClosed from None

    async def _upload_and_watch(self) -> None:
        await self._upload.go_on()
        if self._upload.complete:
            self._client.watch(self._client_ended)

    def _client_ended(self) -> None:
        if self._client.lost:
            self._far.abort()
        else:
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(HALF_CLOSED_SECONDS, self._far.abort)

    async def _respond_or_say_why(self) -> None:
        """What went wrong with the request's body ends the wait for a response, and is why."""
        try:
            await self._respond()
        except Malformed as exc:
            raise self._upload.trouble or answers.fault(
                f"the response of {self._flow.host} was refused: {exc.words}", check="response"
            ) from None
        except (Lost, FarClosed):
            if self._upload.trouble is not None:
                raise self._upload.trouble from None
            if self._client.lost or not self._far.lost:
                raise
            if not self.answering:
                raise FarClosed from None
            raise answers.fault(
                f"{self._flow.host} broke off its response", check="response"
            ) from None

    async def _respond(self) -> None:
        response = await self._final_head()
        if response is None:
            return
        headers = self._headers(response)
        raw = self._search is None and response.framing == "length"
        if not raw and response.framing != "none":
            headers = [each for each in headers if each[0].lower() != b"content-length"]
        if not self.keeps_client:
            headers.append((b"Connection", b"close"))
        self.answering = True
        await self._say(
            h11.Response, status_code=response.status, headers=headers, reason=response.reason
        )
        body = Body(response, self._far)
        if raw:
            while piece := await body.read():
                await self._give(piece)
        else:
            await (self._give_framed(body) if self._search is None else self._give_searched(body))
            if self._head.connection.our_state is h11.MUST_CLOSE:
                self.keeps_client = False
        self.keeps_far = response.keeps and response.framing != "close" and not self._far.held

    async def _give_framed(self, body: Body) -> None:
        while piece := await body.read():
            await self._give_data(piece)
        await self._say(h11.EndOfMessage, headers=body.trailers)

    async def _give_searched(self, body: Body) -> None:
        search = self._search
        assert search is not None
        patience = STALLED_SECONDS
        while True:
            try:
                piece = await body.read(patience)
            except TimeoutError:
                if patience is STALLED_SECONDS:
                    raise
                # A stream that pauses where a secret might begin is not stopped for it.
                patience = STALLED_SECONDS
                await self._give_data(search.release())
                continue
            if not piece:
                break
            patience = HELD_SECONDS
            for found in search.feed(piece):
                await self._give_data(found)
        await self._give_data(search.finish())
        await self._say(h11.EndOfMessage, headers=search.trailers(body.trailers))

    async def _give_data(self, data: bytes) -> None:
        if data:
            await self._say(h11.Data, data=data)

    async def _final_head(self) -> ResponseHead | None:
        """None if it was a switch of protocols, and that is over."""
        for _ in range(INFORMATIONAL):
            head = await read_response_head(self._far, self._upload.connection, self._head.method)
            if head is None:
                raise FarClosed
            if head.status >= 200:
                return head
            if head.status == 101:
                await self._switch(head)
                return None
            if self._head.version >= b"1.1":
                await self._inform(head, self._headers(head))
        raise Malformed("it begins again and again")

    def _headers(self, head: ResponseHead) -> list[Header]:
        headers = head.passed_on()
        return headers if self._search is None else self._search.head(head, headers)

    async def _inform(self, head: ResponseHead, headers: list[Header]) -> None:
        await self._say(
            h11.InformationalResponse, status_code=head.status, headers=headers, reason=head.reason
        )

    async def _switch(self, head: ResponseHead) -> None:
        if not self._upload.switching or head.tokens(b"upgrade") != {b"websocket"}:
            raise Malformed("it switches to a protocol that was not asked for")
        self.answering = True
        self.keeps_client = False
        await self._inform(head, self._headers(head) + SWITCH)
        await relay(self._client, self._far, self._flow.subject, self._search)

    async def _say(self, kind: type[h11.Event], **fields: Any) -> None:
        await self._give(written(self._head.connection, kind, **fields))

    async def _give(self, data: bytes) -> None:
        await self._flow.subject.take(down=len(data))
        await self._client.write(data)
