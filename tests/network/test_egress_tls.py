"""What TLS says of where it goes: address, greeting and the Host of a request have to agree."""

from __future__ import annotations

from typing import Any

import pytest

from .world.boxes import Box
from .world.everything import BAD, World

ANSWERED = "22"
"""The type of a handshake record: whoever is there has answered the greeting."""


def _ports(world: World) -> dict[str, int]:
    return {"tls": world.tls.port, "plain": world.plain.port}


def _seen(world: World) -> tuple[int, ...]:
    return tuple(len(listener.visits) for listener in world.listeners)


def test_greetings_that_agree_pass(box: Box, world: World) -> None:
    """Control: in one piece, in records of a few bytes, in single bytes, in odd spellings."""
    found = box.try_all(
        """{
        'whole': lambda: at_good(records(hello('good.test'))),
        'records': lambda: at_good(records(hello('good.test'), 7)),
        'bytes': lambda: at_good(records(hello('good.test')), size=1),
        'late bytes': lambda: at_good(records(hello('good.test')),
                                    pause=0.05, size=40),
        'upper case': lambda: at_good(records(hello('GOOD.Test'))),
        'request': lambda: tls('good.test', V['tls'], 'good.test', get('good.test')),
        'intercepted, version 2 offered': lambda: tls('other.test', V['tls'], 'other.test',
            get('other.test', '/api/2'), verify=True, alpn=['h2', 'http/1.1']),
        'proxy': lambda: tls(*PROXY, 'good.test', get(f"good.test:{V['tls']}"), through=
            f"CONNECT good.test:{V['tls']} HTTP/1.1\\r\\nHost: good.test:{V['tls']}\\r\\n\\r\\n"),
        }""",
        **_ports(world),
    )
    assert "hello other.test" in found.pop("intercepted, version 2 offered")["got"]
    for label in ("request", "proxy"):
        assert "hello good.test" in found.pop(label)["got"]
    assert {k: v["end"] for k, v in found.items()} == dict.fromkeys(found, ANSWERED)


def test_greetings_that_disagree_are_reset(box: Box, world: World) -> None:
    before = _seen(world)
    found = box.try_all(
        """{
        'other name': lambda: at_good(records(hello('twin.test'))),
        'other name in records': lambda: at_good(records(hello('twin.test'), 3)),
        'other name in bytes': lambda: at_good(records(hello('twin.test')),
                                             size=1),
        'two names': lambda: at_good(records(hello(['good.test', 'twin.test']))),
        'two lists': lambda: at_good(records(hello('good.test',
            (0, b'\\0\\x0c\\0\\0\\x09twin.test')))),
        'name with NUL': lambda: at_good(records(hello('twin.test\\0.good.test'))),
        'name with a tail': lambda: at_good(records(hello('good.test.evil.test'))),
        'empty name': lambda: at_good(records(hello(''))),
        'no name': lambda: at_good(records(hello(None))),
        'an address as a name': lambda: at_good(records(hello('127.0.0.1'))),
        'denied address, allowed name': lambda: greet('twin.test', V['tls'],
            records(hello('good.test'))),
        'foreign address, allowed name': lambda: greet('203.0.113.5', V['tls'],
            records(hello('good.test'))),
        'denied': lambda: greet('twin.test', V['tls'], records(hello('twin.test'))),
        'proxy, other name': lambda: tls(*PROXY, 'twin.test', get('twin.test'), through=
            f"CONNECT good.test:{V['tls']} HTTP/1.1\\r\\nHost: good.test:{V['tls']}\\r\\n\\r\\n"),
        'proxy, denied': lambda: tls(*PROXY, 'good.test', get('good.test'), through=
            f"CONNECT twin.test:{V['tls']} HTTP/1.1\\r\\nHost: good.test\\r\\n\\r\\n"),
        'socks, other name': lambda: socks5('good.test', V['tls'], records(hello('twin.test'))),
        'not a greeting': lambda: at_good(b'\\x16\\x03\\x01\\0\\x05\\2\\0\\0\\1x'),
        'a greeting of nothing': lambda: at_good(b'\\x16\\x03\\x01\\0\\0' * 9),
        'much too long': lambda: at_good(
            records(b'\\x01\\xff\\xff\\xff' + bytes(300000))),
        'old version': lambda: at_good(b'\\x80\\x2e\\x01\\0\\x02' + bytes(41)),
        }""",
        **_ports(world),
    )
    wrong = {k: v for k, v in found.items() if v["got"] and "proxy" not in k}
    assert not wrong
    assert not {k: v for k, v in found.items() if v["end"] in ("timeout", "hang", ANSWERED)}
    assert "hello" not in found["proxy, other name"]["got"]
    assert found["proxy, denied"]["got"].startswith("HTTP/1.1 403")
    seen = [visit.sni for visit in world.tls.visits[before[1] :]]
    assert not [name for name in seen if name != "good.test"], seen
    assert all(not visit.received for visit in world.tls.visits[before[1] :])
    box.event("network.deny", host="twin.test", via="tls")
    box.event("network.deny", host="203.0.113.5", port=world.tls.port)


