"""The gateway and the daemon at their worst: killed, flooded, starved. Never open, never for long.

Each test has a daemon of its own, which it may treat as it likes.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from .world.boxes import Box, WorldDaemon, eventually
from .world.everything import World
from .world.processes import alive, descriptors, gateway_pid, resident

LOAD = """
done = {'good': 0, 'good failed': 0, 'evil': 0, 'evil failed': 0}
stop = time.monotonic() + V['seconds']
def load(name, word):
    while time.monotonic() < stop and not os.path.exists('/tmp/stop'):
        try:
            with connect(name, V['port']) as s:
                s.sendall(raw('<' + word + '>'))
                if s.recv(100): done[word] += 1
                else: done[word + ' failed'] += 1
        except OSError:
            done[word + ' failed'] += 1
            time.sleep(0.01)
        open('/tmp/progress', 'w').write(json.dumps(done))
LIMIT = 5
threads = [threading.Thread(target=load, args=(n, w)) for n, w in
           (('good.test', 'good'), ('good.test', 'good'), ('evil.test', 'evil'))]
for t in threads: t.start()
for t in threads: t.join()
answer(**done)
"""


# It is not dumpable, so its own user does not see into it either.
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root sees the gateway's descriptors")


@pytest.fixture(scope="module")
def own(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorldDaemon]:
    daemon = WorldDaemon(tmp_path_factory.mktemp("faulty"), world)
    daemon.start()
    yield daemon
    if not daemon.alive():
        daemon.start()
    daemon.remove_all()
    assert daemon.terminate() == 0
    state = daemon.state_dir
    eventually(lambda: gateway_pid(state) is None, 30)
    daemon.close()


@pytest.fixture
def victim(own: WorldDaemon, world: World) -> Iterator[Box]:
    if not own.alive():
        own.start()
    ports = [world.recorder.port, world.plain.port, world.tls.port]
    rules = [
        {"host": "good.test", "ports": ports},
        {"host": "other.test", "ports": ports, "methods": ["GET"]},
    ]
    box = own.box(network={"presets": [], "rules": rules}, ephemeral=False)
    yield box
    if not own.alive():
        own.start()
    box.remove()


class Loaded:
    """A probe that runs beside the test."""

    def __init__(self, box: Box, source: str, **given: Any) -> None:
        self.result: dict[str, Any] = {}
        self.box = box
        self._thread = threading.Thread(
            target=lambda: self.result.update(box.probe(source, **given))
        )
        self._thread.start()

    def progress(self) -> dict[str, int]:
        text = self.box.shell("cat /tmp/progress 2> /dev/null || true")["stdout"]
        try:
            found = json.loads(text)
        except ValueError:
            return {"good": 0, "evil failed": 0}
        assert isinstance(found, dict)
        return found

    def end(self) -> dict[str, Any]:
        self.box.shell("touch /tmp/stop")
        self._thread.join(30)
        assert self.result, "it never ended"
        return self.result


def _gateway(daemon: WorldDaemon) -> int:
    pid = eventually(lambda: gateway_pid(daemon.state_dir))
    assert isinstance(pid, int)
    return pid


def test_a_killed_gateway_lets_nothing_past_and_comes_back(
    own: WorldDaemon, victim: Box, world: World
) -> None:
    visits = world.recorder.mark()
    load = Loaded(victim, LOAD, port=world.recorder.port, seconds=40)
    seen = {0}
    for _ in range(4):
        before = load.progress()["good"]
        eventually(lambda before=before: load.progress()["good"] > before + 5, 30)
        pid = _gateway(own)
        assert pid not in seen, "it is another one"
        seen.add(pid)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda pid=pid: not alive(pid))
    before = load.progress()["good"]
    eventually(lambda: load.progress()["good"] > before + 5, 30)
    done = load.end()
    assert done["evil"] == 0 and done["evil failed"] > 0
    words = {bytes(visit.received) for visit in visits()}
    assert words <= {b"<good>", b""}, words
    assert not [e for e in victim.events() if e["kind"] == "network.allow" and "evil" in e["host"]]
    assert victim.event("network.fault")["reason"]


def test_open_connections_end_with_the_gateway(own: WorldDaemon, victim: Box, world: World) -> None:
    hold = Loaded(
        victim,
        """
with connect('good.test', V['port']) as s:
    s.sendall(b'<held>')
    s.recv(100)
    open('/tmp/progress', 'w').write('{"good": 1}')
    answer(**finish(s, []))
