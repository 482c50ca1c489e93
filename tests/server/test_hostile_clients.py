"""Clients that mean harm, at both doors. Each is refused in a typed way or cut off, and the daemon
is as it was before: it answers, has not grown, and holds no descriptor more."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import resource
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from .daemon_process import SECONDS, eventually
from .network_process import Caller, NetworkDaemon

GROWTH = 48 << 20
DOORS = ("socket", "network")


class Client:
    """Raw bytes to one of the doors, from somebody who could be let in."""

    def __init__(self, daemon: NetworkDaemon, door: str) -> None:
        self.daemon = daemon
        self.door = door
        self.caller = daemon.caller(f"hostile-{door}") if door == "network" else None
        self.host = self.caller.host if self.caller else "agentkernel"

    @property
    def token_line(self) -> str:
        return f"Authorization: Bearer {self.caller.token}\r\n" if self.caller else ""

    def raw(self) -> socket.socket:
        if self.caller:
            return self.caller.raw()
        while True:  # the daemon may be slower to accept than we are to come
            with contextlib.suppress(BlockingIOError):
                return self.daemon.raw()

    def head(self, line: str, *more: str) -> bytes:
        lines = "".join(f"{entry}\r\n" for entry in more)
        return f"{line} HTTP/1.1\r\nHost: {self.host}\r\n{self.token_line}{lines}\r\n".encode(
            "latin-1"
        )

    def tell(self, data: bytes) -> bytes:
        """Sends, and reads to the end of the connection, which is for the daemon to make."""
        with self.raw() as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(data)
            return self.rest(connection)

    def one(self, data: bytes) -> tuple[int, dict[str, Any]]:
        """The first answer to some bytes, on a connection that stays open for it."""
        with self.raw() as connection:
            connection.sendall(data)
            return read_answer(connection)

    @staticmethod
    def rest(connection: socket.socket) -> bytes:
        told = b""
        with contextlib.suppress(ConnectionError):
            while data := connection.recv(1 << 16):
                told += data
        return told

    def handshake(self, path: str) -> socket.socket:
        connection = self.raw()
        connection.sendall(
            self.head(
                f"GET {path}",
                "Upgrade: websocket",
                "Connection: Upgrade",
                "Sec-WebSocket-Version: 13",
                f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
            )
        )
        told = b""
        while b"\r\n\r\n" not in told:
            data = connection.recv(1)
            assert data, told
            told += data
        assert b" 101 " in told, told
        return connection


def read_answer(connection: socket.socket) -> tuple[int, dict[str, Any]]:
    told = b""
    while b"\r\n\r\n" not in told:
        data = connection.recv(1 << 16)
        assert data, told
        told += data
    head, _, body = told.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(1 << 16)
    return int(head.split()[1]), json.loads(body)


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, masked: bool = True) -> bytes:
    head = bytes(((0x80 if fin else 0) | opcode,))
    mask = 0x80 if masked else 0
    if len(payload) < 126:
        head += bytes((mask | len(payload),))
    elif len(payload) < 1 << 16:
        head += bytes((mask | 126,)) + len(payload).to_bytes(2)
    else:
        head += bytes((mask | 127,)) + len(payload).to_bytes(8)
    return head + (b"\0\0\0\0" if masked else b"") + payload


@pytest.fixture(params=DOORS)
def client(request: pytest.FixtureRequest, network_daemon: NetworkDaemon) -> Iterator[Client]:
    daemon = network_daemon
    client = Client(daemon, request.param)
    assert daemon.request("GET", "/v1/version")[0] == 200
    descriptors, memory = daemon.descriptors(), daemon.memory()
    yield client
    status, _ = daemon.request("GET", "/v1/version")
    assert status == 200
    if client.caller:
        assert client.caller.request("GET", "/v1/version")[0] in (200, 429)
    eventually(lambda: daemon.descriptors() <= descriptors)
    assert daemon.memory() - memory < GROWTH, "it has grown"
    assert "Traceback" not in daemon.log()


def test_control_an_honest_client_is_served(client: Client) -> None:
    status, body = client.one(client.head("GET /v1/version"))
    assert (status, body["api"]) == (200, 1)
    connection = client.handshake("/v1/run/stream")
    connection.sendall(frame(1, json.dumps({"command": {"shell": "echo here"}}).encode()))
    connection.sendall(frame(10, b"pong"))
    told = b""
    while b'"exit"' not in told:
        told += connection.recv(1 << 16)
    assert b"here\n" in told
    connection.sendall(frame(8, b"\x03\xe8"))
    client.rest(connection)
    connection.close()


# -- who, and where to --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/v1/../v1/version",
        "/v1/%2e%2e/v1/version",
        "/v1/sandboxes/..%2f..%2fversion",
        "/v1/sandboxes/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/v1/sandboxes/%00",
        "/v1/version%00",
        "/v1/version/",
        "//v1/version",
        "/v1//version",
        "/V1/version",
        "/v1/version;x=1",
        "/v1/version%3fx",
        "/v1/sandboxes/%ff%fe",
        "/v1/jobs/%c0%ae%c0%ae",
        "/v1/tokens/%2e%2e",
        "/" + "a" * 60000,
        "/" + "../" * 10000,
        "*",
    ],
)
def test_paths_with_tricks_lead_nowhere(client: Client, path: str) -> None:
    status, body = client.one(client.head(f"GET {path}"))
    assert (status, body["code"]) in ((404, "not_found"), (400, "invalid_input"),
                                      (405, "invalid_input"))  # fmt: skip


def test_a_whole_address_for_a_path_changes_nothing(client: Client) -> None:
    """What counts is the Host header, which was looked at."""
    status, _ = client.one(client.head("GET http://evil.example/v1/version"))
    assert status in (200, 400)
    if client.caller:
        head = client.head("GET http://localhost/v1/version").replace(
            client.host.encode(), b"evil.example"
        )
        assert client.one(head)[0] == 403


def test_sandboxes_of_others_are_not_there(client: Client) -> None:
    daemon = client.daemon
    owner = {"Agentkernel-Owner": "mcp:victim"}
    _, made = daemon.request("POST", "/v1/sandboxes", {"name": "v", "ephemeral": True}, owner)
    stranger = daemon.caller("stranger") if client.caller else None
    try:
        for id in (made["id"], "v", made["id"].upper(), f"{made['id']}%00", f"%20{made['id']}"):
            path = f"/v1/sandboxes/{id}"
            if stranger:
                status, body = stranger.request("GET", path)
            else:
                headers = {"Agentkernel-Owner": "mcp:stranger"}
                status, body = daemon.request("GET", path, headers=headers)
            assert (status, body["code"]) == (404, "not_found")
        assert daemon.request("GET", f"/v1/sandboxes/{made['id']}", headers=owner)[0] == 200
    finally:
        daemon.request("DELETE", f"/v1/sandboxes/{made['id']}")


@pytest.mark.parametrize(
    "line",
    [
        "X: a\rb",
        "X: a\nAuthorization: Bearer b",
        "X : space",
        "X\0: y",
        ": nameless",
        "X: \x01",
        " folded",
    ],
)
def test_headers_that_are_none_are_refused(client: Client, line: str) -> None:
    told = client.tell(client.head("GET /v1/nowhere", "Connection: close", line))
    status = int(told.split()[1])
    assert status in (400, 403, 404), told
    assert b"X: " not in told.partition(b"\r\n\r\n")[0], "nothing of it comes back in a header"


def test_what_is_asked_for_never_becomes_a_header(client: Client) -> None:
    for name in ("x%0d%0aSet-Cookie:%20a=b", "x\u2028y".encode().hex()):
        told = client.tell(client.head(f"GET /v1/sandboxes/{name}", "Connection: close"))
        assert b"Set-Cookie" not in told.partition(b"\r\n\r\n")[0]
        assert b" 404 " in told.split(b"\r\n")[0]


# -- how much -----------------------------------------------------------------------------------


def test_ten_gigabytes_are_refused_before_they_come(client: Client) -> None:
    head = client.head("POST /v1/run", f"Content-Length: {10 << 30}")
    with client.raw() as connection:
        connection.sendall(head + b"{")
        status, body = read_answer(connection)
        assert (status, body["code"]) == (413, "invalid_input")
        # Whoever goes on sending is cut off, and not after ten gigabytes.
        sent = 0
        with contextlib.suppress(ConnectionError):
            deadline = time.monotonic() + SECONDS
            while time.monotonic() < deadline:
                sent += connection.send(b"x" * (1 << 16))
        assert time.monotonic() < deadline, "it is still read"
        assert sent < 10 << 30


def test_chunks_without_end_are_refused(client: Client) -> None:
    head = client.head("POST /v1/run", "Transfer-Encoding: chunked")
    piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    with client.raw() as connection:
        connection.sendall(head)
        told = b""
        with contextlib.suppress(ConnectionError):
            for _ in range(1000):
                connection.sendall(piece)
        with contextlib.suppress(ConnectionError):
            told = client.rest(connection)
    # If the end came while we were still sending, the kernel may have thrown the answer away.
    assert told == b"" or b" 413 " in told


def test_expectations_are_answered_before_the_body(client: Client) -> None:
    head = client.head("POST /v1/run", "Expect: 100-continue", f"Content-Length: {10 << 30}")
    with client.raw() as connection:
        connection.sendall(head)
        assert connection.recv(100).split()[1] == b"413"


@pytest.mark.parametrize("length", ["-1", "0x10", "1e3", "99999999999999999999", "1, 2", "", "+5"])
def test_lengths_that_are_none_are_refused(client: Client, length: str) -> None:
    told = client.tell(client.head("POST /v1/run", f"Content-Length: {length}") + b"{}")
    assert int(told.split()[1]) in (400, 413), told


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 4", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 4"),
        ("Content-Length: 4", "Content-Length: 5"),
        ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding : chunked",),
    ],
)
def test_one_request_is_never_two(client: Client, lines: tuple[str, ...]) -> None:
    """Two ways to say where a body ends are none: what follows must not be taken for a request."""
    inner = client.head("GET /v1/version", "X-Smuggled: 1")
    told = client.tell(client.head("POST /v1/run", *lines) + b"0\r\n\r\n" + inner)
    assert int(told.split()[1]) in (400, 501), told
    assert b'"api":1' not in told, "the inner request was served"


def test_long_extensions_of_a_chunk_are_bounded(client: Client) -> None:
    head = client.head("POST /v1/run", "Transfer-Encoding: chunked")
    with client.raw() as connection, contextlib.suppress(ConnectionError):
        connection.sendall(head + b"1;" + b"x" * 4096)
        for _ in range(256):
            connection.sendall(b"x" * 65536)
    assert client.daemon.request("GET", "/v1/version")[0] == 200


def test_headers_are_bounded(client: Client) -> None:
    for lines in ([f"X{n}: {'y' * 1000}" for n in range(200)], ["X: " + "y" * 200_000],
                  [f"X{n}: y" for n in range(20_000)]):  # fmt: skip
        told = client.tell(client.head("GET /v1/version", *lines))
        assert told == b"" or b" 431 " in told.split(b"\r\n")[0], told[:200]


@pytest.mark.parametrize(
    "query",
    ["&".join(f"label=a{n}=b" for n in range(500)), "x=" + "y" * 60_000, "limit=" + "9" * 5000,
     "after=%00", "state=%ff", "limit=1&limit=2", "owner=" + "*" * 1000],
)  # fmt: skip
def test_queries_are_bounded(client: Client, query: str) -> None:
    status, body = client.one(client.head(f"GET /v1/sandboxes?{query}"))
    assert (status, body.get("code")) in ((400, "invalid_input"), (403, "policy_denied"),
                                          (200, None)), body  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"argv":' * 50_000,
        b'{"argv": ["\xff\xfe"]}',
        b'{"shell": "\xc3\x28"}',
        b"\xff\xfe{\0}\0",
        b'{"shell": "\\ud800"}',
        b'{"a": ' + b"9" * 100_000 + b"}",
        b"NaN",
        b"\0" * 1000,
        b'{"argv": ["true"], "argv2": 1}',
    ],
)
def test_bodies_that_are_no_json_are_refused(client: Client, body: bytes) -> None:
    head = client.head("POST /v1/run", f"Content-Length: {len(body)}")
    status, told = client.one(head + body)
    assert (status, told["code"]) == (400, "invalid_input")


# -- how slowly ---------------------------------------------------------------------------------


def test_hundreds_that_never_ask_keep_nobody_out(client: Client) -> None:
    """Of them the door takes so many and turns the rest away; the other door has its own room."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    many = 2200 if client.door == "socket" else 1200
    wanted = many + 256
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"{wanted} descriptors are needed, {hard} may be had")
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    other = client.daemon.caller("elsewhere") if client.door == "socket" else client.daemon
    with contextlib.ExitStack() as stack:
        for number in range(many):
            connection = stack.enter_context(client.raw())
            with contextlib.suppress(ConnectionError):
                connection.sendall((b"", b"GET /v1/ver", b"\x16\x03\x01")[number % 3])
        assert other.request("GET", "/v1/version")[0] == 200
    eventually(lambda: _served(client))