def test_hidden_names_have_a_clear_answer(box: Box, world: World) -> None:
    """A greeting whose true name is encrypted tells only its outer one; it is not passed on."""
    visits = world.tls.mark()
    found = box.try_all(
        """{
        'hidden': lambda: at_good(records(hello('good.test',
            (0xfe0d, b'\\0\\0\\x01\\0\\x01\\x07\\0\\x20' + os.urandom(32)
                     + b'\\0\\x40' + os.urandom(64))))),
        }""",
        **_ports(world),
    )
    assert not {k: v for k, v in found.items() if v["got"]}, found
    assert not visits()
    assert box.event("network.deny", host="good.test", via="tls")["reason"]


REQUESTS = """{
    'host': lambda: ask(get('twin.test', '/api/host')),
    'host with port': lambda: ask(get('twin.test:%d' % V['tls'], '/api/hostport')),
    'absolute': lambda: ask(get('other.test', 'https://twin.test/api/absolute')),
    'absolute, odd': lambda: ask(get('other.test', 'http://twin.test/api/scheme')),
    'two hosts': lambda: ask(get('other.test', '/api/two', headers='Host: twin.test\\r\\n')),
    'two hosts, turned': lambda: ask(get('twin.test', '/api/turned',
                                         headers='Host: other.test\\r\\n')),
    'no host': lambda: ask('GET /api/nohost HTTP/1.1\\r\\nConnection: close\\r\\n\\r\\n'),
    'host of a suffix': lambda: ask(get('other.test.evil.test', '/api/suffix')),
    'host with NUL': lambda: ask(get('other.test\\0twin.test', '/api/nul')),
    'method': lambda: ask(get('other.test', '/api/method', method='POST', body='x')),
    'path': lambda: ask(get('other.test', '/private')),
    'path up': lambda: ask(get('other.test', '/api/../private')),
    'path up, escaped': lambda: ask(get('other.test', '/api/%2e%2e/private')),
    'path up, twice': lambda: ask(get('other.test', '/api/..%2fprivate')),
    'path doubled': lambda: ask(get('other.test', '//api/../private')),
    'backslash': lambda: ask(get('other.test', '/api/..\\\\private')),
    'second request': lambda: ask(get('other.test', '/api/first', close=False)
                                  + get('twin.test', '/api/second')),
    'second path': lambda: ask(get('other.test', '/api/one', close=False)
                               + get('other.test', '/private')),
    'connect inside': lambda: ask('CONNECT twin.test:%d HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n'
                                  % V['tls']),
    'star': lambda: ask(get('other.test', '*', method='OPTIONS')),
    'version 2': lambda: ask('PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n'),
    'upgrade to 2': lambda: ask(get('other.test', '/api/h2c', close=False, headers=
        'Connection: Upgrade, HTTP2-Settings\\r\\nUpgrade: h2c\\r\\n'
        'HTTP2-Settings: AAMAAABk\\r\\n')),
    'version 0.9': lambda: ask('GET /private\\r\\n\\r\\n'),
}"""
ASK = "def ask(data): return tls('other.test', V['tls'], 'other.test', data)\n"


