"""The world itself, from outside: what the egress tests find in it is there, and is recorded.

These are controls: each server that a guest must not reach answers whoever may.
"""

from __future__ import annotations

import base64
import gzip
import socket
import ssl
import subprocess
import urllib.request
import zlib
from pathlib import Path

import dns.message
import dns.query
import pytest

from .world.everything import BAD, METADATA, World
from .world.web import REFLECTIONS


def _fetch(world: World, name: str, path: str = "/", headers: str = "") -> bytes:
    """One request over TLS, verified as a client does it; the whole answer."""
    context = ssl.create_default_context(cafile=str(world.authority.ca_path))
    with (
        socket.create_connection(("127.0.0.1", world.tls.port), 10) as raw,
        context.wrap_socket(raw, server_hostname=name) as secure,
    ):
        head = f"GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n{headers}\r\n"
        secure.sendall(head.encode())
        got = b""
        while data := secure.recv(65536):
            got += data
        return got


def test_good_names_are_trusted_and_bad_ones_are_not(world: World) -> None:
    assert b"hello good.test" in _fetch(world, "good.test")
    assert world.tls.visits[-1].sni == "good.test"
    assert b"GET / HTTP/1.1\r\nHost: good.test" in world.tls.received()
    for name, words in zip(BAD, ("expired", "self-signed", "mismatch"), strict=True):
        with pytest.raises(ssl.SSLCertVerificationError) as refused:
            _fetch(world, name)
        assert words in str(refused.value).replace(" ", "-").lower()


@pytest.mark.parametrize("how", REFLECTIONS)
def test_what_is_sent_comes_back(world: World, how: str) -> None:
    """Every reflection holds the value, in the form its name says."""
    value = "Value-0123456789abcdef"
    answer = _fetch(world, "good.test", f"/reflect/{how}", f"X-Sent: {value}\r\n")
    body = answer.partition(b"\r\n\r\n")[2]
    if "chunks" in how or how == "bytewise":
        pieces, rest = [], body
        while size := int(rest.partition(b"\r\n")[0], 16):
            rest = rest.partition(b"\r\n")[2]
            pieces.append(rest[:size])
            rest = rest[size + 2 :]
        body = b"".join(pieces)
    if how.startswith("gzip"):
        body = gzip.decompress(body)
    elif how == "deflate":
        body = zlib.decompress(body)
    elif how.startswith("base64"):
        body = base64.b64decode(body)
    assert value.encode() in (answer if how in ("header", "trailer") else body)


def test_the_recorder_the_metadata_and_the_proxy(world: World) -> None:
    with socket.create_connection(("127.0.0.1", world.recorder.port), 10) as visitor:
        visitor.sendall(b"hello recorder")
        assert visitor.recv(100) == b"hello recorder"
    assert b"hello recorder" in world.recorder.received()
    with urllib.request.urlopen(f"http://127.0.0.1:{world.metadata.port}/latest") as found:
        assert found.read() == METADATA
    proxy = f"http://127.0.0.1:{world.forwarder.port}"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": proxy}))
    with opener.open(f"http://anything.test:{world.plain.port}/x") as found:
        assert found.read().startswith(b"hello anything.test")
    assert "http://anything.test" in world.forwarder.heads[-1]


def test_names_flip_and_are_recorded(world: World) -> None:
    world.names.tell("turning.test", ["192.0.2.1"], ["127.0.0.1", "::1"])
    found = []
    for ask in (dns.query.udp, dns.query.tcp, dns.query.udp):
        reply = ask(
            dns.message.make_query("Turning.test", "A"),
            "127.0.0.1",
            port=world.names.port,
            timeout=5,
        )
        found.append([item.to_text() for rrset in reply.answer for item in rrset])
    assert found == [["192.0.2.1"], ["127.0.0.1"], ["127.0.0.1"]]
    asked = world.names.asked("turning")
    assert [(each.kind, each.transport) for each in asked] == [
        ("A", "udp"),
        ("A", "tcp"),
        ("A", "udp"),
    ]


def test_git_and_the_index_serve(world: World, tmp_path: Path) -> None:
    address = f"http://127.0.0.1:{world.plain.port}"
    clone = ["git", "clone", "-q", f"{address}/git/project.git", str(tmp_path / "clone")]
    subprocess.run(clone, check=True, timeout=30, env={"PATH": "/usr/bin:/bin", "HOME": "/"})
    head = (tmp_path / "clone/.git/refs/heads/main").read_text().strip()
    assert head == world.git.head
    with urllib.request.urlopen(f"{address}/simple/worldly/") as page:
        assert world.index.wheel_name.encode() in page.read()
