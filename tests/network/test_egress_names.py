"""Names that only look allowed, in every place a guest can say one; names as a way to tell things.

The servers of the world are reached under any name, so what they see is what got past.
"""

from __future__ import annotations

from typing import Any

import pytest

from .world.boxes import Box
from .world.everything import World

# What no reading of the rules allows. Each is tried in a CONNECT, an absolute address, SOCKS 5, 4a.
LOOKALIKES = [
    "evil.test\0.good.test",
    "evil.test\0good.test",
    "good.test\0.evil.test",
    "good.test.evil.test",
    "notgood.test",
    "evil.test",
    "xn--gd-fkaa.test",
    "g\u00f6\u00f6d.test",
    "%67ood.test",
    "evil.test%00.good.test",
    "evil.test/.good.test",
    "evil.test#good.test",
    "good.test@evil.test",
    "evil.test good.test",
    "evil.test\tgood.test",
    "evil.test\r\ngood.test",
    "good..test",
    ".good.test",
    "*.good.test",
    "-",
    "",
    "a." * 130 + "good.test",
    ("b" * 64) + ".many.test",
    "*.many.test",
    "many.test",
]
# This machine's loopback, in forms that some parser takes for something else.
ADDRESSES = [
    "127.0.0.1",
    "2130706433",
    "0177.0.0.1",
    "0x7f000001",
    "0x7f.1",
    "127.1",
    "0",
    "0.0.0.0",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "[fe80::1%lo]",
    "[fe80::1%251]",
    "::1",
    "localhost",
    "localhost.",
    "ip6-localhost",
    "127.0.0.1.",
    "\uff11\uff12\uff17.0.0.1",
    "127\u30020\u30020\u30021",
    "169.254.169.254",
    "[fd00:ec2::254]",
    "10.0.2.15",
    "198.18.0.1",
]
FORMS = """{
    (f'{how} {name!r}'): (lambda how=how, name=name, mark=mark(how, number): {
        'connect': lambda: tunnel(f'{name}:{V["port"]}'.encode(), '<%s>' % mark),
        'connect, other Host': lambda: tunnel(f'{name}:{V["port"]}'.encode(), '<%s>' % mark,
            host=b'good.test'),
        'absolute': lambda: talk(*PROXY, f'GET http://{name}:{V["plain"]}/{mark} HTTP/1.1\\r\\n'
            f'Host: {name}:{V["plain"]}\\r\\nConnection: close\\r\\n\\r\\n'.encode('utf-8')),
        'absolute, other Host': lambda: talk(*PROXY, f'GET http://{name}:{V["plain"]}/{mark} '
            f'HTTP/1.1\\r\\nHost: good.test:{V["plain"]}\\r\\nConnection: close\\r\\n\\r\\n'
            .encode('utf-8')),
        'socks5': lambda: socks5(name.encode('utf-8')[:255], V['port'], '<%s>' % mark),
        'socks5 on the other port': lambda: socks5(name.encode()[:255], V['port'], '<%s>' % mark,
            to=PROXY),
        'socks4a': lambda: socks4a(name.encode('utf-8'), V['port'], '<%s>' % mark),
    }[how]())
    for how in V['how'] for number, name in enumerate(V['names'])
}"""
HOW = [
    "connect",
    "connect, other Host",
    "absolute",
    "absolute, other Host",
    "socks5",
    "socks5 on the other port",
    "socks4a",
]


