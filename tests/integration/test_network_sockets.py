"""The way out as the host holds it: what a launch hands over, what is left when one fails, and how
much of the machine a guest can use up by it."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from agentkernel import faults
from agentkernel.backends.base import THROUGH_GATEWAY, Blueprint, Sandbox
from agentkernel.backends.local.diagnose import explain
from agentkernel.backends.local.idmaps import find_subids, is_host_root
from agentkernel.backends.local.launcher import LaunchFailure
from agentkernel.backends.local.network import Handover, open_rules
from agentkernel.backends.registry import Backends
from agentkernel.conformance.network import gateway_of, tried
from agentkernel.errors import HostError
from agentkernel.guest.binary import agentd_path
from agentkernel.guest.files import GuestFiles
from agentkernel.kernel.spec import SandboxSpec, expand
from agentkernel.network.guest_files.paths import BUNDLE
from agentkernel.network.policy.model import NetworkSetup

from ..unit.images.test_bundles import common_name, make_certificate, pem


def blueprint(setup: NetworkSetup | None = None, *, owned: bool = True) -> Blueprint:
    made = expand(SandboxSpec(ephemeral=owned), owned=owned)
    return msgspec.structs.replace(made, network=setup or NetworkSetup())


@pytest.fixture(scope="module")
def backends(state_dir: Path) -> Backends:
    return Backends(state_dir)


@pytest.fixture
async def sandbox(backends: Backends) -> AsyncIterator[Sandbox]:
    made = await backends["native"].create(blueprint())
    try:
        yield made
    finally:
        await made.destroy()


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Nothing that the test opens stays open."""
    before = open_descriptors()
    yield
    assert open_descriptors() == before


def open_descriptors() -> dict[str, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
    return {name: to for name, to in found.items() if not to.startswith("/proc")}


# -- descriptors ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("descriptors")
@pytest.mark.parametrize("point", ["launcher.spawned", "launch.launched", "launch.recorded"])
async def test_a_launch_that_fails_leaves_no_socket(backends: Backends, point: str) -> None:
    def fail() -> None:
        raise OSError(errno.EIO, "made to fail")

    made = blueprint()
    faults.arm(point, fail)
    try:
        with pytest.raises(HostError):
            await backends["native"].create(made)
    finally:
        assert faults.disarm() == []
    assert made.id not in os.listdir(backends["native"]._runs)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("descriptors")
async def test_sockets_that_nobody_took_go_with_the_sandbox(backends: Backends) -> None:
    made = await backends["native"].create(blueprint())
    assert await made.network_refusals() == dict.fromkeys(
        ("udp", "icmp", "other", "limit", "ipv6"), 0
    )
    await made.destroy()
    assert await made.network_refusals() == {}


async def test_no_process_inside_has_the_sockets(sandbox: Sandbox) -> None:
    """Whoever has the listening socket is asked by the kernel: the host alone."""
    async with gateway_of(sandbox) as gateway:
        ours = {
            os.readlink(f"/proc/self/fd/{sock.fileno()}")
            for sock in (gateway.sockets.tcp, gateway.sockets.names, gateway.sockets.rules)
        }
        assert len(ours) == 3
        answers = await tried(
            sandbox,
            "import glob, os\n"
            "def links():\n"
            "    found = []\n"
            "    for path in glob.glob('/proc/[0-9]*/fd/*'):\n"
            "        try: found.append(os.readlink(path))\n"
            "        except OSError: pass\n"
            "    return found\n"
            "go('links', links)\n",
        )
        assert answers["links"] and not ours & set(answers["links"])


async def test_sockets_are_held_once(sandbox: Sandbox) -> None:
    sockets = await sandbox.open_network()
    with pytest.raises(HostError, match="in use"):
        await sandbox.open_network()
    sockets.close()
    (await sandbox.open_network()).close()


_APART = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def unshare(flags):
    if libc.unshare(flags): raise OSError(ctypes.get_errno(), "unshare")
if sys.argv[1]:
    ids = os.getuid(), os.getgid()
    unshare(0x10000000)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {ids[0]} 1"),
                       ("gid_map", f"0 {ids[1]} 1")):
        with open(f"/proc/self/{name}", "w") as file: file.write(text)
