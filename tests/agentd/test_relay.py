"""The TCP relay to ports of the sandbox's loopback."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from .conftest import Compile
from .harness import Guest, Host, Refused, Stream

# A server on port 7000 of 127.0.0.1, or of ::1 for argv[2]. What it does with a connection is
# argv[1]; all but `echo` serve one.
SERVER = r"""
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
static char buffer[65536];
static long drain(int fd, int echo) {
    long total = 0;
    for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0; total += n)
        for (ssize_t done = 0, m; echo && done < n; done += m)
            if ((m = write(fd, buffer + done, n - done)) < 0)
                return -1;
    return total;
}
int main(int argc, char **argv) {
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(7000)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(7000)};
    int six = argc > 2, fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    v6.sin6_addr = in6addr_loopback;
    if (bind(fd, six ? (void *)&v6 : (void *)&v4, six ? sizeof v6 : sizeof v4) || listen(fd, 64))
        return perror("listen"), 1;
    puts("listening");
    fflush(stdout);
    for (;;) {
        int c = accept(fd, 0, 0);
        if (!strcmp(argv[1], "echo")) {
            if (fork() == 0)
                return drain(c, 1) < 0;
            close(c);
            continue;
        }
        if (!strcmp(argv[1], "bye")) {
            if (write(c, "bye", 3) != 3 || shutdown(c, SHUT_WR))
                return 1;
            printf("%ld\n", drain(c, 0));
        } else if (!strcmp(argv[1], "reset")) {
            struct linger linger = {1, 0};
            setsockopt(c, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
            close(c);
        } else if (!strcmp(argv[1], "flood")) {
            while (write(c, buffer, sizeof buffer) > 0)
                ;
        } else {
            printf("end %ld\n", drain(c, 0));
        }
        return 0;
    }
}
"""


@pytest.fixture
def server(compile_: Compile) -> str:
    return compile_("server", SERVER)


def serve(host: Host, server: str, *args: str, **options: Any) -> Stream:
    stream = host.exec([server, *args], **options)
    assert host.pump(lambda: b"listening" in stream.out or stream.over), stream
    assert not stream.over, bytes(stream.err)
    return stream


def dial(host: Host, /, **args: Any) -> Stream:
    stream = host.open("tcp", port=7000, **args)
    assert host.pump(lambda: stream.event("connected") is not None or stream.over)
    if stream.error:
        raise stream.error
    return stream


def test_echo(host: Host, server: str) -> None:
    serve(host, server, "echo")
    data = secrets.token_bytes(2_000_000)
    stream = dial(host)
    host.write(stream, data, eof=True)
    assert host.finish(stream) == {"out": len(data), "in": len(data)}
    assert bytes(stream.out) == data
    assert stream.event("eof") is None, "both sides closed at once need no event"


def test_many_at_once(host: Host, server: str) -> None:
    serve(host, server, "echo")
    streams = [dial(host) for _ in range(40)]
    for number, stream in enumerate(streams):
        host.write(stream, b"%d" % number * 1000, eof=True)
    for number, stream in enumerate(streams):
        host.finish(stream)
        assert bytes(stream.out) == b"%d" % number * 1000


def test_the_port_stops_sending_first(host: Host, server: str) -> None:
    process = serve(host, server, "bye")
    stream = dial(host)
    assert host.pump(lambda: stream.event("eof") is not None)
    assert bytes(stream.out) == b"bye" and not stream.over
    host.write(stream, b"x" * 100_000, eof=True)
    assert host.finish(stream)["in"] == 100_000
    host.finish(process)
    assert process.out.split()[-1] == b"100000"


def test_reset(host: Host, server: str) -> None:
    """Met while connecting, reading or writing: an error of the stream or its end, never more."""
    serve(host, server, "reset")
    try:
        stream = dial(host)
        host.pump(lambda: stream.over or stream.event("eof") is not None)
        host.write(stream, b"x")
        host.control(stream, eof=True)
        host.finish(stream)
    except Refused as refused:
        assert refused.code == "ECONNRESET"
    assert host.call("ping")


def test_nobody_listens(host: Host) -> None:
    with pytest.raises(Refused) as refused:
        dial(host)
    assert refused.value.code == "ECONNREFUSED"


def test_ipv6_loopback(host: Host, server: str) -> None:
    serve(host, server, "echo", "::1")
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


def test_backpressure(host: Host, server: str) -> None:
    """A port that sends without end waits for the host's credit."""
    serve(host, server, "flood")
    stream = dial(host, window=10_000, credit=False)
    assert host.pump(lambda: stream.out_count == 10_000)
    assert not host.pump(lambda: stream.out_count > 10_000, 0.3)
    host.grant(stream, 1, 1_000_000)
    assert host.pump(lambda: stream.out_count == 1_010_000)
    host.send(stream.id, 5, b"\x80")
    assert host.call("ping")


def test_a_lost_host_closes_its_connections(guest: Guest, host: Host, server: str) -> None:
    serve(host, server, "wait", job=True, id="s" * 20)
    dial(host)
    host.close()
    second = guest.connect()
    again = second.open("attach", id="s" * 20)
    assert second.finish(again)["code"] == 0
    assert b"end 0" in again.out