""",
        port=world.recorder.port,
    )
    eventually(lambda: hold.progress()["good"])
    os.kill(_gateway(own), signal.SIGKILL)
    assert hold.end()["end"] in ("eof", "ECONNRESET")


def test_flows_go_on_without_the_daemon(own: WorldDaemon, victim: Box, world: World) -> None:
    """An open connection, new ones, denials; then a daemon that comes back knows of them."""
    source = """
s = connect('good.test', V['port'])
s.sendall(b'<one>')
print(json.dumps({'first': s.recv(100).decode()}), flush=True)
while not os.path.exists('/tmp/go'): time.sleep(0.02)
s.sendall(b'two')
second = s.recv(100).decode()
new = talk('good.test', V['port'], '<three>', until='<three>')['got']
evil = talk('evil.test', V['port'], '<four>')['got']
open('/tmp/told.part', 'w').write(json.dumps({'second': second, 'new': new, 'evil': evil}))
os.rename('/tmp/told.part', '/tmp/told')
"""
    from .world.guest import script, values

    visits = world.recorder.mark()
    status, job = own.request(
        "POST",
        f"/v1/sandboxes/{victim.id}/jobs",
        {"argv": [victim.python, "-I", "-c", script(source)], "stdin": True},
    )
    assert status == 201, job
    frames = own.stream(f"/v1/jobs/{job['id']}/attach")
    frames.event("started")
    frames.send(values({"port": world.recorder.port}).encode())
    frames.control(eof=True)
    frames.until(b"first")
    gateway = _gateway(own)
    # What a daemon would do for the guest while it is away has to be set off before.
    victim.shell("(sleep 0.5; touch /tmp/go) > /dev/null 2>&1 &")
    own.kill()
    frames.vanish()
    eventually(lambda: len(visits()) >= 2 and bytes(visits()[-1].received) == b"<three>", 20)
    assert alive(gateway)
    own.start()
    assert _gateway(own) == gateway, "the same process goes on"
    told = json.loads(
        victim.shell("while ! [ -e /tmp/told ]; do sleep 0.02; done; cat /tmp/told")["stdout"]
    )
    assert told == {"second": "two", "new": "<three>", "evil": ""}
    assert [bytes(visit.received) for visit in visits()] == [b"<one>two", b"<three>"]
    found = victim.try_all(
        "{'it': lambda: talk('good.test', V['port'], '<x>', until='<x>')}", port=world.recorder.port
    )
    assert found["it"]["got"] == "<x>"


def test_without_both_there_is_no_network_until_one_comes(
    own: WorldDaemon, victim: Box, world: World
) -> None:
    cases = "{'it': lambda: talk('good.test', V['port'], '<x>', until='<x>')}"
    assert victim.try_all(cases, port=world.recorder.port)["it"]["got"] == "<x>", "control"
    gateway = _gateway(own)
    own.kill()
    visits = world.recorder.mark()
    os.kill(gateway, signal.SIGKILL)
    eventually(lambda: not alive(gateway))
    own.start()
    assert gateway_pid(own.state_dir) != gateway
    assert not visits()
    assert victim.try_all(cases, port=world.recorder.port)["it"]["got"] == "<x>"
    denied = victim.try_all(
        "{'it': lambda: talk('evil.test', V['port'], '<x>', until='<x>')}", port=world.recorder.port
    )
    assert denied["it"]["got"] == ""


def test_no_guest_can_take_the_listeners_place(own: WorldDaemon, victim: Box, world: World) -> None:
    """While neither the daemon nor the gateway lives nobody listens where connections are led to;
    who could listen there would be asked for every name. Port 1 is not a guest's to have."""
    from .world.guest import script, values

    source = """
seats = 0
while not os.path.exists('/tmp/leave'):
    for kind, address in ((k, a) for k in (socket.SOCK_STREAM, socket.SOCK_DGRAM)
                          for a in ('127.0.0.1', '0.0.0.0', '10.0.2.15')):
        with socket.socket(socket.AF_INET, kind) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            try:
                s.bind((address, 1))
                seats += 1
            except OSError: pass
    open('/tmp/part', 'w').write(str(seats))
    os.rename('/tmp/part', '/tmp/seats')
with socket.create_server(('127.0.0.1', 80)): open('/tmp/control', 'w').write('80')
"""
    quick = "{'it': lambda: talk('good.test', V['port'], '<x>', until='<x>')}"
    assert victim.try_all(quick, port=world.recorder.port)["it"]["got"] == "<x>", "control"
    status, job = own.request(
        "POST",
        f"/v1/sandboxes/{victim.id}/jobs",
        {"argv": [victim.python, "-I", "-c", script(source)], "stdin": True},
    )
    assert status == 201, job
    frames = own.stream(f"/v1/jobs/{job['id']}/attach")
    frames.event("started")
    frames.send(values({}).encode())
    frames.control(eof=True)
    victim.shell("while ! [ -e /tmp/seats ]; do sleep 0.02; done")
    gateway = _gateway(own)
    own.kill()
    frames.vanish()
    os.kill(gateway, signal.SIGKILL)
    eventually(lambda: not alive(gateway))
    own.start()
    assert victim.try_all(quick, port=world.recorder.port)["it"]["got"] == "<x>"
    said = victim.shell(
        "touch /tmp/leave; while ! [ -e /tmp/control ]; do sleep 0.02; done; "
        "cat /tmp/seats; echo; cat /tmp/control"
    )["stdout"]
    assert said.split() == ["0", "80"], "control: another low port it may have"


