"""Running processes: what a caller gets back, and what a process finds."""

from __future__ import annotations

import resource
import secrets
import signal
import time

import pytest

from .conftest import Boot
from .harness import ENVIRONMENT, Guest, Host, Refused, new_id


def test_output_and_exit_code(host: Host) -> None:
    stream = host.run("echo out; echo err >&2; exit 7")
    assert (bytes(stream.out), bytes(stream.err)) == (b"out\n", b"err\n")
    end = stream.end
    assert end is not None
    assert (end["outcome"], end["code"], end["out"], end["err"]) == ("exited", 7, 4, 4)
    assert end["out_dropped"] == end["err_dropped"] == 0
    assert end["max_rss_kb"] > 100
    assert "signal" not in end and "errno" not in end


def test_usage_counts_children_that_were_waited_for(host: Host) -> None:
    spin = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"
    end = host.run(f"sh -c '{spin}'; true").end
    assert end is not None and end["cpu_us"] > 20_000
    assert host.call("stats")["cpu_us"] >= end["cpu_us"] - 30_000, "all that were waited for"


def test_what_nobody_counted_is_left_out(host: Host) -> None:
    end = host.run(["no-such-program"]).end
    assert end is not None and end["outcome"] == "not_started"
    assert not {"cpu_us", "max_rss_kb", "written_kb"} & end.keys()
    end = host.run("true").end
    assert end is not None and {"cpu_us", "max_rss_kb", "written_kb"} <= end.keys()


def test_stats_tell_of_memory_and_disk(host: Host) -> None:
    stats = host.call("stats")
    assert stats["memory_kb"] > 0
    assert 0 < stats["disk_used_kb"] <= stats["disk_kb"]


@pytest.mark.parametrize(
    ("argv", "errno"),
    [
        (["no-such-program"], "ENOENT"),
        (["/no/such/program"], "ENOENT"),
        ([""], "ENOENT"),
        (["/etc"], "EACCES"),
        (["/etc/passwd"], "EACCES"),
        (["/etc/passwd/x"], "ENOTDIR"),
        (["n" * 300], "ENAMETOOLONG"),
        (["true", "x" * 200_000], "E2BIG"),
    ],
)
def test_a_program_that_cannot_be_executed(host: Host, argv: list[str], errno: str) -> None:
    stream = host.run(argv)
    assert stream.end is not None
    assert stream.end["outcome"] == "not_started"
    assert (stream.end["errno"], stream.end["stage"]) == (errno, "exec")
    assert stream.event("started") is None


def test_death_by_a_signal(host: Host) -> None:
    end = host.run("kill -TERM $$").end
    assert end is not None
    assert (end["outcome"], end["signal"]) == ("signaled", signal.SIGTERM)
    assert "code" not in end


def test_signals_of_the_host_reach_the_process_group(host: Host) -> None:
    stream = host.exec("trap 'echo got; exit 5' USR1; echo ready; while :; do sleep 0.01; done")
    assert host.pump(lambda: b"ready" in stream.out)
    host.control(stream, signal=int(signal.SIGUSR1))
    end = host.finish(stream)
    assert (end["outcome"], end["code"]) == ("exited", 5)
    assert b"got" in stream.out


def test_a_signal_sent_before_the_start_arrives(host: Host) -> None:
    stream = host.exec(["sleep", "60"])
    host.control(stream, signal=int(signal.SIGTERM))
    assert host.finish(stream)["signal"] == signal.SIGTERM


def test_signal_operation(host: Host) -> None:
    identity = new_id()
    stream = host.exec(["sleep", "60"], id=identity)
    host.started(stream)
    assert host.call("signal", id=identity, signal=15) == {}
    assert host.finish(stream)["signal"] == 15
    with pytest.raises(Refused, match="no_such_process"):
        host.call("signal", id=identity, signal=15)


def test_binary_round_trip(host: Host) -> None:
    data = secrets.token_bytes(3_000_000) + bytes(range(256))
    stream = host.run(["cat"], stdin=data)
    assert bytes(stream.out) == data


