"""The application without a socket: what nobody foresaw, and the bounds."""

from __future__ import annotations

import asyncio
import json
import logging
import types
from typing import Any, cast

import pytest

from agentkernel.kernel.kernel import Kernel
from agentkernel.server.app import Service, build_app
from agentkernel.server.bounds import Bounds


class BrokenKernel:
    state_dir = "/nowhere"

    def __init__(self) -> None:
        self.ended = False

    async def get(self, id: str, *, owner: str) -> None:
        raise RuntimeError("hunter" + str(len(id) + 1))

    async def run(self, *arguments: Any, **options: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.ended = True

    async def events(self, after: int, **filters: Any) -> Any:
        return types.SimpleNamespace(newest=0)


def service(**options: Any) -> Service:
    return Service(cast(Kernel, BrokenKernel()), **options)


async def ask(
    wanted: Service, method: str, path: str, *, leave: asyncio.Event | None = None
) -> tuple[int, dict[str, Any]]:
    sent: list[Any] = []
    body = asyncio.Queue[Any]()
    body.put_nowait({"type": "http.request", "body": b'{"argv": ["a"]}', "more_body": False})

    async def receive() -> Any:
        if body.empty():
            if leave is None:
                await asyncio.Event().wait()
            else:
                await leave.wait()
            return {"type": "http.disconnect"}
        return body.get_nowait()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(),
        "query_string": b"", "headers": [], "root_path": "", "http_version": "1.1",
    }  # fmt: skip
    await build_app(wanted)(scope, receive, send)
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], json.loads(content or b"{}")


async def test_what_nobody_foresaw_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        status, problem = await ask(service(), "GET", "/v1/sandboxes/a")
    assert (status, problem["code"]) == (500, "internal")
    assert "hunter2" not in json.dumps(problem)
    assert "RuntimeError" in caplog.text and "hunter2" not in caplog.text


async def test_streams_are_bounded() -> None:
    status, problem = await ask(service(bounds=Bounds(max_streams=0)), "GET", "/v1/events")
    assert (status, problem["code"]) == (507, "resource_exhausted")


async def test_who_goes_away_cancels() -> None:
    wanted, leave = service(), asyncio.Event()
    call = asyncio.ensure_future(ask(wanted, "POST", "/v1/sandboxes/a/exec", leave=leave))
    await asyncio.sleep(0)
    leave.set()
    assert (await call)[0] == 499
    assert cast(BrokenKernel, wanted.kernel).ended


async def test_the_end_of_the_daemon_is_an_answer() -> None:
    wanted = service()
    call = asyncio.ensure_future(ask(wanted, "POST", "/v1/sandboxes/a/exec"))
    await asyncio.sleep(0)
    wanted.stopping.set()
    status, problem = await call
    assert (status, problem["code"]) == (503, "daemon_unavailable")


async def test_cleaning_up_is_not_cut_off() -> None:
    wanted, go, done = service(), asyncio.Event(), []

    async def work() -> None:
        await go.wait()
        done.append(True)

    waiter = asyncio.ensure_future(wanted.finish(work()))
    await asyncio.sleep(0)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    go.set()
    await wanted.cleaned_up()
    assert done == [True]
