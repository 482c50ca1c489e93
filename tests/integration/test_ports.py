"""Published ports of real sandboxes: bytes, ends, limits, restarts, and nothing left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from agentkernel.errors import (
    ConflictError,
    GuestPortError,
    InvalidInputError,
    NotFoundError,
    ResourceExhaustedError,
)
from agentkernel.guest.channel import Output
from agentkernel.guest.tcp import open_tcp
from agentkernel.kernel import ports as kernel_ports
from agentkernel.kernel.kernel import Kernel
from agentkernel.kernel.ports import PortState
from agentkernel.kernel.spec import SandboxSpec
from tests.conftest import NeedEngine

DEADLINE_S = 30.0
# What a connection meets on each port; a line on stdout when all of them listen.
SERVER = """
import asyncio, socket
async def echo(r, w):
    while data := await r.read(65536):
        w.write(data); await w.drain()
    w.write_eof(); w.close()
async def sizes(r, w):
    w.write(b"bye"); w.write_eof()
    total = 0
    while data := await r.read(65536): total += len(data)
    print("took", total, flush=True); w.close()
async def deaf(r, w):
    w.transport.pause_reading()
    await asyncio.sleep(1000)
async def flood(r, w):
    while True:
        w.write(b"x" * 65536); await w.drain()
async def main():
    for port, what in ((7000, echo), (7001, sizes), (7002, deaf), (7003, flood)):
        await asyncio.start_server(what, "127.0.0.1", port, limit=65536)
    if socket.has_ipv6:
        try: await asyncio.start_server(echo, "::1", 7006)
        except OSError: print("no ipv6", flush=True)
    print("ready", flush=True)
    await asyncio.sleep(1000)
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def module_state(state_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state of these tests' own that shares the images, which take a while to make."""
    path = tmp_path_factory.mktemp("ports")
    (state_dir / "images").mkdir(exist_ok=True)
    (path / "images").symlink_to(state_dir / "images")
    return path


@pytest.fixture
async def kernel(module_state: Path) -> AsyncIterator[Kernel]:
    async with Kernel(module_state) as kernel:
        yield kernel
        for record in (await kernel.list()).records:
            await kernel.remove(record.id)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not await condition():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.02)


async def serve(kernel: Kernel, id: str) -> str:
    """The server as a job, which listens."""
    job = await kernel.jobs.start(id, ["python3", "-c", SERVER])
    live = kernel.live[id]

    async def listens() -> bool:
        with contextlib.suppress(GuestPortError), live.used() as sandbox:
            (await open_tcp(sandbox.channel, 7003)).release()
            return True
        return False

    await until(listens)
    return job.id


async def published(kernel: Kernel, id: str) -> dict[int, PortState]:
    return {state.published.port: state for state in await kernel.ports.list(id)}


