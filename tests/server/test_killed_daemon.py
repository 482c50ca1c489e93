"""kill -9 of the daemon is a normal event: jobs, their output and every setting outlive it."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from agentkernel.conformance.footprint import Footprint, wait_until_gone

from .daemon_process import Daemon, eventually
from .test_jobs import ended, start

KILLS = 20
# Numbered lines on both streams, in bursts, until it is told to stop.
_COUNTER = """
import os, time
i = 0
while not os.path.exists("/tmp/stop"):
    os.write(1, b"out %d\\n" % i)
    os.write(2, b"err %d\\n" % i)
    i += 1
    if i % 500 == 0: time.sleep(0.05)
raise SystemExit(7)
"""


class Reader:
    """Reads a job's two streams, each time from where it broke off."""

    def __init__(self, daemon: Daemon, job: str) -> None:
        self.daemon = daemon
        self.job = job
        self.seen = {1: bytearray(), 2: bytearray()}
        self.end: dict[str, Any] | None = None

    def read_for(self, seconds: float) -> None:
        """Reads until the time is over or the job has ended; then `end` is there."""
        where = f"stdout_offset={len(self.seen[1])}&stderr_offset={len(self.seen[2])}"
        frames = self.daemon.stream(f"/v1/jobs/{self.job}/attach?{where}")
        until = time.monotonic() + seconds
        try:
            while self.end is None and time.monotonic() < until:
                channel, data = frames.next()
                if channel != 3:
                    self.seen[channel] += data
                elif data["event"] in ("exit", "error"):
                    self.end = data
        finally:
            with suppress(ConnectionClosed):
                frames.vanish()


@pytest.mark.timeout(240)
def test_no_gap_and_no_repeat_over_20_kills(own_daemon: Daemon) -> None:
    chance = random.Random(20)
    id = own_daemon.create()
    job = start(own_daemon, id, argv=["python3", "-c", _COUNTER])
    reader = Reader(own_daemon, job)
    for _ in range(KILLS):
        reader.read_for(chance.uniform(0, 0.4))
        assert reader.end is None
        own_daemon.kill()
        own_daemon.start()
    own_daemon.exec(id, "touch /tmp/stop")
    reader.read_for(60)
    assert reader.end is not None
    assert (reader.end["outcome"], reader.end["exit_code"]) == ("exited", 7)
    out, err = (bytes(reader.seen[channel]).splitlines() for channel in (1, 2))
    assert len(out) == len(err) > 1000
    assert out == [b"out %d" % i for i in range(len(out))]
    assert err == [b"err %d" % i for i in range(len(err))]
    record = own_daemon.request("GET", f"/v1/jobs/{job}")[1]
    assert (record["state"], record["status"]["exit_code"]) == ("ended", 7)


def test_a_job_that_ended_while_no_daemon_lived(own_daemon: Daemon) -> None:
    id = own_daemon.create(ephemeral=False)
    job = start(own_daemon, id, shell="read x; echo done $x; exit 9", stdin=True)
    frames = own_daemon.stream(f"/v1/jobs/{job}/attach")
    frames.send(b"now\n")  # it goes on from here whatever happens to the daemon
    eventually(lambda: ended(own_daemon, job) or frames.next()[0] == 1)
    own_daemon.kill()
    frames.vanish()
    own_daemon.start()
    eventually(lambda: ended(own_daemon, job))
    assert own_daemon.request("GET", f"/v1/jobs/{job}")[1]["status"]["exit_code"] == 9
    frames = own_daemon.stream(f"/v1/jobs/{job}/attach")
    assert frames.rest()[0] == b"done now\n"
    frames.close()


def test_a_job_that_outlived_one_daemon_and_ended_before_the_next(own_daemon: Daemon) -> None:
    """Nobody was there when it ended, which its own files show."""
    id = own_daemon.create(ephemeral=False)
    job = start(own_daemon, id, shell="trap 'echo late; exit 3' TERM; while :; do sleep 0.1; done")
    eventually(lambda: own_daemon.request("GET", f"/v1/jobs/{job}")[1]["state"] == "running")
    pid = _pid_on_host(own_daemon, id, "while :; do sleep")
    own_daemon.kill()
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: not _lives(pid))
    own_daemon.start()
    record = own_daemon.request("GET", f"/v1/jobs/{job}")[1]
    assert (record["state"], record["status"]["exit_code"]) == ("ended", 3)
    frames = own_daemon.stream(f"/v1/jobs/{job}/attach")
    assert frames.rest()[0] == b"late\n"
    frames.close()


