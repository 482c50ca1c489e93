"""The way out: what leaves a sandbox comes to the sockets the host holds, or fails at once.

A gateway of a few lines stands in for the real one: it says where a connection was to go, and
answers a datagram with itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from agentkernel.backends.base import THROUGH_GATEWAY, NetworkSockets, Sandbox
from agentkernel.conformance.bench import Bench, NotHere, expect, within
from agentkernel.errors import UnsupportedError
from agentkernel.kernel.commands import run_command
from agentkernel.network.policy.model import NetworkSetup

_ORIGINAL_DESTINATION = 80
_SETUP = NetworkSetup(
    files={"/etc/conformance/client.conf": "told\n"}, environment={"CONFORMANCE": "told"}
)
# What scripts below begin with. `go` prints what came of something, with how long it took: a try
# that waits is no refusal at once.
_WORDS = """
import errno, json, socket, sys, time
done = {}
def go(name, work):
    begin = time.monotonic()
    try: result = work()
    except OSError as e: result = errno.errorcode.get(e.errno, str(e))
    done[name] = [result, time.monotonic() - begin < 5]
def tcp(host, port, source=None, family=socket.AF_INET):
    def work():
        with socket.socket(family) as s:
            s.settimeout(20)
            if source: s.bind((source, 0))
            s.connect((host, port))
            s.sendall(b"x")
            return s.recv(100).decode()
    return work
def udp(host, port, family=socket.AF_INET):
    def work():
        with socket.socket(family, socket.SOCK_DGRAM) as s:
            s.settimeout(20)
            s.connect((host, port))
            s.send(b"question")
            return s.recv(100).decode()
    return work