def _served(client: Client) -> bool:
    try:
        return client.one(client.head("GET /v1/version"))[0] in (200, 429)
    except (AssertionError, OSError):
        return False


def test_sockets_that_are_half_closed_are_let_go(client: Client) -> None:
    before = client.daemon.descriptors()
    with contextlib.ExitStack() as stack:
        for data in (
            b"",
            b"GET /v1/version HTTP/1.1\r\n",
            client.head("POST /v1/run", "Content-Length: 100") + b"{",
            client.head("GET /v1/events"),
        ):
            for _ in range(20):
                connection = stack.enter_context(client.raw())
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
        # We keep our ends, and never read: the daemon lets go all the same.
        eventually(lambda: client.daemon.descriptors() <= before + 4)


def test_who_is_gone_ends_what_they_began(client: Client) -> None:
    def everybodys() -> set[str]:
        _, listed = client.daemon.request("GET", "/v1/sandboxes?owner=*")
        return {entry["id"] for entry in listed["sandboxes"]}

    before = everybodys()
    body = json.dumps({"shell": "sleep 60"}).encode()
    for _ in range(5):
        with client.raw() as connection:
            connection.sendall(client.head("POST /v1/run", f"Content-Length: {len(body)}") + body)
    eventually(lambda: everybodys() <= before)


