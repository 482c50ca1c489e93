"""Processes on a pseudo-terminal."""

from __future__ import annotations

import hashlib
import time

import pytest

from .conftest import Boot
from .harness import Host, Stream

SIZE = {"rows": 30, "cols": 100}


def expect(host: Host, stream: Stream, what: bytes) -> None:
    assert host.pump(lambda: what in stream.out or stream.over), bytes(stream.out)
    assert what in stream.out, bytes(stream.out)


def test_it_is_a_terminal_of_the_right_size(host: Host) -> None:
    stream = host.run("tty; stty size; test -t 0 && test -t 1 && test -t 2 && echo all", pty=SIZE)
    lines = stream.out.decode().split("\r\n")
    assert lines[0].startswith("/dev/pts/")
    assert lines[1:3] == ["30 100", "all"]
    assert stream.err_count == 0
    assert stream.end is not None and stream.end["code"] == 0


def test_standard_error_comes_on_channel_1(host: Host) -> None:
    stream = host.run("echo to-err >&2", pty=SIZE)
    assert bytes(stream.out) == b"to-err\r\n" and stream.err_count == 0


def test_default_settings_are_sane(host: Host) -> None:
    settings = host.output("stty -a", pty=SIZE).split()
    for word in ("icrnl", "onlcr", "icanon", "echo", "isig", "iexten", "opost", "ixon"):
        assert word in settings, word


def test_echo_and_input(host: Host) -> None:
    stream = host.exec("read line; echo got:$line", pty=SIZE)
    host.started(stream)
    host.write(stream, b"hello\r")
    assert host.finish(stream)["code"] == 0
    assert bytes(stream.out) == b"hello\r\ngot:hello\r\n"


def test_resize_is_told_to_the_process(host: Host) -> None:
    stream = host.exec(
        "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.01; done", pty=SIZE
    )
    expect(host, stream, b"ready")
    host.control(stream, rows=11, cols=22)
    assert host.finish(stream)["code"] == 0
    assert b"11 22" in stream.out


def test_interrupt_character(host: Host) -> None:
    stream = host.exec("echo ready; exec sleep 60", pty=SIZE)
    expect(host, stream, b"ready")
    host.write(stream, b"\x03")
    assert host.finish(stream)["signal"] == 2


@pytest.mark.parametrize("text", [b"line\n", b"no newline at the end"])
def test_end_of_file(host: Host, text: bytes) -> None:
    stream = host.exec("stty -echo; echo ready; cat; echo over", pty=SIZE)
    expect(host, stream, b"ready\r\n")
    host.write(stream, text, eof=True)
    assert host.finish(stream)["code"] == 0
    out = bytes(stream.out).replace(b"\r\n", b"\n")
    assert out == b"ready\n" + text + b"over\n"


def test_more_may_follow_an_end_of_file(host: Host) -> None:
    stream = host.exec("stty -echo; echo ready; cat; echo again; cat", pty=SIZE)
    expect(host, stream, b"ready\r\n")
    host.write(stream, b"one\n", eof=True)
    expect(host, stream, b"again\r\n")
    host.write(stream, b"two\n", eof=True)
    host.finish(stream)
    assert bytes(stream.out) == b"ready\r\none\r\nagain\r\ntwo\r\n"


def test_nothing_of_a_long_output_is_lost(host: Host) -> None:
    stream = host.run("stty -opost; head -c 3000000 /dev/zero | tr '\\0' x; echo end", pty=SIZE)
    assert bytes(stream.out) == b"x" * 3_000_000 + b"end\n"


def test_output_of_the_last_moment(host: Host) -> None:
    for _ in range(30):
        assert bytes(host.run("printf %01000d 7", pty=SIZE).out) == b"0" * 999 + b"7"


def test_a_child_that_keeps_the_terminal_does_not_hang_the_call(host: Host) -> None:
    before = time.monotonic()
    stream = host.run("(trap '' HUP; sleep 30) & echo main", pty=SIZE)
    assert bytes(stream.out) == b"main\r\n"
    assert time.monotonic() - before < 5


def test_a_flood_on_a_terminal_blocks(host: Host) -> None:
    stream = host.exec("yes", pty=SIZE, credit=False, keep=False)
    assert host.pump(lambda: stream.out_count == 262_144)
    assert host.output("echo fine") == "fine\n"
    host.control(stream, kill=True)
    host.grant(stream, 1, 1 << 20)
    assert host.finish(stream)["signal"] == 9


def test_pasting_more_than_the_terminal_holds(host: Host) -> None:
    stream = host.exec("stty raw -echo; echo ready; sleep 0.3; head -c 300000 | md5sum", pty=SIZE)
    expect(host, stream, b"ready\n")
    host.write(stream, b"p" * 300_000)
    assert host.finish(stream)["code"] == 0
    assert hashlib.md5(b"p" * 300_000).hexdigest().encode() in stream.out


def test_job_on_a_terminal(host: Host) -> None:
    stream = host.run("echo kept", pty=SIZE, job=True, id="p" * 20)
    assert bytes(stream.out) == b"kept\r\n"
    again = host.open("attach", id="p" * 20)
    host.finish(again)
    assert bytes(again.out) == b"kept\r\n"


def test_timeout_on_a_terminal(host: Host) -> None:
    stream = host.run("setsid sleep 60 & sleep 60", pty=SIZE, timeout_ms=200)
    assert stream.end is not None and stream.end["outcome"] == "timeout"
    assert host.call("stats")["procs"] == 0


@pytest.mark.root
def test_the_terminal_belongs_to_the_user(boot: Boot) -> None:
    host = boot(ids="range").connect()
    out = host.output("stat -c %u $(tty); tty >/dev/null && echo x >$(tty)", pty=SIZE, user="1234")
    assert out == "1234\r\nx\r\n"
