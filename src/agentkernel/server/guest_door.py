"""Where sandboxes reach the daemon's tools for them: a socket that the gateway alone connects to.

The gateway says whose a connection is, before anything of the guest's. From then on it is bound to
that sandbox: a guest has no words to be taken for another, and there is nothing behind this socket
but the tools. What the guest sends is HTTP, bounded in size, number and time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, cast

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from agentkernel.audit.entries import Actor
from agentkernel.audit.trail import acting
from agentkernel.errors import AgentKernelError, NotFoundError, PolicyDeniedError, RateLimitedError
from agentkernel.kernel.network_control import setting_of
from agentkernel.network.policy.judging import judge_connection
from agentkernel.network.policy.model import TOOLS_GREETING, TOOLS_HOST, TOOLS_PATH, TOOLS_PORT
from agentkernel.server.app import Service
from agentkernel.server.guest_mcp import Protocol
from agentkernel.server.guest_tools import ASKS, INSTRUCTIONS, TOOLS, Guest
from agentkernel.server.problems import RequestError, problem_response
from agentkernel.server.protocols import HttpProtocol, WebSocketProtocol, peer_of
from agentkernel.server.rates import Rates

DOOR: Final = "sandbox"
MAX_BODY: Final = 256 << 10
CALL_SECONDS: Final = 60.0
MAX_CONNECTIONS: Final = 512
MAX_OF_ONE: Final = 16
CALLS: Final = (60, 10.0)
"""Of one sandbox: so many calls at once, then so many in a second."""
_GREETING: Final = re.compile(rf"{re.escape(TOOLS_GREETING)} ([a-z0-9]{{1,64}})\n".encode())
_GREETING_SECONDS: Final = 10.0
_MOST_GREETING: Final = 128
_BACKLOG: Final = 256


class GuestTools:
    """The application. `scope["state"]["sandbox"]` is who asks."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._protocol = Protocol(TOOLS, INSTRUCTIONS)
        self._calls = Rates(*CALLS, most=service.bounds.max_counted)
        self._asks = Rates(*ASKS, most=service.bounds.max_counted)
        self._starting: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        id: str = scope["state"]["sandbox"]
        try:
            response = await self._respond(Request(scope, receive), id)
        except ClientDisconnect:
            return
        except Exception as exc:
            response = problem_response(exc)
            if isinstance(exc, RateLimitedError):
                response.headers["Retry-After"] = str(exc.details["retry_after_seconds"])
        await response(scope, receive, send)

    async def _respond(self, request: Request, id: str) -> Response:
        if request.url.path != TOOLS_PATH:
            raise NotFoundError(f"there is nothing here but {TOOLS_PATH}")
        if request.method != "POST":
            # What the protocol would stream to a client: there is nothing.
            return Response(status_code=405, headers={"Allow": "POST"})
        if "origin" in request.headers:
            raise PolicyDeniedError("requests of web pages are not served")
        if wait := self._calls.take(id):
            raise RateLimitedError("too many calls", retry_after_seconds=max(1, round(wait)))
        data = await self._body(request)
        guest = await self._guest(id)
        actor = Actor(door=DOOR, owner=str(guest.record.owner), client=id)
        try:
            with acting(actor):
                async with asyncio.timeout(CALL_SECONDS):
                    answer = await self._protocol.answer(data, guest)
        except TimeoutError:
            raise RequestError(504, f"the tool did not answer within {CALL_SECONDS:g} s") from None
        if answer is None:
            return Response(status_code=202)
        return Response(answer, media_type="application/json")

    async def _body(self, request: Request) -> bytes:
        data = bytearray()
        try:
            async with asyncio.timeout(self._service.bounds.body_seconds):
                async for piece in request.stream():
                    data += piece
                    if len(data) > MAX_BODY:
                        raise RequestError(413, f"a message has at most {MAX_BODY >> 10} KiB")
        except TimeoutError:
            raise RequestError(408, "the message did not come in time") from None
        return bytes(data)

    async def _guest(self, id: str) -> Guest:
        """By what the row says now: a gateway may not have heard of it yet."""
        kernel = self._service.kernel
        try:
            record = await kernel.get(id)
        except AgentKernelError:
            raise NotFoundError("this sandbox is not there any more") from None
        setting = setting_of(record)
        if record.id != id or setting is None:
            raise PolicyDeniedError("this sandbox has no tools")
        verdict = judge_connection(setting.policy, None, TOOLS_HOST, TOOLS_PORT)
        if verdict.outcome == "deny":
            raise PolicyDeniedError("this sandbox has no tools")
        return Guest(kernel, record, self._asks, self._starting)


