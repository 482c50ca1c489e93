"""The heads of a preview's requests and answers: what of them crosses between a client and a guest.

What must hold: no credential of the daemon's own reaches a guest, in whatever header it was sent;
nothing a guest answers means anything to the daemon's own origin; and what frames a message is
always written anew, never passed on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from starlette.types import Scope

from agentkernel.server.problems import RequestError

Headers = list[tuple[bytes, bytes]]
# How the preview was named: by its own host name, or on the daemon's own by a path or a header.
Way = Literal["host", "path", "header"]

COOKIE: Final = b"ak_preview"
TOKEN_HEADER: Final = b"x-agentkernel-preview-token"
TOKEN_PARAMETER: Final = b"ak_preview_token"
# A page that has no origin: it can't act for the daemon's, nor store anything there.
SANDBOX: Final = b"sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts"

_HOP: Final = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization",
        b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"http2-settings",
    }
)  # fmt: skip
# Said by us, or meant for us.
_OURS: Final = frozenset({b"host", b"content-length", b"expect", b"forwarded", b"x-real-ip"})
_OUR_PREFIXES: Final = (b"agentkernel-", b"x-agentkernel-", b"x-forwarded-")
_SECRET: Final = re.compile(
    rb"ak_[a-z0-9]{20}_[0-9a-f]{64}|akp_[0-9a-f]{48}|ak_preview_token=", re.IGNORECASE
)
# What would bind, clear or redirect more than this one answer.
_FOR_ORIGINS: Final = frozenset(
    {
        b"alt-svc", b"clear-site-data", b"nel", b"public-key-pins", b"report-to",
        b"reporting-endpoints", b"service-worker-allowed", b"set-cookie", b"set-cookie2",
        b"strict-transport-security", b"www-authenticate",
    }
)  # fmt: skip
_NEVER_BACK: Final = frozenset({b"alt-svc", b"strict-transport-security", b"agentkernel-version"})
_DOMAIN: Final = re.compile(rb";[ \t]*domain[ \t]*=[^;]*", re.IGNORECASE)


@dataclass(frozen=True)
class Target:
    """One published port of one sandbox, and how it was named."""

    id: str
    port: int
    way: Way
    # What the guest sees as its path.
    path: bytes

    @property
    def prefix(self) -> bytes:
        return f"/preview/{self.id}/{self.port}".encode() if self.way == "path" else b""

    @property
    def guest_host(self) -> bytes:
        """What the guest is called where the daemon's own name would say nothing to it."""
        return b"localhost:%d" % self.port


def values_of(scope: Scope, wanted: bytes) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == wanted]


def body_framing(scope: Scope) -> Headers:
    """What a guest is told of the request's body. Raises RequestError for what can be read in two
    ways."""
    encodings, lengths = (
        values_of(scope, name) for name in (b"transfer-encoding", b"content-length")
    )
    if encodings and lengths or len(encodings) > 1 or len(lengths) > 1:
        raise RequestError(400, "the length of the body is said twice")
    if encodings:
        if encodings[0].strip().lower() != b"chunked":
            raise RequestError(501, "the only transfer encoding here is chunked")
        return [(b"Transfer-Encoding", b"chunked")]
    if lengths:
        if not re.fullmatch(rb"[0-9]{1,18}", lengths[0]):
            raise RequestError(400, "the length of the body is no number")
        return [(b"Content-Length", lengths[0])]
    return []


def is_upgrade(scope: Scope) -> bool:
    """A WebSocket, which is the one thing that is spoken besides HTTP."""
    connection = b",".join(values_of(scope, b"connection")).lower().split(b",")
    upgrades = [value.strip().lower() for value in values_of(scope, b"upgrade")]
    return b"upgrade" in map(bytes.strip, connection) and upgrades == [b"websocket"]


def request_target(target: Target, scope: Scope) -> bytes:
    parameters = [
        piece
        for piece in scope["query_string"].split(b"&")
        if piece.partition(b"=")[0] != TOKEN_PARAMETER
    ]
    query = b"&".join(parameters)
    return target.path + (b"?" + query if query else b"")


def request_headers(target: Target, scope: Scope) -> Headers:
    """All but what frames the body."""
    host = (values_of(scope, b"host") or [b""])[0]
    named = _named_by_connection(scope["headers"])
    found: Headers = [(b"Host", host if target.way == "host" else target.guest_host)]
    for name, value in scope["headers"]:
        if name in _HOP or name in _OURS or name in named or name.startswith(_OUR_PREFIXES):
            continue
        if name == b"cookie":
            value = _cookies(value) if target.way == "host" else b""
            if not value:
                continue
        elif name == b"sec-websocket-protocol":
            offered = (word.strip() for word in value.split(b","))
            value = b", ".join(word for word in offered if not _SECRET.search(word))
            if not value:
                continue
        if not _SECRET.search(value):
            found.append((name, value))
    found.append((b"X-Forwarded-Proto", scope.get("scheme", "http").encode()))
    found.append((b"X-Forwarded-Host", host))
    if client := scope.get("client"):
        found.append((b"X-Forwarded-For", str(client[0]).encode()))
    if target.prefix:
        found.append((b"X-Forwarded-Prefix", target.prefix))
    if is_upgrade(scope):
        found += [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
    else:
        found.append((b"Connection", b"close"))
    return found


def answer_headers(target: Target, headers: Headers) -> Headers:
    """What a client is told of an answer. `headers` have small names."""
    named = _named_by_connection(headers)
    chunked = any(name == b"transfer-encoding" for name, _ in headers)
    dropped = _NEVER_BACK if target.way == "host" else _NEVER_BACK | _FOR_ORIGINS
    found: Headers = []
    for name, value in headers:
        if name in _HOP or name in named or name in dropped:
            continue
        if name == b"content-length" and chunked:
            continue
        if name == b"set-cookie":
            value = _DOMAIN.sub(b"", value)  # a cookie of this preview's host, and of no other
            if value.partition(b"=")[0].strip() == COOKIE:
                continue
        elif name == b"location":
            value = _location(target, value)
        found.append((name, value))
    if target.way != "host":
        found += [
            (b"content-security-policy", SANDBOX),
            (b"x-content-type-options", b"nosniff"),
        ]
    return found


def cookie_tokens(scope: Scope) -> list[bytes]:
    """Every preview token among the cookies: a neighbour's page may have added a wrong one."""
    pairs = (pair for value in values_of(scope, b"cookie") for pair in value.split(b";"))
    split = (pair.partition(b"=") for pair in pairs)
    return [value.strip() for name, _, value in split if name.strip() == COOKIE]


def _named_by_connection(headers: Headers) -> set[bytes]:
    """Headers that a Connection header declares to be of one hop."""
    lists = (value for name, value in headers if name == b"connection")
    return {word.strip().lower() for value in lists for word in value.split(b",")}


def _cookies(value: bytes) -> bytes:
    pairs = (pair.strip() for pair in value.split(b";"))
    return b"; ".join(pair for pair in pairs if pair.partition(b"=")[0].strip() != COOKIE)


def _location(target: Target, value: bytes) -> bytes:
    """A place on the guest's own host, as the client can go there."""
    if target.way == "host":
        return value
    own = b"http://" + target.guest_host
    if value == own or value.startswith(own + b"/"):
        value = value[len(own) :] or b"/"
    if value.startswith(b"/") and not value.startswith(b"//"):
        return target.prefix + value
    return value
