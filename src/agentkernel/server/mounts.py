"""Applications of higher layers below a path of the daemon, made when somebody first asks.

What the door checks holds for them too. Their packages may be heavy or missing: the daemon's start
does not pay for them, and a failure to make one is an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentkernel.server.callers import caller_of
from agentkernel.server.problems import RequestError, problem_response

if TYPE_CHECKING:
    from agentkernel.server.app import Service

Make = Callable[["Service"], AbstractAsyncContextManager[ASGIApp]]


def mount(service: Service, path: str, make: Make) -> Route:
    return Route(path, _Mounted(service, make), methods=["GET", "POST", "DELETE"])


class _Mounted:
    """It lives until the daemon ends, in a task of its own."""

    def __init__(self, service: Service, make: Make) -> None:
        self._service = service
        self._make = make
        self._app: asyncio.Future[ASGIApp] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            # It acts through the socket with all that a delegated owner may do, so its caller has
            # to have that much.
            for needed in ("read", "exec", "manage"):
                caller_of(HTTPConnection(scope)).check(needed)
            app = await self._made()
            with self._service.stream() if scope["method"] == "GET" else contextlib.nullcontext():
                await app(scope, self._timely(receive), watched)
        except Exception as exc:
            if begun:
                raise
            await problem_response(exc)(scope, receive, send)

    async def _made(self) -> ASGIApp:
        if self._app is None:
            self._app = asyncio.get_running_loop().create_future()
            self._service.background(self._keep(self._app))
        return await asyncio.shield(self._app)

    async def _keep(self, made: asyncio.Future[ASGIApp]) -> None:
        try:
            async with self._make(self._service) as app:
                made.set_result(app)
                await self._service.stopping.wait()
        except Exception as exc:
            if made.done():
                raise
            made.set_exception(exc)
            self._app = None  # what was missing may be there next time

    def _timely(self, receive: Receive) -> Receive:
        """A body that does not come is not waited for."""
        seconds = self._service.bounds.body_seconds
        deadline = asyncio.get_running_loop().time() + seconds
        complete = False

        async def received() -> Message:
            nonlocal complete
            if complete:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise RequestError(408, f"the body did not come within {seconds:g} s") from None
            complete = not message.get("more_body", False)
            return message

        return received
