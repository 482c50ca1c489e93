"""A sandbox has a loopback of its own and nothing else: no host, no net, no neighbour.

Controls: the planted listeners answer the same code outside; interfaces and addresses can be made
by the same code in a private network namespace that its user namespace owns.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from agentkernel.kernel.runs import Runs

from .attacks import CONNECT, INET, INET6, planted_addresses
from .conftest import Planted
from .controls import box_without, with_capabilities
from .probes import Box, end, host_text, in_private_namespaces, outside, start


@pytest.mark.parametrize("profile", ["moderate", "permissive", "restrictive"])
async def test_host_listeners_are_out_of_reach(
    boxes: dict[str, Box], planted: Planted, profile: str
) -> None:
    results = (await boxes[profile].probe(CONNECT, to=planted_addresses(planted)))["results"]
    assert {label for label, (result, _) in results.items() if result == "ok"} == set()
    assert {result for result, _ in results.values()} <= {"ECONNREFUSED", "ENOENT"}


def test_host_listeners_answer_outside(planted: Planted) -> None:
    """Control: the same code outside connects to every one of them."""
    results = outside(CONNECT, to=planted_addresses(planted))["results"]
    assert {result for result, _ in results.values()} == {"ok"}


async def test_unix_sockets_of_the_host_are_not_listed(box: Box, planted: Planted) -> None:
    inside = await box.probe("answer(unix=text('/proc/net/unix'), tcp=text('/proc/net/tcp'))")
    assert planted.abstract not in inside["unix"]
    assert len(inside["tcp"].splitlines()) == 1
    assert planted.abstract in host_text("/proc/net/unix"), "control"


def _host_addresses() -> list[str]:
    """Addresses this machine has besides loopback, as the kernel would use them."""
    found = []
    for target in ("192.0.2.1", "2001:db8::1"):
        family = socket.AF_INET6 if ":" in target else socket.AF_INET
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            found.append(probe.getsockname()[0])
    return found


async def test_the_net_is_unreachable_at_once(boxes: dict[str, Box]) -> None:
    """Metadata services, resolvers, private networks, the host's own addresses; TCP, UDP, IPv6."""
    to: dict[str, list[object]] = {
        "metadata": [INET, ["169.254.169.254", 80]],
        "metadata by container": [INET, ["169.254.170.2", 80]],
        "metadata 6": [INET6, ["fd00:ec2::254", 80, 0, 0]],
        "mapped": [INET6, ["::ffff:169.254.169.254", 80, 0, 0]],
        "link-local 6": [INET6, ["fe80::1", 80, 0, 1]],
        "resolver": [INET, ["8.8.8.8", 53]],
        "resolver udp": [INET, ["8.8.8.8", 53], 2],
        "quic": [INET, ["1.1.1.1", 443], 2],
        "resolver 6": [INET6, ["2001:4860:4860::8888", 53, 0, 0]],
        "ten": [INET, ["10.0.0.1", 80]],
        "docker": [INET, ["172.17.0.1", 2375]],
        "home": [INET, ["192.168.1.1", 80]],
        "multicast": [INET, ["224.0.0.251", 5353], 2],
        "broadcast": [INET, ["255.255.255.255", 9], 2],
    }
    for address in _host_addresses():
        family = INET6 if ":" in address else INET
        to[f"host {address}"] = [family, [address, 22]]
    for profile, box in boxes.items():
        results = (await box.probe(CONNECT, to=to))["results"]
        reached = {k: v for k, v in results.items() if v[0] in ("ok", "timeout")}
        assert reached == {}, profile
        slow = {k: v for k, v in results.items() if v[1] > 1.0}
        assert slow == {}, "unreachable, but not at once"


async def test_names_do_not_resolve(box: Box) -> None:
    source = """
import threading
def look(name):
    try: return [a[4][0] for a in socket.getaddrinfo(name, 80)]
    except OSError as e: return []
begin = time.monotonic()
answer(names={n: look(n) for n in V['names']}, seconds=time.monotonic() - begin)
"""
    inside = await box.probe(source, names=["example.com", "metadata.google.internal", "localhost"])
    assert inside["names"].pop("localhost"), "control: what is in /etc/hosts does"
    assert set(map(tuple, inside["names"].values())) == {()}
    assert inside["seconds"] < 2


async def test_only_loopback_exists(boxes: dict[str, Box]) -> None:
    source = """
answer(names=[n for _, n in socket.if_nameindex()], dev=text('/proc/net/dev').splitlines()[2:],
       routes=text('/proc/net/route').splitlines()[1:],
       addresses=[l.split()[0] for l in text('/proc/net/if_inet6').splitlines()])
"""
    for profile, box in boxes.items():
        if profile == "restrictive":
            source = source.replace("[n for _, n in socket.if_nameindex()]", "['lo']")
        inside = await box.probe(source)
        assert inside["names"] == ["lo"], profile
        assert [line.split(":")[0].strip() for line in inside["dev"]] == ["lo"]
        assert inside["routes"] == []
        assert set(inside["addresses"]) <= {"0" * 31 + "1"}


# -- changing the network -----------------------------------------------------------------------