"""


@dataclass
class TinyGateway:
    """Serves a sandbox's sockets. `came`: whatever arrived."""

    sockets: NetworkSockets
    came: list[object] = field(default_factory=list)

    async def serve(self) -> None:
        await asyncio.gather(self._connections(), self._datagrams())

    async def _connections(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            peer, _ = await loop.sock_accept(self.sockets.tcp)
            with peer:
                to = peer.getsockopt(socket.SOL_IP, _ORIGINAL_DESTINATION, 16)
                port, address = struct.unpack("!2xH4s8x", to)
                where = f"{socket.inet_ntoa(address)}:{port}"
                self.came.append(where)
                await loop.sock_recv(peer, 1)
                await loop.sock_sendall(peer, where.encode())

    async def _datagrams(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            data, peer = await loop.sock_recvfrom(self.sockets.names, 2048)
            self.came.append(data)
            await loop.sock_sendto(self.sockets.names, data, peer)


@contextlib.asynccontextmanager
async def gateway_of(sandbox: Sandbox) -> AsyncIterator[TinyGateway]:
    gateway = TinyGateway(await sandbox.open_network())
    task = asyncio.create_task(gateway.serve())
    try:
        yield gateway
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        gateway.sockets.close()


@contextlib.asynccontextmanager
async def networked(bench: Bench, **spec: Any) -> AsyncIterator[Sandbox]:
    if bench.backend().features.network != "gateway":
        raise NotHere("this engine has no network")
    async with bench.sandbox(network=_SETUP, **spec) as sandbox:
        yield sandbox


async def tried(sandbox: Sandbox, script: str) -> dict[str, Any]:
    """What came of each `go`, and that none of them had to wait."""
    source = f"{_WORDS}{script}\nprint(json.dumps(done))"
    result = await within(run_command(sandbox, ["python3", "-c", source]))
    expect(result.status.exit_code == 0, f"{result.status}: {result.stderr[-800:]!r}")
    answers = msgspec.json.decode(result.stdout, type=dict[str, tuple[Any, bool]])
    slow = [name for name, (_, quick) in answers.items() if not quick]
    expect(not slow, f"not at once: {slow}")
    return {name: answer for name, (answer, _) in answers.items()}


async def connections_come_to_the_host(bench: Bench) -> None:
    """TCP to anywhere arrives with its destination, and a datagram to any resolver; files tell"""
    async with networked(bench) as sandbox, gateway_of(sandbox) as gateway:
        answers = await tried(
            sandbox,
            'go("tcp", tcp("198.51.100.1", 443))\n'
            'go("metadata", tcp("169.254.169.254", 80))\n'
            'go("from loopback", tcp("198.51.100.2", 22, source="127.0.0.1"))\n'
            'go("mapped", tcp("::ffff:198.51.100.3", 80, family=socket.AF_INET6))\n'
            'go("name", udp("8.8.8.8", 53))\n'
            "import os\n"
            'go("file", lambda: open("/etc/conformance/client.conf").read())\n'
            'go("variable", lambda: os.environ.get("CONFORMANCE"))\n'
            'go("resolver", lambda: open("/etc/resolv.conf").read().split()[0])\n',
        )
        told = {"file": "told\n", "variable": "told", "resolver": "nameserver"}
        expect({name: answers.pop(name) for name in told} == told, "files and variables")
        wanted = {
            "tcp": "198.51.100.1:443",
            "metadata": "169.254.169.254:80",
            "from loopback": "198.51.100.2:22",
            "mapped": "198.51.100.3:80",
            "name": "question",
        }
        expect(answers == wanted, answers)
        expect(len(gateway.came) == len(wanted), gateway.came)
        lines = {line.what: line.value for line in sandbox.effective}
        expect(lines["network"] == THROUGH_GATEWAY, lines["network"])
        expect(not any((await sandbox.network_refusals()).values()), "something was refused")


async def the_rest_fails_at_once(bench: Bench) -> None:
    """other datagrams and IPv6 fail at once and are counted; raw and ping sockets are not made"""
    async with networked(bench, profile="permissive") as sandbox, gateway_of(sandbox) as gateway:
        answers = await tried(
            sandbox,
            'go("udp", udp("198.51.100.1", 443))\n'
            'go("multicast", udp("224.0.0.251", 5353))\n'
            'go("six", tcp("2001:db8::1", 443, family=socket.AF_INET6))\n'
            'go("six udp", udp("2001:db8::1", 53, family=socket.AF_INET6))\n'
            'go("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1) and "made")\n'
            'go("packet", lambda: socket.socket(17, socket.SOCK_RAW, 3) and "made")\n'
            'go("ping", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1) and "made")\n'
            'go("control", tcp("198.51.100.1", 443))\n',
        )
        expect(answers.pop("control") == "198.51.100.1:443", "control: TCP goes out")
        reached = {name: was for name, was in answers.items() if not _is_refusal(was)}
        expect(not reached, f"not refused: {reached}")
        expect(gateway.came == ["198.51.100.1:443"], gateway.came)
        counted = await sandbox.network_refusals()
        expect(counted["udp"] >= 2 and counted["ipv6"] >= 1, f"not counted: {counted}")


async def the_gateways_sockets_are_its_own(bench: Bench) -> None:
    """no process inside dials or binds the gateway's sockets, or reads or changes the rules"""
    async with networked(bench, profile="permissive") as sandbox, gateway_of(sandbox) as gateway:
        _, port = gateway.sockets.tcp.getsockname()
        answers = await tried(
            sandbox,
            f"port = {port}\n"
            'go("dial", tcp("127.0.0.1", port))\n'
            'go("dial from own", tcp("127.0.0.1", port, source="10.0.2.15"))\n'
            'go("dial own", tcp("10.0.2.15", port))\n'
            'go("send", udp("127.0.0.1", port))\n'
            "def bind(kind):\n"
            "    s = socket.socket(socket.AF_INET, kind)\n"
            "    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
            "    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n"
            '    s.bind(("127.0.0.1", port))\n'
            '    return "bound"\n'
            'go("bind", lambda: bind(socket.SOCK_STREAM))\n'
            'go("bind udp", lambda: bind(socket.SOCK_DGRAM))\n'
            'go("rules", lambda: socket.socket(16, socket.SOCK_RAW, 12) and "made")\n',
        )
        reached = {name: was for name, was in answers.items() if not _is_refusal(was)}
        expect(not reached, f"not refused: {reached}")
        expect(answers["bind"] == "EACCES", answers)
        expect(gateway.came == [], gateway.came)


async def a_sandbox_serves_itself(bench: Bench) -> None:
    """servers on port 80 and 53, at loopback and at its own address, answer inside"""
    serve = (
        "def serve(bind, host, port, kind):\n"
        "    with socket.socket(socket.AF_INET, kind) as s, "
        "socket.socket(socket.AF_INET, kind) as c:\n"
        "        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
        "        s.bind((bind, port)); s.settimeout(20); c.settimeout(20)\n"
        "        if kind == socket.SOCK_STREAM: s.listen()\n"
        "        c.connect((host, port))\n"
        "        c.send(b'ping')\n"
        "        if kind == socket.SOCK_STREAM:\n"
        "            peer, _ = s.accept(); peer.send(peer.recv(9)); peer.close()\n"
        "        else:\n"
        "            data, peer = s.recvfrom(9); s.sendto(data, peer)\n"
        "        return c.recv(9).decode()\n"
        "for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):\n"
        "    for host in ('127.0.0.1', '10.0.2.15'):\n"
        "        for port in (80, 53):\n"
        "            go(f'{kind} {host} {port}', lambda: serve('0.0.0.0', host, port, kind))\n"
    )
    async with networked(bench) as sandbox, gateway_of(sandbox) as gateway:
        answers = await tried(sandbox, serve)
        expect(set(answers.values()) == {"ping"} and len(answers) == 8, answers)
        expect(gateway.came == [], gateway.came)


async def a_way_out_can_be_made_again(bench: Bench) -> None:
    """after the host's sockets are gone nothing goes out; made again, everything does"""
    if bench.backend().features.network != "gateway":
        raise NotHere("this engine has no network")
    blueprint = bench.blueprint(network=_SETUP)
    script = 'go("tcp", tcp("198.51.100.1", 443))\ngo("udp", udp("198.51.100.1", 54))\n'
    sandbox = await bench.backend().create(blueprint)
    try:
        async with gateway_of(sandbox):
            first = await tried(sandbox, script)
        closed = await tried(sandbox, script)
        sandbox.channel.close()
        found = await bench.backend().reattach(blueprint)
        expect(found is not None, "it does not run any more")
        sandbox = found or sandbox
        async with gateway_of(sandbox):
            again = await tried(sandbox, script)
            counted = await sandbox.network_refusals()
    finally:
        footprint = bench.footprint(sandbox)
        await sandbox.destroy()
    await bench.expect_gone(footprint)
    expect(first == again and first["tcp"] == "198.51.100.1:443", (first, again))
    expect(_is_refusal(closed["tcp"]), f"without a gateway: {closed}")
    expect(counted["udp"] == 3, f"the rules were made anew: {counted}")


async def a_network_can_come_later(bench: Bench) -> None:
    """a sandbox without a network gets one while it runs, or the engine says that it can't"""
    async with bench.sandbox() as sandbox:
        expect(await sandbox.network_refusals() == {}, "it has counted")
        script = 'go("tcp", tcp("198.51.100.1", 443))\n'
        before = await tried(sandbox, script)
        expect(_is_refusal(before["tcp"]), before)
        try:
            async with gateway_of(sandbox):
                expect((await tried(sandbox, script))["tcp"] == "198.51.100.1:443", "later")
        except UnsupportedError as exc:
            expect(exc.hint, "it does not say what to do")


def _is_refusal(answer: object) -> bool:
    return isinstance(answer, str) and answer.isupper() and answer.startswith("E")


CASES = (
    connections_come_to_the_host,
    the_rest_fails_at_once,
    the_gateways_sockets_are_its_own,
    a_sandbox_serves_itself,
    a_way_out_can_be_made_again,
    a_network_can_come_later,
)
