"""Applications below a path of the daemon: made on demand, behind the same door."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp

from agentkernel.errors import UnsupportedError
from agentkernel.kernel.kernel import Kernel
from agentkernel.server.app import Service, build_app
from agentkernel.server.bounds import Bounds
from agentkernel.server.callers import Caller
from agentkernel.server.mounts import mount

MADE: list[str] = []


@asynccontextmanager
async def works(service: Service) -> AsyncIterator[ASGIApp]:
    MADE.append("begin")
    yield PlainTextResponse("here")
    MADE.append("end")


@asynccontextmanager
async def missing(service: Service) -> AsyncIterator[ASGIApp]:
    raise UnsupportedError("it is not installed", hint="install it")
    yield


@asynccontextmanager
async def broken(service: Service) -> AsyncIterator[ASGIApp]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("secret")

    yield app


@asynccontextmanager
async def reads(service: Service) -> AsyncIterator[ASGIApp]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass

    yield app


def service_with(**mounts: Any) -> Service:
    paths = {f"/{name}": make for name, make in mounts.items()}
    return Service(cast(Kernel, None), mounts=paths, bounds=Bounds(body_seconds=0.05))


async def asked(
    app: ASGIApp,
    path: str,
    *,
    method: str = "GET",
    caller: Caller | None = None,
    slow: bool = False,
) -> tuple[int, bytes]:
    scope: dict[str, Any] = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(),
        "query_string": b"", "headers": [], "state": {"caller": caller} if caller else {},
    }  # fmt: skip
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if slow:
            import asyncio

            await asyncio.Event().wait()
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


async def test_made_once_when_asked_for_and_ended_with_the_daemon() -> None:
    MADE.clear()
    service = service_with(works=works)
    app = build_app(service)
    assert MADE == []
    for _ in range(2):
        assert await asked(app, "/works") == (200, b"here")
    assert MADE == ["begin"]
    service.stopping.set()
    await service.cleaned_up()
    assert MADE == ["begin", "end"]


async def test_what_can_not_be_made_is_an_answer() -> None:
    app = build_app(service_with(missing=missing))
    for _ in range(2):
        status, body = await asked(app, "/missing")
        assert (status, json.loads(body)["hint"]) == (422, "install it")


async def test_what_fails_is_internal_and_says_nothing() -> None:
    service = service_with(broken=broken)
    status, body = await asked(build_app(service), "/broken")
    assert status == 500 and b"secret" not in body
    service.stopping.set()
    await service.cleaned_up()


async def test_a_body_that_does_not_come() -> None:
    service = service_with(reads=reads)
    status, body = await asked(build_app(service), "/reads", method="POST", slow=True)
    assert (status, json.loads(body)["code"]) == (408, "invalid_input")
    service.stopping.set()
    await service.cleaned_up()


async def test_a_caller_that_may_less_is_refused() -> None:
    service = service_with()
    route = mount(service, "/works", works)
    less = Caller("reader", frozenset({"read", "exec"}))
    status, body = await asked(route.app, "/works", caller=less)
    assert (status, json.loads(body)["code"]) == (403, "policy_denied")
    enough = Caller("writer", frozenset({"read", "exec", "manage"}))
    assert await asked(route.app, "/works", caller=enough) == (200, b"here")
    service.stopping.set()
    await service.cleaned_up()
