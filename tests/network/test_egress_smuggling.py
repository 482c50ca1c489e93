"""Requests that two parsers read differently: what is not plain is refused, nothing rides along."""

from __future__ import annotations

import pytest

from .world.boxes import Box
from .world.everything import World

# Each holds a second request that a lenient reader would find where a strict one sees a body, or
# the other way round. It is recognised by "wrong" at the servers.
SMUGGLED = r"""{
    'length and chunks': post('Content-Length: 6\r\nTransfer-Encoding: chunked\r\n',
                              '0\r\n\r\n' + second),
    'chunks and length': post('Transfer-Encoding: chunked\r\nContent-Length: %d\r\n'
                              % (5 + len(second)), '0\r\n\r\n' + second),
    'two lengths': post('Content-Length: 0\r\nContent-Length: %d\r\n' % len(second), second),
    'lengths in a list': post('Content-Length: 0, %d\r\n' % len(second), second),
    'length with a sign': post('Content-Length: +0\r\n', second),
    'length in hex': post('Content-Length: 0x0\r\n', second),
    'length with a space': post('Content-Length : 0\r\n', second),
    'length with an underscore': post('Content-Length: 1_0\r\n', second),
    'negative length': post('Content-Length: -1\r\n', second),
    'huge length': post('Content-Length: 99999999999999999999999\r\n', second),
    'chunked, twice': post('Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n',
                           '0\r\n\r\n' + second),
    'chunked, not last': post('Transfer-Encoding: chunked, gzip\r\n', '0\r\n\r\n' + second),
    'chunked, misspelt': post('Transfer-Encoding: xchunked\r\n', '0\r\n\r\n' + second),
    'chunked, a tab before': post('Transfer-Encoding:\x0bchunked\r\n', '0\r\n\r\n' + second),
    'chunked in version 1.0': post('Transfer-Encoding: chunked\r\n', '0\r\n\r\n' + second
                                   ).replace('HTTP/1.1', 'HTTP/1.0', 1),
    'folded': post('X-A: b\r\n Transfer-Encoding: chunked\r\nContent-Length: 0\r\n', second),
    'folded value': post('Transfer-Encoding:\r\n chunked\r\nContent-Length: %d\r\n' % len(second),
                         second),
    'bare line feeds': ('POST %s HTTP/1.1\nHost: %s\nContent-Length: 0\n\n' % (V['path'], V['host'])
                        + second),
    'bare line feed in a header': post('X-A: b\nHost: twin.test\r\nContent-Length: 0\r\n', ''),
    'bare return in a header': post('X-A: b\rHost: twin.test\r\nContent-Length: 0\r\n', ''),
    'NUL in a header': post('X-A: b\0c\r\nContent-Length: 0\r\n', second),
    'header without a name': post(': x\r\nContent-Length: 0\r\n', second),
    'header without a colon': post('Wrong\r\nContent-Length: 0\r\n', second),
    'space in the target': post('Content-Length: 0\r\n', '').replace(
        V['path'], V['path'] + ' HTTP/1.1\r\nHost: twin.test\r\nX: GET /wrong', 1),
    'chunk size with a sign': post('Transfer-Encoding: chunked\r\n', '+0\r\n\r\n' + second),
    'chunk size too long': post('Transfer-Encoding: chunked\r\n', 'f' * 40 + '\r\n' + second),
    'chunk size in 0x': post('Transfer-Encoding: chunked\r\n', '0x0\r\n\r\n' + second),
    'chunk end bare': post('Transfer-Encoding: chunked\r\n', '1\nx\n0\n\n' + second),
    'chunk without an end': post('Transfer-Encoding: chunked\r\n', '1\r\nxx\r\n0\r\n\r\n' + second),
    'chunk extension with a line feed': post('Transfer-Encoding: chunked\r\n',
                                             '1;a=b\nx\r\n0\r\n\r\n' + second),
    'trailer as a request': post('Transfer-Encoding: chunked\r\n',
                                 '0\r\nHost: twin.test\r\n\r\n' + second),
    'body of a GET': 'GET %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n' % (
        V['path'], V['host'], len(second)) + second,
    'expect': post('Expect: 100-continue\r\nContent-Length: %d\r\n' % len(second), second),
    'upgrade': post('Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n', second),
    'version': post('Content-Length: 0\r\n', second).replace('HTTP/1.1', 'HTTP/1.2', 1),
    'no version': 'POST %s\r\nHost: %s\r\n\r\n' % (V['path'], V['host']) + second,
    'empty lines first': '\r\n\r\n' + second,
}"""
PREPARE = """
V['host'] = '%s:%d' % (V['name'], V['port'])
second = 'GET /wrong HTTP/1.1\\r\\nHost: twin.test\\r\\nConnection: close\\r\\n\\r\\n'
def post(headers, body):
    return 'POST %s HTTP/1.1\\r\\nHost: %s\\r\\n%s\\r\\n%s' % (V['path'], V['host'], headers, body)
def send(data):
    if V['secure']: return tls(V['name'], V['port'], V['name'], data)
    return talk(V['name'], V['port'], data)
"""


