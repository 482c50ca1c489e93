"""What goes wrong, as `application/problem+json`, and bodies that are checked as they are read.

Nothing that was not foreseen leaves a trace in an answer: it is `internal`, and the log has the
place where it happened, without the values.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from agentkernel import __version__
from agentkernel.errors import AgentKernelError, DaemonError, InvalidInputError
from agentkernel.texts import encodable

MAX_JSON_BYTES: Final = 1 << 20
# Of a command whose input is in the body.
MAX_INPUT_JSON_BYTES: Final = 16 << 20
_MAX_PARAMETERS: Final = 64

log = logging.getLogger("agentkernel.server")
T = TypeVar("T")


class RequestError(InvalidInputError):
    """A request that is wrong in a way HTTP has its own status for."""

    def __init__(self, status: int, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.http_status = status


def problem(error: BaseException) -> dict[str, Any]:
    """The body for any error. What is not ours is logged here and told as `internal`."""
    if not isinstance(error, AgentKernelError):
        log_internal(error)
        error = AgentKernelError("the daemon failed", hint="its log says where")
    status = error.http_status if isinstance(error, RequestError) else error.status
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": error.code,
        "detail": error.message,
        "retryable": error.retryable,
    }
    if error.hint:
        body["hint"] = error.hint
    if error.details:
        body["details"] = error.details
    return body


def problem_bytes(error: BaseException) -> tuple[int, bytes]:
    body = problem(error)
    return body["status"], encode(body)


def problem_response(error: BaseException) -> Response:
    status, body = problem_bytes(error)
    return Response(body, status, media_type="application/problem+json")


def log_internal(error: BaseException) -> None:
    # Not the message: it may hold what a guest wrote, or a secret.
    places = "".join(traceback.format_tb(error.__traceback__))
    log.error("internal error: %s\n%s", type(error).__name__, places)


def json_response(body: Any, status: int = 200) -> Response:
    return Response(encode(body), status, media_type="application/json")


def encode(body: Any) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return msgspec.json.encode(encodable(msgspec.to_builtins(body)))


async def read_body(request: Request, kind: type[T], *, most: int = MAX_JSON_BYTES) -> T:
    """The JSON body as `kind`. A missing body is an empty object."""
    declared = request.headers.get("content-length", "0")
    if len(declared) > 18 or (declared.isdecimal() and int(declared) > most):
        raise _too_large(most)
    content = bytearray()
    seconds = request.app.state.service.bounds.body_seconds
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.stream():
                content += piece
                if len(content) > most:
                    raise _too_large(most)
    except TimeoutError:
        raise RequestError(408, f"the body did not come within {seconds:g} s") from None
    return decode(bytes(content) or b"{}", kind)


def decode(text: bytes | str, kind: type[T]) -> T:
    """JSON as `kind`, or InvalidInputError that names the place."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise _not_as_expected("body", exc) from None


def read_query(connection: HTTPConnection, kind: type[T]) -> T:
    """The query as `kind`; a list takes a parameter that may be repeated.

    Bytes that are not UTF-8 become surrogates, as everywhere: a path may have any.
    """
    text = connection.scope["query_string"].decode("latin-1")
    lists = repeatable(kind)
    values: dict[str, Any] = {}
    try:
        for name, value in parse_qsl(
            text, keep_blank_values=True, errors="surrogateescape", max_num_fields=_MAX_PARAMETERS
        ):
            if name in lists:
                values.setdefault(name, []).append(value)
            elif name in values:
                raise InvalidInputError(f"{name} is given twice")
            else:
                values[name] = value
        query = msgspec.convert(values, kind, strict=False)
    except (msgspec.ValidationError, ValueError) as exc:
        if isinstance(exc, InvalidInputError):
            raise
        raise _not_as_expected("query", exc) from None
    for name in values:
        # The word null is taken for None; whoever gives a parameter means a value.
        if getattr(query, name, ...) is None:
            raise InvalidInputError(f"{name} can't be null in a query", path=f"$.{name}")
    return query


_repeatable: Final[dict[Any, frozenset[str]]] = {}


def repeatable(kind: type[Any]) -> frozenset[str]:
    """The parameters of a query that may be given more than once."""
    found = _repeatable.get(kind)
    if found is None:
        found = _repeatable[kind] = frozenset(
            field.name
            for field in msgspec.structs.fields(kind)
            if isinstance(field.default_factory, type) and issubclass(field.default_factory, list)
        )
    return found


def _not_as_expected(what: str, error: Exception) -> InvalidInputError:
    """msgspec ends its message with the place, unless that is the whole."""
    message, _, place = str(error).partition(" - at `")
    path = place.rstrip("`") or "$"
    return InvalidInputError(f"the {what} is not as it should be: {message} at {path}", path=path)


def ending() -> DaemonError:
    return DaemonError(
        "the daemon is ending, and commands in the foreground with it; sandboxes and jobs go on",
        hint="connect again",
    )


def _too_large(most: int) -> RequestError:
    return RequestError(
        413,
        f"the body has more than {most >> 20} MiB",
        hint="send more through a stream, or as a file",
    )


def version_header() -> tuple[bytes, bytes]:
    return b"agentkernel-version", __version__.encode()
