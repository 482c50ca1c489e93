"""Flow control, many processes at once, and that agentd's memory stays what it is."""

from __future__ import annotations

import os
import resource
import secrets
import time
from pathlib import Path

import pytest

from .conftest import Boot
from .harness import Guest, Host, wait_for

MIB = 1 << 20

# With AddressSanitizer memory figures mean nothing.
is_sanitized = "asan" in os.environ.get("AGENTD_UNDER_TEST", "")


def test_no_byte_without_credit(host: Host) -> None:
    stream = host.exec("head -c 1000000 /dev/zero", window=1000, credit=False, keep=False)
    host.pump(lambda: stream.out_count > 1000, 0.3)
    assert stream.out_count == 1000
    host.grant(stream, 1, 500)
    host.pump(lambda: stream.out_count > 1500, 0.3)
    assert stream.out_count == 1500
    host.grant(stream, 1, 2_000_000)
    assert host.finish(stream)["out"] == 1_000_000


def test_a_window_of_nothing(host: Host) -> None:
    stream = host.exec("echo hidden", window=0, credit=False)
    host.started(stream)
    assert not host.pump(lambda: stream.out_count > 0 or stream.over, 0.3)
    host.grant(stream, 1, 100)
    assert host.finish(stream)["code"] == 0
    assert bytes(stream.out) == b"hidden\n"


def test_channels_have_credit_of_their_own(host: Host) -> None:
    stream = host.exec(
        "head -c 100000 /dev/zero >&2 & echo through; wait", window=1000, credit=False
    )
    assert host.pump(lambda: bytes(stream.out) == b"through\n" and stream.err_count == 1000)
    host.grant(stream, 2, 100_000)
    assert host.finish(stream)["err"] == 100_000


@pytest.mark.slow
def test_100_mb_each_way(guest: Guest, host: Host) -> None:
    size = 100 * 1_000_000
    block = secrets.token_bytes(MIB)
    stream = host.exec(["cat"], stdin=True, keep=False)
    sent = 0
    while sent < size:
        piece = block[: size - sent]
        host.write(stream, piece)
        sent += len(piece)
    host.control(stream, eof=True)
    assert host.finish(stream, 50)["out"] == size
    assert stream.out_count == size
    if not is_sanitized:
        assert guest.status("VmHWM") < 2500


def test_a_flood_that_nobody_reads(guest: Guest, host: Host) -> None:
    """The guest blocks in its own write; agentd holds a window of it."""
    flood = host.exec("yes", credit=False, keep=False)
    host.started(flood)
    assert host.pump(lambda: flood.out_count == 262_144)
    for _ in range(20):
        assert host.output("echo fine") == "fine\n"
    assert flood.out_count == 262_144
    if not is_sanitized:
        assert guest.status("VmHWM") < 2500
    cpu = cpu_ticks(guest)
    time.sleep(0.5)
    assert cpu_ticks(guest) - cpu <= 2, "it waits, it does not spin"
    host.control(flood, kill=True)


def cpu_ticks(guest: Guest) -> int:
    fields = Path(f"/proc/{guest.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_a_host_that_does_not_read_at_all(guest: Guest) -> None:
    """Answers pile up to a limit, then agentd stops reading."""
    host = guest.connect()
    host.socket.settimeout(0.5)
    opened = 0
    try:
        for _ in range(200_000):
            host.open("ping")
            opened += 1
    except TimeoutError:
        pass
    assert 1000 < opened < 100_000
    if not is_sanitized:
        assert guest.status("VmHWM") < 2500
    guest.connect().call("ping")


@pytest.mark.slow
def test_64_at_once_with_a_flood_and_a_stopped_one(guest: Guest, host: Host) -> None:
    flood = host.exec("yes", credit=False, keep=False)
    stopped = host.exec("kill -STOP $$; echo never")
    payloads = [secrets.token_bytes(MIB) for _ in range(64)]
    streams = [host.exec(["cat"], stdin=True) for _ in payloads]
    for start in range(0, MIB, 1 << 17):
        for stream, payload in zip(streams, payloads, strict=True):
            host.write(stream, payload[start : start + (1 << 17)])
    for stream in streams:
        host.control(stream, eof=True)
    for stream, payload in zip(streams, payloads, strict=True):
        assert host.finish(stream)["outcome"] == "exited"
        assert bytes(stream.out) == payload
    assert not flood.over and not stopped.over
    for stream in (flood, stopped):
        host.control(stream, kill=True)
        flood.credit = True
    host.grant(flood, 1, MIB)
    assert host.finish(flood)["signal"] == 9
    assert host.finish(stopped)["signal"] == 9


def test_many_processes_leave_no_memory_and_no_descriptor(guest: Guest, host: Host) -> None:
    for _ in range(20):
        host.run("head -c 300000 /dev/zero", stdin=b"x" * 100_000)
    descriptors = len(os.listdir(f"/proc/{guest.pid}/fd"))
    time.sleep(2.2)  # what is kept for reuse is given back after a quiet second
    resident = guest.status("RssAnon")
    for _ in range(100):
        host.run("head -c 300000 /dev/zero", stdin=b"x" * 100_000)
    time.sleep(2.2)
    assert len(os.listdir(f"/proc/{guest.pid}/fd")) == descriptors
    if not is_sanitized:
        assert guest.status("RssAnon") <= resident + 64


def test_an_idle_agent_is_small_and_sleeps(guest: Guest, host: Host) -> None:
    host.call("ping")
    time.sleep(1.5)
    before = cpu_ticks(guest)
    time.sleep(1.0)
    assert cpu_ticks(guest) == before
    if not is_sanitized:
        # Its code is shared with all other sandboxes; this is what each one pays.
        assert guest.status("RssAnon") <= 96


def test_background_output_after_the_end_costs_nothing(guest: Guest, host: Host) -> None:
    host.run("(sleep 0.3; head -c 5000000 /dev/zero; touch /tmp/.agentd-done-$$) & exit 0")
    assert wait_for(lambda: host.call("stats")["procs"] == 0), "it was not blocked"
    host.output("rm -f /tmp/.agentd-done-*")


def test_descriptors_run_out(boot: Boot) -> None:
    """Not the end of anything: an exec that finds none says so, and others go on."""
    guest = boot()
    host = guest.connect()
    limit = len(os.listdir(f"/proc/{guest.pid}/fd")) + 20
    resource.prlimit(guest.pid, resource.RLIMIT_NOFILE, (limit, limit))
    streams = [host.exec(["sleep", "60"], stdin=True) for _ in range(12)]
    ends = []
    for stream in streams:
        host.pump(lambda: stream.over or stream.event("started") is not None)  # noqa: B023
        if stream.end:
            ends.append((stream.end["outcome"], stream.end["errno"], stream.end["stage"]))
    assert ends and set(ends) == {("not_started", "EMFILE", "limits")}
    assert host.call("ping")
    for stream in streams:
        if not stream.over:
            host.control(stream, kill=True)
            host.finish(stream)
    assert host.output("echo fine") == "fine\n"