class GuestDoor:
    """Serves a listening unix socket."""

    def __init__(self, service: Service, listener: Any) -> None:
        self._bounds = service.bounds
        self._listener = listener
        self._open: Counter[str] = Counter()
        self._waiting: set[_Greeting] = set()
        self._config = Config(
            GuestTools(service),
            http=HttpProtocol,
            ws=WebSocketProtocol,
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=service.bounds.keep_alive_seconds,
        )
        self._config.load()
        self._state = ServerState()
        self._server: asyncio.AbstractServer

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(
            lambda: _Greeting(self), sock=self._listener, backlog=_BACKLOG
        )

    async def stop(self) -> None:
        """What is under way is cut off: a client asks again, whichever daemon there is then."""
        self._server.close()
        for waiting in list(self._waiting):
            waiting.drop()
        for connection in list(self._state.connections):
            connection.shutdown()
        if tasks := list(self._state.tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=2.0)

    def arrived(self, greeting: _Greeting) -> bool:
        if len(self._waiting) + len(self._state.connections) >= MAX_CONNECTIONS:
            return False
        self._waiting.add(greeting)
        return True

    def left(self, greeting: _Greeting) -> None:
        self._waiting.discard(greeting)

    def protocol(self, id: str) -> HttpProtocol | None:
        """For a connection that is this sandbox's; None: it has as many as it may have."""
        if self._open[id] >= MAX_OF_ONE:
            return None
        self._open[id] += 1

        def ended() -> None:
            self._open[id] -= 1
            if not self._open[id]:
                del self._open[id]

        return _Bound(
            self._bounds,
            ended,
            config=self._config,
            server_state=self._state,
            app_state={"sandbox": id},
        )


class _Bound(HttpProtocol):
    """HTTP of one sandbox."""

    def __init__(self, bounds: Any, ended: Callable[[], None], **options: Any) -> None:
        super().__init__(bounds, **options)
        self._ended = ended

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended()
        super().connection_lost(exc)

    def _should_upgrade(self) -> bool:
        return False


class _Greeting(asyncio.Protocol):
    """A connection until it is known whose it is."""

    def __init__(self, door: GuestDoor) -> None:
        self._door = door
        self._data = b""
        self._transport: asyncio.Transport
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by name
        peer = peer_of(transport.get_extra_info("socket").fileno())
        if peer.uid != os.getuid() or not self._door.arrived(self):
            self._transport.abort()
            return
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(_GREETING_SECONDS, self._transport.abort)

    def drop(self) -> None:
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._done()

    def data_received(self, data: bytes) -> None:
        self._data += data
        line, end, rest = self._data.partition(b"\n")
        if not end and len(line) < _MOST_GREETING:
            return
        found = _GREETING.fullmatch(line + end)
        bound = self._door.protocol(found[1].decode()) if found else None
        self._done()
        if bound is None:
            self._transport.abort()
            return
        self._transport.set_protocol(bound)
        bound.connection_made(self._transport)
        if rest:
            bound.data_received(rest)

    def _done(self) -> None:
        self._door.left(self)
        if self._deadline is not None:
            with contextlib.suppress(RuntimeError):
                self._deadline.cancel()
            self._deadline = None
