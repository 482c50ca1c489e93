"""Before any route, on HTTP and WebSockets alike: who comes, from where, and whether at all.

The socket lets in processes of the daemon's own uid, which `protocols` looks at. A network lets in
whoever has a token, and before that asks for two things that a web page can't forge: which name the
daemon was called by (a page whose name was turned to this address says its own), and which page the
request comes from.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
from collections.abc import Collection
from typing import Any, Final, Protocol

from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentkernel.audit.entries import Actor
from agentkernel.audit.trail import acting
from agentkernel.errors import (
    AgentKernelError,
    PolicyDeniedError,
    RateLimitedError,
    UnauthenticatedError,
)
from agentkernel.images.oci.reach import public_only
from agentkernel.server.app import Service
from agentkernel.server.callers import OWNER_HEADER, SPEC_HEADER, Caller, on_the_socket, serving
from agentkernel.server.problems import ending, problem_response, version_header
from agentkernel.server.rates import Rates

# Of a browser, which can give a WebSocket no header: the token, and what the answer names instead.
BEARER_PROTOCOL: Final = "bearer."
PROTOCOL: Final = "agentkernel.v1"
# Lines in the audit log about callers who were not let in: so many at once, then one in 10 s.
_NOTES: Final = (100, 0.1)
_PAGES_MAY: Final = (
    (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, PATCH, DELETE"),
    (
        b"access-control-allow-headers",
        b"authorization, content-type, idempotency-key, last-event-id, mcp-protocol-version,"
        b" mcp-session-id, range, traceparent",
    ),
    (b"access-control-max-age", b"600"),
)
_PAGES_SEE: Final = (
    b"access-control-expose-headers",
    b"agentkernel-version, content-range, mcp-session-id, retry-after, www-authenticate",
)


class Entrance(Protocol):
    """Who may come in by one listener."""

    def check_name(self, scope: Scope) -> None:
        """Raises for a request that calls the daemon by another's name."""

    def place(self, scope: Scope) -> bytes | None:
        """The origin of the web page that asks, None if it is none. Raises for one that may not."""

    def admit(self, scope: Scope) -> Caller:
        """Raises what the caller is to be told. Preconditions: `place` did not."""

    def actor(self, scope: Scope, caller: Caller | None) -> Actor: ...


class SocketEntrance:
    """A page in a browser has no business here, and always sends an Origin."""

    def check_name(self, scope: Scope) -> None:
        """Whoever reached the socket was misled by no name."""

    def place(self, scope: Scope) -> bytes | None:
        if _header(scope, b"origin") is not None:
            raise PolicyDeniedError("requests of web pages are not served", reason="a web page")
        return None

    def admit(self, scope: Scope) -> Caller:
        return on_the_socket(scope)

    def actor(self, scope: Scope, caller: Caller | None) -> Actor:
        peer = scope.get("state", {}).get("peer")
        return Actor(
            door="socket",
            owner=caller.owner if caller else None,
            uid=peer.uid if peer else None,
            pid=peer.pid if peer else None,
            client=_client(scope),
        )


