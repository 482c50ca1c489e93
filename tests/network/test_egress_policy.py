"""Rules in force and rules that change: lists that are empty, phases, methods, floors, restarts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .world.boxes import Box, WorldDaemon
from .world.everything import World

HOLD = """
held = connect('good.test', V['port'])
held.sendall(b'<first>')
first = held.recv(100)
open('/tmp/held', 'w').write('x')
while not os.path.exists('/tmp/changed'): time.sleep(0.02)
answer(first=first.decode(), **finish(held, [b'second'], until='second'))
"""


def _reach(box: Box, world: World, *names: str) -> dict[str, bool]:
    """Which of these a raw connection gets to."""
    found = box.try_all(
        "{n: (lambda n=n: talk(n, V['port'], '<hello>', until='<hello>')) for n in V['names']}",
        port=world.recorder.port,
        names=list(names),
    )
    return {name: found[name]["got"] == "<hello>" for name in names}


@pytest.mark.parametrize(
    "network",
    [
        {"presets": ["none"]},
        {"rules": []},
        {"allow": []},
        {"phases": {"default": {"rules": []}}},
        {"phases": {"later": {"allow": ["good.test:*"]}}},
    ],
    ids=["none", "no rules", "nothing allowed", "an empty phase", "another phase"],
)
def test_an_empty_list_means_none(
    daemon: WorldDaemon, world: World, network: dict[str, Any]
) -> None:
    box = daemon.box(network=network)
    try:
        assert _reach(box, world, "good.test", "evil.test") == {
            "good.test": False,
            "evil.test": False,
        }
        box.change("POST", "/rules", target=f"good.test:{world.recorder.port}")
        assert _reach(box, world, "good.test") == {"good.test": True}, "control"
    finally:
        box.remove()


@pytest.mark.parametrize(
    "lines",
    [
        '[network]\nhosts = ["good.test"]',
        "[network]\nfloor = 1",
        '[network]\nupstream_ca = "/does/not/exist.pem"',
        "[network]\nallowed_domains = []",
        '[network]\npatterns = ["("]',
    ],
)
def test_a_bad_configuration_refuses_to_start(
    world: World, tmp_path: Path, lines: str, request: pytest.FixtureRequest
) -> None:
    daemon = WorldDaemon(tmp_path, world)
    request.addfinalizer(daemon.close)
    file = daemon.config_home / "agentkernel" / "config.toml"
    file.write_text(lines + "\n")
    process = daemon.popen()
    try:
        out, _ = process.communicate(timeout=10)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode != 0, out
    assert "Traceback" not in daemon.log()
    assert "network" in daemon.log(), daemon.log()


@pytest.fixture(scope="module")
def floored(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorldDaemon]:
    """A daemon whose operator allows two hosts, and sends what it has no address for through a
    proxy."""
    floor = [f"good.test:{world.recorder.port}", f"far.test:{world.tls.port}"]
    proxy = f"http://127.0.0.1:{world.forwarder.port}"
    daemon = WorldDaemon(
        tmp_path_factory.mktemp("floored"), world, floor=floor, upstream_proxy=proxy
    )
    daemon.start()
    yield daemon
    daemon.remove_all()
    assert daemon.terminate() == 0
    daemon.close()


def test_no_sandbox_gets_beyond_the_floor(floored: WorldDaemon, world: World) -> None:
    ports = [world.recorder.port, world.tls.port]
    rules = [{"host": name, "ports": ports} for name in ("good.test", "twin.test")]
    box = floored.box(network={"presets": [], "rules": rules})
    try:
        assert _reach(box, world, "good.test", "twin.test") == {
            "good.test": True,
            "twin.test": False,
        }
        box.change("POST", "/rules", target="twin.test:*")
        assert _reach(box, world, "twin.test") == {"twin.test": False}
        assert box.event("network.deny", host="twin.test")
        assert box.network()["floor"]["rules"]
    finally:
        box.remove()


def test_the_upstream_proxy_is_used_and_is_told_no_more_than_names(
    floored: WorldDaemon, world: World
) -> None:
    heads = len(world.forwarder.heads)
    rules = [{"host": "far.test", "ports": [world.tls.port]}]
    box = floored.box(network={"presets": [], "rules": rules})
    try:
        found = box.try_all(
            """{'far': lambda: tls('far.test', V['tls'], 'far.test', get('far.test')),
            'evil': lambda: tls('evil.test', V['tls'], 'evil.test', get('evil.test'))}""",
            tls=world.tls.port,
        )
        assert "hello far.test" in found["far"]["got"]
        told = world.forwarder.heads[heads:]
        assert len(told) == 1 and told[0].startswith(f"CONNECT far.test:{world.tls.port} "), told
    finally:
        box.remove()


def test_registries_are_for_reading(daemon: WorldDaemon, world: World) -> None:
    """An allowed host as a drop box: with methods and paths, nothing can be left there."""
    rule = {
        "host": "index.test",
        "ports": [world.tls.port],
        "methods": ["GET", "HEAD"],
        "paths": ["/simple/*"],
    }
    box = daemon.box(network={"presets": [], "rules": [rule]})
    try:
        requests = world.tls.since()
        found = box.probe(
            """