@pytest.fixture(scope="module")
def poster(daemon, world):  # type: ignore[no-untyped-def]
    """A sandbox that may POST to one path of a host, so that bodies are looked at."""
    ports = [world.plain.port, world.tls.port]
    rule = {"host": "good.test", "ports": ports, "methods": ["GET", "POST"], "paths": ["/post*"]}
    caps = {"connections": 2000, "connections_per_second": 5000}
    box = daemon.box(network={"presets": [], "rules": [rule], "caps": caps})
    yield box
    box.remove()


@pytest.mark.parametrize("secure", [True, False], ids=["intercepted", "plain"])
def test_nothing_rides_along(poster: Box, world: World, secure: bool) -> None:
    server = world.tls if secure else world.plain
    given = {"name": "good.test", "path": "/post", "secure": secure, "port": server.port}
    begun, visits = server.since(), server.mark()
    found = poster.probe(
        PREPARE + f"answer(cases=side_by_side({{k: (lambda d=d: send(d)) for k, d in {SMUGGLED}"
        ".items()}))",
        **given,
    )["cases"]
    assert not {k: v for k, v in found.items() if v["end"] in ("timeout", "hang")}
    targets = {(request.method, request.path) for request in begun()}
    assert targets <= {("POST", "/post"), ("GET", "/post")}, targets
    hosts = {request.headers.get("host", "").partition(":")[0] for request in begun()}
    assert hosts <= {"good.test"}, hosts
    # As the body of one request it may pass where its length is beyond doubt; then it is one.
    for visit in visits():
        for head in bytes(visit.received).split(b"POST /post")[1:]:
            lines = head.partition(b"\r\n\r\n")[0].lower()
            framing = lines.count(b"content-length:") + lines.count(b"transfer-encoding:")
            assert framing <= 1, head[:200]
    for label in ("length and chunks", "two lengths", "folded", "bare line feeds"):
        status = found[label]["got"].split(" ")[1:2]
        assert status in (["400"], []), (label, found[label])


@pytest.mark.parametrize("secure", [True, False], ids=["intercepted", "plain"])
def test_plain_bodies_pass(poster: Box, world: World, secure: bool) -> None:
    """Control: a body with a length, one in chunks with extensions and trailers, one byte a time,
    two requests in one write."""
    server = world.tls if secure else world.plain
    requests = server.since()
    found = poster.probe(
        PREPARE
        + r"""
plain = post('Connection: close\r\nContent-Length: 5\r\n', 'hello')
chunked = post('Connection: close\r\nTransfer-Encoding: chunked\r\n',
               '3;a=b\r\nhel\r\n2\r\nlo\r\n0\r\nX-T: 1\r\n\r\n')
answer(cases=side_by_side({
    'length': lambda: send(plain), 'chunks': lambda: send(chunked),
    'two': lambda: send(plain.replace('Connection: close\r\n', '') + plain),
}))""",
        name="good.test",
        path="/post",
        secure=secure,
        port=server.port,
    )["cases"]
    for label, said in found.items():
        assert "hello good.test" in said["got"], (label, said)
    assert found["two"]["got"].count("HTTP/1.1 200") == 2
    assert [request.body for request in requests()] == [b"hello"] * 4


def test_heads_and_bodies_without_an_end(poster: Box, world: World) -> None:
    """Bounded: endless headers, a huge header, many of them, a huge target; each is answered."""
    found = poster.probe(
        PREPARE
        + r"""
def endless():
    with connect(V['name'], V['port']) as s:
        s.sendall(raw('GET /post HTTP/1.1\r\nHost: %s\r\n' % V['host']))
        try:
            for i in range(20000): s.sendall(b'X-%d: ' % i + b'y' * 1000 + b'\r\n')
        except OSError as e: return {'got': '', 'end': name_of(e), 'sent': i}
        return {'got': '', 'end': 'all taken', 'sent': i}
answer(cases=side_by_side({
    'endless': endless,
    'huge header': lambda: send(post('X: ' + 'y' * (4 << 20) + '\r\n', '')),
    'many headers': lambda: send(post('X: y\r\n' * 200000, '')),
    'huge target': lambda: send('GET /post' + 'y' * (2 << 20) + ' HTTP/1.1\r\nHost: x\r\n\r\n'),
    'no line': lambda: send('G' * (2 << 20)),
}))""",
        name="good.test",
        path="/post",
        secure=False,
        port=world.plain.port,
        limit=15,
    )["cases"]
    assert not {k: v for k, v in found.items() if v["end"] in ("timeout", "hang", "all taken")}
    assert not {k: v for k, v in found.items() if " 200 " in v["got"]}