_PROBE = r"""
import os, json, resource, subprocess
status = open('/proc/self/status').read().split('\n')
keep = ('CapEff', 'CapBnd', 'Seccomp', 'Seccomp_filters', 'NoNewPrivs', 'Uid')
print(json.dumps({
    'status': [line for line in status if line.split(':')[0] in keep],
    'nofile': resource.getrlimit(resource.RLIMIT_NOFILE),
    'env': os.environ.get('GIVEN'),
    'file': open('/root/file').read(),
    'mode': oct(os.stat('/root/secret').st_mode),
    'tmp': os.statvfs('/tmp').f_blocks,
}))
"""


@pytest.mark.parametrize("ending", ["stop", "kill", "restart"])
def test_everything_is_as_before(own_daemon: Daemon, ending: str) -> None:
    """Files, policy, limits and labels over stop and start, and over the daemon's death."""
    id = own_daemon.create(
        name="kept",
        ephemeral=False,
        profile="restrictive",
        nofile=333,
        env={"GIVEN": "v"},
        labels={"team": "a", "x": "y"},
        ttl_seconds=3600,
        on_ttl="remove",
    )
    own_daemon.exec(id, "echo text >/root/file; mkdir -m 000 /root/secret")
    before, holds = _look(own_daemon, id)
    if ending == "stop":
        own_daemon.request("POST", f"/v1/sandboxes/{id}/stop", {})
        own_daemon.request("POST", f"/v1/sandboxes/{id}/start", {})
    elif ending == "kill":
        own_daemon.kill()
        own_daemon.start()
    else:
        assert own_daemon.terminate() == 0
        own_daemon.start()
    after, holds_after = _look(own_daemon, id)
    for changing in ("updated_at", "started_at", "expires_at"):
        before.pop(changing), after.pop(changing)
    assert after == before
    assert holds_after == holds
    assert "text" in holds


def _look(daemon: Daemon, id: str) -> tuple[dict[str, Any], str]:
    """What the daemon says of it, and what a process inside sees."""
    record = daemon.request("GET", f"/v1/sandboxes/{id}")[1]
    record.pop("usage", None)
    return record, daemon.exec(id, f"python3 - <<'END'\n{_PROBE}\nEND")["stdout"]


def _first_pid(daemon: Daemon, id: str) -> int:
    """PID 1 of a sandbox as the host knows it: boot id, pid, start time."""
    found = list(daemon.state_dir.glob(f"*/{id}/process"))
    assert len(found) == 1
    return int(found[0].read_text().split()[1])


@pytest.mark.parametrize("ephemeral", [True, False])
@pytest.mark.parametrize("killed", [False, True])
def test_after_remove_nothing_is_left(own_daemon: Daemon, ephemeral: bool, killed: bool) -> None:
    """Directories of mode 000, files of other ids, busy processes and a job included."""
    id = own_daemon.create(ephemeral=ephemeral, labels={"a": "b"})
    own_daemon.exec(
        id,
        "mkdir -p /root/d/e && echo x >/root/d/e/f && chown 33:33 /root/d/e/f 2>/dev/null; "
        "chmod 000 /root/d/e /root/d; mkfifo /root/p; ln -s /etc/passwd /root/l",
    )
    start(own_daemon, id, shell="setsid sleep 600 & trap '' TERM HUP; while :; do sleep 1; done")
    footprint = Footprint.of(id, own_daemon.state_dir, [_first_pid(own_daemon, id)])
    assert len(footprint.processes) >= 3
    assert any(line.startswith("process") for line in footprint.remains()), "control: it is there"
    assert any(line.startswith("file") for line in footprint.remains()), "control: it has files"
    if killed:
        own_daemon.kill()
        own_daemon.start()
    assert own_daemon.request("DELETE", f"/v1/sandboxes/{id}")[0] == 204
    assert wait_until_gone(footprint) == []


# -- the host's view ------------------------------------------------------------------------------


def _pid_on_host(daemon: Daemon, id: str, words: str) -> int:
    footprint = Footprint.of(id, daemon.state_dir, [_first_pid(daemon, id)])
    found = [pid for pid, _ in footprint.processes if words in _command(pid)]
    assert found, "the job has no process"
    return min(found)


def _command(pid: int) -> str:
    with suppress(OSError), open(f"/proc/{pid}/cmdline", errors="replace") as file:
        return file.read().replace("\0", " ")
    return ""


def _lives(pid: int) -> bool:
    with suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(") ")[2][0] != "Z"
    return False