def test_without_stdin_it_is_dev_null(host: Host) -> None:
    assert host.output("readlink /proc/self/fd/0; cat") == "/dev/null\n"


def test_input_to_a_process_that_does_not_read(host: Host) -> None:
    """It is thrown away and granted anew, so that whoever sends it comes to an end."""
    stream = host.exec("exec <&-; sleep 0.2; echo done", stdin=True)
    host.started(stream)
    time.sleep(0.1)
    host.write(stream, b"x" * 1_000_000, eof=True)
    assert host.finish(stream)["code"] == 0


def test_environment_is_exactly_what_was_asked_for(host: Host) -> None:
    out = host.output(["/usr/bin/env"], env=["A=1", "B=two words", "EMPTY="])
    assert sorted(out.splitlines()) == ["A=1", "B=two words", "EMPTY="]


def test_path_search(host: Host) -> None:
    host.output("mkdir -p /tmp && mount -t tmpfs none /tmp 2>/dev/null; true")
    script = "d=$(mktemp -d); mkdir $d/a $d/b; printf 'echo from-b' >$d/b/tool; chmod +x $d/b/tool"
    directory = host.output(f"{script}; touch $d/a/tool; printf %s $d")
    env = [f"PATH={directory}/a:{directory}/b"]
    # a/tool is there but may not be executed; b/tool has no "#!" and is given to the shell.
    assert host.output(["tool"], env=env) == "from-b\n"
    only_a = host.run(["tool"], env=[f"PATH={directory}/a"]).end
    assert only_a is not None and only_a["errno"] == "EACCES"
    host.output(f"rm -r {directory}")


def test_scripts_with_an_interpreter(host: Host) -> None:
    path = host.output("f=$(mktemp); printf '#!/bin/sh\\necho $1' >$f; chmod +x $f; printf %s $f")
    assert host.output([path, "argument"]) == "argument\n"
    host.output(f"rm {path}")


def test_working_directory(boot: Boot) -> None:
    host = boot(cwd="/usr").connect()
    assert host.output("pwd -P") == "/usr\n"
    assert host.output("pwd -P", cwd="/var") == "/var\n"
    for cwd, errno in [("/nowhere", "ENOENT"), ("/etc/passwd", "ENOTDIR")]:
        end = host.run("true", cwd=cwd).end
        assert end is not None
        assert (end["outcome"], end["stage"], end["errno"]) == ("not_started", "cwd", errno)


def test_umask_and_limits(boot: Boot) -> None:
    host = boot(umask=0o027, nofile=256, nproc=4000).connect()
    assert host.output("umask; ulimit -n; ulimit -Hn; ulimit -c; ulimit -p").split() == [
        "0027",
        "256",
        "256",
        "0",
        "4000",
    ]
    assert host.output("ulimit -n", nofile=100) == "100\n"


def test_without_a_limit_it_is_the_inherited_one(host: Host) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert host.output("ulimit -Sn; ulimit -Hn").split() == [str(soft), str(hard)]


def test_a_limit_above_the_own_one_is_refused(host: Host) -> None:
    end = host.run("true", nofile=2**31).end
    assert end is not None
    assert (end["outcome"], end["stage"], end["errno"]) == ("not_started", "limits", "EPERM")


def test_oom_score(boot: Boot) -> None:
    host = boot(oom_score_adj=321).connect()
    assert host.output("cat /proc/self/oom_score_adj /proc/1/oom_score_adj") == "321\n0\n"


def test_every_process_has_a_session_and_default_signals(host: Host) -> None:
    out = host.output(
        ["sh", "-c", "cat /proc/$$/stat /proc/self/status | grep -E '^[0-9]|Sig(Blk|Ign|Cgt)'"]
    )
    fields = out.splitlines()[0].split()
    assert fields[0] == fields[4] == fields[5], "pid, group and session"
    masks = [int(line.split()[1], 16) for line in out.splitlines()[1:]]
    assert masks == [0, 0, 0]


def test_background_child_that_holds_the_pipe(host: Host) -> None:
    before = time.monotonic()
    stream = host.run("(sleep 30; echo late) & echo main")
    assert bytes(stream.out) == b"main\n"
    assert 0.05 < time.monotonic() - before < 5
    assert host.call("stats")["procs"] >= 1, "the child goes on"


