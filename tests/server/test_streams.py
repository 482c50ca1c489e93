"""Commands as streams: bytes both ways, at the pace of the slower, and what ends them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import select
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import unix_connect
from websockets.exceptions import ConnectionClosed

from .daemon_process import Daemon, Frames, eventually
from .test_exec import processes, sandboxes


def stream(daemon: Daemon, id: str, **command: Any) -> Frames:
    return daemon.stream(f"/v1/sandboxes/{id}/exec/stream", command)


def test_a_command_from_start_to_exit(daemon: Daemon, sandbox: str) -> None:
    frames = stream(daemon, sandbox, shell="echo out; echo err >&2; exit 3")
    assert frames.event("started")["pid"] > 1
    out, err, end = frames.rest()
    assert (out, err) == (b"out\n", b"err\n")
    assert (end["event"], end["outcome"], end["exit_code"]) == ("exit", "exited", 3)
    assert end["usage"]["cpu_seconds"] >= 0
    frames.close()


def test_a_byte_comes_when_it_is_written(daemon: Daemon, sandbox: str) -> None:
    frames = stream(daemon, sandbox, shell="printf a; read x; printf b", stdin=True)
    frames.event("started")
    assert frames.next() == (1, b"a")
    frames.send(b"\n")
    assert frames.next() == (1, b"b")
    assert frames.event("exit")["exit_code"] == 0
    frames.close()


async def test_a_round_trip_through_a_slow_reader(daemon: Daemon, sandbox: str) -> None:
    """5 MB through cat, to a client that takes its time for each message."""
    data = os.urandom(5_000_000)
    got = hashlib.sha256()
    daemon.forget_peak()
    before = daemon.peak_memory()
    # The synchronous client of the library can't read while a write of its own waits.
    async with unix_connect(
        daemon.socket_path,
        f"ws://localhost/v1/sandboxes/{sandbox}/exec/stream",
        compression=None,
        max_queue=1,
    ) as connection:
        await connection.send(json.dumps({"argv": ["cat"], "stdin": True}))

        async def feed() -> None:
            for start in range(0, len(data), 1 << 16):
                await connection.send(b"\0" + data[start : start + (1 << 16)])
            await connection.send(b'\3{"eof": true}')

        feeder = asyncio.ensure_future(feed())
        events = []
        async for message in connection:
            assert isinstance(message, bytes)
            if message[0] == 3:
                events.append(json.loads(message[1:]))
                continue
            got.update(message[1:])
            await asyncio.sleep(0.002)
        await feeder
    assert [event["event"] for event in events if event["event"] != "taken"] == ["started", "exit"]
    assert events[-1]["exit_code"] == 0
    assert len(data) - (1 << 16) <= events[-2]["bytes"] <= len(data)
    assert got.digest() == hashlib.sha256(data).digest()
    assert daemon.peak_memory() - before < 16 << 20


_WRITER = """
import os
import select
block, count = b"x" * 65536, 0
log = os.open("/tmp/count", os.O_WRONLY | os.O_CREAT)
while count < 3000:
    os.write(1, block)
    count += 1
    os.pwrite(log, b"%d " % count, 0)