@needs_root
def test_many_connections_are_bounded_and_leave_nothing(
    own: WorldDaemon, victim: Box, world: World
) -> None:
    """2,000 at once, of which as many are served as the caps say; another sandbox is not hurt; in
    the end the gateway has what it had."""
    quick = "{'it': lambda: talk('good.test', V['port'], '<x>', until='<x>')}"
    other = own.box(
        network={"presets": [], "rules": [{"host": "good.test", "ports": [world.recorder.port]}]}
    )
    try:
        assert victim.try_all(quick, port=world.recorder.port)["it"]["got"] == "<x>"
        assert other.try_all(quick, port=world.recorder.port)["it"]["got"] == "<x>"
        gateway = _gateway(own)
        before, memory = _settled(gateway), resident(gateway)
        hold = Loaded(
            victim,
            """
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
address = lookup('good.test')[0]
held, failed = [], 0
for number in range(2000):
    s = socket.socket()
    s.setblocking(False)
    try: s.connect((address, V['port']))
    except BlockingIOError: pass
    except OSError: failed += 1
    held.append(s)
open('/tmp/progress', 'w').write('{"good": 1}')
while not os.path.exists('/tmp/stop'): time.sleep(0.05)
for s in held: s.close()
answer(failed=failed)
""",
            port=world.recorder.port,
        )
        eventually(lambda: hold.progress()["good"], 30)
        found = other.try_all(quick, port=world.recorder.port)["it"]
        assert found["got"] == "<x>", "another sandbox has its own share"
        # Two descriptors a connection, and what one needs while it begins.
        assert descriptors(gateway) - before <= 256 * 3
        assert resident(gateway) - memory < 64 << 20
        hold.end()
        eventually(lambda: descriptors(gateway) <= before + 4, 30)
        assert victim.event("network.limit")
        again = eventually(
            lambda: victim.try_all(quick, port=world.recorder.port)["it"]["got"] == "<x>", 20
        )
        assert again, "and it has its own back"
        assert alive(gateway) and _gateway(own) == gateway
    finally:
        other.remove()


@needs_root
def test_slow_and_half_closed_connections(own: WorldDaemon, victim: Box, world: World) -> None:
    """One byte now and then, nothing at all, one side closed, the other gone: others are served
    meanwhile, and every descriptor comes back."""
    quick = "{'it': lambda: talk('good.test', V['port'], '<x>', until='<x>')}"
    assert victim.try_all(quick, port=world.recorder.port)["it"]["got"] == "<x>"
    gateway = _gateway(own)
    before = _settled(gateway)
    hold = Loaded(
        victim,
        """
slow = []
def add(host, port, data):
    s = connect(host, port)
    s.sendall(raw(data))
    slow.append(s)
for _ in range(15):
    add('good.test', V['tls'], records(hello('good.test'))[:20])
    add('good.test', V['plain'], 'GET / HTTP/1.1\\r\\nHost: good')
    add('good.test', V['plain'], '')
    add('good.test', V['port'], '')
    add(*PROXY, 'CONNECT good.te')
    add(*SOCKS, '\\5')
    add('evil.test', V['plain'], '')
    add('other.test', V['tls'], records(hello('other.test')))
    add('other.test', V['plain'], ported(get('other.test'), V['plain'])[:-2]
        + b'Content-Length: 9\\r\\n\\r\\nx')
    s = connect('good.test', V['port'])
    s.sendall(b'<half>')
    s.recv(10)
    s.shutdown(socket.SHUT_WR)
    slow.append(s)
for _ in range(15):
    add('good.test', V['port'], '<reset me>')
    slow[-1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    slow.pop().close()
open('/tmp/progress', 'w').write('{"good": 1}')
while not os.path.exists('/tmp/stop'):
    for s in slow:
        try: s.send(b'x')
        except OSError: pass
    time.sleep(0.2)
for s in slow: s.close()
answer(slow=len(slow))
""",
        port=world.recorder.port,
        tls=world.tls.port,
        plain=world.plain.port,
    )
    eventually(lambda: hold.progress()["good"], 30)
    for _ in range(3):
        assert victim.try_all(quick, port=world.recorder.port)["it"]["got"] == "<x>"
    hold.end()
    eventually(lambda: descriptors(gateway) <= before + 2, 30)
    assert victim.network()["traffic"]["flows"] == 0