def test_many_requests_at_once_get_their_answers_in_order(client: Client) -> None:
    count = 150
    told = client.tell(
        client.head("GET /v1/version") * count + client.head("GET /v1/nowhere", "Connection: close")
    )
    assert told.count(b"HTTP/1.1 ") <= count + 1
    assert b'"api":1' in told


# -- WebSockets ---------------------------------------------------------------------------------


def flood(client: Client, pieces: Iterator[bytes], most: int = 64 << 20) -> int:
    """Sends until it is cut off, or `most` bytes: how many went."""
    connection = client.handshake("/v1/run/stream")
    connection.settimeout(3.0)
    sent = 0
    with connection, contextlib.suppress(OSError):
        for piece in pieces:
            connection.sendall(piece)
            sent += len(piece)
            if sent > most:
                break
    return sent


def forever(piece: bytes) -> Iterator[bytes]:
    while True:
        yield piece


def test_pings_whose_answers_nobody_reads(client: Client) -> None:
    sent = flood(client, forever(frame(9, b"x" * 125) * 500))
    assert sent < 64 << 20, "it kept all answers"


def test_a_message_in_empty_pieces(client: Client) -> None:
    def pieces() -> Iterator[bytes]:
        yield frame(1, b"{", fin=False)
        yield from forever(frame(0, fin=False) * 10_000)

    assert flood(client, pieces()) < 64 << 20, "the pieces are kept"


