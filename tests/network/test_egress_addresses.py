"""Addresses: an allowed name that leads to one it must not, and addresses the guest says itself."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest

from .world.boxes import Box, WorldDaemon
from .world.everything import METADATA, World

# What an allowed name may be made to say, set by set; nothing of it is public.
REBOUND: dict[str, list[list[str]]] = {
    "loopback": [["127.0.0.1"]],
    "all-of-loopback": [["127.0.0.2"], ["127.255.255.254"], ["127.0.0.1"]],
    "zero": [["0.0.0.0"]],
    "six": [["::1"]],
    "unspecified-six": [["::"]],
    "mapped": [["::ffff:127.0.0.1"]],
    "compatible": [["::127.0.0.1"]],
    "translated": [["64:ff9b::7f00:1"]],
    "local-translated": [["64:ff9b:1::7f00:1"]],
    "six-to-four": [["2002:7f00:1::"]],
    "teredo": [["2001:0:7f00:1::"]],
    "metadata": [["169.254.169.254"]],
    "container-metadata": [["169.254.170.2"]],
    "metadata-six": [["fd00:ec2::254"]],
    "ten": [["10.0.0.1"]],
    "home": [["192.168.1.1"]],
    "docker": [["172.17.0.1"]],
    "carrier": [["100.64.0.1"]],
    "carrier-metadata": [["100.100.100.200"]],
    "link-local-six": [["fe80::1"]],
    "unique-local": [["fd12:3456::1"]],
    "synthetic": [["198.18.0.1"]],
    "broadcast": [["255.255.255.255"]],
    "multicast": [["224.0.0.251"]],
    "reserved": [["240.0.0.1"]],
    "mixed": [["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00::1"]],
    "flips": [["10.0.0.1"], ["127.0.0.1"], ["::1"], ["169.254.169.254"]],
}


def _host_addresses() -> list[str]:
    """Addresses this machine has besides loopback; nothing is sent."""
    found = []
    for target in ("192.0.2.1", "2001:db8::1"):
        family = socket.AF_INET6 if ":" in target else socket.AF_INET
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            found.append(probe.getsockname()[0])
    return found


def _seen(world: World) -> tuple[int, ...]:
    return tuple(len(listener.visits) for listener in world.listeners)


def test_an_allowed_name_can_not_lead_inside(box: Box, world: World) -> None:
    """By plain HTTP, TLS and raw bytes, three times each, so that answers change in between."""
    sets = {**REBOUND, "this-machine": [_host_addresses() or ["10.0.0.1"]]}
    for name, answers in sets.items():
        world.names.tell(f"{name}.rebind.test", *answers)
    before = _seen(world)
    for _ in range(3):
        found = box.try_all(
            """{
            **{f'{n} http': (lambda n=n: talk(n, V['http'], get(n))) for n in V['names']},
            **{f'{n} tls': (lambda n=n: tls(n, V['tls'], n, get(n))) for n in V['names']},
            **{f'{n} raw': (lambda n=n: talk(n, V['raw'], 'EHLO me\\r\\n')) for n in V['names']},
            **{f'{n} proxy': (lambda n=n: tunnel(f'{n}:{V["raw"]}', '<x>')) for n in V['names']},
            }""",
            names=[f"{name}.rebind.test" for name in sets],
            http=world.metadata.port,
            tls=world.tls.port,
            raw=world.recorder.port,
        )
        bad = {k: v for k, v in found.items() if v["end"] in ("timeout", "hang")}
        assert not bad, "it has to be told at once"
        reached = {k: v for k, v in found.items() if v["got"] and not k.endswith("http")}
        assert not reached
        for name in sets:
            assert METADATA.decode() not in found[f"{name}.rebind.test http"]["got"]
    assert _seen(world) == before
    for name in sets:
        event = box.event("network.deny", host=f"{name}.rebind.test", port=world.recorder.port)
        assert event["reason"]


def test_where_a_rule_allows_private_addresses_they_are_reached(
    daemon: WorldDaemon, world: World
) -> None:
    """Control: the same names, the same resolver, and a rule that says so with its port. And the
    address that was vetted is the one that is dialled: the name is asked for once."""
    world.names.tell("private.rebind.test", ["127.0.0.1"], ["127.0.0.9"])
    rules = [{"host": "private.rebind.test", "ports": [world.recorder.port], "private": True}]
    box = daemon.box(network={"presets": [], "rules": rules})
    try:
        visits = world.recorder.mark()
        found = box.try_all(
            "{'it': lambda: talk('private.rebind.test', V['port'], '<in>', until='<in>')}",
            port=world.recorder.port,
        )["it"]
        assert found["got"] == "<in>", found
        assert len(visits()) == 1
        assert [each.kind for each in world.names.asked("private.rebind")].count("A") == 1
        assert box.event("network.allow", host="private.rebind.test")["rule"] is not None
    finally:
        box.remove()


def test_the_metadata_look_alike_answers_who_may(daemon: WorldDaemon, world: World) -> None:
    """Control: what stands for it is there, and a rule leads to it."""
    rules = [{"host": "metadata.test", "ports": [world.metadata.port]}]
    box = daemon.box(network={"presets": [], "rules": rules})
    try:
        found = box.try_all(
            "{'it': lambda: talk('metadata.test', V['port'], get('metadata.test'))}",
            port=world.metadata.port,
        )["it"]
        assert METADATA.decode() in found["got"]
    finally:
        box.remove()


def test_addresses_that_a_guest_dials_itself(box: Box, world: World) -> None:
    """TCP to where no rule leads: HTTP is told so, everything else is reset, at once."""
    addresses = [
        *("169.254.169.254", "169.254.170.2", "100.100.100.200", "10.0.0.1", "172.17.0.1"),
        *("192.168.1.1", "8.8.8.8", "198.18.0.2", "198.19.255.254", "224.0.0.1", "240.0.0.1"),
        *(each for each in _host_addresses() if ":" not in each),
    ]
    before = _seen(world)
    found = box.try_all(
        """{
        **{f'{a} http': (lambda a=a: talk(a, V['http'], get(a))) for a in V['to']},
        **{f'{a} port 80': (lambda a=a: talk(a, 80, get(a, '/latest/'))) for a in V['to']},
        **{f'{a} ssh': (lambda a=a: talk(a, 22, 'SSH-2.0-x\\r\\n')) for a in V['to']},
        **{f'{a} tls': (lambda a=a: tls(a, V['tls'], 'good.test', get(a))) for a in V['to']},
        }""",
        to=addresses,
        http=world.metadata.port,
        tls=world.tls.port,
    )
    assert _seen(world) == before
    slow = {k: v for k, v in found.items() if v["end"] in ("timeout", "hang")}
    assert not slow
    for label, said in found.items():
        if label.endswith(("ssh", "tls")):
            assert said["got"] == "", (label, said)
        elif not label.startswith(("224.", "240.", "198.")):
            assert said["got"].startswith("HTTP/1.1 403"), (label, said)
    for address in addresses[:5]:
        box.event("network.deny", host=address, port=80)


def test_the_gateways_own_doors_lead_nowhere_else(box: Box, world: World) -> None:
    """Dialled directly, or asked for through itself: no loop, no other sandbox, no host."""
    before = _seen(world)
    found = box.try_all(
        """{
        'listener': lambda: talk('127.0.0.1', 1, get('good.test')),
        'listener by its address': lambda: talk('10.0.2.15', 1, get('good.test')),
        'names': lambda: dns(question('good.test'), to=('127.0.0.1', 1)),
        'loopback': lambda: talk('127.0.0.1', V['port'], '<x>'),
        'own address': lambda: talk('10.0.2.15', V['port'], '<x>'),
        'six': lambda: talk('::1', V['port'], '<x>', family=socket.AF_INET6),
        'any': lambda: talk('0.0.0.0', V['port'], '<x>'),
        'proxy through proxy': lambda: tunnel('198.18.0.1:3128', 'CONNECT good.test:1 HTTP/1.1'),
        'socks through proxy': lambda: tunnel('198.18.0.1:1080', '\\5\\1\\0'),
        'listener through proxy': lambda: tunnel('127.0.0.1:1', '<x>'),
        'other ports of it': lambda: talk('198.18.0.1', 22, '<x>'),
        'proxy as a server': lambda: talk(*PROXY, get('198.18.0.1:3128')),
        'proxy as a server of another': lambda: talk(*PROXY, get('good.test')),
        }""",
        port=world.recorder.port,
    )
    assert _seen(world) == before
    assert not {k: v for k, v in found.items() if v["end"] in ("timeout", "hang") and k != "names"}
    for label in ("loopback", "own address", "any"):
        assert found[label]["end"] == "ECONNREFUSED", (label, found[label])
    for label in ("proxy through proxy", "socks through proxy", "listener through proxy"):
        assert found[label]["end"] in ("refused", "ECONNRESET"), (label, found[label])
        assert not found[label]["got"]
    assert box.event("network.deny", host="198.18.0.1", port=3128)


def test_sandboxes_do_not_see_each_other(daemon: WorldDaemon, box: Box) -> None:
    """Both have the same address; what listens on it in one is not there for the other."""
    serve = "s = socket.create_server(('0.0.0.0', 8099))\nprint('up', flush=True)\ns.accept()"
    other = daemon.box(network={"presets": [], "allow": ["nothing.test"]})
    try:
        job = f'{other.python} -I -c "import socket\n{serve}" > /tmp/up 2>&1 &'
        other.shell(job + " while ! grep -q up /tmp/up; do sleep 0.02; done")
        cases = "{a: (lambda a=a: talk(a, 8099, '<x>')) for a in ('10.0.2.15', '127.0.0.1')}"
        for said in box.try_all(cases).values():
            assert said["end"] == "ECONNREFUSED"
        control = other.try_all("{'it': lambda: talk('10.0.2.15', 8099, '<x>')}")["it"]
        assert control["connected"], "control: it is there for its own sandbox"
    finally:
        other.remove()


@pytest.mark.parametrize("profile", ["moderate", "permissive"])
def test_no_profile_reaches_private_addresses(
    daemon: WorldDaemon, world: World, profile: str
) -> None:
    world.names.tell("any.rebind.test", ["127.0.0.1"])
    box = daemon.box(profile=profile)
    try:
        before = _seen(world)
        found = box.try_all(
            """{
            'name': lambda: talk('any.rebind.test', V['port'], get('any.rebind.test')),
            'metadata': lambda: talk('169.254.169.254', 80, get('169.254.169.254')),
            'private': lambda: talk('10.0.0.1', 80, get('10.0.0.1')),
            'loopback by proxy': lambda: tunnel(f'127.0.0.1:{V["port"]}', '<x>'),
            }""",
            port=world.plain.port,
        )
        assert _seen(world) == before
        for label in ("name", "metadata", "private"):
            assert found[label]["got"].startswith("HTTP/1.1 403"), (label, found[label])
    finally:
        box.remove()
