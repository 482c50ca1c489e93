"""Jobs: output with offsets that survives disconnects, and what a spool lets go of."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import pytest

from .conftest import Boot
from .harness import END, Guest, Host, Refused, Stream, new_id, wait_for

# A million numbered lines, slowly enough to be interrupted.
COUNTING = "i=0; while [ $i -lt {n} ]; do echo line $i; i=$((i+1)); done"


def attach(host: Host, identity: str, **args: Any) -> Stream:
    stream = host.open("attach", id=identity, **args)
    assert host.pump(lambda: stream.event("attached") is not None or stream.over)
    if stream.error:
        raise stream.error
    return stream


def has_ended(host: Host, identity: str) -> bool:
    return any(p["id"] == identity and not p["running"] for p in host.call("list")["procs"])


def test_a_job_goes_on_without_its_host(guest: Guest) -> None:
    first = guest.connect()
    identity = new_id()
    stream = first.exec("echo begin; sleep 0.3; echo end", id=identity, job=True, lost_ms=0)
    assert first.pump(lambda: bytes(stream.out) == b"begin\n")
    first.close()
    second = guest.connect()
    assert wait_for(lambda: has_ended(second, identity))
    stream = attach(second, identity)
    end = second.finish(stream)
    assert bytes(stream.out) == b"begin\nend\n"
    assert (end["outcome"], end["code"]) == ("exited", 0)


def test_attaching_again_and_again_gives_every_byte_once(guest: Guest) -> None:
    identity = new_id()
    host = guest.connect()
    host.exec(COUNTING.format(n=60_000), id=identity, job=True, window=0)
    got = bytearray()
    rounds = 0
    while True:
        stream = attach(host, identity, out=len(got), window=50_000)
        event = stream.event("attached")
        assert event is not None and event["out"] == len(got)
        host.pump(lambda: stream.over or stream.out_count > 40_000, 0.5)  # noqa: B023
        got += stream.out
        rounds += 1
        if stream.over:
            break
        host.close()
        host = guest.connect()
    assert rounds > 5
    assert got.decode().split("\n") == [*(f"line {i}" for i in range(60_000)), ""]


def test_a_process_that_is_no_job_can_be_attached_to_as_well(guest: Guest) -> None:
    """Within lost_ms, and from the last byte the old host has consumed: nothing is lost."""
    first = guest.connect()
    identity = new_id()
    script = COUNTING.format(n=40_000)
    stream = first.exec(script, id=identity, window=20_000, credit=False)
    assert first.pump(lambda: stream.out_count == 20_000)
    first.grant(stream, 1, 15_000)
    assert first.pump(lambda: stream.out_count == 35_000)
    first.close()
    got = stream.out[:15_000]
    second = guest.connect()
    again = attach(second, identity, out=15_000)
    end = second.finish(again)
    got += again.out
    assert got.decode().split("\n") == [*(f"line {i}" for i in range(40_000)), ""]
    assert end["out"] == len(got) and end["out_dropped"] == 0
    assert second.call("list")["procs"] == []


def test_a_finished_job_is_kept_until_it_is_forgotten(host: Host) -> None:
    identity = new_id()
    stream = host.run("echo kept; echo also >&2; exit 9", id=identity, job=True)
    assert stream.end is not None and stream.end["code"] == 9
    for _ in range(2):
        again = attach(host, identity)
        assert host.finish(again) == stream.end
        assert (bytes(again.out), bytes(again.err)) == (b"kept\n", b"also\n")
    later = attach(host, identity, out=3, err=100)
    event = later.event("attached")
    assert event is not None and (event["out"], event["err"]) == (3, 5)
    host.finish(later)
    assert bytes(later.out) == b"t\n" and later.err_count == 0
    (entry,) = host.call("list")["procs"]
    assert entry["running"] is False and entry["outcome"] == "exited" and entry["code"] == 9
    assert host.call("stats")["spool"] == 10
    assert host.call("forget", id=identity) == {}
    assert host.call("stats")["spool"] == 0
    with pytest.raises(Refused, match="no_such_process"):
        attach(host, identity)
    assert host.call("list")["procs"] == []


def test_forget_takes_only_what_has_ended(host: Host) -> None:
    identity = new_id()
    stream = host.exec(["sleep", "60"], id=identity, job=True)
    host.started(stream)
    with pytest.raises(Refused, match="refused"):
        host.call("forget", id=identity)
    host.control(stream, kill=True)
    host.finish(stream)
    host.call("forget", id=identity)


def test_a_job_that_cannot_start_leaves_nothing(host: Host) -> None:
    end = host.run(["no-such-thing"], job=True).end
    assert end is not None and end["outcome"] == "not_started"
    assert host.call("list")["procs"] == []


def test_the_spool_lets_go_of_the_oldest(host: Host) -> None:
    identity = new_id()
    stream = host.exec(COUNTING.format(n=50_000), id=identity, job=True, spool=10_000, window=0)
    assert wait_for(lambda: has_ended(host, identity))
    whole = "".join(f"line {i}\n" for i in range(50_000)).encode()
    host.grant(stream, 1, 1_000_000)
    end = host.finish(stream)
    assert end["out"] == len(whole) and end["out_dropped"] == len(whole) - 10_000
    assert bytes(stream.out) == whole[-10_000:]
    dropped = [event for event in stream.events if event["ev"] == "dropped"]
    assert sum(event["bytes"] for event in dropped) == end["out_dropped"]
    assert dropped[-1]["ch"] == 1 and dropped[-1]["offset"] == len(whole) - 10_000
    again = attach(host, identity)
    event = again.event("attached")
    assert event is not None and event["out"] == end["out_dropped"]
    host.finish(again)
    assert bytes(again.out) == whole[-10_000:]


def test_a_slow_host_sees_gaps_and_never_wrong_bytes(host: Host) -> None:
    """The pieces between `dropped` events are where their offsets say."""
    identity = new_id()
    stream = host.exec(
        COUNTING.format(n=200_000), id=identity, job=True, spool=30_000, window=4000, credit=False
    )
    whole = "".join(f"line {i}\n" for i in range(200_000)).encode()
    while not stream.over:
        seen = stream.out_count
        host.pump(lambda: stream.over or stream.out_count > seen, 0.2)  # noqa: B023
        host.grant(stream, 1, 3000)
        time.sleep(0.002)
    assert stream.end is not None
    gaps = [event for event in stream.events if event["ev"] == "dropped"]
    assert len(gaps) > 3
    assert stream.out_count + sum(gap["bytes"] for gap in gaps) == stream.end["out"] == len(whole)
    received = offset = 0
    for gap in [*gaps, {"_out": stream.out_count, "bytes": 0, "offset": len(whole)}]:
        piece = bytes(stream.out[received : gap["_out"]])
        assert piece == whole[offset : offset + len(piece)]
        received, offset = gap["_out"], offset + len(piece) + gap["bytes"]
        assert offset == gap["offset"]


def test_a_flooding_job_never_waits(host: Host) -> None:
    identity = new_id()
    host.exec("head -c 50000000 /dev/zero", id=identity, job=True, spool=100_000, window=0)
    assert wait_for(lambda: has_ended(host, identity))
    (entry,) = host.call("list")["procs"]
    assert entry["out"] == 50_000_000
    assert host.call("stats")["spool"] == 100_000


def test_all_spools_together_are_bounded(boot: Boot) -> None:
    guest = boot(spool_max=1_000_000)
    host = guest.connect()
    identities = [new_id() for _ in range(5)]
    for identity in identities:
        # What one asks for itself is cut to the whole.
        stream = host.exec("head -c 700000 /dev/urandom", id=identity, job=True, spool=1 << 40)
        host.finish(stream)
    assert host.call("stats")["spool"] == 1_000_000
    small = new_id()
    host.run("echo small", id=small, job=True)
    assert host.call("stats")["spool"] == 1_000_000
    again = attach(host, small)
    host.finish(again)
    assert bytes(again.out) == b"small\n", "the largest ones give way"
    sizes = [p["out"] - p["out_dropped"] for p in host.call("list")["procs"]]
    assert sum(sizes) == 1_000_000 and max(sizes) < 400_000


def test_one_stream_at_a_time(host: Host) -> None:
    identity = new_id()
    first = host.exec("echo one; read line; echo $line", id=identity, job=True, stdin=True)
    assert host.pump(lambda: bytes(first.out) == b"one\n")
    second = attach(host, identity, out=4)
    assert host.pump(lambda: first.over)
    assert first.error is not None and first.error.code == "replaced"
    host.write(second, b"two\n")
    assert host.finish(second)["code"] == 0
    assert bytes(second.out) == b"two\n"


def test_detaching_leaves_a_job_alone(host: Host) -> None:
    identity = new_id()
    stream = host.exec("sleep 0.2; echo after", id=identity, job=True, lost_ms=0)
    host.started(stream)
    host.send(stream.id, END, b"\x80")
    assert wait_for(lambda: has_ended(host, identity))
    again = attach(host, identity)
    host.finish(again)
    assert bytes(again.out) == b"after\n"


def test_input_after_attaching(guest: Guest) -> None:
    """What an old host has sent is counted, and what a new one may send with it is bounded."""
    first = guest.connect()
    identity = new_id()
    stream = first.exec("sleep 1; sha256sum", id=identity, job=True, stdin=True)
    first.write(stream, b"a" * 200_000)
    first.call("ping")
    first.close()
    second = guest.connect()
    again = attach(second, identity)
    event = again.event("attached")
    assert event is not None and event["in"] == 200_000
    # 64 KiB of it fit the pipe, the rest waits in agentd.
    assert event["credit"] == 262_144 - (200_000 - 65_536)
    second.write(again, b"b" * 400_000, eof=True)
    second.finish(again)
    wanted = hashlib.sha256(b"a" * 200_000 + b"b" * 400_000).hexdigest()
    assert again.out.decode().split()[0] == wanted


def test_a_timeout_of_a_job_holds_without_a_host(guest: Guest) -> None:
    host = guest.connect()
    identity = new_id()
    host.started(host.exec("sleep 60 & wait", id=identity, job=True, timeout_ms=300))
    host.close()
    host = guest.connect()
    assert wait_for(lambda: has_ended(host, identity))
    assert host.finish(attach(host, identity))["outcome"] == "timeout"