def _try(box: Box, world: World, names: list[str], how: list[str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for each in how:
        # A NUL ends the name in SOCKS 4a: what stands behind this one is sent to an allowed host.
        said = [name for name in names if each != "socks4a" or not name.startswith("good.test\0")]
        found |= box.try_all(
            FORMS,
            names=said,
            how=[each],
            port=world.recorder.port,
            plain=world.plain.port,
            limit=8,
        )
    return found


def test_the_same_ways_lead_to_an_allowed_name(box: Box, world: World) -> None:
    """Control: through each door the allowed name is reached, in any spelling of it."""
    names = ["good.test", "GOOD.test", "good.test."]
    found = _try(box, world, names, HOW)
    for label, said in found.items():
        assert said["got"], (label, said)
    received = world.received()
    for how in HOW:
        for number in range(len(names)):
            mark = f"mark-{how.replace(' ', '-').replace(',', '')}-{number}-"
            assert mark.encode() in received, mark


@pytest.mark.parametrize("names", [LOOKALIKES, ADDRESSES], ids=["names", "addresses"])
def test_lookalikes_lead_nowhere(box: Box, world: World, names: list[str]) -> None:
    visits = [listener.mark() for listener in world.listeners]
    asked = len(world.names.questions)
    found = _try(box, world, names, HOW)
    through = {k: v for k, v in found.items() if "200" in v.get("said", "")[:20]}
    assert not through, through
    hanging = {k: v for k, v in found.items() if v["end"] in ("hang", "timeout")}
    assert not hanging, hanging
    assert [bytes(visit.received) for since in visits for visit in since()] == []
    assert len(world.names.questions) == asked, world.names.questions[asked:]


def test_lookalikes_leave_events(box: Box, world: World) -> None:
    _try(box, world, ["evil.test", "notgood.test"], ["connect", "absolute", "socks5"])
    for via in ("proxy", "socks"):
        for name in ("evil.test", "notgood.test"):
            box.event("network.deny", host=name, via=via)


# -- questions to the name server ----------------------------------------------------------------


def test_a_denied_name_is_never_told_to_anyone(box: Box, world: World) -> None:
    """In any kind of question; over TCP too; to any server's address."""
    asked = len(world.names.questions)
    found = box.try_all(
        """{
        **{f'kind {k}': (lambda k=k: dns(question(f'secret-{k}.evil.test', k)))
           for k in (1, 28, 16, 65, 64, 255, 15, 2, 6, 12, 33, 5, 10, 257, 65280)},
        **{f'tcp {k}': (lambda k=k: dns(question(f'secret-tcp-{k}.evil.test', k), tcp=True))
           for k in (1, 16, 255)},
        'other server': lambda: dns(question('secret-8.evil.test'), to=('8.8.8.8', 53)),
        'other server, tcp': lambda: dns(
            question('secret-9.evil.test'), to=('8.8.8.8', 53), tcp=True),
        'two questions': lambda: dns(question('secret-two.evil.test', count=2)),
        'none': lambda: dns(question('secret-none.evil.test')[:12]),
        'large': lambda: dns(question('secret-large.evil.test', tail=b'\\0' * 4000)),
        'loop': lambda: dns(question('')[:12] + b'\\xc0\\x0c\\0\\x01\\0\\x01'),
        'forward pointer': lambda: dns(question('')[:12] + b'\\xc0\\xff\\0\\x01\\0\\x01'),
        'long label': lambda: dns(question('')[:12] + b'\\x3f' + b'a' * 10),
        'long name': lambda: dns(question('.'.join(['c' * 60] * 8))),
        'an answer': lambda: dns(question('secret-answer.evil.test', flags=0x8180)),
        'update': lambda: dns(question('secret-update.evil.test', flags=0x2800)),
        'empty': lambda: dns(b''),
        'one byte': lambda: dns(b'x'),
        'CHAOS': lambda: dns(question('version.bind')[:-2] + b'\\0\\x03'),
        }""",
    )
    assert len(world.names.questions) == asked, world.names.questions[asked:]
    told = {label: said for label, said in found.items() if said["end"] not in ("answer", "eof")}
    # What is not a question has no answer; everything else has one at once.
    assert set(told) <= {"empty", "one byte", "an answer", "loop", "forward pointer"}, told
    assert found["kind 1"]["answers"] == 1, "a denied name has an address too, of nobody"
    assert found["kind 28"] | {"seconds": 0, "data": "", "size": 0} == {
        "end": "answer",
        "code": 0,
        "answers": 0,
        "truncated": False,
        "seconds": 0,
        "data": "",
        "size": 0,
    }
    for kind in (16, 65, 64, 15):
        assert found[f"kind {kind}"]["answers"] == 0


def test_an_allowed_name_is_told_when_it_is_connected_to(box: Box, world: World) -> None:
    """Control: the name server is in use, and not before a connection needs it."""
    world.names.tell("seen.rebind.test", ["192.0.2.1"])
    found = box.try_all("{'look': lambda: lookup('seen.rebind.test')}")
    address = found["look"]["value"][0]
    assert address.startswith(("198.18.", "198.19.")), found
    assert not world.names.asked("seen.rebind")
    box.try_all("{'go': lambda: talk('seen.rebind.test', V['port'], '<x>')}", port=world.plain.port)
    assert world.names.asked("seen.rebind")


def test_names_of_a_sandbox_keep_their_addresses(box: Box) -> None:
    found = box.probe(
        "first = [lookup(n) for n in V['names']]\n"
        "answer(first=first, again=[lookup(n) for n in V['names']])",
        names=["good.test", "GOOD.test.", "evil.test", "a.evil.test"],
    )
    assert found["first"] == found["again"]
    assert found["first"][0] == found["first"][1]
    assert len({tuple(each) for each in found["first"]}) == 3


def test_encrypted_questions_are_connections_like_others(box: Box, world: World) -> None:
    """DoT and DoH to well-known servers: no rule, no way."""
    found = box.try_all(
        """{
        'dot': lambda: tls('8.8.8.8', 853, 'dns.google', question('secret-dot.evil.test')),
        'doh': lambda: tls('1.1.1.1', 443, 'cloudflare-dns.com', get('cloudflare-dns.com')),
        'doh by name': lambda: tls('dns.google', 443, 'dns.google', get('dns.google')),
        'plain': lambda: talk('8.8.8.8', 80, get('8.8.8.8', '/resolve?name=secret.evil.test')),
        }"""
    )
    assert not [label for label, said in found.items() if said["connected"] and label != "plain"]
    assert found["plain"]["got"].startswith("HTTP/1.1 403"), found["plain"]
    for host, port in (("8.8.8.8", 853), ("1.1.1.1", 443), ("dns.google", 443), ("8.8.8.8", 80)):
        box.event("network.deny", host=host, port=port)


def test_a_refusal_is_written_for_whoever_reads_it(box: Box, world: World) -> None:
    """Plain HTTP: JSON that says which host, why and who can change it; and nothing hangs."""
    found = box.try_all(
        "{'it': lambda: talk('evil.test', V['port'], get('evil.test'))}", port=world.plain.port
    )["it"]
    head, _, body = found["got"].partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 403"), found
    assert "application/json" in head.lower()
    assert "evil.test" in body
    assert "agentkernel network" in body