async def dial(
    kernel: Kernel, id: str, port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    state = (await published(kernel, id))[port]
    assert state.open, state
    assert state.published.address
    return await asyncio.open_connection(state.published.address, state.published.host_port)


async def sends_back(kernel: Kernel, id: str, data: bytes, port: int = 7000) -> None:
    reader, writer = await dial(kernel, id, port)
    try:
        async with asyncio.timeout(DEADLINE_S):
            writer.write(data)
            writer.write_eof()
            assert await reader.read() == data
    finally:
        writer.close()


def listening(port: int) -> bool:
    """Whether anybody does, on 127.0.0.1."""
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


async def test_bytes_and_ends(kernel: Kernel) -> None:
    spec = SandboxSpec(ports=["0:7000", "0:7001", "0:7006", "[::1]:0:7999"])
    record = await kernel.create(spec)
    job = await serve(kernel, record.id)
    await sends_back(kernel, record.id, os.urandom(3_000_000))
    await asyncio.gather(*(sends_back(kernel, record.id, b"%d" % n * 5000) for n in range(30)))

    reader, writer = await dial(kernel, record.id, 7001)  # the guest stops sending first
    async with asyncio.timeout(DEADLINE_S):
        assert await reader.read() == b"bye"
        writer.write(b"x" * 700_000)
        writer.write_eof()
        await writer.drain()

        async def counted() -> bool:
            async with kernel.jobs.attach(job) as process:
                return b"took 700000" in (await _first(process))

        await until(counted)
    writer.close()

    reader, writer = await dial(kernel, record.id, 7999)  # nobody listens inside
    async with asyncio.timeout(DEADLINE_S):
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b"", "a refused connection ends without a byte"
    writer.close()


async def _first(process: object) -> bytes:
    part = await process.output()  # type: ignore[attr-defined]
    return b"" if part is None else bytes(part.data)


@pytest.mark.parametrize("engine", ["runc", "crun", "gvisor"])
async def test_other_engines(kernel: Kernel, need_engine: NeedEngine, engine: str) -> None:
    """With the network closed, as everywhere here."""
    await need_engine(engine)
    record = await kernel.create(SandboxSpec(backend=engine, ports=["0:7000"]))
    await serve(kernel, record.id)
    await sends_back(kernel, record.id, os.urandom(300_000))


async def test_a_server_on_ipv6_alone_is_found(kernel: Kernel) -> None:
    record = await kernel.create(SandboxSpec(ports=["0:7006"]))
    await serve(kernel, record.id)
    await sends_back(kernel, record.id, b"six", 7006)


async def test_an_end_that_does_not_read_stops_the_other(kernel: Kernel) -> None:
    """Nobody holds more than windows and buffers: 30 s of flooding would be gigabytes."""
    record = await kernel.create(SandboxSpec(ports=["0:7002", "0:7003"]))
    await serve(kernel, record.id)

    _, flooded = await dial(kernel, record.id, 7003)
    cast(asyncio.Transport, flooded.transport).pause_reading()
    _, deaf = await dial(kernel, record.id, 7002)
    sent = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(3):
            while True:
                deaf.write(b"x" * 65536)
                await deaf.drain()
                sent += 65536
    # The sockets' own buffers are the kernel's: some megabytes at most.
    assert sent < 32 << 20
    stream = next(iter(kernel.ports._open[record.id].gates[7003].connections))._stream
    held = sum(len(entry.data) for entry in stream._messages if isinstance(entry, Output))
    assert held <= 1 << 18
    flooded.transport.abort()
    deaf.transport.abort()


async def test_connections_are_bounded_and_are_use(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_ports, "MAX_CONNECTIONS", 3)
    record = await kernel.create(SandboxSpec(ports=["0:7000"]))
    await serve(kernel, record.id)
    live = kernel.live[record.id]
    pairs = [await dial(kernel, record.id, 7000) for _ in range(3)]
    for reader, writer in pairs:
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
    reader, writer = await dial(kernel, record.id, 7000)
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    with pytest.raises(ResourceExhaustedError):
        async with kernel.ports.connection(record.id, 7000):
            pass
    live.running_jobs.clear()
    assert live.idle_seconds() == 0.0
    for _, writer in pairs:
        writer.close()

    async def none_left() -> bool:
        return kernel.ports._open[record.id].count == 0 and live._users == 0

    await until(none_left)


async def test_publish_and_unpublish_while_it_runs(kernel: Kernel) -> None:
    record = await kernel.create(SandboxSpec())
    await serve(kernel, record.id)
    state = await kernel.ports.publish(record.id, "0:7000")
    host_port = state.published.host_port
    assert state.open and host_port
    await sends_back(kernel, record.id, b"hello")
    with pytest.raises(ConflictError, match="published already"):
        await kernel.ports.publish(record.id, "0:7000")
    with pytest.raises(ConflictError, match="in use"):
        await kernel.ports.publish(record.id, f"{host_port}:7001")

    reader, writer = await dial(kernel, record.id, 7000)
    writer.write(b"a")
    assert await reader.readexactly(1) == b"a"
    await kernel.ports.unpublish(record.id, 7000)
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b"", "what was connected is not any more"
    writer.close()
    await until(lambda: asyncio.sleep(0, not listening(host_port)))
    assert await published(kernel, record.id) == {}
    with pytest.raises(NotFoundError):
        await kernel.ports.unpublish(record.id, 7000)
    with pytest.raises(NotFoundError):
        async with kernel.ports.connection(record.id, 7000):
            pass
    # The same words again give another token.
    again = await kernel.ports.publish(record.id, f"{host_port}:7000")
    assert again.published.token != state.published.token
    kinds = [event.kind for event in (await kernel.events(sandbox_id=record.id)).records]
    assert kinds.count("port.published") == 2 and "port.unpublished" in kinds


async def test_a_port_in_use_fails_the_create(kernel: Kernel) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(ConflictError, match=f"port {number} is in use"):
            await kernel.create(SandboxSpec(ports=["0:7000", f"{number}:7001"]))
    assert (await kernel.list()).records == []
    assert kernel.ports._open == {}
    record = await kernel.create(SandboxSpec(ports=[f"{number}:7001"]))
    assert (await published(kernel, record.id))[7001].published.host_port == number
    with pytest.raises(InvalidInputError, match="twice"):
        await kernel.create(SandboxSpec(ports=["0:7000", "preview:7000"]))


async def test_ports_come_back_with_the_sandbox_and_with_the_kernel(module_state: Path) -> None:
    spec = SandboxSpec(ephemeral=False, ports=["0:7000", "preview:7001"])
    async with Kernel(module_state) as kernel:
        record = await kernel.create(spec, name="kept")
        first = (await published(kernel, record.id))[7000].published
        assert listening(first.host_port)
        await kernel.stop("kept")
        assert not listening(first.host_port)
        state = (await published(kernel, record.id))[7000]
        assert not state.open and "does not run" in (state.error or "")
        await kernel.ports.publish("kept", "0:7002")  # while it does not run
        await kernel.start("kept")
        assert (await published(kernel, record.id))[7000].published == first
        assert (await published(kernel, record.id))[7002].published.host_port
        await serve(kernel, record.id)
        await sends_back(kernel, record.id, b"started again")
    assert not listening(first.host_port)
    async with Kernel(module_state) as kernel:
        await sends_back(kernel, record.id, b"a new kernel")
    with socket.create_server(("127.0.0.1", first.host_port)):
        async with Kernel(module_state) as kernel:  # somebody else has the port now
            states = await published(kernel, record.id)
            assert states[7000].error == f"not open: port {first.host_port} is in use"
            assert states[7001].open and states[7002].open
            events = (await kernel.events(sandbox_id=record.id)).records
            assert events[-1].kind == "port.not_open"
            assert events[-1].body["host_port"] == first.host_port
            assert first.token not in str(events)
            async with kernel.ports.connection(record.id, 7000) as inside:  # its preview works
                await inside.write(b"x")
                assert await inside.read() == b"x"
    async with Kernel(module_state) as kernel:
        await sends_back(kernel, record.id, b"free again")
        await kernel.remove("kept")
        assert not listening(first.host_port)
        assert kernel.ports._open == {}
