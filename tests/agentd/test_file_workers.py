"""Workers of file operations as agentd keeps them: flow control, limits, and their end."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .harness import CONTROL, DATA, END, IN, OUT, Closed, Guest, Host, Refused

WINDOW = 262_144


def eventually(holds: Callable[[], bool], seconds: float = 5) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def workers(host: Host) -> int:
    script = "cat /proc/[0-9]*/comm 2>/dev/null | grep -c file-worker; true"
    return int(host.output(script))


@pytest.fixture
def room() -> Iterator[Path]:
    """Where a guest of any id may write; not below pytest's directories, which are closed to it."""
    with tempfile.TemporaryDirectory(prefix="agentd-room-") as name:
        path = Path(name)
        path.chmod(0o777)
        yield path


def test_nothing_is_sent_without_credit(host: Host, room: Path) -> None:
    (room / "f").write_bytes(bytes(1_000_000))
    stream = host.open("file.read", path=str(room / "f"), window=0, credit=False)
    assert not host.pump(lambda: stream.out_count > 0, 0.3)
    host.grant(stream, OUT, 1000)
    assert host.pump(lambda: stream.out_count == 1000)
    assert not host.pump(lambda: stream.out_count > 1000, 0.2)
    host.grant(stream, OUT, 1_000_000)
    assert host.finish(stream)["sent"] == 1_000_000


def test_the_end_waits_for_the_last_byte(host: Host, room: Path) -> None:
    (room / "f").write_bytes(b"12345")
    stream = host.open("file.read", path=str(room / "f"), window=2, credit=False)
    assert host.pump(lambda: stream.out_count == 2)
    assert not host.pump(lambda: stream.over, 0.3)
    host.grant(stream, OUT, 3)
    assert host.finish(stream)["sent"] == 5
    assert bytes(stream.out) == b"12345"


def test_content_may_come_with_the_open(host: Host, room: Path) -> None:
    stream = host.open("file.write", path=str(room / "f"))
    host.send(stream.id, DATA, bytes([IN]) + b"content")
    host.control(stream, eof=True)
    assert host.finish(stream) == {"size": 7}
    assert (room / "f").read_bytes() == b"content"


def test_more_content_than_granted_closes_the_connection(host: Host, room: Path) -> None:
    stream = host.open("file.write", path=str(room / "f"))
    host.send(stream.id, DATA, bytes([IN]) + bytes(WINDOW + 1))
    with pytest.raises(Closed):
        host.pump(lambda: False, 5)
    assert eventually(lambda: os.listdir(room) == [])


def test_content_after_a_failure_is_dropped(host: Host, room: Path) -> None:
    stream = host.open("file.write", path=str(room / "missing" / "f"))
    host.send(stream.id, DATA, bytes([IN]) + bytes(1000))
    host.control(stream, eof=True)
    with pytest.raises(Refused, match="ENOENT"):
        host.finish(stream)
    host.send(stream.id, DATA, bytes([IN]) + bytes(1000))
    assert host.call("ping")


def test_content_for_a_worker_that_takes_none_is_granted_anew(host: Host, room: Path) -> None:
    stream = host.open("file.watch", path=str(room))
    stream.input_credit = WINDOW
    host.write(stream, bytes(1_000_000), eof=True)
    assert host.pump(lambda: b"ready" in stream.out)
    (room / "f").write_bytes(b"")
    assert host.pump(lambda: b"create" in stream.out)


@pytest.mark.parametrize("op", ["file.write", "tree.write", "file.watch"])
def test_a_released_stream_ends_its_worker(host: Host, room: Path, op: str) -> None:
    stream = host.open(op, path=str(room / "f" if op == "file.write" else room))
    host.send(stream.id, DATA, bytes([IN]) + bytes(3))
    assert eventually(lambda: workers(host) == 1)
    host.send_map(stream.id, END, {})
    assert eventually(lambda: workers(host) == 0)
    assert os.listdir(room) == []


