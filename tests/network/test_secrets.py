"""A secret that a sandbox may use: it arrives where it is bound to, and is found nowhere else."""

from __future__ import annotations

import base64
import gzip
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .world.boxes import Box, WorldDaemon, eventually
from .world.everything import World
from .world.processes import gateway_pid, memory, pids_of, read_only_mounts, resident
from .world.scanning import Scanner
from .world.web import REFLECTIONS, Answer, Request

NAME = "WORLD_KEY"
BEARER = "'Authorization: Bearer ' + os.environ['WORLD_KEY'] + '\\r\\n'"
ASK = """
key = os.environ['WORLD_KEY']
def ask(path='/', headers='', host='secret.test', method='GET', body='', said=None):
    return tls(host, V['tls'], host, get(said or host, path, method, headers, body), verify=True)
bearer = 'Authorization: Bearer ' + key + '\\r\\n'
"""


def _value() -> str:
    # With characters that an address or a form would escape.
    return f"wk+{secrets.token_urlsafe(24)}/=={secrets.token_hex(8)}"


def _set(daemon: WorldDaemon, name: str, value: str, verb: str = "set") -> None:
    done = daemon.cli("secret", verb, name, stdin=value)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def value(daemon: WorldDaemon) -> str:
    value = _value()
    _set(daemon, NAME, value)
    return value


@pytest.fixture(scope="module")
def scanner(value: str) -> Scanner:
    return Scanner(value.encode())


@pytest.fixture(scope="module")
def keyed(daemon: WorldDaemon, world: World, value: str) -> Iterator[Box]:
    web = [world.plain.port, world.tls.port]
    rules = [
        {"host": "secret.test", "ports": web},
        {"host": "good.test", "ports": web},
        {"host": "other.test", "ports": web, "methods": ["GET", "POST"]},
        {"host": "expired.test", "ports": web},
        {"host": "selfsigned.test", "ports": web},
        {"host": "wrong.test", "ports": web},
    ]
    hosts = ",".join(
        f"{name}:{world.tls.port}"
        for name in ("secret.test", "expired.test", "selfsigned.test", "wrong.test")
    )
    caps = {"connections": 2000, "connections_per_second": 5000}
    box = daemon.box(
        network={"presets": [], "rules": rules, "caps": caps}, secrets=[f"{NAME}@{hosts}"]
    )
    yield box
    box.remove()