unshare(0x10000000 | 0x40000000)
print(flush=True)
sys.stdin.read()
"""


async def test_only_a_namespace_that_the_host_made_is_entered() -> None:
    """In one that a guest made, a process of the host's would be at the guest's mercy."""
    for guests in (False, True):
        with subprocess.Popen(  # noqa: ASYNC220 (it starts at once)
            [sys.executable, "-c", _APART, "guest" if guests else ""],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as other:
            assert other.stdin and other.stdout and other.stdout.readline() == b"\n"
            try:
                rules = await open_rules(str(agentd_path()), other.pid)
                rules.close()
                assert not guests, "it was entered"
            except LaunchFailure as failure:
                assert guests, failure
                assert failure.stage == "network-enter"
            other.stdin.close()


@pytest.mark.usefixtures("descriptors")
def test_a_handover_takes_what_was_agreed_or_nothing() -> None:
    with socket.socket() as one:
        for sent, wanted in ((2, 3), (1, 2), (3, 1), (0, 1)):
            with Handover() as handover:
                if sent:
                    socket.send_fds(handover.launcher, [b"n"], [one.fileno()] * sent)
                with pytest.raises(LaunchFailure):
                    handover.receive(wanted)
        with Handover() as handover:
            socket.send_fds(handover.launcher, [b"n"], [one.fileno()])
            handover.receive(1)[0].close()
        with Handover() as handover:
            socket.send_fds(handover.launcher, [b"n"], [one.fileno()])  # never taken


# -- a kernel that can't -------------------------------------------------------------------------

# Makes every socket of NETLINK_NETFILTER fail as on a kernel without nfnetlink.
_WITHOUT = """
import asyncio, ctypes, os, struct, sys
from pathlib import Path
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
NR = {"x86_64": 41, "aarch64": 198}[os.uname().machine]
code = b"".join(struct.pack("HBBI", *line) for line in (
    (LOAD, 0, 0, 0), (EQUAL, 0, 5, NR),
    (LOAD, 0, 0, 16), (EQUAL, 0, 3, 16),
    (LOAD, 0, 0, 32), (EQUAL, 0, 1, 12),
    (RETURN, 0, 0, 0x00050000 | 93),
    (RETURN, 0, 0, 0x7fff0000)))
buffer = ctypes.create_string_buffer(code)
program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
if os.getuid():
    assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0) == 0, ctypes.get_errno()

import msgspec
from agentkernel.backends.base import Blueprint
from agentkernel.backends.registry import Backends
from agentkernel.errors import AgentKernelError

async def main():
    backend = Backends(Path(sys.argv[1]))["native"]
    made = msgspec.json.decode(sys.argv[2], type=Blueprint)
    try:
        await backend.create(made)
    except AgentKernelError as exc:
        print(exc.code, exc.message, exc.hint, sep="|")
    without = await backend.create(msgspec.structs.replace(made, network=None))
    await without.destroy()
    print(made.id in os.listdir(Path(sys.argv[1]) / "runs"))