class NetworkEntrance:
    """`hosts`: what the daemon may be called, as `name` (any port) or `name:port`."""

    def __init__(
        self, service: Service, hosts: Collection[str], origins: Collection[str] = ()
    ) -> None:
        self._service = service
        self._hosts = frozenset(hosts)
        self._origins = frozenset(origin.encode() for origin in origins)
        bounds = service.bounds
        self._tokens = Rates(bounds.token_burst, bounds.token_per_second, bounds.max_counted)
        self._failures = Rates(bounds.failure_burst, bounds.failures_per_second, bounds.max_counted)

    def place(self, scope: Scope) -> bytes | None:
        self.check_name(scope)
        origin = _header(scope, b"origin")
        if origin is not None and origin not in self._origins:
            raise PolicyDeniedError(
                "requests of this web page are not served",
                hint="`--allow-origin` names the pages that may ask",
                reason="a web page",
            )
        return origin

    def admit(self, scope: Scope) -> Caller:
        for name in (OWNER_HEADER, SPEC_HEADER):
            if _header(scope, name) is not None:
                raise PolicyDeniedError(
                    f"{name.decode().title()} is for the daemon's socket; here the token says "
                    "whose it is",
                    reason="another owner",
                )
        try:
            record = self._service.kernel.tokens.check(_token(scope))
        except UnauthenticatedError:
            if wait := self._failures.take(_network_of(scope)):
                raise _too_often(wait, "requests without a valid token") from None
            raise
        if wait := self._tokens.take(record.id):
            raise _too_often(wait, "requests with this token")
        return Caller.of_token(record)

    def check_name(self, scope: Scope) -> None:
        name = (_header(scope, b"host") or b"").decode("latin-1").lower()
        bare, colon, port = name.rpartition(":")
        if not colon or not port.isdigit():
            bare = name
        if name not in self._hosts and bare not in self._hosts:
            raise PolicyDeniedError(
                "this daemon is not called by that name",
                hint="`--allow-host` adds a name to those it answers to",
                reason="a wrong Host",
            )

    def actor(self, scope: Scope, caller: Caller | None) -> Actor:
        return Actor(
            door="network",
            owner=caller.owner if caller else None,
            token=caller.token if caller else None,
            address=_address(scope),
            client=_client(scope),
        )


class Door:
    """An application behind an entrance."""

    def __init__(self, app: ASGIApp, service: Service, entrance: Entrance) -> None:
        self._app = app
        self._service = service
        self._entrance = entrance
        self._notes = Rates(*_NOTES, most=1)
        # What a request asked for, without the names in it.
        self._templates: dict[Any, str] = {
            route.endpoint: route.path
            for route in getattr(app, "routes", ())
            if isinstance(route, Route | WebSocketRoute)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return
        try:
            page = self._entrance.place(scope)
            if page is not None:
                send = _for_page(page, send)
            if page is not None and _is_preflight(scope):
                await send({"type": "http.response.start", "status": 204, "headers": _PAGES_MAY})
                await send({"type": "http.response.body", "body": b""})
                return
            caller = self._entrance.admit(scope)
        except AgentKernelError as exc:
            self._note(exc, scope)
            await refuse(exc, scope, receive, send)
            return
        scope.setdefault("state", {})["caller"] = caller
        if PROTOCOL in scope.get("subprotocols", ()):
            send = _naming_protocol(send)
        token = serving.set(caller)
        reach = public_only.set(not caller.users_spec and "host-paths" not in caller.scopes)
        try:
            with acting(self._entrance.actor(scope, caller)):
                if self._service.stopping.is_set():
                    await refuse(ending(), scope, receive, send)
                else:
                    await self._serve(scope, receive, send)
        finally:
            public_only.reset(reach)
            serving.reset(token)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Counted, and timed for who wants to know."""
        metrics, spans = self._service.metrics, self._service.spans
        app = self._app if scope["state"]["caller"].token is None else self._while_valid
        if spans is None:
            await metrics.watch(app, self._templates, scope, receive, send)
            return
        with spans.request(scope):
            await metrics.watch(app, self._templates, scope, receive, send)
            scope["state"]["template"] = self._templates.get(scope.get("endpoint"))

    async def _while_valid(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves as long as the token is valid. What waits for long hears of its end by itself
        (`Service.over`) and has a moment for its last words; anything else is cut off."""
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        task = asyncio.ensure_future(self._app(scope, receive, sending))
        over = asyncio.ensure_future(
            self._service.kernel.tokens.over(scope["state"]["caller"].token)
        )
        try:
            await asyncio.wait((task, over), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await asyncio.wait((task,), timeout=2 * self._service.bounds.last_words_seconds)
            if task.done():
                task.result()
            elif not begun:
                await refuse(over.result(), scope, receive, sending)
        finally:
            over.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))

    def _note(self, error: AgentKernelError, scope: Scope) -> None:
        """Who was not let in is counted, and in the audit log, but can't fill it."""
        self._service.metrics.refused(error.code)
        if not isinstance(error, PolicyDeniedError | UnauthenticatedError):
            return
        if self._notes.take(""):
            return
        with acting(self._entrance.actor(scope, None)):
            self._service.kernel.trail.note(
                "request", result="denied", code=error.code, path=scope["path"],
                method=scope.get("method", "GET"), reason=error.details.get("reason", "no token"),
            )  # fmt: skip


