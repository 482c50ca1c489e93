"""The ASGI application around a kernel: routes, and what holds for every one of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from agentkernel import __version__
from agentkernel.audit.trail import current_actor
from agentkernel.errors import AgentKernelError, NotFoundError, ResourceExhaustedError
from agentkernel.kernel.kernel import Kernel
from agentkernel.server.answers import Accepted, Status, Version
from agentkernel.server.bounds import Bounds
from agentkernel.server.callers import caller_of, serving
from agentkernel.server.metrics import Metrics
from agentkernel.server.mounts import Make, mount
from agentkernel.server.operations import route
from agentkernel.server.problems import RequestError, ending, problem_response

if TYPE_CHECKING:
    from agentkernel.server.door import Entrance
    from agentkernel.server.tracing import Spans

API: Final = 1

T = TypeVar("T")


class Service:
    """What handlers share: the kernel, the end of the daemon, and how much is under way."""

    def __init__(
        self,
        kernel: Kernel,
        *,
        bounds: Bounds | None = None,
        mounts: Mapping[str, Make] | None = None,
    ) -> None:
        self.kernel = kernel
        self.bounds = bounds or Bounds()
        self.mounts = mounts or {}
        self.started_at = time.time()
        self.stopping = asyncio.Event()
        self.stop_asked: Callable[[], None] = self.stopping.set
        # Where it can be reached over a network, by which names, from which pages.
        self.url: str | None = None
        self.hosts: frozenset[str] = frozenset()
        self.origins: tuple[str, ...] = ()
        # Below which names previews have theirs: PORT-ID.DOMAIN.
        self.preview_domain = "localhost"
        self.metrics = Metrics()
        self.spans: Spans | None = None
        self._streams: Counter[str] = Counter()
        self._cleanups: set[asyncio.Task[None]] = set()

    @property
    def open_streams(self) -> Mapping[str, int]:
        """By door."""
        return {door: self._streams[door] for door in ("socket", "network")}

    @contextlib.contextmanager
    def stream(self) -> Iterator[None]:
        """Counts something that stays open for long. Those over a network leave room for others."""
        door = current_actor().door
        count, most = self._streams.total(), self.bounds.max_streams
        if door == "network" and count < most:
            count, most = self._streams[door], self.bounds.max_network_streams
        if count >= most:
            raise ResourceExhaustedError(
                f"{count} streams are open, which is the most there may be", hint="close some"
            )
        self._streams[door] += 1
        try:
            yield
        finally:
            self._streams[door] -= 1

    async def over(self) -> AgentKernelError:
        """Returns when the daemon ends, or the token of whoever is being served does: what to tell
        them."""
        caller = serving.get()
        if caller is None or caller.token is None:
            await self.stopping.wait()
            return ending()
        revoked = asyncio.ensure_future(self.kernel.tokens.over(caller.token))
        end = asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait((revoked, end), return_when=asyncio.FIRST_COMPLETED)
            return revoked.result() if revoked.done() else ending()
        finally:
            revoked.cancel()
            end.cancel()

    async def finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Carries `work` out to its end, also when whoever waits for it is cancelled."""
        await asyncio.shield(self.background(work))

    def background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Carries `work` out; the daemon does not end before it has."""
        task = asyncio.create_task(work)
        self._cleanups.add(task)
        task.add_done_callback(self._cleanups.discard)
        return task

    async def cleaned_up(self) -> None:
        """Returns when everything that `finish` and `background` were given is done."""
        while self._cleanups:
            await asyncio.wait(self._cleanups)

    async def while_wanted(
        self, receive: Receive, work: Coroutine[Any, Any, T], *, heeds_the_end: bool = False
    ) -> T:
        """The outcome of `work`, which is cancelled when the client goes or its time is over (see
        `over`), unless it heeds that end itself.

        Preconditions: the body of the request was read.
        """
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_disconnected(receive))
        end = asyncio.ensure_future(self.over())
        try:
            awaited = (task, gone) if heeds_the_end else (task, gone, end)
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise ClientDisconnect if gone.done() else end.result()
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
        routes_agent_logins,
        routes_agent_sessions,
        routes_agents,
        routes_batch,
        routes_builds,
        routes_docs,
        routes_events,
        routes_exec,
        routes_files,
        routes_images,
        routes_jobs,
        routes_machine,
        routes_metrics,
        routes_network,
        routes_ports,
        routes_sandboxes,
        routes_secrets,
        routes_system,
        routes_templates,
        routes_tokens,
        routes_trees,
        routes_uploads,
        routes_volumes,
        routes_workspaces,
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
        *routes_ports.ROUTES,
        *routes_workspaces.ROUTES,
        *routes_volumes.ROUTES,
        *routes_exec.ROUTES,
        *routes_batch.ROUTES,
        *routes_jobs.ROUTES,
        *routes_files.ROUTES,
        *routes_uploads.ROUTES,
        *routes_trees.ROUTES,
        *routes_events.ROUTES,
        *routes_network.ROUTES,
        *routes_images.ROUTES,
        *routes_builds.ROUTES,
        *routes_machine.ROUTES,
        *routes_system.ROUTES,
        *routes_templates.ROUTES,
        *routes_agents.ROUTES,
        *routes_agent_sessions.ROUTES,
        *routes_agent_logins.ROUTES,
        *routes_secrets.ROUTES,
        *routes_tokens.ROUTES,
        *routes_metrics.ROUTES,
        *routes_docs.ROUTES,
    ]  # fmt: skip


def build_app(service: Service, entrance: Entrance | None = None) -> ASGIApp:
    """All routes behind an entrance: the socket's, unless another is given."""
    from agentkernel.server.door import Door, SocketEntrance

    mounts = [mount(service, path, make) for path, make in service.mounts.items()]
    app = _Application(routes=[*all_routes(), *mounts])
    app.router.redirect_slashes = False
    app.state.service = service
    return Door(app, service, entrance or SocketEntrance())


class _Application(Starlette):
    """Without the layers that answer for what a route lets through: ours let nothing through, and
    only a path that leads nowhere raises."""

    def build_middleware_stack(self) -> ASGIApp:
        return self._routed

    async def _routed(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self.router(scope, receive, send)
        except HTTPException as exc:
            response = _misled(HTTPConnection(scope), exc)
            await response(scope, receive, send)


def _misled(connection: HTTPConnection, exc: HTTPException) -> Response:
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
    admin = "admin" in caller_of(request).scopes
    return Version(
        version=__version__,
        api=API,
        pid=os.getpid(),
        started_at=service.started_at,
        # A path of this machine tells something to whoever is not on it.
        state_dir=str(service.kernel.state_dir) if admin else None,
        url=service.url,
    )


async def _status(request: Request) -> Status:
    service = service_of(request)
    statistics = await service.kernel.statistics()
    return Status(
        sandboxes=statistics.sandboxes,
        jobs=statistics.jobs,
        memory_bytes=resident_bytes(),
        uptime_seconds=max(0.0, time.time() - service.started_at),
    )


async def _shutdown(request: Request) -> Accepted:
    service = service_of(request)
    service.kernel.trail.note("kernel.stop_asked")
    service.stop_asked()
    return Accepted()


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as line:
        return int(line.read().split()[1]) * os.sysconf("SC_PAGESIZE")
