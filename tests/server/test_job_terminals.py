"""Jobs with a terminal: several are attached at once, all leave, and somebody comes back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .daemon_process import Daemon, Frames, eventually
from .test_jobs import ended, start

# Shows its size whenever it is told that it may have changed, and what it reads.
SCREEN = r"""
import os, select, signal, sys, termios, tty
tty.setraw(0)
read, write = os.pipe2(os.O_NONBLOCK)
signal.signal(signal.SIGWINCH, lambda *_: None)
signal.set_wakeup_fd(write)
def draw():
    columns, rows = os.get_terminal_size(0)
    os.write(1, b"<%dx%d>" % (rows, columns))
draw()
while True:
    ready = select.select([0, read], [], [])[0]
    if read in ready:
        os.read(read, 100)
        draw()
    if 0 in ready:
        data = os.read(0, 1000)
        if data == b"q":
            sys.exit(7)
        os.write(1, b"[" + data + b"]")
"""


def screen(daemon: Daemon, sandbox: str) -> str:
    return start(daemon, sandbox, argv=["python3", "-c", SCREEN], pty=[24, 80])


@contextlib.contextmanager
def attached(daemon: Daemon, job: str, query: str = "") -> Iterator[Frames]:
    frames = daemon.stream(f"/v1/jobs/{job}/attach{query}")
    try:
        frames.event("started")
        yield frames
    finally:
        frames.vanish()


def shown(frames: Frames, text: bytes) -> bytes:
    """Output up to `text`; where it began is told in between."""
    seen = b""
    while text not in seen:
        channel, data = frames.next()
        seen += data if channel == 1 else b""
    return seen


def test_all_who_are_attached_see_the_same(daemon: Daemon, sandbox: str) -> None:
    job = screen(daemon, sandbox)
    assert daemon.request("GET", f"/v1/jobs/{job}")[1]["pty"] == [24, 80]
    with attached(daemon, job) as one, attached(daemon, job) as two:
        shown(one, b"<24x80>")
        shown(two, b"<24x80>")
        for sender, words in ((one, b"from one"), (two, b"from two")):
            sender.send(words)
            for frames in (one, two):
                shown(frames, b"[" + words + b"]")
        # The size that was said last counts for both.
        one.control(rows=30, columns=100)
        shown(one, b"<30x100>")
        two.control(rows=20, columns=60)
        for frames in (one, two):
            shown(frames, b"<20x60>")
    assert not ended(daemon, job)
    with attached(daemon, job) as frames:
        frames.send(b"q")
        end = frames.rest()[2]
        assert (end["outcome"], end["exit_code"]) == ("exited", 7)
    eventually(lambda: ended(daemon, job))


def test_who_attaches_is_shown_what_is_there(daemon: Daemon, sandbox: str) -> None:
    """Also with the size that the terminal has already, which alone tells the program nothing."""
    job = screen(daemon, sandbox)
    with attached(daemon, job) as first:
        shown(first, b"<24x80>")
        with attached(daemon, job, "?rows=24&columns=80&recent=0") as frames:
            assert b"<24x80>" in shown(frames, b"<24x80>")
        with attached(daemon, job, "?recent=0") as frames:
            # The control: without a size nothing is drawn before something happens.
            first.send(b"x")
            assert shown(frames, b"[x]") == b"[x]"
    daemon.request("POST", f"/v1/jobs/{job}/signal", {"kill": True})


def test_a_terminal_outlives_the_daemon(own_daemon: Daemon) -> None:
    sandbox = own_daemon.create()
    job = screen(own_daemon, sandbox)
    with attached(own_daemon, job) as frames:
        shown(frames, b"<24x80>")
        frames.send(b"before")
        shown(frames, b"[before]")
        own_daemon.kill()
    own_daemon.start()
    with attached(own_daemon, job, "?rows=24&columns=81") as frames:
        assert b"[before]" in shown(frames, b"<24x81>")
        frames.send(b"q")
        assert frames.rest()[2]["exit_code"] == 7


def test_one_who_does_not_read_holds_up_nobody(daemon: Daemon, sandbox: str) -> None:
    job = start(
        daemon,
        sandbox,
        shell="stty raw -echo; echo ready; read x; head -c 30000000 /dev/zero; printf end; cat",
        pty=[24, 80],
    )
    with attached(daemon, job) as slow, attached(daemon, job) as quick:
        shown(quick, b"ready")
        quick.send(b"\n")
        size = 0
        tail = b""
        while not tail.endswith(b"end"):
            channel, data = quick.next()
            size, tail = size + len(data), (tail + data)[-3:] if channel == 1 else tail
        # It is behind by more than anybody keeps for it: what it gets ends in the same way, and
        # where something is missing is told.
        jumps: list[dict[str, Any]] = []
        received, tail = 0, b""
        while not tail.endswith(b"end"):
            channel, data = slow.next()
            if channel == 3:
                jumps += [data] if data["event"] == "offset" else []
            else:
                received, tail = received + len(data), (tail + data)[-3:]
        assert jumps and received < size
    daemon.request("POST", f"/v1/jobs/{job}/signal", {"kill": True})
