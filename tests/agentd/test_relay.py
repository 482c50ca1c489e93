"""The TCP relay to ports of the sandbox's loopback."""

from __future__ import annotations

import secrets
import sys
from typing import Any

import pytest

from .harness import Guest, Host, Refused, Stream

# Echoes every connection until its end of file. On port 7000, or on ::1 with an argument.
ECHO = """
import socket, sys, threading
family = socket.AF_INET6 if len(sys.argv) > 1 else socket.AF_INET
listener = socket.socket(family, socket.SOCK_STREAM)
listener.bind((sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1", 7000))
listener.listen(64)
print("listening", flush=True)
def serve(connection):
    while data := connection.recv(65536):
        connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)
    connection.close()
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


def serve(host: Host, program: str = ECHO, *args: str) -> Stream:
    stream = host.exec([sys.executable, "-c", program, *args])
    assert host.pump(lambda: b"listening" in stream.out or stream.over), stream
    assert not stream.over, bytes(stream.err)
    return stream


def dial(host: Host, /, **args: Any) -> Stream:
    stream = host.open("tcp", port=7000, **args)
    assert host.pump(lambda: stream.event("connected") is not None or stream.over)
    if stream.error:
        raise stream.error
    return stream


def test_echo(host: Host) -> None:
    serve(host)
    data = secrets.token_bytes(2_000_000)
    stream = dial(host)
    host.write(stream, data, eof=True)
    assert host.finish(stream) == {"out": len(data), "in": len(data)}
    assert bytes(stream.out) == data
    assert stream.event("eof") is None, "both sides closed at once need no event"


def test_many_at_once(host: Host) -> None:
    serve(host)
    streams = [dial(host) for _ in range(40)]
    for number, stream in enumerate(streams):
        host.write(stream, b"%d" % number * 1000, eof=True)
    for number, stream in enumerate(streams):
        host.finish(stream)
        assert bytes(stream.out) == b"%d" % number * 1000


def test_the_port_stops_sending_first(host: Host) -> None:
    program = """
import socket
listener = socket.create_server(("127.0.0.1", 7000))
print("listening", flush=True)
connection, _ = listener.accept()
connection.sendall(b"bye")
connection.shutdown(socket.SHUT_WR)
print(len(connection.makefile("rb").read()), flush=True)
"""
    server = serve(host, program)
    stream = dial(host)
    assert host.pump(lambda: stream.event("eof") is not None)
    assert bytes(stream.out) == b"bye" and not stream.over
    host.write(stream, b"x" * 100_000, eof=True)
    assert host.finish(stream)["in"] == 100_000
    host.finish(server)
    assert server.out.split()[-1] == b"100000"


def test_reset(host: Host) -> None:
    program = """
import socket, struct
listener = socket.create_server(("127.0.0.1", 7000))
print("listening", flush=True)
connection, _ = listener.accept()
connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
connection.close()
"""
    serve(host, program)
    stream = dial(host)
    host.pump(lambda: stream.over or stream.event("eof") is not None)
    host.write(stream, b"x")
    host.control(stream, eof=True)
    host.finish(stream)
    assert host.call("ping")


def test_nobody_listens(host: Host) -> None:
    with pytest.raises(Refused) as refused:
        dial(host)
    assert refused.value.code == "ECONNREFUSED"


def test_ipv6_loopback(host: Host) -> None:
    serve(host, ECHO, "::1")
    stream = dial(host, host="::1")
    host.write(stream, b"six", eof=True)
    host.finish(stream)
    assert bytes(stream.out) == b"six"


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "0.0.0.0", "10.0.2.2", "localhost", "::", "::ffff:127.0.0.1", "127.1", "fe80::1"],
)
def test_only_loopback(host: Host, address: str) -> None:
    with pytest.raises(Refused) as refused:
        dial(host, host=address)
    assert refused.value.code == "refused"


@pytest.mark.parametrize("port", [0, 65_536, -1, "80"])
def test_ports_that_are_none(host: Host, port: object) -> None:
    with pytest.raises(Refused, match="bad_request"):
        host.call("tcp", port=port)


def test_backpressure(host: Host) -> None:
    """A port that sends without end waits for the host's credit."""
    program = """
import socket
listener = socket.create_server(("127.0.0.1", 7000))
print("listening", flush=True)
connection, _ = listener.accept()
while True:
    connection.sendall(bytes(65536))
"""
    serve(host, program)
    stream = dial(host, window=10_000, credit=False)
    assert host.pump(lambda: stream.out_count == 10_000)
    assert not host.pump(lambda: stream.out_count > 10_000, 0.3)
    host.grant(stream, 1, 1_000_000)
    assert host.pump(lambda: stream.out_count == 1_010_000)
    host.send(stream.id, 5, b"\x80")
    assert host.call("ping")


def test_a_lost_host_closes_its_connections(guest: Guest, host: Host) -> None:
    program = """
import socket
listener = socket.create_server(("127.0.0.1", 7000))
print("listening", flush=True)
connection, _ = listener.accept()
print("end", connection.recv(10), flush=True)
"""
    server = host.exec([sys.executable, "-c", program], job=True, id="s" * 20)
    assert host.pump(lambda: b"listening" in server.out)
    dial(host)
    host.close()
    second = guest.connect()
    again = second.open("attach", id="s" * 20)
    assert second.finish(again)["code"] == 0
    assert b"end b''" in again.out