@needs_root
def test_what_a_removed_sandbox_had_open_is_closed(own: WorldDaemon, world: World) -> None:
    """Jobs and connections of a sandbox that goes, go; nothing of it stays in the gateway."""
    from .world.guest import script, values

    rules = [{"host": "good.test", "ports": [world.recorder.port, world.tls.port]}]
    stays = own.box(network={"presets": [], "rules": rules})
    goes = own.box(network={"presets": [], "rules": rules})
    try:
        quick = "{'it': lambda: talk('good.test', V['port'], '<x>', until='<x>')}"
        assert stays.try_all(quick, port=world.recorder.port)["it"]["got"] == "<x>"
        gateway = _gateway(own)
        before, visits = _settled(gateway), world.recorder.mark()
        source = """
held = [connect('good.test', V['port']) for _ in range(20)]
for s in held: s.sendall(b'<held>')
time.sleep(60)
"""
        status, job = own.request(
            "POST",
            f"/v1/sandboxes/{goes.id}/jobs",
            {"argv": [goes.python, "-I", "-c", script(source)], "stdin": True},
        )
        assert status == 201, job
        frames = own.stream(f"/v1/jobs/{job['id']}/attach")
        frames.event("started")
        frames.send(values({"port": world.recorder.port}).encode())
        frames.control(eof=True)
        eventually(lambda: len([visit for visit in visits() if visit.received]) == 20)
        assert descriptors(gateway) >= before + 40
        frames.vanish()
        goes.remove()
        eventually(lambda: not [visit for visit in visits() if visit.open])
        eventually(lambda: descriptors(gateway) <= before)
        assert stays.try_all(quick, port=world.recorder.port)["it"]["got"] == "<x>"
    finally:
        goes.remove()
        stays.remove()


def test_half_closed_connections_carry_on(victim: Box, world: World) -> None:
    """Control: who has said all still hears the answer."""
    found = victim.probe(
        """
with connect('good.test', V['port']) as s:
    s.sendall(b'<all of it>')
    s.shutdown(socket.SHUT_WR)
    answer(got=drain(s).decode())""",
        port=world.recorder.port,
    )
    assert found["got"] == "<all of it>"


def test_a_flood_of_denials_does_not_grow_the_log_or_the_gateway(
    own: WorldDaemon, victim: Box, world: World
) -> None:
    victim.try_all("{'it': lambda: talk('evil.test', 1, '<x>')}")
    gateway = _gateway(own)
    memory, events = resident(gateway), len(victim.events())
    found = victim.probe(
        """
count = 0
until = time.monotonic() + 2
while time.monotonic() < until:
    talk('evil.test', V['port'], '<x>')
    dns(question(f'x{count % 50}.evil.test'))
    count += 1
answer(count=count)""",
        port=world.recorder.port,
    )
    assert found["count"] > 20
    assert resident(gateway) - memory < 32 << 20
    assert len(victim.events()) - events < 1000
    assert victim.event("network.deny", host="evil.test", port=world.recorder.port)


def _settled(pid: int) -> int:
    """The descriptors of a process once nothing of what went before is under way."""
    last = [descriptors(pid)]

    def same() -> bool:
        last.append(descriptors(pid))
        return len(last) > 10 and len(set(last[-10:])) == 1

    eventually(same, 20)
    return last[-1]