def ask(method, path, body=''): return tls('index.test', V['tls'], 'index.test',
                                           get('index.test', path, method, body=body))
answer(cases=side_by_side({
    'read': lambda: ask('GET', '/simple/worldly/'),
    'head': lambda: ask('HEAD', '/simple/worldly/'),
    'upload': lambda: ask('POST', '/simple/upload', 'stolen'),
    'put': lambda: ask('PUT', '/simple/x', 'stolen'),
    'patch': lambda: ask('PATCH', '/simple/x', 'stolen'),
    'delete': lambda: ask('DELETE', '/simple/x'),
    'own method': lambda: ask('STEAL', '/simple/x'),
    'lower case': lambda: ask('post', '/simple/x', 'stolen'),
    'override': lambda: tls('index.test', V['tls'], 'index.test', get('index.test', '/legacy',
        headers='X-HTTP-Method-Override: POST\\r\\n')),
    'body of a GET': lambda: ask('GET', '/legacy/', 'stolen'),
}))""",
            tls=world.tls.port,
        )["cases"]
        assert {(r.method, r.path) for r in requests()} == {
            ("GET", "/simple/worldly/"),
            ("HEAD", "/simple/worldly/"),
        }
        assert world.index.wheel_name in found["read"]["got"], "control"
        assert found["upload"]["got"].startswith("HTTP/1.1 403")
        assert box.event("network.deny", host="index.test", method="POST")["reason"]
    finally:
        box.remove()


def test_bytes_are_capped(daemon: WorldDaemon, world: World) -> None:
    rule = {"host": "good.test", "ports": [world.recorder.port, world.plain.port]}
    caps = {"upload_bytes": 100_000, "download_bytes": 300_000}
    box = daemon.box(network={"presets": [], "rules": [rule], "caps": caps})
    try:
        visits = world.recorder.mark()
        found = box.try_all(
            """{'up': lambda: talk('good.test', V['port'], *['<' * 1000] * 2000)}""",
            port=world.recorder.port,
        )["up"]
        assert found["end"] != "timeout"
        assert sum(len(visit.received) for visit in visits()) <= 100_000
        assert box.event("network.limit")
        again = box.try_all("{'up': lambda: talk('good.test', V['port'], '<x>')}",
                            port=world.recorder.port)["up"]  # fmt: skip
        assert again["got"] == "", "it is over for good"
    finally:
        box.remove()


def test_names_are_capped(daemon: WorldDaemon, world: World) -> None:
    """Names are a way to tell things and to fill a table: so many, and no more."""
    rule = {"host": "good.test", "ports": [world.recorder.port]}
    box = daemon.box(network={"presets": [], "rules": [rule], "caps": {"names": 20}})
    try:
        assert _reach(box, world, "good.test") == {"good.test": True}
        found = box.probe("answer(codes=[dns(question(f'n{i}.evil.test')) for i in range(40)])")
        given = [each for each in found["codes"] if each.get("answers")]
        assert len(given) <= 20
        assert {each["end"] for each in found["codes"]} == {"answer"}, "told at once, not left out"
        assert box.event("network.limit")
        assert box.network()["traffic"]["names"] <= 20
        assert _reach(box, world, "good.test") == {"good.test": True}, "what it has it keeps"
    finally:
        box.remove()


# -- changes while it runs -------------------------------------------------------------------------


def _held(daemon: WorldDaemon, world: World, box: Box, change: Any) -> dict[str, Any]:
    """What becomes of an open connection while `change` is made."""
    import threading

    box.shell("rm -f /tmp/held /tmp/changed")
    result: dict[str, Any] = {}
    thread = threading.Thread(
        target=lambda: result.update(box.probe(HOLD, port=world.recorder.port, limit=20))
    )
    thread.start()
    box.shell("while ! [ -e /tmp/held ]; do sleep 0.02; done")
    change()
    box.shell("touch /tmp/changed")
    thread.join(40)
    return result


def test_a_flow_that_is_not_allowed_any_more_is_closed(daemon: WorldDaemon, world: World) -> None:
    """At the moment the change is acknowledged; and one that still is goes on."""
    rules = [{"host": "good.test", "ports": [world.recorder.port]}]
    phases = {"open": {"rules": rules}, "closed": {"rules": []}}
    box = daemon.box(network={"phases": phases, "phase": "open"})
    try:
        visits = world.recorder.mark()
        goes_on = _held(
            daemon, world, box, lambda: box.change("POST", "/rules", target="other.test")
        )
        assert (goes_on["first"], goes_on["got"]) == ("<first>", "second"), "control"
        ended = _held(daemon, world, box, lambda: box.change("POST", "/phase", phase="closed"))
        assert (ended["first"], ended["got"]) == ("<first>", "")
        assert bytes(visits()[-1].received) == b"<first>"
        assert _reach(box, world, "good.test") == {"good.test": False}
        box.change("POST", "/phase", phase="open")
        denied = _held(
            daemon,
            world,
            box,
            lambda: box.change("POST", "/rules", target="good.test:*", action="deny"),
        )
        assert denied["got"] == ""
        assert _reach(box, world, "good.test") == {"good.test": False}
        assert daemon.cli("network", "why", box.id, "good.test").returncode == 1
    finally:
        box.remove()


def test_an_intercepted_connection_is_judged_anew_for_each_request(
    daemon: WorldDaemon, world: World
) -> None:
    rule = {"host": "other.test", "ports": [world.tls.port], "methods": ["GET"]}
    box = daemon.box(network={"presets": [], "rules": [rule]})
    try:
        requests = world.tls.since()
        source = HOLD.replace(
            "held = connect('good.test', V['port'])",
            "held = secure(connect('other.test', V['port']), 'other.test')",
        ).replace("b'<first>'", "ported(get('other.test', '/one', close=False), V['port'])")
        source = source.replace(
            "[b'second'], until='second'", "[ported(get('other.test', '/two'), V['port'])]"
        )
        import threading

        result: dict[str, Any] = {}
        thread = threading.Thread(
            target=lambda: result.update(box.probe(source, port=world.tls.port, limit=20))
        )
        thread.start()
        box.shell("while ! [ -e /tmp/held ]; do sleep 0.02; done")
        paths = {**rule, "paths": ["/one"]}
        box.change("PUT", "", rules=[paths])
        box.shell("touch /tmp/changed")
        thread.join(40)
        assert result["first"].startswith("HTTP/1.1 200")
        assert [request.path for request in requests()] == ["/one"]
        assert " 200 " not in result["got"]
    finally:
        box.remove()


def test_policy_is_kept_over_stop_start_and_another_daemon(
    world: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    daemon = WorldDaemon(tmp_path_factory.mktemp("kept"), world)
    daemon.start()
    try:
        rules = [{"host": "good.test", "ports": [world.recorder.port]}]
        phases = {"open": {"rules": rules}, "closed": {}}
        box = daemon.box(network={"phases": phases, "phase": "open"}, ephemeral=False)
        reached = {"good.test": True, "evil.test": False}
        assert _reach(box, world, *reached) == reached
        before = box.probe("answer(it=lookup('good.test'))")["it"]
        for verb in ("stop", "start"):
            status, body = daemon.request("POST", f"/v1/sandboxes/{box.id}/{verb}", {})
            assert status == 200, body
        assert _reach(box, world, *reached) == reached
        assert box.probe("answer(it=lookup('good.test'))")["it"] == before
        daemon.kill()
        daemon.start()
        assert _reach(box, world, *reached) == reached
        box.change("POST", "/phase", phase="closed")
        daemon.kill()
        daemon.start()
        assert not any(_reach(box, world, *reached).values())
        for verb in ("stop", "start"):
            daemon.request("POST", f"/v1/sandboxes/{box.id}/{verb}", {})
        assert not any(_reach(box, world, *reached).values())
    finally:
        if not daemon.alive():
            daemon.start()
        daemon.remove_all()
        assert daemon.terminate() == 0
        daemon.close()


def test_a_network_can_come_later_and_go(daemon: WorldDaemon, world: World) -> None:
    """A sandbox that was made without gets a way out while it runs."""
    box = daemon.box(profile="restrictive")
    try:
        assert _reach(box, world, "good.test") == {"good.test": False}
        target = f"good.test:{world.recorder.port}"
        box.change("POST", "/rules", target=target)
        assert _reach(box, world, "good.test", "evil.test") == {
            "good.test": True,
            "evil.test": False,
        }
        box.change("PUT", "", presets=["none"])
        assert _reach(box, world, "good.test") == {"good.test": False}
    finally:
        box.remove()


def test_connecting_succeeds_and_then_it_is_refused(box: Box, world: World) -> None:
    """What a redirect means for `nc -z`: the connection itself always comes to be, the denial is
    the reset that follows. Documented, and so for whoever looks for open ports."""
    if subprocess.run(["sh", "-c", "command -v nc"], capture_output=True).returncode:
        command = f"{box.python} -c 'import socket; socket.create_connection((\"evil.test\", 9))'"
    else:
        command = "nc -z evil.test 9"
    assert box.shell(command)["exit_code"] == 0
    found = box.try_all("{'it': lambda: talk('evil.test', 9, '<x>')}")["it"]
    assert (found["connected"], found["got"]) == (True, "")
    assert found["end"] in ("ECONNRESET", "eof", "EPIPE")