def test_messages_that_nobody_takes(client: Client) -> None:
    """They wait in the socket: the sender stands still."""

    def pieces() -> Iterator[bytes]:
        yield frame(1, json.dumps({"command": {"argv": ["sleep", "60"], "stdin": True}}).encode())
        yield from forever(frame(2, b"\0" + b"x" * 65536))

    assert flood(client, pieces()) < 32 << 20


@pytest.mark.parametrize(
    "data",
    [
        frame(1, b"\xff\xfe"),
        frame(1, b"{}", masked=False),
        frame(3, b"reserved"),
        bytes((0xF1, 0x80, 0, 0, 0, 0)),
        frame(9, b"x" * 200),
        frame(8, b"x"),
        frame(0, b"no beginning"),
        bytes((0x81, 0xFF)) + (1 << 62).to_bytes(8) + b"\0\0\0\0",
        bytes((0x82, 0xFF)) + (2 << 20).to_bytes(8) + b"\0\0\0\0" + b"x" * (2 << 20),
        b"\0" * 4096,
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_frames_that_are_none_end_the_stream(client: Client, data: bytes) -> None:
    connection = client.handshake("/v1/run/stream")
    with connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(data)
        told = client.rest(connection)
    assert not told or told[0] & 0x0F in (2, 8, 10), told


def test_streams_that_say_nothing_are_counted(client: Client) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(client.handshake("/v1/run/stream"))
        assert client.daemon.request("GET", "/v1/version")[0] == 200


def test_upgrades_to_something_else_are_not_made(client: Client) -> None:
    for protocol in ("h2c", "websocket2", "TLS/1.0"):
        status, _ = client.one(
            client.head(
                "GET /v1/version", f"Upgrade: {protocol}", "Connection: Upgrade, HTTP2-Settings",
                "HTTP2-Settings: AAMAAABk",
            )
        )  # fmt: skip
        assert status in (200, 400)


# -- without a token ----------------------------------------------------------------------------


def test_a_flood_without_a_token_neither_grows_nor_fills_the_log(
    network_daemon: NetworkDaemon,
) -> None:
    nobody = Caller(network_daemon, None)
    honest = network_daemon.caller("honest")
    folder = network_daemon.state_dir / "audit"
    before = sum(path.stat().st_size for path in folder.iterdir())
    memory = network_daemon.memory()
    one = f"GET /v1/sandboxes HTTP/1.1\r\nHost: {nobody.host}\r\n\r\n".encode()
    for _ in range(20):
        with nobody.raw() as connection:
            connection.sendall(one * 200)
            connection.shutdown(socket.SHUT_WR)
            Client.rest(connection)
    assert honest.request("GET", "/v1/version")[0] == 200
    assert sum(path.stat().st_size for path in folder.iterdir()) - before < 256 << 10
    assert network_daemon.memory() - memory < GROWTH


def test_a_body_without_a_token_is_not_read(network_daemon: NetworkDaemon) -> None:
    nobody = Caller(network_daemon, None)
    with nobody.raw() as connection:
        head = f"PUT /v1/sandboxes/x/files?path=/x HTTP/1.1\r\nHost: {nobody.host}\r\n"
        connection.sendall(f"{head}Content-Length: {1 << 40}\r\n\r\n".encode())
        status, _ = read_answer(connection)
        assert status in (401, 429)
        connection.settimeout(SECONDS)
        assert connection.recv(1) == b"", "the connection is over"