RECONFIGURE = """
import fcntl
def ask(kind, flags, body):
    'one rtnetlink request, the errno of its acknowledgement'
    try: s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    except OSError as e: return name_of(e.errno)
    with s:
        s.settimeout(3)
        s.sendto(struct.pack('=IHHII', 16 + len(body), kind, flags | 5, 1, 0) + body, (0, 0))
        answer = s.recv(65536)
        number = struct.unpack_from('=i', answer, 16)[0]
        return name_of(-number)
def attribute(kind, data):
    return struct.pack('=HH', 4 + len(data), kind) + data + b'\\0' * (-len(data) % 4)
RTM_NEWLINK, RTM_NEWADDR, RTM_NEWROUTE, CREATE = 16, 20, 24, 0x400
link = struct.pack('=BxHiII', 0, 0, 0, 0, 0)
info = lambda name: attribute(18, attribute(1, name))
lo = socket.if_nametoindex('lo') if V['index'] else 1
address = bytes([10, 9, 8, 7])
def ioctl(request, data):
    with socket.socket() as s: fcntl.ioctl(s, request, data)
down = struct.pack('16sh14x', b'lo', 0)
results = {
    'address': ask(RTM_NEWADDR, CREATE, struct.pack('=BBBBi', 2, 32, 0, 0, lo)
                   + attribute(2, address) + attribute(1, address)),
    'route': ask(RTM_NEWROUTE, CREATE, struct.pack('=BBBBBBBBI', 2, 0, 0, 0, 254, 3, 253, 1, 0)
                 + attribute(4, struct.pack('=i', lo))),
    'dummy': ask(RTM_NEWLINK, CREATE, link + attribute(3, b'd0\\0') + info(b'dummy\\0')),
    'veth': ask(RTM_NEWLINK, CREATE, link + info(b'veth\\0')),
    'bridge': ask(RTM_NEWLINK, CREATE, link + attribute(3, b'b0\\0') + info(b'bridge\\0')),
    'lo down': attempt(ioctl, 0x8914, down),
}
answer(results=results)
"""


async def test_the_network_cannot_be_changed(boxes: dict[str, Box]) -> None:
    for profile, box in boxes.items():
        results = (await box.probe(RECONFIGURE, index=profile != "restrictive"))["results"]
        assert "ok" not in results.values(), (profile, results)
        assert results["address"] in ("EPERM", "EAFNOSUPPORT")


async def test_capabilities_over_the_network_mean_nothing(box_kernel: Runs) -> None:
    """The network namespace belongs to a user namespace above the guest's: even CAP_NET_ADMIN and
    CAP_NET_RAW inside are none over it."""
    raw = """
def raw(kind, protocol):
    with socket.socket(socket.AF_INET, kind, protocol): pass
answer(raw=attempt(raw, socket.SOCK_RAW, socket.IPPROTO_ICMP),
       packet=err('socket', 17, 3, 0x300))
"""
    change = with_capabilities("CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SYS_ADMIN")
    async with box_without(box_kernel, "seccomp", change=change) as box:
        results = (await box.probe(RECONFIGURE, index=True))["results"]
        assert "ok" not in results.values(), results
        assert set((await box.probe(raw)).values()) == {"EPERM"}
    control = in_private_namespaces(raw, "--net")
    assert control["raw"] == "ok", "control: root of the owning namespace has raw sockets"


def test_a_private_network_can_be_changed() -> None:
    """Control: whoever owns a network namespace does all of it with the same requests."""
    results = in_private_namespaces(RECONFIGURE, "--net", index=True)["results"]
    # Drivers may be missing from a kernel; addresses and flags never are.
    assert results["address"] == results["lo down"] == "ok", results


async def test_raw_sockets_and_ping(boxes: dict[str, Box]) -> None:
    source = """
def make(*a):
    with socket.socket(*a): pass
I, R, D = socket.AF_INET, socket.SOCK_RAW, socket.SOCK_DGRAM
def ping():
    with socket.socket(I, D, socket.IPPROTO_ICMP) as s:
        s.sendto(b'\\x08\\0\\0\\0\\0\\0\\0\\0', ('8.8.8.8', 0))
answer(raw=[attempt(make, I, R, p) for p in (1, 6, 17, 255)],
       raw6=attempt(make, socket.AF_INET6, R, 58), ping=attempt(ping))
"""
    for profile, box in boxes.items():
        inside = await box.probe(source)
        everything = [*inside["raw"], inside["raw6"], inside["ping"]]
        assert "ok" not in everything, (profile, inside)


# -- serving ------------------------------------------------------------------------------------

SERVE = """
server = socket.create_server((V['host'], V['port']))
server.settimeout(20)
print('ready', flush=True)
try:
    while True:
        peer, _ = server.accept()
        peer.sendall(V['banner'].encode())
        peer.close()
except TimeoutError: pass
"""


def _read_banner(port: int) -> bytes:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as peer:
            return peer.recv(100)
    except OSError:
        return b""


@contextlib.contextmanager
def _host_banner(text: bytes) -> Iterator[int]:
    """Control listener of the host's, on a port of its own."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with contextlib.suppress(OSError):
                peer, _ = server.accept()
                peer.sendall(text)
                peer.close()

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(2)


async def test_ports_inside_stay_inside(box_kernel: Runs, other: Box) -> None:
    """Port 80 can be bound; neither the host nor another sandbox reaches it."""
    banner = f"inside-{time.time_ns()}"
    async with box_without(box_kernel) as box:
        process, said = await start(box, SERVE, host="0.0.0.0", port=80, banner=banner)
        assert said == b"ready\n"
        fetch = (
            "s = socket.create_connection(('127.0.0.1', 80), 3); answer(got=s.recv(100).decode())"
        )
        assert (await box.probe(fetch))["got"] == banner, "control: inside it answers"
        seen = await asyncio.to_thread(_read_banner, 80)
        assert banner.encode() not in seen
        neighbour = await other.probe(CONNECT, to={"80": [INET, ["127.0.0.1", 80]]})
        assert neighbour["results"]["80"][0] == "ECONNREFUSED"
        await end(process)
    with _host_banner(b"outside") as port:
        assert await asyncio.to_thread(_read_banner, port) == b"outside", "control"
