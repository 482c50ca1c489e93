"""The gateway as a process: who may talk to it, when it ends, what becomes of a dead sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from agentkernel.errors import HostError
from agentkernel.network.gateway import messages, process
from agentkernel.network.gateway.messages import (
    Events,
    NetworkEvent,
    Register,
    Secrets,
    Stop,
    Unregister,
    Update,
)
from agentkernel.network.link import GatewayLink, LinkClosed
from agentkernel.network.policy.model import Operator, Rule
from agentkernel.network.starting import start_gateway

from .gateway_lab import setting, until

ID = "g" * 20
SECRET = b"value-that-nobody-may-see-0123456789"


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


class Sockets:
    """A sandbox's sockets without its namespace, and a process that stands for it."""

    def __init__(self) -> None:
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.life = os.pidfd_open(self.process.pid)

    @property
    def descriptors(self) -> tuple[int, int, int]:
        return self.tcp.fileno(), self.udp.fileno(), self.life

    def die(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.die()
        assert self.process.stdin
        self.process.stdin.close()
        self.tcp.close()
        self.udp.close()
        os.close(self.life)


@pytest.fixture
def sockets() -> AsyncIterator[Sockets]:  # type: ignore[misc]
    made = Sockets()
    yield made
    made.close()


@contextlib.asynccontextmanager
async def gateway(
    directory: Path,
    on_events: Callable[[Events], None] = lambda events: None,
    *,
    stop: bool = True,
) -> AsyncIterator[tuple[GatewayLink, int]]:
    """A started gateway and its pid; it is gone afterwards, by itself or by force."""
    link = await start_gateway(directory, on_events)
    welcome = await link.greet(Operator(upstream_proxy="none"))
    life = os.pidfd_open(welcome.pid)
    try:
        yield link, welcome.pid
    finally:
        if stop:
            with contextlib.suppress(LinkClosed):
                await link.call(Stop)
        link.close()
        await gone(life)
        os.close(life)


async def gone(life: int) -> None:
    try:
        await until(lambda: _is_over(life))
    except TimeoutError:
        signal.pidfd_send_signal(life, signal.SIGKILL)
        raise


def _is_over(life: int) -> bool:
    import select

    return bool(select.select([life], [], [], 0)[0])


async def test_a_sandbox_is_served_and_forgotten_when_it_dies(
    tmp_path: Path, sockets: Sockets
) -> None:
    events: list[NetworkEvent] = []
    # A path that is too long for a socket's address.
    directory = tmp_path / ("d" * 120)
    directory.mkdir(mode=0o700)
    async with gateway(directory, lambda e: events.extend(e.events), stop=False) as (link, pid):
        names = str(directory / "names")
        await link.call(Register, *sockets.descriptors, id=ID, setting=setting(), names=names)
        await link.call(Secrets, values={"me/KEY": SECRET})
        # Not redirected by any rule, so it has no destination: reset, and told.
        with socket.create_connection(sockets.tcp.getsockname()) as client:
            client.setblocking(False)
            with pytest.raises(ConnectionResetError):
                async with asyncio.timeout(10):
                    await asyncio.get_running_loop().sock_recv(client, 1)
        await until(lambda: [e for e in events if e.kind == "network.deny"])
        counted = await link.count(ID)
        assert counted is not None and counted.connections == 1
        sockets.die()
        async with asyncio.timeout(10):
            while True:
                if await link.count(ID) is None:
                    break
                await asyncio.sleep(0.01)
        with pytest.raises(HostError, match="no such sandbox"):
            await link.call(Update, id=ID, setting=setting())
        assert _closed_to_others(pid)
        log = (directory / "gateway.log").read_bytes()
        assert SECRET not in log and b"Traceback" not in log
    assert not (directory / "gateway.sock").exists()


def _closed_to_others(pid: int) -> bool:
    """No core dump, no new privileges, its memory not this user's to read."""
    limits = Path(f"/proc/{pid}/limits").read_text()
    core = next(line for line in limits.splitlines() if line.startswith("Max core file size"))
    status = Path(f"/proc/{pid}/status").read_text()
    return (
        core.split()[4:6] == ["0", "0"]
        and "NoNewPrivs:\t1" in status
        and os.stat(f"/proc/{pid}/mem").st_uid == 0
        and os.getsid(pid) == pid
    )


async def test_it_outlives_a_daemon_while_a_sandbox_lives(tmp_path: Path, sockets: Sockets) -> None:
    async with gateway(tmp_path) as (link, pid):
        names = str(tmp_path / "names")
        await link.call(Register, *sockets.descriptors, id=ID, setting=setting(), names=names)
        link.close()
        again = await start_gateway(tmp_path, lambda events: None)
        welcome = await again.greet(Operator())
        assert (welcome.pid, welcome.sandboxes) == (pid, (ID,))
        # The newest daemon counts, the one before is let go.
        third = await start_gateway(tmp_path, lambda events: None)
        assert (await third.greet(Operator())).pid == pid
        async with asyncio.timeout(10):
            await again.closed
        await third.call(Unregister, id=ID)
        third.close()


async def test_it_leaves_when_a_daemon_has_no_use_for_it(
    tmp_path: Path, sockets: Sockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, so that it can be impatient: not while it serves a sandbox, then soon."""
    monkeypatch.setattr(process, "UNUSED_SECONDS", 0.2)
    serving = asyncio.create_task(process.serve(str(tmp_path)))
    await until((tmp_path / "gateway.sock").exists)
    link = await GatewayLink.connect(tmp_path, lambda events: None)
    await link.greet(Operator())
    names = str(tmp_path / "names")
    await link.call(Register, *sockets.descriptors, id=ID, setting=setting(), names=names)
    done, _ = await asyncio.wait({serving}, timeout=0.6)
    assert not done and not link.closed.done()
    await link.call(Unregister, id=ID)
    async with asyncio.timeout(10):
        await serving
        await link.closed
    assert not (tmp_path / "gateway.sock").exists()


async def test_it_leaves_when_it_is_told_to(tmp_path: Path, sockets: Sockets) -> None:
    async with gateway(tmp_path) as (link, pid):
        names = str(tmp_path / "names")
        await link.call(Register, *sockets.descriptors, id=ID, setting=setting(), names=names)
        await link.call(Stop)
        # The next one waits for this one's end, and takes its place.
        async with gateway(tmp_path) as (_, other):
            assert other != pid


async def test_a_daemon_of_another_build_can_only_tell_it_to_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateway(tmp_path) as (_, _pid):
        import agentkernel.network.link as line

        monkeypatch.setattr(line, "GENERATION", messages.GENERATION + 1)
        newer = await start_gateway(tmp_path, lambda events: None)
        with pytest.raises(LinkClosed, match="another version"):
            await newer.greet(Operator())


async def test_whoever_breaks_the_protocol_is_hung_up(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with gateway(tmp_path) as (link, _):
        for said in (
            b"\xff\xff\xff\xff",
            struct.pack("<I", 0),
            struct.pack("<I", 5) + b"junk!",
            struct.pack("<I", 1) + msgspec.msgpack.encode(7),
            struct.pack("<I", 100) + b"cut",
        ):
            with socket.socket(socket.AF_UNIX) as sock:
                sock.setblocking(False)
                sock.connect(str(tmp_path / "gateway.sock"))
                sock.send(said)
                sock.shutdown(socket.SHUT_WR)
                async with asyncio.timeout(10):
                    assert await loop.sock_recv(sock, 100) == b""
            # And the daemon that was there is not disturbed.
            assert await link.count("nobody") is None


async def test_wrong_descriptors_are_refused(tmp_path: Path, sockets: Sockets) -> None:
    async with gateway(tmp_path) as (link, _):
        with pytest.raises(HostError, match="descriptors"):
            await link.call(
                Register, sockets.life, id=ID, setting=setting(), names=str(tmp_path / "n")
            )
        with pytest.raises(HostError):
            await link.call(
                Register,
                sockets.life,
                sockets.life,
                sockets.life,
                id=ID,
                setting=setting(Rule(host="*")),
                names=str(tmp_path / "n"),
            )
        with pytest.raises(HostError):
            await link.call(
                Register,
                *sockets.descriptors,
                id=ID,
                setting=setting(),
                names=str(tmp_path / "missing" / "n"),
            )
        assert await link.count(ID) is None


def test_the_keys_of_its_connections_are_written_nowhere(tmp_path: Path) -> None:
    """A variable that developers leave behind would have them in a file, secrets and all."""
    show = "import ssl; print(ssl.create_default_context().keylog_filename)"
    close = "from agentkernel.network.gateway.process import close_to_others; close_to_others()\n"
    environment = {**os.environ, "SSLKEYLOGFILE": str(tmp_path / "keys")}
    told = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=60,
        ).stdout.strip()
        for code in (show, close + show)
    ]
    assert told == [str(tmp_path / "keys"), "None"]