async def refuse(error: AgentKernelError, scope: Scope, receive: Receive, send: Send) -> None:
    response = problem_response(error)
    if isinstance(error, UnauthenticatedError):
        response.headers["WWW-Authenticate"] = 'Bearer realm="agentkernel"'
    if isinstance(error, RateLimitedError):
        response.headers["Retry-After"] = str(error.details["retry_after_seconds"])
    if scope["type"] == "websocket":
        # The server adds its own headers to every other answer, not to this one.
        response.raw_headers.append(version_header())
    await response(scope, receive, send)


def _token(scope: Scope) -> str:
    """What the caller shows for a token. Preconditions: the origin is none or an allowed one."""
    shown = _header(scope, b"authorization")
    if shown is None and _header(scope, b"origin") is not None:
        for offered in scope.get("subprotocols", ()):
            if offered.startswith(BEARER_PROTOCOL):
                return str(offered.removeprefix(BEARER_PROTOCOL))
    if shown is None:
        raise UnauthenticatedError(
            "a token is needed here",
            hint="send `Authorization: Bearer TOKEN`; `agentkernel token create NAME` makes one",
        )
    scheme, _, text = shown.decode("latin-1").partition(" ")
    if scheme.lower() != "bearer":
        raise UnauthenticatedError("the token is sent as `Authorization: Bearer TOKEN`")
    return text.strip()


def _header(scope: Scope, wanted: bytes) -> bytes | None:
    """The header's value; of one that is sent twice none can be believed."""
    found = [value for name, value in scope["headers"] if name == wanted]
    if len(found) > 1:
        raise PolicyDeniedError(f"{wanted.decode()} is sent twice", reason="a header sent twice")
    return bytes(found[0]) if found else None


def _address(scope: Scope) -> str | None:
    client = scope.get("client")
    return None if client is None else str(client[0])


def _network_of(scope: Scope) -> str:
    """Who shares one allowance: this machine, an address, or with IPv6 the network it is in."""
    try:
        address = ipaddress.ip_address((_address(scope) or "").partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return "::1" if address.is_loopback else str(int(address) >> 64)
        address = address.ipv4_mapped
    return "::1" if address.is_loopback else str(address)


def _client(scope: Scope) -> str | None:
    """What it calls itself: its own word."""
    found = next((value for name, value in scope["headers"] if name == b"user-agent"), None)
    return None if found is None else found[:64].decode("latin-1")


def _too_often(wait: float, what: str) -> RateLimitedError:
    seconds = max(1, math.ceil(wait))
    return RateLimitedError(
        f"too many {what}", hint=f"wait {seconds} s", retry_after_seconds=seconds
    )


def _is_preflight(scope: Scope) -> bool:
    return (
        scope["type"] == "http"
        and scope["method"] == "OPTIONS"
        and _header(scope, b"access-control-request-method") is not None
    )


def _for_page(origin: bytes, send: Send) -> Send:
    """Answers that a page of this origin, and of no other, may read."""
    added = ((b"access-control-allow-origin", origin), (b"vary", b"Origin"), _PAGES_SEE)

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await send(message)

    return sending


def _naming_protocol(send: Send) -> Send:
    """A browser that offers protocols wants to hear one of them: never the one with the token."""

    async def sending(message: Any) -> None:
        if message["type"] == "websocket.accept":
            message = {**message, "subprotocol": PROTOCOL}
        await send(message)

    return sending