def _ask(box: Box, world: World, cases: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = box.probe(
        ASK + f"answer(cases=side_by_side({cases}))", tls=world.tls.port, plain=world.plain.port
    )["cases"]
    return found


def _bodies(world: World) -> bytes:
    return b"\n".join(request.raw + request.body for request in world.tls.requests)


# -- where it goes --------------------------------------------------------------------------------


def test_it_arrives_where_it_is_bound_to(keyed: Box, world: World, value: str) -> None:
    requests = world.tls.since()
    found = _ask(
        keyed,
        world,
        """{
        'bearer': lambda: ask('/bearer', bearer),
        'lower case': lambda: ask('/lower', bearer.replace('Authorization', 'authorization')),
        'basic': lambda: ask('/basic', 'Authorization: Basic %s\\r\\n'
            % base64.b64encode(b'user:' + key.encode()).decode()),
        }""",
    )
    assert all("200" in said["got"][:20] for said in found.values()), found
    sent = {request.path: request.headers["authorization"] for request in requests()}
    assert sent["/bearer"] == sent["/lower"] == f"Bearer {value}"
    assert base64.b64decode(sent["/basic"].split()[1]).decode() == f"user:{value}"
    event = keyed.event("network.secret", host="secret.test")
    assert value not in str(event)


def test_the_guest_has_a_placeholder_of_the_same_length(keyed: Box, value: str) -> None:
    placeholder = keyed.probe("answer(it=os.environ['WORLD_KEY'])")["it"]
    assert len(placeholder) == len(value)
    assert placeholder != value
    for start in range(len(value) - 5):
        assert value[start : start + 6] not in placeholder


@pytest.mark.parametrize("how", REFLECTIONS)
def test_what_comes_back_is_the_placeholder(
    keyed: Box, world: World, scanner: Scanner, how: str
) -> None:
    """The server sees the value and sends it back in some form; nothing of it gets inside."""
    requests = world.tls.since()
    found = keyed.probe(
        ASK
        + """
import gzip, zlib
said = raw(ask('/reflect/' + V['how'], bearer + 'Accept-Encoding: gzip, deflate, br\\r\\n')['got'])
answer(key=key, said=said.decode('latin-1'))""",
        tls=world.tls.port,
        how=how,
    )
    assert scanner.find(requests()[0].raw), "control: it was there"
    said = found["said"].encode("latin-1")
    assert said.startswith((b"HTTP/1.1 200", b"HTTP/1.1 500")), said[:300]
    assert scanner.find(said) == []
    whole = b"".join(part for part in _dechunked(said))
    assert scanner.find(whole) == []
    if how in ("raw", "chunks", "bytewise", "error"):
        assert found["key"].encode() in whole, "as a placeholder it came back"


def test_answers_that_can_not_be_searched(
    daemon: WorldDaemon, keyed: Box, world: World, scanner: Scanner
) -> None:
    """Compressed in other ways: refused. Compressed to nothing: passed on as it is read, in bounded
    memory, and searched to the end."""
    size = 96 << 20
    bomb = gzip.compress(bytes(size), 9)

    def answer(request: Request) -> Answer:
        if request.path == "/packed/bomb":
            tail = gzip.compress(request.headers["authorization"].encode())
            return Answer(body=bomb + tail, headers={"content-encoding": "gzip"})
        return Answer(body=b"cannot be read", headers={"content-encoding": "br"})

    world.tls.handlers["/packed/"] = answer
    _ask(keyed, world, "{'it': lambda: ask('/first', bearer)}")
    gateway = gateway_pid(daemon.state_dir)
    assert gateway is not None
    before = resident(gateway)
    found = keyed.probe(
        ASK
        + """
with secure(connect('secret.test', V['tls']), 'secret.test') as s:
    s.sendall(ported(get('secret.test', '/packed/bomb', headers=bearer), V['tls']))
    size, tail = 0, b''
    while True:
        try: data = s.recv(1 << 20)
        except OSError: break
        if not data: break
        size, tail = size + len(data), (tail + data)[-4096:]
answer(size=size, tail=tail.decode('latin-1'), other=ask('/packed/other', bearer)['got'])""",
        tls=world.tls.port,
        limit=30,
    )
    assert scanner.find(found["tail"].encode("latin-1")) == []
    assert resident(gateway) - before < 64 << 20
    assert "cannot be read" not in found["other"]
    assert found["other"].startswith("HTTP/1.1 502"), found["other"][:300]
    assert found["size"] < size + (64 << 20)


def _dechunked(answer: bytes) -> Iterator[bytes]:
    """The body of an answer, and what it is when it is unpacked."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"chunked" in head.lower():
        rest, body = body, b""
        while rest and (size := int(rest.partition(b"\r\n")[0].partition(b";")[0], 16)):
            rest = rest.partition(b"\r\n")[2]
            body += rest[:size]
            rest = rest[size + 2 :]
        yield rest
    yield body
    if b"gzip" in head.lower():
        yield gzip.decompress(body)


# -- where it does not -----------------------------------------------------------------------------


def test_it_goes_nowhere_else(keyed: Box, world: World, scanner: Scanner, value: str) -> None:
    """The placeholder to other hosts, without TLS, in other parts of a request, under other names:
    it is never swapped, and on its way to another host it is stopped."""
    before_tls, before_plain = world.tls.since(), world.plain.since()
    found = _ask(
        keyed,
        world,
        """{
        'other host': lambda: ask('/o1', bearer, host='other.test'),
        'other host, in a body': lambda: ask('/o2', host='other.test', method='POST', body=key),
        'other host, in the query': lambda: ask('/o3?key=' + key, host='other.test'),
        'other host, in the path': lambda: ask('/o4/' + key, host='other.test'),
        'other host, base64': lambda: ask('/o5', 'Authorization: Basic %s\\r\\n'
            % base64.b64encode(b'user:' + key.encode()).decode(), host='other.test'),
        'other Host': lambda: ask('/h1', bearer, said='other.test'),
        'other Host with a port': lambda: ask('/h2', bearer, said='other.test:%d' % V['tls']),
        'without TLS': lambda: talk('secret.test', V['plain'], get('secret.test', '/p1',
            headers=bearer)),
        'without TLS, other': lambda: talk('good.test', V['plain'], get('good.test', '/p2',
            headers=bearer)),
        'by proxy': lambda: talk(*PROXY, get('secret.test',
            'http://secret.test:%d/p3' % V['plain'], headers=bearer)),
        'user agent': lambda: ask('/a1', 'User-Agent: ' + key + '\\r\\n'),
        'origin': lambda: ask('/a2', 'Origin: ' + key + '\\r\\n'),
        'request id': lambda: ask('/a3', 'X-Request-Id: ' + key + '\\r\\n'),
        'cookie': lambda: ask('/a4', 'Cookie: a=' + key + '\\r\\n'),
        'query': lambda: ask('/a5?key=' + key),
        'path': lambda: ask('/a6/' + key),
        'body': lambda: ask('/a7', method='POST', body='{"key": "' + key + '"}'),
        'half': lambda: ask('/a8', 'Authorization: Bearer ' + key[:-1] + '\\r\\n'),
        'trailer': lambda: ask('/a9', 'Transfer-Encoding: chunked\\r\\nTrailer: Authorization\\r\\n'
            '\\r\\n0\\r\\n' + bearer, method='POST'),
        }""",
    )
    assert not {k: v for k, v in found.items() if v["end"] in ("timeout", "hang")}
    wrong = [r.target for r in (*before_tls(), *before_plain()) if scanner.find(r.raw + r.body)]
    assert wrong == []
    arrived = {r.path.split("/")[1] for r in (*before_tls(), *before_plain())}
    # A body is looked at while it passes: of that request the head is there, and no more.
    assert not [r for r in before_tls() if r.path == "/o2" and r.body]
    stopped = {"o1", "o3", "o4", "o5", "h1", "h2", "p1", "p2", "p3"}
    assert not arrived & stopped, arrived & stopped
    assert "a1" in arrived, "control: what is not swapped passes as it is"
    assert found["other host"]["got"].startswith("HTTP/1.1 403"), found["other host"]
    event = keyed.event("network.blocked", host="other.test")
    assert value not in str(event)


@pytest.mark.parametrize("name", ["expired.test", "selfsigned.test", "wrong.test"])
def test_a_server_that_can_not_be_trusted_never_gets_it(
    keyed: Box, world: World, name: str
) -> None:
    """It is bound to these too; their certificates are no good."""
    visits = world.tls.mark()
    found = _ask(keyed, world, f"{{'it': lambda: ask('/', bearer, host={name!r})}}")["it"]
    assert " 200 " not in found["got"]
    assert visits() and not [visit for visit in visits() if visit.received]


def test_a_redirect_does_not_carry_it_away(keyed: Box, world: World, scanner: Scanner) -> None:
    target = f"https://other.test:{world.tls.port}/landed".encode().hex()
    requests = world.tls.since()
    found = keyed.probe(
        ASK
        + """
import urllib.request, urllib.error
request = urllib.request.Request('https://secret.test:%d/redirect/%s' % (V['tls'], V['to']))
request.add_header('Authorization', 'Bearer ' + key)
try: answer(status=urllib.request.urlopen(request, timeout=8).status)
except urllib.error.HTTPError as e: answer(status=e.code, body=e.read().decode())""",
        tls=world.tls.port,
        to=target,
    )
    landed = [request for request in requests() if request.path == "/landed"]
    assert found["status"] == 403 and not landed
    assert scanner.find(requests()[0].raw), "control: the first hop had it"


@pytest.fixture
def knowing(daemon: WorldDaemon, world: World, value: str) -> Iterator[Box]:
    """A sandbox that is told the value, which no other ever is."""
    rules = [{"host": "other.test", "ports": [world.tls.port], "methods": ["GET", "POST"]}]
    box = daemon.box(
        network={"presets": [], "rules": rules},
        secrets=[f"{NAME}@secret.test:{world.tls.port}"],
    )
    yield box
    box.remove()


def test_the_value_itself_does_not_leave(
    knowing: Box, world: World, scanner: Scanner, value: str
) -> None:
    """Whoever knows it inside, by whatever way: in a request that is looked at it is stopped, and
    no part of it is out by then."""
    requests, visits = world.tls.since(), world.tls.mark()
    found = knowing.probe(
        ASK
        + """
import gzip
value = V['value']
answer(cases=side_by_side({
    'raw': lambda: ask('/d1', host='other.test', method='POST', body='x=' + value),
    'header': lambda: ask('/d2', 'X-Any: ' + value + '\\r\\n', host='other.test'),
    'base64': lambda: ask('/d3', host='other.test', method='POST',
                          body=base64.b64encode(value.encode()).decode()),
    'query': lambda: ask('/d4?x=' + value, host='other.test'),
    'fine': lambda: ask('/d5', host='other.test', method='POST', body='x=nothing of it'),
}))""",
        tls=world.tls.port,
        value=value,
    )["cases"]
    arrived = {request.path: request.body for request in requests()}
    assert arrived["/d5"] == b"x=nothing of it", "control: a body without it passes"
    assert not arrived.keys() & {"/d2", "/d4"}
    for label in ("raw", "header"):
        assert " 200 " not in found[label]["got"], (label, found[label])
    received = b"".join(bytes(visit.received) for visit in visits())
    assert scanner.find(received) == []
    pieces = [value[i : i + 8].encode() for i in range(len(value) - 8)]
    assert not [piece for piece in pieces if piece in received]
    knowing.event("network.blocked", host="other.test")


# -- nothing of it is left -------------------------------------------------------------------------

USER = """
import gzip
kept = []
for how in V['how']:
    kept.append(ask('/reflect/' + how, bearer)['got'])
open('/tmp/answers', 'w').write(repr(kept))
print('ready', flush=True)
sys.stdout.close()
os.close(1)
time.sleep(60)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root sees the memory of a sandbox")
def test_it_is_found_nowhere_on_the_inside_and_nowhere_on_disk(
    daemon: WorldDaemon, keyed: Box, world: World, scanner: Scanner, value: str
) -> None:
    """After it was used and reflected: memory of every process of the sandbox as the host sees it,
    their environments, the guest's files; the daemon's database, logs and spools; what both
    processes were started with."""
    from .world.guest import script, values

    status, job = daemon.request(
        "POST",
        f"/v1/sandboxes/{keyed.id}/jobs",
        {"argv": [keyed.python, "-I", "-c", script(ASK + USER)], "stdin": True},
    )
    assert status == 201, job
    frames = daemon.stream(f"/v1/jobs/{job['id']}/attach")
    frames.event("started")
    frames.send(values({"tls": world.tls.port, "how": list(REFLECTIONS)}).encode())
    frames.control(eof=True)
    frames.until(b"ready")
    frames.close()
    try:
        first = _first_process(daemon, keyed)
        inside = pids_of(first)
        assert len(inside) >= 3, "agentd, a supervisor, the program"
        placeholder = keyed.probe("answer(it=os.environ['WORLD_KEY'])")["it"]
        there = Scanner(placeholder.encode())
        placeholders = 0
        for pid in inside:
            for piece in memory(pid):
                assert scanner.find(piece) == [], pid
                placeholders += bool(there.find(piece))
            assert scanner.find(Path(f"/proc/{pid}/environ").read_bytes()) == []
            assert scanner.find(Path(f"/proc/{pid}/cmdline").read_bytes()) == []
        assert placeholders, "control: what is in their memory is found"
        root = Path(f"/proc/{first}/root")
        places = [root / name for name in ("etc", "tmp", "run", "root", "home", "var", "dev/shm")]
        # What is the machine's own there can't be written to.
        mounts = read_only_mounts(first)
        assert scanner.in_files(*places, without=mounts) == {}
        assert there.in_files(root / "tmp"), "control: the answers it kept are there"
        assert scanner.in_files(daemon.state_dir, daemon.config_home) == {}
        gateway = gateway_pid(daemon.state_dir)
        assert gateway is not None
        for pid in (daemon.pid, gateway):
            for name in ("environ", "cmdline"):
                assert scanner.find(Path(f"/proc/{pid}/{name}").read_bytes()) == []
            limits = Path(f"/proc/{pid}/limits").read_text()
            core = next(line for line in limits.splitlines() if line.startswith("Max core"))
            assert pid != gateway or core.split()[4] == "0", "it leaves no core"
        held = any(scanner.find(piece) for piece in memory(gateway))
        assert held, "control: whoever swaps it has it"
        events = keyed.events()
        assert scanner.find(repr(events).encode()) == []
    finally:
        daemon.request("POST", f"/v1/jobs/{job['id']}/kill", {})


def _first_process(daemon: WorldDaemon, box: Box) -> int:
    """PID 1 of a sandbox, as the host numbers it."""
    text = (daemon.state_dir / "sandboxes" / box.id / "process").read_text()
    return int(text.split()[1])


def test_the_scanner_finds_what_is_planted(tmp_path: Path, value: str, scanner: Scanner) -> None:
    """Control: each form, in a file, with other things around it."""
    raw = value.encode()
    planted = {
        "raw": raw,
        "base64": base64.b64encode(b"x" + raw + b"yz"),
        "base64 of a header": base64.b64encode(b"user:" + raw),
        "base64url": base64.urlsafe_b64encode(b"zz" + raw),
        "hex": raw.hex().encode(),
        "url": "".join(f"%{byte:02X}" for byte in raw).encode(),
        "gzip": gzip.compress(b"some words before " + raw),
        "gzip, cut off": gzip.compress(b"before " + raw)[:-8],
        "gzip of base64": gzip.compress(base64.b64encode(raw)),
    }
    for label, data in planted.items():
        place = tmp_path / label
        place.mkdir()
        (place / "file").write_bytes(b"\0" * 100 + data + b" and more")
        assert scanner.in_files(place), label
    assert scanner.find(b"nothing " * 1000 + gzip.compress(b"nothing")) == []


# -- changes ---------------------------------------------------------------------------------------


def test_rotation_is_at_once(daemon: WorldDaemon, world: World) -> None:
    first, second = _value(), _value()
    _set(daemon, "TURNING_KEY", first)
    rules = [{"host": "secret.test", "ports": [world.tls.port]}]
    box = daemon.box(
        network={"presets": [], "rules": rules},
        secrets=[f"TURNING_KEY@secret.test:{world.tls.port}"],
    )
    ask = """answer(**tls('secret.test', V['tls'], 'secret.test', get('secret.test', '/turn',
        headers='Authorization: Bearer ' + os.environ['TURNING_KEY'] + '\\r\\n'), verify=True))"""
    try:
        requests = world.tls.since()
        box.probe(ask, tls=world.tls.port)
        _set(daemon, "TURNING_KEY", second, "rotate")
        box.probe(ask, tls=world.tls.port)
        sent = [request.headers["authorization"] for request in requests()]
        assert sent == [f"Bearer {first}", f"Bearer {second}"]
    finally:
        box.remove()


def test_the_first_secret_switches_interception_on(
    daemon: WorldDaemon, world: World, value: str
) -> None:
    """A host that was spliced is intercepted from the moment a secret is bound to it; and one
    variable serves two hosts."""
    rules = [{"host": host, "ports": [world.tls.port]} for host in ("secret.test", "good.test")]
    hosts = f"secret.test:{world.tls.port},good.test:{world.tls.port}"
    spliced = daemon.box(network={"presets": [], "rules": rules})
    bound = daemon.box(network={"presets": [], "rules": rules}, secrets=[f"{NAME}@{hosts}"])
    ask = """answer(**{h: tls(h, V['tls'], h, get(h, '/two', headers='Authorization: Bearer '
        + os.environ.get('WORLD_KEY', 'none') + '\\r\\n'))['got'][:12] for h in V['hosts']})"""
    try:
        requests = world.tls.since()
        for box in (spliced, bound):
            box.probe(ask, tls=world.tls.port, hosts=["secret.test", "good.test"])
        sent = [(r.sni, r.headers["authorization"]) for r in requests()]
        assert sent == [
            ("secret.test", "Bearer none"),
            ("good.test", "Bearer none"),
            ("secret.test", f"Bearer {value}"),
            ("good.test", f"Bearer {value}"),
        ]
    finally:
        spliced.remove()
        bound.remove()


def test_values_that_could_break_a_request_are_refused(daemon: WorldDaemon) -> None:
    for bad in (
        "tiny-12345",
        "with\r\nX-Injected: line-of-some-length",
        "with\0a-null-byte-inside-it",
    ):
        done = daemon.cli("secret", "set", "BAD_KEY", stdin=bad)
        assert done.returncode != 0, bad
        assert bad not in done.stderr
    listed = daemon.cli("secret", "list").stdout
    assert "BAD_KEY" not in listed
    assert eventually(lambda: NAME in daemon.cli("secret", "list").stdout), "control"