def test_a_host_that_goes_takes_its_workers_along(guest: Guest, room: Path) -> None:
    host = guest.connect()
    (room / "big").write_bytes(b"")
    os.truncate(room / "big", 1 << 30)
    for i in range(5):
        stream = host.open("file.write", path=str(room / f"new{i}"))
        host.send(stream.id, DATA, bytes([IN]) + bytes(1000))
        host.open("file.read", path=str(room / "big"), credit=False)
        host.open("file.watch", path=str(room))
    assert eventually(lambda: workers(host) == 15)
    host.close()
    host = guest.connect()
    assert eventually(lambda: workers(host) == 0)
    assert os.listdir(room) == ["big"]


def test_a_host_that_goes_after_all_was_sent_has_written(guest: Guest, room: Path) -> None:
    host = guest.connect()
    stream = host.open("file.write", path=str(room / "f"))
    host.send(stream.id, DATA, bytes([IN]) + b"whole")
    host.control(stream, eof=True)
    assert host.call("ping")
    host.close()
    assert eventually(lambda: (room / "f").exists())
    assert (room / "f").read_bytes() == b"whole"


def test_there_is_a_limit_to_workers(host: Host, room: Path) -> None:
    streams = [host.open("file.write", path=str(room / f"{i}")) for i in range(256)]
    with pytest.raises(Refused, match="busy"):
        host.call("file.stat", path="/")
    for stream in streams:
        host.control(stream, eof=True)
    for stream in streams:
        assert host.finish(stream) == {"size": 0}
    assert eventually(lambda: workers(host) == 0)
    assert len(os.listdir(room)) == 256
    assert host.call("file.stat", path="/")["type"] == "dir"


def test_workers_are_no_processes_of_the_guest(host: Host, room: Path) -> None:
    before = host.call("stats")["procs"]
    stream = host.open("file.watch", path=str(room))
    assert host.pump(lambda: b"ready" in stream.out)
    assert host.call("stats")["procs"] == before
    assert host.call("list")["procs"] == []


def test_killing_orphans_spares_workers(host: Host, room: Path) -> None:
    """A supervisor that is killed makes agentd kill what belongs to nobody."""
    watch = host.open("file.watch", path=str(room))
    assert host.pump(lambda: b"ready" in watch.out)
    stream = host.exec("sleep 60")
    pid = host.started(stream)
    host.run(f"kill -9 $(sed 's/.*) . //;s/ .*//' /proc/{pid}/stat)")
    assert host.finish(stream)["outcome"] == "signaled"
    time.sleep(0.3)
    (room / "f").write_bytes(b"")
    assert host.pump(lambda: b"create" in watch.out)


def test_a_shutdown_does_not_wait_for_workers(guest: Guest, room: Path) -> None:
    host = guest.connect()
    stream = host.open("file.watch", path=str(room))
    assert host.pump(lambda: b"ready" in stream.out)
    host.call("shutdown", grace_ms=5000)
    guest.process.wait(timeout=3)


def test_nothing_is_left_of_many_calls(guest: Guest, host: Host, room: Path) -> None:
    def call() -> None:
        with pytest.raises(Refused, match="ENOENT"):
            host.call("file.read", path=str(room / "missing"))
        stream = host.open("file.write", path=str(room / "f"))
        host.send(stream.id, DATA, bytes([IN]) + bytes(1000))
        host.control(stream, eof=True)
        host.finish(stream)
        host.call("file.list", path=str(room))

    for _ in range(20):
        call()
    descriptors = len(os.listdir(f"/proc/{guest.pid}/fd")) if os.getuid() == 0 else 0
    memory = guest.status("VmRSS")
    for _ in range(300):
        call()
    assert guest.status("VmRSS") < memory + 200
    if os.getuid() == 0:
        assert len(os.listdir(f"/proc/{guest.pid}/fd")) == descriptors


def test_a_control_message_that_is_none_closes_the_connection(host: Host, room: Path) -> None:
    stream = host.open("file.watch", path=str(room))
    host.send(stream.id, DATA, bytes([CONTROL]) + b"\x81\xa3eof\x01")
    with pytest.raises(Closed):
        host.pump(lambda: False, 5)
