"""Pulls that are cancelled, killed, or wanted twice at once."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from agentkernel.errors import ConflictError, RegistryError, ResourceExhaustedError
from agentkernel.images.oci.model import Platform
from agentkernel.images.oci.progress import PullProgress, Report
from agentkernel.images.oci.reference import parse_reference
from agentkernel.images.oci.registry.pulling import Pulled, pull
from agentkernel.images.oci.store import ImageStore, NewBlob
from tests.images.conftest import QUICK
from tests.images.registry_tool import make_image, make_layer
from tests.images.scripted import Answer, Request, Scripted, Stream, ranged

IMAGE = make_image([make_layer({"data": os.urandom(3 << 20)})], compression="none")
LAYER = IMAGE.layers[0]
CONTENT = IMAGE.blobs[LAYER]
BLOB = f"/v2/app/blobs/{LAYER}"
HALF = 2 << 20
SECONDS = 30.0


class Gate:
    """A layer of which half comes, and the rest when somebody opens."""

    def __init__(self) -> None:
        self.half_sent = asyncio.Event()
        self.opened = asyncio.Event()

    def __call__(self, request: Request) -> Answer | Stream:
        async def stream(writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 X\r\nContent-Length: %d\r\n\r\n" % len(CONTENT))
            writer.write(CONTENT[:HALF])
            await writer.drain()
            self.half_sent.set()
            await self.opened.wait()
            writer.write(CONTENT[HALF:])
            await writer.drain()

        return stream if not request.start else ranged(CONTENT)(request)


@pytest.fixture
async def server() -> AsyncIterator[Scripted]:
    async with Scripted() as running:
        running.serve(IMAGE, "app", "1")
        yield running


def start(
    server: Scripted, store: ImageStore, report: Report | None = None
) -> asyncio.Task[Pulled]:
    work = pull(
        store,
        parse_reference(f"{server.address}/app:1"),
        settings=QUICK,
        platform=Platform(architecture="amd64", os="linux"),
        progress=report,
    )
    return asyncio.ensure_future(work)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_cancelled_and_gone_on_with(server: Scripted, store: ImageStore) -> None:
    gate = Gate()
    server.on(BLOB, gate)
    task = start(server, store)
    partial = store.partial_path(LAYER)
    await until(lambda: partial.exists() and partial.stat().st_size >= 1 << 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    came = partial.stat().st_size
    assert partial.read_bytes() == CONTENT[:came]
    assert store.names() == []
    with store.removing():  # nothing holds the store any more
        pass
    done = await start(server, store)
    assert done.downloaded_bytes == len(CONTENT) - came
    assert server.asked(BLOB)[-1].headers["range"] == f"bytes={came}-"
    assert store.blob_path(LAYER).read_bytes() == CONTENT


async def test_killed_and_gone_on_with(server: Scripted, store: ImageStore) -> None:
    gate = Gate()
    server.on(BLOB, gate)
    process = await _other_process(server, store)
    partial = store.partial_path(LAYER)
    try:
        await until(lambda: partial.exists() and partial.stat().st_size >= 1 << 20)
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()
    came = partial.stat().st_size
    done = await start(server, store)
    assert done.downloaded_bytes == len(CONTENT) - came
    assert store.blob_path(LAYER).read_bytes() == CONTENT


async def test_two_processes_fetch_a_layer_once(server: Scripted, store: ImageStore) -> None:
    gate = Gate()
    server.on(BLOB, gate)
    events: list[PullProgress] = []
    process = await _other_process(server, store)
    try:
        async with asyncio.timeout(SECONDS):
            await gate.half_sent.wait()
        task = start(server, store, events.append)
        await until(lambda: any(event.state == "elsewhere" for event in events))
        with pytest.raises(ConflictError, match="being fetched"), store.removing():
            pass
        gate.opened.set()
        async with asyncio.timeout(SECONDS):
            assert await process.wait() == 0
            done = await task
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert done.downloaded_bytes == 0
    assert len(server.asked(BLOB)) == 1
    assert events[-1] == PullProgress(LAYER, "fetched", len(CONTENT), len(CONTENT))
    assert list(store.partial_path(LAYER).parent.iterdir()) == []


async def test_the_one_who_waits_goes_on_when_the_other_gives_up(
    server: Scripted, store: ImageStore
) -> None:
    gate = Gate()
    server.on(BLOB, gate)
    events: list[PullProgress] = []
    first = start(server, store)
    async with asyncio.timeout(SECONDS):
        await gate.half_sent.wait()
    second = start(server, store, events.append)
    await until(lambda: any(event.state == "elsewhere" for event in events))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    done = await second
    assert 0 < done.downloaded_bytes < len(CONTENT)
    assert store.blob_path(LAYER).read_bytes() == CONTENT


async def test_many_pulls_at_once(server: Scripted, store: ImageStore) -> None:
    done = await asyncio.gather(*(start(server, store) for _ in range(5)))
    assert {each.digest for each in done} == {IMAGE.digest}
    assert len(server.asked(BLOB)) == 1


async def test_three_layers_at_once_and_no_more(store: ImageStore) -> None:
    image = make_image([make_layer({"n": bytes([number]) * 5000}) for number in range(7)])
    under_way = most = 0
    gate = asyncio.Event()

    def slow(content: bytes) -> Callable[[Request], Stream]:
        async def stream(writer: asyncio.StreamWriter) -> None:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            if under_way == 3:
                gate.set()
            await gate.wait()
            under_way -= 1
            writer.write(b"HTTP/1.1 200 X\r\nContent-Length: %d\r\n\r\n" % len(content) + content)
            await writer.drain()

        return lambda request: stream

    async with Scripted() as server:
        server.serve(image, "app", "1")
        for layer in image.layers:
            server.on(f"/v2/app/blobs/{layer}", slow(image.blobs[layer]))
        async with asyncio.timeout(SECONDS):
            await start(server, store)
    assert most == 3


async def test_one_failure_ends_the_others(store: ImageStore) -> None:
    """Nobody waits for a layer of an image that will not be."""
    other = make_image([make_layer({"data": os.urandom(5000)}), make_layer({"x": b"y"})])
    async with Scripted() as server:
        server.serve(other, "app", "1")
        waiting, missing = other.layers
        server.on(f"/v2/app/blobs/{waiting}", lambda request: _never)
        server.on(f"/v2/app/blobs/{missing}", Answer(404))
        with pytest.raises(RegistryError, match="though its manifest names it"):
            async with asyncio.timeout(SECONDS):
                await start(server, store)


async def _never(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(SECONDS * 2)


async def test_a_disk_that_fills_on_the_way(
    server: Scripted, store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = 0
    real = NewBlob.write

    def write(self: NewBlob, content: bytes | memoryview) -> None:
        nonlocal written
        written += 1
        if self.path == store.partial_path(LAYER) and written > 4:
            os.write(self.fd, content[:1000])
            raise OSError(errno.ENOSPC, "No space left on device")
        real(self, content)

    monkeypatch.setattr(NewBlob, "write", write)
    with pytest.raises(ResourceExhaustedError, match="the disk is full"):
        await start(server, store)
    partial = store.partial_path(LAYER)
    came = partial.stat().st_size
    assert 0 < came < len(CONTENT)
    assert partial.read_bytes() == CONTENT[:came]
    monkeypatch.setattr(NewBlob, "write", real)
    done = await start(server, store)
    assert done.downloaded_bytes == len(CONTENT) - came
    assert server.asked(BLOB)[-1].start == came


async def _other_process(server: Scripted, store: ImageStore) -> asyncio.subprocess.Process:
    program = Path(__file__).with_name("pull_in_process.py")
    return await asyncio.create_subprocess_exec(
        sys.executable, str(program), str(store.directory), f"{server.address}/app:1"
    )
