"""Previews: the servers inside of sandboxes over the daemon's own listeners.

    http://8000-<id>.localhost:8700/            by host: an origin of its own
    http://localhost:8700/preview/<id>/8000/    by path
    X-Agentkernel-Preview: 8000-<id>            by header

Only published ports can be named. A preview that is not public asks for its token; by path or
header, where a client talks to the API's own name, whoever may run commands in the sandbox comes in
too. By host the API's credentials mean nothing. A page that is served under the API's own name gets
no origin (`preview_heads`).

What must hold: a request that names a preview never reaches the API, whatever else it says.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import html
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from agentkernel.errors import (
    AgentKernelError,
    NotFoundError,
    PolicyDeniedError,
    UnauthenticatedError,
)
from agentkernel.kernel.port_relay import ended
from agentkernel.kernel.store import Overseer
from agentkernel.server.callers import Caller, serving
from agentkernel.server.preview_heads import (
    COOKIE,
    SANDBOX,
    TOKEN_HEADER,
    TOKEN_PARAMETER,
    Target,
    cookie_tokens,
    request_target,
    values_of,
)
from agentkernel.server.problems import RequestError, ending, problem, problem_response

if TYPE_CHECKING:
    from agentkernel.kernel.ports import PublishedPort
    from agentkernel.server.app import Service
    from agentkernel.server.door import Entrance

PREVIEW_HEADER: Final = b"x-agentkernel-preview"
DEFAULT_DOMAIN: Final = "localhost"
_LABEL: Final = re.compile(r"([1-9][0-9]{0,4})-([a-z0-9]{20})")
_PATH: Final = re.compile(rb"/preview/([a-z0-9]{20})/([1-9][0-9]{0,4})(/.*)?", re.DOTALL)


class Previews:
    """In front of the API's own door, which gets what names no preview."""

    def __init__(self, door: ASGIApp, service: Service, entrance: Entrance) -> None:
        self._door = door
        self._service = service
        self._entrance = entrance

    def claims(self, headers: list[tuple[bytes, bytes]], url: bytes) -> bool:
        """Whether a request that upgrades is a preview's."""
        path = url.partition(b"?")[0]
        try:
            return self._target({"headers": headers, "raw_path": path}) is not None
        except RequestError:
            return True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._door(scope, receive, send)
            return
        try:
            target = self._target(scope)
        except RequestError as exc:
            await problem_response(exc)(scope, receive, send)
            return
        if target is None:
            await self._door(scope, receive, send)
            return
        try:
            await self._preview(target, scope, receive, send)
        except AgentKernelError as exc:
            await _tell(exc, target, scope, receive, send)

    # -- which ----------------------------------------------------------------------------------

    def _target(self, scope: Any) -> Target | None:
        """None: no preview is named."""
        raw_path: bytes = scope["raw_path"] or b"/"
        hosts = values_of(scope, b"host")
        if len(hosts) == 1 and (match := self._label_of(hosts[0])):
            return _target(match[2], match[1], "host", raw_path)
        named = values_of(scope, PREVIEW_HEADER)
        if named:
            match = _LABEL.fullmatch(named[0].decode("latin-1"))
            if len(named) > 1 or match is None:
                raise RequestError(400, "X-Agentkernel-Preview is PORT-ID of one preview")
            return _target(match[2], match[1], "header", raw_path)
        if found := _PATH.fullmatch(raw_path):
            return _target(found[1].decode(), found[2].decode(), "path", found[3] or b"")
        return None

    def _label_of(self, host: bytes) -> re.Match[str] | None:
        name = host.decode("latin-1").lower()
        bare, colon, port = name.rpartition(":")
        if colon and port.isdecimal():
            name = bare
        suffix = f".{self._service.preview_domain}"
        return _LABEL.fullmatch(name.removesuffix(suffix)) if name.endswith(suffix) else None

    # -- who ------------------------------------------------------------------------------------

    async def _published(self, target: Target) -> PublishedPort:
        from agentkernel.kernel.ports import ports_of

        with contextlib.suppress(NotFoundError):
            record = await self._service.kernel.get(target.id)
            if record.id == target.id:
                for entry in ports_of(record):
                    if entry.port == target.port:
                        return entry
        raise _absent(target)

    async def _admit(self, target: Target, published: PublishedPort, scope: Scope) -> Caller | None:
        """Whoever may see the preview comes through; with a Caller, as long as that one may."""
        if target.way != "host":
            self._entrance.check_name(scope)
        if published.public or _shows_token(target, published, scope):
            return None
        if target.way != "host" and (caller := self._caller(scope)):
            caller.check("exec")
            owner = Overseer(caller.owner) if "admin" in caller.scopes else caller.owner
            try:
                await self._service.kernel.get(target.id, owner=owner)
            except NotFoundError:
                raise _absent(target) from None
            return caller
        raise UnauthenticatedError(
            "this preview asks for its token",
            hint=f"`agentkernel port list {target.id}` shows the address with it",
        )

    def _caller(self, scope: Scope) -> Caller | None:
        """Who comes with credentials of the API; None: nobody said. On the socket every process of
        the user does, but for what a page asked it to send."""
        on_socket = scope["state"].get("peer") is not None
        said = not values_of(scope, b"origin") if on_socket else values_of(scope, b"authorization")
        if not said:
            return None
        return self._entrance.admit(scope)

    # -- served ---------------------------------------------------------------------------------

    async def _preview(self, target: Target, scope: Scope, receive: Receive, send: Send) -> None:
        published = await self._published(target)
        caller = await self._admit(target, published, scope)
        if target.path == b"":
            where = target.prefix + b"/" + _query(scope)
            await _redirect(307, where)(scope, receive, send)
            return
        if target.way == "host" and _enters(scope):
            await _cookie(target, published, scope)(scope, receive, send)
            return
        if scope["method"] in ("CONNECT", "TRACE"):
            raise RequestError(405, f"{scope['method']} is not passed on")
        if self._service.stopping.is_set():
            raise ending()
        token = serving.set(caller)
        try:
            await self._relayed(target, scope, receive, send)
        finally:
            serving.reset(token)

    async def _relayed(self, target: Target, scope: Scope, receive: Receive, send: Send) -> None:
        """Until the answer is complete, the client is gone, or its time here is over."""
        from agentkernel.server.preview_relay import Exchange

        service = self._service
        seconds = service.bounds.preview_answer_seconds
        exchange = Exchange(target, scope, receive, send, seconds)
        work = asyncio.create_task(self._exchanged(target, exchange))
        over = asyncio.create_task(service.over())
        try:
            await asyncio.wait((work, over), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                await ended(work)
                if not exchange.begun:
                    raise over.result()
                _abandon(scope)
                return
            work.result()
        except ClientDisconnect:
            pass
        except AgentKernelError:
            if not exchange.begun:
                raise
            _abandon(scope)
        finally:
            await ended(work, over)

    async def _exchanged(self, target: Target, exchange: Any) -> None:
        async with self._service.kernel.ports.connection(target.id, target.port) as inside:
            await exchange.run(inside)


def _target(id: str, port: str, way: Any, path: bytes) -> Target | None:
    return Target(id, int(port), way, path) if int(port) <= 65535 else None


def _absent(target: Target) -> NotFoundError:
    """The same whether there is no such sandbox, no such port, or it is another's."""
    return NotFoundError(
        f"port {target.port} of sandbox {target.id} is not published",
        hint=f"agentkernel port publish {target.id} {target.port}",
    )


def _shows_token(target: Target, published: PublishedPort, scope: Scope) -> bool:
    shown = [*values_of(scope, TOKEN_HEADER), *_parameters(scope)]
    if target.way == "host" and _of_its_own_page(target, scope):
        shown += cookie_tokens(scope)
    wanted = published.token.encode()
    return any([hmac.compare_digest(word, wanted) for word in shown])


def _of_its_own_page(target: Target, scope: Scope) -> bool:
    """A browser adds cookies to what any page asks for: they count for its own pages alone, and for
    whoever goes there. Requests without an Origin (an image, a script) say where they come from in
    another way; previews of one domain are one site to a browser, so their cookies come along."""
    origins = values_of(scope, b"origin")
    if not origins:
        stranger = values_of(scope, b"sec-fetch-site") in ([b"same-site"], [b"cross-site"])
        return not stranger or values_of(scope, b"sec-fetch-mode") == [b"navigate"]
    scheme = scope.get("scheme", "http").encode()
    return origins == [scheme + b"://" + values_of(scope, b"host")[0]]


def _parameters(scope: Scope) -> list[bytes]:
    pairs = (piece.partition(b"=") for piece in scope["query_string"].split(b"&"))
    return [value for name, _, value in pairs if name == TOKEN_PARAMETER]


def _query(scope: Scope) -> bytes:
    return b"?" + scope["query_string"] if scope["query_string"] else b""


def _enters(scope: Scope) -> bool:
    """A browser that was given the address with the token: it gets a cookie instead."""
    return (
        scope["method"] == "GET"
        and bool(_parameters(scope))
        and any(b"text/html" in value for value in values_of(scope, b"accept"))
        and not values_of(scope, b"upgrade")
    )


def _cookie(target: Target, published: PublishedPort, scope: Scope) -> Response:
    where = request_target(target, scope)
    # Not to another host, whatever the path looks like.
    response = _redirect(303, b"/" + where.lstrip(b"/\\"))
    secure = "; Secure" if scope.get("scheme") == "https" else ""
    response.headers["Set-Cookie"] = (
        f"{COOKIE.decode()}={published.token}; Path=/; HttpOnly; SameSite=Lax{secure}"
    )
    return response


def _redirect(status: int, where: bytes) -> Response:
    response = Response(status_code=status)
    response.raw_headers += [
        (b"location", where),
        (b"cache-control", b"no-store"),
        (b"referrer-policy", b"no-referrer"),
    ]
    return response


def _abandon(scope: Scope) -> None:
    abandon: Callable[[], None] = scope["state"]["connection"].abandon
    abandon()


async def _tell(
    error: AgentKernelError, target: Target, scope: Scope, receive: Receive, send: Send
) -> None:
    """An error for whoever asks: a page for people, JSON for programs."""
    if any(b"text/html" in value for value in values_of(scope, b"accept")):
        body = problem(error)
        words = [body["detail"], body.get("hint", "")]
        page = "".join(f"<p>{html.escape(text)}</p>" for text in words if text)
        title = html.escape(f"{body['status']} {body['title']}")
        response = Response(
            f"<!doctype html><meta charset=utf-8><title>{title}</title><h1>{title}</h1>{page}\n",
            body["status"],
            media_type="text/html",
        )
    else:
        response = problem_response(error)
    response.headers["Content-Security-Policy"] = f"default-src 'none'; {SANDBOX.decode()}"
    response.headers["Cache-Control"] = "no-store"
    if isinstance(error, UnauthenticatedError | PolicyDeniedError):
        response.headers["Referrer-Policy"] = "no-referrer"
    if values_of(scope, b"upgrade"):
        response.headers["Connection"] = "close"  # what follows may be no HTTP
    await response(scope, receive, send)
