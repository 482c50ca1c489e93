"""Event streams (`text/event-stream`): what they look like, and how they stay and end.

What must hold: a stream that began ends with a last word, or its client is gone; the next event is
asked for when the one before is written, so a reader that stops stops whoever makes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from agentkernel.server.app import Service, service_of
from agentkernel.server.content import Content
from agentkernel.server.operations import EVENTS
from agentkernel.server.problems import encode, ending, problem

PING: Final = b"event: ping\ndata: {}\n\n"
COMMENT: Final = b": ping\n\n"


def event(name: str, body: Any, id: str | None = None) -> bytes:
    """Bodies are JSON, so they have no line break of their own."""
    head = "" if id is None else f"id: {id}\n"
    return f"{head}event: {name}\ndata: ".encode() + encode(body) + b"\n\n"


def is_wanted(request: Request) -> bool:
    """Whether the client asks for a stream instead of one answer."""
    kinds = request.headers.get("accept", "").lower().split(",")
    return any(kind.partition(";")[0].strip() == EVENTS for kind in kinds)


async def stream(
    request: Request, events: AsyncGenerator[bytes, None], *, ping: bytes = PING
) -> Response:
    """The answer that carries `events`. What goes wrong before the first one is a problem with a
    status; a client that goes away, at whatever moment, closes them."""
    service = service_of(request)
    try:
        with service.stream():
            pass  # one too many is still an answer here
        first = await service.while_wanted(request.receive, _next(events))
    except BaseException:
        await events.aclose()
        raise
    return Content(
        service,
        first or b"",
        _kept_alive(service, events, ping),
        media_type=EVENTS,
        headers={"Cache-Control": "no-store"},
        lasting=True,
    )


async def _kept_alive(
    service: Service, events: AsyncGenerator[bytes, None], ping: bytes
) -> AsyncGenerator[bytes, None]:
    """With a ping whenever nothing came for a while, and an `error` if they break off."""
    async with aclosing(events):
        end = asyncio.ensure_future(service.stopping.wait())
        step = asyncio.ensure_future(_next(events))
        try:
            with service.stream():
                while not end.done():
                    await asyncio.wait(
                        (step, end),
                        timeout=service.bounds.heartbeat_seconds,
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                    if end.done():
                        break
                    if not step.done():
                        yield ping
                        continue
                    data = step.result()
                    if data is None:
                        return
                    yield data
                    step = asyncio.ensure_future(_next(events))
                raise ending()
        except Exception as exc:
            yield event("error", problem(exc))
        finally:
            end.cancel()
            step.cancel()
            await asyncio.wait((step,))


async def _next(events: AsyncIterator[bytes]) -> bytes | None:
    return await anext(events, None)