def _ask(box: Box, world: World, cases: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = box.probe(
        ASK + f"answer(cases=side_by_side({cases}))", **_ports(world)
    )["cases"]
    return found


def test_every_request_inside_an_intercepted_connection_is_judged(box: Box, world: World) -> None:
    requests = world.tls.since()
    found = _ask(box, world, REQUESTS)
    slow = {k: v for k, v in found.items() if v["end"] in ("timeout", "hang")}
    assert not slow
    got = [(request.method, request.headers.get("host"), request.target) for request in requests()]
    allowed = [each for each in got if each[2] in ("/api/first", "/api/one", "/api/h2c")]
    assert got == allowed, "only what its rule allows arrives"
    port = world.tls.port
    hosts = {host for _, host, _ in allowed}
    assert hosts <= {"other.test", f"other.test:{port}"}
    assert all("upgrade" not in request.headers for request in requests())
    for label in ("host", "method", "path", "path up", "two hosts"):
        status = found[label]["got"].split(" ")[1:2]
        assert status in (["403"], ["400"], ["421"]), (label, found[label])
    box.event("network.deny", host="other.test", path="/private")
    box.event("network.deny", host="other.test", method="POST")


def test_an_allowed_request_arrives_over_the_interception(box: Box, world: World) -> None:
    """Control: the same connection, the same rule, and a guest that trusts what it is shown."""
    requests = world.tls.since()
    found = box.try_all(
        """{'it': lambda: tls('other.test', V['tls'], 'other.test',
                              get('other.test', '/api/x?q=1'), verify=True)}""",
        **_ports(world),
    )["it"]
    assert "hello other.test" in found["got"], found
    assert [request.target for request in requests()] == ["/api/x?q=1"]
    assert "Test Authority" not in found["issuer"]
    event = box.event("network.allow", host="other.test", path="/api/x")
    assert event["method"] == "GET"


@pytest.mark.parametrize("name", BAD)
def test_servers_that_can_not_be_trusted_get_no_byte(box: Box, world: World, name: str) -> None:
    visits = world.tls.mark()
    found = box.try_all(
        """{'it': lambda: tls(V['name'], V['tls'], V['name'], get(V['name'],
            headers='Authorization: Bearer nothing\\r\\n'))}""",
        name=name,
        **_ports(world),
    )["it"]
    assert "hello" not in found["got"]
    assert visits(), "control: it was asked for its certificate"
    assert all(not visit.received for visit in visits())
    box.event("network.fault", host=name)


def test_plain_requests_are_judged_by_name_and_host(box: Box, world: World) -> None:
    """Two names on one address: the Host decides nothing that the address does not."""
    requests = world.plain.since()
    found = box.try_all(
        """{
        'good': lambda: at_plain(get('good.test', '/fine')),
        'other host': lambda: at_plain(get('twin.test', '/wrong-1')),
        'other address': lambda: talk('twin.test', V['plain'], get('good.test', '/wrong-2')),
        'absolute': lambda: at_plain(get('good.test', 'http://twin.test/wrong-3')),
        'pipelined': lambda: at_plain(get('good.test', '/fine', close=False)
                                  + get('twin.test', '/wrong-4')),
        'later': lambda: at_plain(get('good.test', '/fine', close=False),
                              get('twin.test', '/wrong-5'), pause=0.3),
        'two hosts': lambda: at_plain(get('good.test', '/wrong-6',
                                  headers='Host: twin.test\\r\\n')),
        'connect inside': lambda: at_plain(
            'CONNECT twin.test:%d HTTP/1.1\\r\\nHost: good.test\\r\\n\\r\\n' % V['plain']),
        'bytewise': lambda: at_plain(*get('twin.test', '/wrong-7'), pause=0.005),
        }""",
        **_ports(world),
    )
    assert "hello good.test" in found["good"]["got"], "control"
    assert not {k: v for k, v in found.items() if v["end"] in ("timeout", "hang")}
    assert [r.target for r in requests() if "wrong" in r.target or r.method == "CONNECT"] == []
    assert {r.headers["host"].partition(":")[0] for r in requests()} == {"good.test"}
    for label in ("other host", "other address"):
        assert found[label]["got"].startswith("HTTP/1.1 4"), (label, found[label])