"""


def test_a_client_that_does_not_read_stops_the_command(daemon: Daemon, sandbox: str) -> None:
    """The daemon holds a window of it, not what the command could write meanwhile."""
    daemon.forget_peak()
    before = daemon.peak_memory()
    # max_queue: the client's library does not read ahead for us.
    frames = daemon.stream(
        f"/v1/sandboxes/{sandbox}/exec/stream",
        {"argv": ["python3", "-c", _WRITER]},
        max_queue=1,
    )
    frames.event("started")
    counts = [0]

    def stands_still() -> bool:
        counts.append(int(daemon.exec(sandbox, "sleep 0.2; cat /tmp/count || echo 0")["stdout"]))
        return counts[-1] == counts[-2] > 0

    eventually(stands_still)
    assert counts[-1] * 65536 < 8 << 20
    assert daemon.peak_memory() - before < 16 << 20
    size = 0
    while True:
        channel, part = frames.next()
        if channel == 3:
            break
        size += len(part)
    assert (size, part["exit_code"]) == (3000 * 65536, 0)
    assert daemon.peak_memory() - before < 16 << 20
    frames.close()


def test_input_that_is_not_taken_stops_the_client(daemon: Daemon, sandbox: str) -> None:
    daemon.forget_peak()
    before = daemon.peak_memory()
    frames = stream(daemon, sandbox, argv=["sleep", "4243"], stdin=True)
    frames.event("started")
    frames.connection.socket.settimeout(None)
    sock = frames.connection.socket.dup()
    sock.setblocking(False)
    message = b"\x82\xff" + (1 << 16).to_bytes(8, "big") + bytes(4) + b"\0" * (1 << 16)
    sent, rest, deadline = 0, message, time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            count = sock.send(rest)
            sent, rest = sent + count, rest[count:] or message
        except BlockingIOError:
            if not _writable(sock):
                break
    assert sent < 8 << 20
    assert daemon.peak_memory() - before < 16 << 20
    # Gone without a word while the daemon reads nothing of it: it is found out all the same.
    sock.close()
    frames.vanish()
    eventually(lambda: processes(daemon, sandbox, "sleep 4243") == 0)


def _writable(sock: socket.socket) -> bool:
    return bool(select.select([], [sock], [], 1.0)[1])


def test_a_signal_passes_input_that_is_not_taken(daemon: Daemon, sandbox: str) -> None:
    frames = stream(daemon, sandbox, argv=["sleep", "60"], stdin=True)
    frames.event("started")
    for _ in range(6):
        frames.send(b"x" * (1 << 16))
    frames.control(signal=int(signal.SIGTERM))
    _, _, end = frames.rest()
    assert (end["outcome"], end["signal"]) == ("signaled", signal.SIGTERM)
    frames.close()


def test_what_is_taken_is_told(daemon: Daemon, sandbox: str) -> None:
    """A client that goes by it has at most the window under way, and its signals pass at once."""
    size = 1 << 16
    script = "echo go; head -c 2000000 >/dev/null; echo read; sleep 60"
    frames = stream(daemon, sandbox, shell=script, stdin=True)
    window = frames.event("started")["stdin_window"]
    assert window == 1 << 18
    frames.until(b"go")
    sent = taken = 0
    seen = b""
    while b"read" not in seen:
        while sent - taken + size <= window:
            frames.send(b"x" * size)
            sent += size
        channel, data = frames.next()
        if channel == 3:
            assert data["event"] == "taken"
            assert taken < data["bytes"] <= sent
            taken = data["bytes"]
        else:
            seen += data
    # Now nobody takes any more. All that may be sent is sent, and the signal is still heard.
    while sent - taken + size <= window:
        frames.send(b"x" * size)
        sent += size
    frames.control(signal=int(signal.SIGTERM))
    _, _, end = frames.rest()
    assert (end["outcome"], end["signal"]) == ("signaled", signal.SIGTERM)
    assert sent > 2_000_000
    frames.close()


def test_output_beyond_the_cap_is_counted(daemon: Daemon, sandbox: str) -> None:
    script = "head -c 300000 /dev/zero; echo all >&2; touch /tmp/went-on"
    frames = stream(daemon, sandbox, shell=script, output_bytes=1000)
    frames.event("started")
    size, err = 0, b""
    events: list[dict[str, Any]] = []
    while True:
        channel, data = frames.next()
        if channel == 1:
            assert not events, "output after the mark"
            size += len(data)
        elif channel == 2:
            err += data
        elif data["event"] == "exit":
            break
        else:
            events.append(data)
    assert (size, err) == (1000, b"all\n")
    assert events == [{"event": "truncated", "channel": 1, "offset": 1000}]
    assert (data["truncated"], data["dropped_bytes"], data["exit_code"]) == (True, 299_000, 0)
    assert daemon.exec(sandbox, "test -e /tmp/went-on")["exit_code"] == 0
    frames.close()


@pytest.mark.parametrize(("cap", "mark"), [(6, []), (5, [5]), (0, [0])])
def test_the_cap_is_exact(daemon: Daemon, sandbox: str, cap: int, mark: list[int]) -> None:
    frames = stream(daemon, sandbox, argv=["echo", "hello"], output_bytes=cap)
    frames.event("started")
    out, marks = b"", []
    while (message := frames.next())[1] is not None:
        channel, data = message
        if channel == 1:
            out += data
        elif data["event"] == "truncated":
            marks.append(data["offset"])
        else:
            break
    assert (out, marks) == (b"hello\n"[:cap], mark)
    assert (data["truncated"], data["dropped_bytes"]) == (cap < 6, 6 - cap)
    frames.close()


def test_a_terminal_with_a_size(daemon: Daemon, sandbox: str) -> None:
    frames = stream(
        daemon, sandbox, shell="stty size; trap 'stty size; exit' WINCH; echo go; sleep 30 & wait",
        pty=[24, 80],
    )  # fmt: skip
    frames.event("started")
    assert b"24 80" in frames.until(b"go")
    frames.control(rows=50, columns=132)
    out, _, end = frames.rest()
    assert b"50 132" in out
    assert end["event"] == "exit"
    frames.close()


def test_a_terminal_takes_keys(daemon: Daemon, sandbox: str) -> None:
    frames = stream(daemon, sandbox, shell="echo go; sleep 60", pty=[24, 80])
    frames.event("started")
    frames.until(b"go")
    frames.send(b"\x03")
    _, _, end = frames.rest()
    assert (end["outcome"], end["signal"]) == ("signaled", signal.SIGINT) or end["exit_code"] == 130
    frames.close()


@pytest.mark.parametrize(
    ("control", "outcome", "number"),
    [({"signal": 10}, "signaled", 10), ({"kill": True}, "signaled", 9)],
)
def test_signals(
    daemon: Daemon, sandbox: str, control: dict[str, Any], outcome: str, number: int
) -> None:
    frames = stream(daemon, sandbox, argv=["sleep", "60"])
    frames.event("started")
    frames.control(**control)
    end = frames.event("exit")
    assert (end["outcome"], end["signal"]) == (outcome, number)
    frames.close()


def test_time_is_over(daemon: Daemon, sandbox: str) -> None:
    frames = stream(daemon, sandbox, shell="echo a; sleep 60", timeout_seconds=0.3)
    out, _, end = frames.rest()
    assert (out, end["outcome"], end["exit_code"]) == (b"a\n", "timeout", None)
    frames.close()


def test_what_can_not_start_has_no_pid(daemon: Daemon, sandbox: str) -> None:
    frames = stream(daemon, sandbox, argv=["/no/such"])
    end = frames.event("exit")
    assert (end["outcome"], end["errno"]) == ("not_started", "ENOENT")
    frames.close()


@pytest.mark.parametrize("how", ["close", "vanish"])
def test_who_goes_away_ends_the_command(daemon: Daemon, sandbox: str, how: str) -> None:
    frames = stream(daemon, sandbox, argv=["sleep", "4244"], stdin=True)
    frames.event("started")
    getattr(frames, how)()
    eventually(lambda: processes(daemon, sandbox, "sleep 4244") == 0)


def test_a_sandbox_that_ends_is_a_lost_command(daemon: Daemon, sandbox: str) -> None:
    frames = stream(daemon, sandbox, argv=["sleep", "60"])
    frames.event("started")
    daemon.request("DELETE", f"/v1/sandboxes/{sandbox}")
    end = frames.event("exit")
    assert (end["outcome"], end["exit_code"]) == ("lost", None)
    frames.close()


@pytest.mark.parametrize(
    "message",
    ["text", b"", b"\1out", b"\7what", b"\3not json", b'\3{"unknown": 1}', b'\3{"signal": 99}',
     b"\0no stdin was asked for"],
)  # fmt: skip
def test_frames_that_are_none_end_the_stream(
    daemon: Daemon, sandbox: str, message: str | bytes
) -> None:
    frames = stream(daemon, sandbox, argv=["sleep", "4245"])
    frames.event("started")
    frames.connection.send(message)
    error = frames.event("error")
    assert (error["code"], error["status"]) == ("invalid_input", 400)
    frames.close()


@pytest.mark.parametrize(
    ("path", "first", "code"),
    [
        ("/v1/sandboxes/nobody/exec/stream", {"argv": ["true"]}, "not_found"),
        ("/v1/run/stream", {"command": {"argv": []}}, "invalid_input"),
        ("/v1/run/stream", {"spec": {"what": 1}, "command": {"argv": ["a"]}}, "invalid_input"),
        ("/v1/run/stream", {"spec": {}}, "invalid_input"),
        ("/v1/run/stream", {"spec": {"memory_bytes": 1}, "command": {"argv": ["a"]}},
         "invalid_input"),
        ("/v1/jobs/nobody/attach", None, "not_found"),
        ("/v1/jobs/nobody/attach?from=1", None, "invalid_input"),
    ],
)  # fmt: skip
def test_errors_are_frames(daemon: Daemon, path: str, first: Any, code: str) -> None:
    frames = daemon.stream(path, first)
    assert frames.event("error")["code"] == code
    frames.close()


def test_run_as_a_stream_leaves_nothing(daemon: Daemon) -> None:
    before = sandboxes(daemon)
    first = {"spec": {"env": {"A": "b"}}, "command": {"shell": 'echo "$A"; cat', "stdin": True}}
    frames = daemon.stream("/v1/run/stream", first)
    frames.event("started")
    frames.send(b"in")
    frames.control(eof=True)
    out, _, end = frames.rest()
    assert (out, end["exit_code"]) == (b"b\nin", 0)
    frames.close()
    eventually(lambda: sandboxes(daemon) == before)


def test_run_as_a_stream_leaves_nothing_for_who_goes_away(daemon: Daemon) -> None:
    before = sandboxes(daemon)
    frames = daemon.stream("/v1/run/stream", {"command": {"argv": ["sleep", "60"]}})
    frames.event("started")
    assert sandboxes(daemon) == before + 1
    frames.vanish()
    eventually(lambda: sandboxes(daemon) == before)


def test_a_run_whose_time_is_over_is_lost(daemon: Daemon) -> None:
    before = sandboxes(daemon)
    first = {"command": {"argv": ["sleep", "60"]}, "ttl_seconds": 0.5}
    frames = daemon.stream("/v1/run/stream", first)
    frames.event("started")
    assert frames.event("exit")["outcome"] == "lost"
    frames.close()
    eventually(lambda: sandboxes(daemon) == before)


def test_a_run_ends_with_a_killed_daemon(own_daemon: Daemon) -> None:
    """Its processes at once; its row and its directory with the next start."""
    # The kernel calls a script's process by the name of its file.
    script = "cd; printf '#!/bin/sh\\necho up; read line' > ak-4247; chmod +x *; exec ./ak-4247"
    first = {"command": {"shell": script, "stdin": True}}
    frames = own_daemon.stream("/v1/run/stream", first)
    frames.event("started")
    frames.until(b"up")
    assert sandboxes(own_daemon) == 1
    assert host_processes("ak-4247") == 1
    own_daemon.kill()
    frames.vanish()
    eventually(lambda: host_processes("ak-4247") == 0)
    own_daemon.start()
    assert sandboxes(own_daemon) == 0
    for place in ("runs", "sandboxes"):
        path = own_daemon.state_dir / place
        assert not path.exists() or os.listdir(path) == []


def host_processes(name: str) -> int:
    """How many processes of the machine are called so."""
    count = 0
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            count += Path("/proc", entry, "comm").read_text() == f"{name}\n"
    return count


@pytest.mark.parametrize(
    "noise",
    [b"\xff" * 100, b"\x82\x7f" + b"\xff" * 8, b"\x82\x05hello", b"\x81\x82\0\0\0\0\xff\xfe",
     b"\x88\x80\0\0\0\0", b"\x89\xfe\xff\xff" + b"\0" * 100],
)  # fmt: skip
def test_noise_ends_the_connection_only(daemon: Daemon, sandbox: str, noise: bytes) -> None:
    frames = stream(daemon, sandbox, argv=["sleep", "4246"])
    frames.event("started")
    frames.connection.socket.sendall(noise)
    frames.vanish()
    assert daemon.exec(sandbox, "echo here")["stdout"] == "here\n"


def test_a_message_may_not_be_endless(daemon: Daemon) -> None:
    frames = daemon.stream("/v1/run/stream")
    with pytest.raises(ConnectionClosed):  # 1009, unless the reset overtakes it
        frames.connection.send(json.dumps({"command": {"shell": "x" * (2 << 20)}}))
        frames.next()
    frames.vanish()
