"""Killing: a timeout or a kill ends everything a process has left behind, whatever it tried."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from .conftest import Boot, Compile
from .harness import Guest, Host, new_id, wait_for

# Forks and exits, for ever: no look at /proc finds the same process twice.
RUNNER = r"""
#include <unistd.h>
int main(void) { for (;;) { if (fork() > 0) _exit(0); setsid(); } }
"""

BOMB = r"""
#include <unistd.h>
int main(void) { for (;;) if (fork() == 0) setsid(); }
"""


def processes(host: Host) -> int:
    count = host.call("stats")["procs"]
    assert isinstance(count, int)
    return count


ESCAPES = {
    "a child": "sleep 300 & wait",
    "setsid": "setsid sleep 300 & wait",
    "double fork": "(setsid sh -c 'sleep 300 & sleep 300 &' &) ; sleep 300",
    "stopped": "sleep 300 & kill -STOP $!; sleep 300",
    "stopped with children": "sh -c 'sleep 300 & kill -STOP $$; wait' & sleep 300",
    "ignores signals": "trap '' TERM HUP INT; (trap '' TERM; exec setsid sleep 300) & sleep 300",
    "orphans, one stopped": "setsid sh -c 'sleep 300 & kill -STOP $!' & sleep 300",
    "stops its supervisor": "kill -STOP $PPID; sleep 300 & wait",
    "stops itself": "kill -STOP $$",
}


@pytest.mark.parametrize("name", ESCAPES)
def test_timeout_kills_the_whole_tree(guest: Guest, host: Host, name: str) -> None:
    before = time.monotonic()
    end = host.run(ESCAPES[name], timeout_ms=300).end
    assert end is not None and end["outcome"] == "timeout"
    assert "code" not in end and "signal" not in end
    assert 0.25 < time.monotonic() - before < 5
    assert processes(host) == 0


def test_kill_takes_one_tree_and_no_other(host: Host) -> None:
    other = host.exec("sleep 300 & setsid sleep 300 & wait")
    host.started(other)
    doomed = host.exec("sleep 300 & (setsid sleep 300 &); wait")
    host.started(doomed)
    assert wait_for(lambda: processes(host) == 6)
    host.control(doomed, kill=True)
    assert host.finish(doomed)["signal"] == 9
    assert processes(host) == 3
    assert not other.over
    host.control(other, kill=True)
    host.finish(other)
    assert processes(host) == 0


def test_kill_of_what_a_finished_job_has_left(host: Host) -> None:
    identity = new_id()
    stream = host.run("setsid sleep 300 & exit 0", id=identity, job=True)
    assert stream.end is not None and stream.end["outcome"] == "exited"
    assert processes(host) == 1
    host.call("signal", id=identity, kill=True)
    assert wait_for(lambda: processes(host) == 0)


def test_exit_before_the_timeout_leaves_the_background_alone(host: Host) -> None:
    host.run("sleep 300 >/dev/null 2>&1 &", timeout_ms=200)
    time.sleep(0.5)
    assert processes(host) == 1


def test_killed_supervisor(guest: Guest, host: Host) -> None:
    """A guest may kill it; the tree goes with it, and the outcome is not made up."""
    stream = host.exec("sleep 300 & setsid sleep 300 & kill -KILL $PPID; sleep 300")
    end = host.finish(stream)
    assert (end["outcome"], end["signal"]) == ("signaled", 9)
    assert wait_for(lambda: processes(host) == 0)
    assert host.output("echo fine") == "fine\n"


def test_killed_supervisor_after_the_exit(host: Host) -> None:
    stream = host.run("sleep 300 & echo $PPID; exit 4")
    assert stream.end is not None and stream.end["code"] == 4
    assert processes(host) == 1
    host.output(f"kill -KILL {stream.out.decode()}")
    assert wait_for(lambda: processes(host) == 0)


def test_kill_minus_one(host: Host) -> None:
    """Everything the guest can reach is killed, supervisors too; agentd serves on."""
    bystander = host.exec(["sleep", "300"])
    host.started(bystander)
    end = host.run("kill -KILL -1").end
    assert end is not None
    assert host.finish(bystander)["outcome"] == "signaled"
    assert wait_for(lambda: processes(host) == 0)
    assert host.output("echo fine") == "fine\n"


def test_stop_minus_one(host: Host) -> None:
    end = host.run("kill -STOP -1; exit 3", timeout_ms=5000).end
    assert end is not None and end["code"] == 3


@pytest.mark.parametrize("limit", [100, 2000])
def test_fork_bomb(boot: Boot, compile_: Compile, limit: int) -> None:
    # RLIMIT_NPROC does not bind the machine's root, so as root the bomb gets a range of ids.
    host = boot(ids="range" if os.getuid() == 0 else "single", nproc=limit).connect()
    bomb = compile_("bomb", BOMB)
    # 2,000 processes that fork while they are killed: on a busy machine that takes its time.
    end = host.finish(host.exec([bomb], timeout_ms=700), timeout=30.0)
    assert end["outcome"] == "timeout"
    assert wait_for(lambda: processes(host) == 0)
    assert host.output("echo fine") == "fine\n"


TICKER = """
#include <unistd.h>
int main(void) {
    for (;;) {
        if (write(1, "tick\\n", 5) != 5) return 1;
        usleep(50000);
    }
}
"""


def test_a_runner_that_is_never_where_one_looks(boot: Boot, compile_: Compile) -> None:
    host = boot(ids="range" if os.getuid() == 0 else "single", nproc=100).connect()
    # Not a shell: that one would have to fork, and end when the runners leave it no room to.
    bystander = host.exec(str(compile_("ticker", TICKER)))
    host.started(bystander)
    runner = compile_("runner", RUNNER)
    stream = host.exec(f"{runner} & {runner} & {runner} & sleep 300", timeout_ms=300)
    assert host.finish(stream, 20)["outcome"] == "timeout"
    assert wait_for(lambda: processes(host) <= 2)
    seen = bystander.out_count
    assert host.pump(lambda: bystander.out_count > seen), "the others were continued"


def test_lost_processes_are_killed(guest: Guest) -> None:
    first = guest.connect()
    stream = first.exec("sleep 300 & setsid sleep 300 & wait", lost_ms=3000, id=new_id())
    first.started(stream)
    first.close()
    host = guest.connect()
    assert wait_for(lambda: processes(host) >= 2)
    assert wait_for(lambda: processes(host) == 0)
    assert host.call("list")["procs"] == []


def test_letting_go_of_a_stream_starts_the_clock(host: Host) -> None:
    identity = new_id()
    stream = host.exec(["sleep", "300"], lost_ms=400, id=identity)
    host.started(stream)
    host.send(stream.id, 5, b"\x80")
    time.sleep(0.1)
    again = host.open("attach", id=identity)
    assert host.pump(lambda: again.event("attached") is not None)
    time.sleep(0.6)
    assert host.call("list")["procs"][0]["running"] is True, "attached in time"
    host.send(again.id, 5, b"\x80")
    assert wait_for(lambda: processes(host) == 0)


def test_time_passes_for_a_stopped_agent(guest: Guest, host: Host) -> None:
    """A guest cannot stop PID 1, nor make it fail by signals."""
    host.output("for s in STOP TERM INT HUP USR1 SEGV CHLD PIPE ALRM; do kill -$s 1; done")
    assert host.call("ping")
    assert guest.alive


def test_counts_are_right_after_all_of_it(guest: Guest, host: Host) -> None:
    for _ in range(5):
        host.run("(setsid sleep 0.05 &) ; sleep 0.01")
    assert wait_for(lambda: processes(host) == 0)
    children = Path(f"/proc/{guest.pid}/task/{guest.pid}/children")
    assert wait_for(lambda: children.read_text().split() == [])
