"""A guest with a way out can't read, change or go round its rules, whatever rights it has inside.

The system call filter keeps most of these sockets away already, so it is taken off here. Controls:
the same code, as root of a network namespace that its own user namespace owns, succeeds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from agentkernel.conformance.network import gateway_of
from agentkernel.kernel.runs import Runs
from agentkernel.network.policy.model import NetworkSetup
from agentkernel.security.capabilities import CAPABILITIES

from .controls import box_without
from .probes import Box, in_private_namespaces

# Raw netlink, as in agentd/src/network_rules.c.
NETLINK = r"""
def attribute(kind, value):
    return struct.pack('=HH', 4 + len(value), kind) + value + b'\0' * (-len(value) % 4)
def message(kind, flags, body, serial):
    return struct.pack('=IHHII', 16 + len(body), kind, flags, serial, 0) + body
def ask(protocol, *messages):
    'ok, or the first error that the kernel answers'
    with socket.socket(16, socket.SOCK_RAW, protocol) as s:
        s.settimeout(5)
        s.bind((0, 0))
        s.sendto(b''.join(messages), (0, 0))
        while True:
            data = s.recv(65536)
            size, kind = struct.unpack_from('=IH', data)
            if kind in (2, 3):
                number = struct.unpack_from('=i', data, 16)[0]
                if number: raise OSError(-number, os.strerror(-number))
            return 'ok'
IP = bytes((2, 0, 0, 0))
BEGIN = message(0x10, 1, struct.pack('!BBH', 0, 0, 10), 1)
END = message(0x11, 1, struct.pack('!BBH', 0, 0, 10), 9)
TABLE = attribute(1, b'agentkernel\0')
index = socket.if_nametoindex('lo')
tries = {
    'read rules': lambda: ask(12, message(0xA07, 0x301, IP, 2)),
    'read counters': lambda: ask(12, message(0xA13, 0x301, IP, 2)),
    'read connections': lambda: ask(12, message(0x101, 0x301, IP, 2)),
    'make a table': lambda: ask(12, BEGIN,
        message(0xA00, 0x405, IP + attribute(1, b'x\0'), 2), END),
    'delete all rules': lambda: ask(12, BEGIN, message(0xA02, 5, IP, 2), END),
    'loopback up': lambda: ask(0, message(16, 5, struct.pack('=BBHiII', 0, 0, 0, index, 1, 1), 2)),
    'another address': lambda: ask(0, message(20, 0x405,
        struct.pack('=BBBBI', 2, 32, 0, 0, index) + attribute(2, bytes((10, 9, 9, 9))), 2)),
    'another route': lambda: ask(0, message(24, 0x405,
        struct.pack('=BBBBBBBBI', 2, 32, 0, 0, 254, 4, 253, 1, 0)
        + attribute(1, bytes((10, 9, 9, 8))) + attribute(4, struct.pack('=I', index)), 2)),
    'another interface': lambda: ask(0, message(16, 0x605,
        struct.pack('=BBHiII', 0, 0, 0, 0, 0, 0)
        + attribute(3, b'x0\0') + attribute(18, attribute(1, b'dummy\0')), 2)),
    'all ports': lambda: open('/proc/sys/net/ipv4/ip_unprivileged_port_start', 'w').write('0'),
    'longer timeouts': lambda: open('/proc/sys/net/netfilter/nf_conntrack_udp_timeout', 'w')
        .write('600'),
    'forwarding': lambda: open('/proc/sys/net/ipv4/ip_forward', 'w').write('1'),
    'raw': lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 255).close(),
    'packet': lambda: socket.socket(17, socket.SOCK_RAW, 0).close(),
    'transparent': lambda: socket.socket().setsockopt(0, 19, 1),
    'mark': lambda: socket.socket().setsockopt(1, 36, 1),
}
answer(results={name: attempt(work) for name, work in tries.items()})
"""


@pytest.fixture(scope="module")
async def exposed(box_kernel: Runs) -> AsyncIterator[Box]:
    """With a way out, without filter or read-only /proc, root with every capability."""
    change = {"network": NetworkSetup(), "capabilities": frozenset(CAPABILITIES)}
    async with box_without(
        box_kernel,
        "seccomp",
        "read-only",
        change=lambda made: msgspec.structs.replace(made, **change),
    ) as box:
        yield box


async def test_rules_are_out_of_reach(exposed: Box) -> None:
    async with gateway_of(exposed.sandbox) as gateway:
        results = (await exposed.probe(NETLINK))["results"]
        assert {name for name, result in results.items() if result == "ok"} == set()
        assert set(results.values()) <= {"EPERM", "EACCES", "EROFS", "EOPNOTSUPP"}
        dialled = await exposed.probe(
            "s = socket.create_connection(('198.51.100.1', 443), 5); s.send(b'x')\n"
            "answer(said=s.recv(99).decode())"
        )
        assert dialled["said"] == "198.51.100.1:443", "and they are still there"
        assert gateway.came == ["198.51.100.1:443"]


def test_who_owns_the_namespace_reaches_all_of_it() -> None:
    """Control. What a kernel has not, nobody can make."""
    results = in_private_namespaces(NETLINK, "--net")["results"]
    missing = {"another interface", "read connections", "longer timeouts"}
    assert {name for name, result in results.items() if result != "ok"} <= missing, results


async def test_nobody_inside_stands_in_the_gateways_place(exposed: Box) -> None:
    """While no gateway is there, least of all."""
    sockets = await exposed.sandbox.open_network()
    address = sockets.tcp.getsockname()
    sockets.close()
    source = """
def bind(kind, *options):
    with socket.socket(socket.AF_INET, kind) as s:
        for option in options: s.setsockopt(*option)
        s.bind(('127.0.0.1', V['port']))
reuse = [(1, 2, 1), (1, 15, 1)]
answer(results={
    'tcp': attempt(bind, socket.SOCK_STREAM, *reuse),
    'udp': attempt(bind, socket.SOCK_DGRAM, *reuse),
    'free': attempt(bind, socket.SOCK_STREAM, *reuse, (0, 15, 1)),
    'dial': attempt(socket.create_connection, ('198.51.100.1', 443), 5),
})
"""
    inside = await exposed.probe(source, port=address[1])
    assert inside["results"] == {
        "tcp": "EACCES",
        "udp": "EACCES",
        "free": "EACCES",
        "dial": "ECONNREFUSED",
    }
    other = await exposed.probe(
        "s = socket.socket(); answer(it=attempt(s.bind, ('127.0.0.1', V['port'])))",
        port=address[1] + 1,
    )
    assert other["it"] == "ok", "control: the next port is anybody's"