asyncio.run(main())
"""


def test_without_nf_tables_there_is_no_network(state_dir: Path) -> None:
    if not is_host_root() and find_subids():
        pytest.skip("newuidmap does not run under a filter that a normal user has set")
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT, state_dir, msgspec.json.encode(blueprint())],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    refused, left = done.stdout.strip().splitlines()
    code, message, hint = refused.split("|")
    assert code == "network_unavailable"
    assert "the kernel has no nf_tables" in message
    assert "--network none" in hint
    assert left == "False", "control: the same without a network is made, and nothing is left"


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("network-rules", "no nf_tables"),
        ("network-enter", "can't be entered"),
        ("network-sockets", "sockets tcp"),
        ("network-route", "route tcp"),
    ],
)
def test_each_stage_has_its_words(stage: str, words: str) -> None:
    error = explain(LaunchFailure(stage, errno.EINVAL, "tcp"), as_root=False, upper=None)
    assert isinstance(error, HostError)
    assert words in error.message and error.hint


# -- how much ------------------------------------------------------------------------------------


async def test_floods_are_bounded(sandbox: Sandbox) -> None:
    """Flows inside are not tracked; of those to the gateway, as many as the rate allows."""
    flood = (
        "def tracked(): return int(open('/proc/sys/net/netfilter/nf_conntrack_count').read())\n"
        "def inside():\n"
        "    before = tracked()\n"
        "    with socket.socket() as s:\n"
        "        s.bind(('127.0.0.1', 0)); s.listen(300)\n"
        "        for host in ['127.0.0.1'] * 200:\n"
        "            socket.create_connection((host, s.getsockname()[1])).close()\n"
        "    return tracked() - before\n"
        "def outside(count):\n"
        "    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:\n"
        "        for n in range(count):\n"
        "            try: s.sendto(b'x', (f'198.18.{n >> 8 & 255}.{n & 255}', 53))\n"
        "            except OSError: pass\n"
        "    return tracked()\n"
        "go('inside', inside)\n"
        "go('few', lambda: outside(50))\n"
        "go('many', lambda: outside(20000))\n"
    )
    async with gateway_of(sandbox):
        answers = await tried(sandbox, flood)
        if isinstance(answers["inside"], str):
            pytest.skip(f"this kernel does not tell what it tracks: {answers['inside']}")
        assert answers["inside"] == 0
        assert answers["few"] >= 50, "control: what goes out is tracked"
        counted = await sandbox.network_refusals()
        assert counted["limit"] > 0
        # The rate, the burst, and what was there: far below what was sent.
        assert answers["many"] <= 20000 - counted["limit"] + 60
        # TCP that was dropped meanwhile tries again by itself.
        script = "go('later', tcp('198.51.100.1', 443))\n"
        assert (await tried(sandbox, script))["later"] == "198.51.100.1:443"


# -- what is inside ------------------------------------------------------------------------------


MACHINES_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
HAS_BUNDLE = MACHINES_BUNDLE.exists()
HAS_STORE = Path("/etc/ssl/certs/java/cacerts").exists()


async def test_the_authority_is_trusted_inside(backends: Backends) -> None:
    authority = make_certificate(common_name("test authority"))
    setup = NetworkSetup(
        files={"/etc/pip.conf": "[global]\n"},
        environment={"A": "of the network", "SSL_CERT_FILE": BUNDLE},
        authority=pem(authority),
    )
    sandbox = await backends["native"].create(blueprint(setup))
    try:
        assert sandbox.environment["A"] == "of the network"
        lines = {line.what: line.value for line in sandbox.effective}
        assert lines["network"] == THROUGH_GATEWAY
        trusts = (
            "import os, ssl\n"
            "def names():\n"
            "    found = ssl.create_default_context().get_ca_certs()\n"
            "    return [len(found), sum('test authority' in str(c) for c in found)]\n"
            "go('by variable', names)\n"
            "del os.environ['SSL_CERT_FILE']\n"
        )
        if HAS_BUNDLE:
            trusts += (
                "def bundle(path):\n"
                "    found = ssl.create_default_context(cafile=path).get_ca_certs()\n"
                "    return 'test authority' in str(found)\n"
                f"go('bundle', lambda: bundle({str(MACHINES_BUNDLE)!r}))\n"
            )
        answers = await tried(sandbox, trusts)
        count, ours = answers.pop("by variable")
        assert ours == 1
        assert count > 1 or not HAS_BUNDLE, "the machine's own are still there"
        assert all(answers.values())
        files = GuestFiles(sandbox.channel, user="0")
        assert await files.read("/etc/pip.conf") == b"[global]\n"
        if HAS_STORE:
            store = await files.read("/etc/ssl/certs/java/cacerts")
            assert authority.public_bytes(Encoding.DER) in store
        # A package manager puts its own in place, and may.
        await files.write(BUNDLE, b"another\n")
        assert await files.read(BUNDLE) == b"another\n"
    finally:
        await sandbox.destroy()


async def test_many_at_once(backends: Backends) -> None:
    """Each has its own namespace, rules and sockets, whatever the others do."""
    made = await asyncio.gather(*(backends["native"].create(blueprint()) for _ in range(4)))
    try:
        for number, sandbox in enumerate(made):
            async with gateway_of(sandbox) as gateway:
                script = f"go('tcp', tcp('198.51.100.{number}', 443))\n"
                assert (await tried(sandbox, script))["tcp"] == f"198.51.100.{number}:443"
                assert gateway.came == [f"198.51.100.{number}:443"]
    finally:
        await asyncio.gather(*(sandbox.destroy() for sandbox in made))