def test_what_was_written_before_the_exit_is_never_lost(host: Host) -> None:
    """Although a child keeps the pipe open and the host grants credit only later."""
    stream = host.exec("sleep 30 & head -c 120000 /dev/zero", window=1000, credit=False)
    assert host.pump(lambda: stream.out_count == 1000)
    time.sleep(0.3)
    while stream.out_count < 120_000:
        assert not stream.over
        wanted = min(stream.out_count + 5000, 120_000)
        host.grant(stream, 1, 5000)
        assert host.pump(lambda: stream.over or stream.out_count >= wanted)  # noqa: B023
    assert host.finish(stream)["out"] == 120_000
    assert stream.out_count == 120_000


def test_ids_are_used_once_and_checked(host: Host) -> None:
    identity = new_id()
    stream = host.exec(["sleep", "60"], id=identity)
    with pytest.raises(Refused, match="exists"):
        host.finish(host.exec("true", id=identity))
    for bad in ("short", "A" * 20, "a" * 21, "../../etc/passwd....", 7):
        with pytest.raises(Refused, match="bad_request"):
            host.finish(host.exec("true", id=bad))
    host.control(stream, kill=True)
    assert host.finish(stream)["signal"] == 9


@pytest.mark.parametrize(
    "wrong",
    [
        {"argv": []},
        {"argv": "sh"},
        {"argv": ["a\0b"]},
        {"argv": [1]},
        {"env": ["NOVALUE"]},
        {"env": [["A", "B"]]},
        {"cwd": 1},
        {"cwd": b"/\0"},
        {"stdin": 1},
        {"pty": [80, 24]},
        {"window": -1},
        {"window": 1 << 30},
        {"timeout_ms": "1"},
        {"job": None},
    ],
)
def test_requests_that_make_no_sense(host: Host, wrong: dict[str, object]) -> None:
    request = {"id": new_id(), "argv": ["true"], "env": ENVIRONMENT, **wrong}
    with pytest.raises(Refused, match="bad_request"):
        host.call("exec", **request)
    assert host.output("echo fine") == "fine\n"


def test_non_utf8_arguments(host: Host) -> None:
    stream = host.run(["printf", "%s", b"\xff\xfe"])  # type: ignore[list-item]
    assert bytes(stream.out) == b"\xff\xfe"


def test_unknown_operations_and_fields(host: Host) -> None:
    with pytest.raises(Refused, match="no_such_op"):
        host.call("dance")
    with pytest.raises(Refused, match="bad_request"):
        host.finish(host.open(3))  # type: ignore[arg-type]
    assert host.output("echo fine", from_a_later_generation={"a": [1]}) == "fine\n"


def test_list_shows_what_runs(host: Host) -> None:
    identity = new_id()
    stream = host.exec("printf abc; sleep 60", id=identity)
    assert host.pump(lambda: stream.out_count == 3)
    (entry,) = host.call("list")["procs"]
    assert entry["id"] == identity and entry["pid"] == host.started(stream)
    assert entry["running"] is True and entry["job"] is False and entry["out"] == 3
    host.control(stream, kill=True)
    host.finish(stream)
    assert host.call("list")["procs"] == []


def test_nothing_is_left_of_many_short_processes(guest: Guest, host: Host) -> None:
    for _ in range(30):
        host.run("true")
    assert host.output("ls /proc | grep -c '^[0-9]'").strip() <= "6"
    assert host.call("stats")["procs"] == 0
    assert host.output("ps -eo stat --no-headers | grep -c Z || true") == "0\n"


def test_zombies_are_reaped(host: Host) -> None:
    script = (
        "for i in 1 2 3 4 5; do (sleep 0.01 & exec sleep 0.02) & done; wait; sleep 0.3; ps -eo stat"
    )
    assert "Z" not in host.output(script)


def test_ping(host: Host) -> None:
    first = host.call("ping")["now_ms"]
    assert host.call("ping")["now_ms"] >= first > 0
