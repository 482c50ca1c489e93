"""The ASGI application around a kernel: routes, and what holds for every one of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from agentkernel import __version__
from agentkernel.audit.entries import Actor
from agentkernel.audit.trail import acting
from agentkernel.errors import (
    AgentKernelError,
    NotFoundError,
    PolicyDeniedError,
    ResourceExhaustedError,
)
from agentkernel.kernel.kernel import Kernel
from agentkernel.server.answers import Accepted, Status, Version
from agentkernel.server.bounds import Bounds
from agentkernel.server.callers import Caller, on_the_socket
from agentkernel.server.operations import route as route
from agentkernel.server.problems import RequestError, ending, problem_response, version_header

API: Final = 1

T = TypeVar("T")


class Service:
    """What handlers share: the kernel, the end of the daemon, and how much is under way."""

    def __init__(self, kernel: Kernel, *, bounds: Bounds | None = None) -> None:
        self.kernel = kernel
        self.bounds = bounds or Bounds()
        self.started_at = time.time()
        self.stopping = asyncio.Event()
        self.stop_asked: Callable[[], None] = self.stopping.set
        self._streams = 0
        self._cleanups: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def stream(self) -> Iterator[None]:
        """Counts something that stays open for long."""
        if self._streams >= self.bounds.max_streams:
            raise ResourceExhaustedError(
                f"{self._streams} streams are open, which is the most there may be",
                hint="close some",
            )
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    async def finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Carries `work` out to its end, also when whoever waits for it is cancelled."""
        task = asyncio.create_task(work)
        self._cleanups.add(task)
        task.add_done_callback(self._cleanups.discard)
        await asyncio.shield(task)

    async def cleaned_up(self) -> None:
        """Returns when everything that `finish` was given is done."""
        while self._cleanups:
            await asyncio.wait(self._cleanups)

    async def while_wanted(
        self, receive: Receive, work: Coroutine[Any, Any, T], *, heeds_the_end: bool = False
    ) -> T:
        """The outcome of `work`, which is cancelled when the client goes or the daemon ends, unless
        it heeds that end itself.

        Preconditions: the body of the request was read.
        """
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_disconnected(receive))
        end = asyncio.ensure_future(self.stopping.wait())
        try:
            awaited = (task, gone) if heeds_the_end else (task, gone, end)
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise ClientDisconnect if gone.done() else ending()
        finally:
            for other in (gone, end):
                other.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def service_of(connection: HTTPConnection) -> Service:
    service: Service = connection.app.state.service
    return service


def all_routes() -> list[BaseRoute]:
    """What the daemon serves. Each is declared: see `operations`."""
    from agentkernel.server import (
        routes_batch,
        routes_docs,
        routes_events,
        routes_exec,
        routes_files,
        routes_jobs,
        routes_machine,
        routes_sandboxes,
        routes_trees,
        routes_uploads,
    )

    return [
        route(
            "GET", "/v1/version", _version, needs="read", id="getVersion", tag="daemon",
            summary="Version, process and state directory of the daemon",
        ),
        route(
            "GET", "/v1/status", _status, needs="read", id="getStatus", tag="daemon",
            summary="How many sandboxes and jobs there are, and what the daemon itself takes",
        ),
        route(
            "POST", "/v1/shutdown", _shutdown, needs="admin", id="shutDown", tag="daemon",
            summary="End the daemon; sandboxes and jobs go on", status=202,
        ),
        *routes_sandboxes.ROUTES,
        *routes_exec.ROUTES,
        *routes_batch.ROUTES,
        *routes_jobs.ROUTES,
        *routes_files.ROUTES,
        *routes_uploads.ROUTES,
        *routes_trees.ROUTES,
        *routes_events.ROUTES,
        *routes_machine.ROUTES,
        *routes_docs.ROUTES,
    ]  # fmt: skip


def build_app(service: Service) -> ASGIApp:
    app = Starlette(routes=all_routes(), exception_handlers={HTTPException: _http_exception})
    app.router.redirect_slashes = False
    app.state.service = service
    return _Door(app, service)


class _Door:
    """Before any route. A page in a browser has no business here, and always sends an Origin."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return
        try:
            caller = on_the_socket(scope)
        except AgentKernelError as exc:
            await _refuse(exc, scope, receive, send)
            return
        scope.setdefault("state", {})["caller"] = caller
        with acting(_actor(scope, caller)):
            if any(name == b"origin" for name, _ in scope["headers"]):
                error = PolicyDeniedError("requests of web pages are not served")
                self._service.kernel.trail.note(
                    "request", result="denied", code=error.code, path=scope["path"],
                    method=scope.get("method", "GET"), reason="a web page",
                )  # fmt: skip
                await _refuse(error, scope, receive, send)
            elif self._service.stopping.is_set():
                await _refuse(ending(), scope, receive, send)
            else:
                await self._app(scope, receive, send)


def _actor(scope: Scope, caller: Caller) -> Actor:
    """Who is at the other end. What it calls itself is its own word."""
    peer = scope.get("state", {}).get("peer")
    client = next((value for name, value in scope["headers"] if name == b"user-agent"), None)
    return Actor(
        door="socket",
        owner=caller.owner,
        uid=peer.uid if peer else None,
        pid=peer.pid if peer else None,
        client=None if client is None else client[:64].decode("latin-1"),
    )


async def _refuse(error: AgentKernelError, scope: Scope, receive: Receive, send: Send) -> None:
    response = problem_response(error)
    if scope["type"] == "websocket":
        # The server adds its own headers to every other answer, not to this one.
        response.raw_headers.append(version_header())
    await response(scope, receive, send)


async def _http_exception(connection: HTTPConnection, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    error: AgentKernelError
    if exc.status_code == 404:
        error = NotFoundError("there is nothing at this path")
    else:
        error = RequestError(exc.status_code, exc.detail)
    response = problem_response(error)
    if exc.status_code == 405:
        path, routes = connection.scope["path"], connection.app.routes
        allowed = {
            method
            for entry in routes
            if isinstance(entry, Route) and entry.path_regex.match(path)
            for method in entry.methods or ()
        }
        response.headers["Allow"] = ", ".join(sorted(allowed))
    return response


async def _version(request: Request) -> Version:
    service = service_of(request)
    return Version(
        version=__version__,
        api=API,
        pid=os.getpid(),
        started_at=service.started_at,
        state_dir=str(service.kernel.state_dir),
    )


async def _status(request: Request) -> Status:
    service = service_of(request)
    statistics = await service.kernel.statistics()
    return Status(
        sandboxes=statistics.sandboxes,
        jobs=statistics.jobs,
        memory_bytes=_resident_bytes(),
        uptime_seconds=max(0.0, time.time() - service.started_at),
    )


async def _shutdown(request: Request) -> Accepted:
    service = service_of(request)
    service.kernel.trail.note("kernel.stop_asked")
    service.stop_asked()
    return Accepted()


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as line:
        return int(line.read().split()[1]) * os.sysconf("SC_PAGESIZE")
