"""Bodies that are streamed, both ways: at the pace of whoever is slower, and not for ever."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agentkernel.errors import AgentKernelError
from agentkernel.server.app import Service, service_of
from agentkernel.server.problems import RequestError, log_internal


class Content(Response):
    """A body of unknown length. One that breaks off is cut off: it can't be taken for whole.

    `first` was taken from `rest` before: what is wrong at the start still has a status to say it.
    With `lasting` it has no time limit, and hears of the daemon's end itself.
    """

    def __init__(
        self,
        service: Service,
        first: bytes,
        rest: AsyncGenerator[bytes, None],
        *,
        media_type: str = "application/octet-stream",
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        lasting: bool = False,
    ) -> None:
        self._service = service
        self._first = first
        self._rest = rest
        self._lasting = lasting
        self._seconds = None if lasting else service.bounds.transfer_seconds
        self.background = None
        self.status_code = status
        self.media_type = media_type
        self.init_headers(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._rest):
            with contextlib.suppress(Exception):
                await self._service.while_wanted(
                    receive, self._send(send), heeds_the_end=self._lasting
                )

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "headers": self.raw_headers}
        await send({**start, "status": self.status_code})
        await send({"type": "http.response.body", "body": self._first, "more_body": True})
        try:
            async with asyncio.timeout(self._seconds):
                async for piece in self._rest:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        except Exception as exc:
            if not isinstance(exc, AgentKernelError | TimeoutError):
                log_internal(exc)
            raise
        await send({"type": "http.response.body", "body": b""})


async def uploaded(request: Request) -> AsyncGenerator[bytes, None]:
    """The pieces of a request's body as they come. Preconditions: within `transfer_time`."""
    stream: AsyncIterator[bytes] = aiter(request.stream())
    seconds = service_of(request).bounds.piece_seconds
    while True:
        try:
            async with asyncio.timeout(seconds):
                piece = await anext(stream, None)
        except TimeoutError:
            raise RequestError(408, f"nothing more came within {seconds:g} s") from None
        if piece is None:
            return
        if piece:
            yield piece


@contextlib.asynccontextmanager
async def transfer_time(request: Request) -> AsyncIterator[None]:
    seconds = service_of(request).bounds.transfer_seconds
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as exc:
        if isinstance(exc, AgentKernelError):
            raise
        raise RequestError(408, f"it did not come within {seconds:g} s") from None
