"""Limits on cgroup v2, for root and for a normal user, over a daemon as everybody has it.

Runs where the machine has v2 and this user may divide a part of it: as root, in a container with a
writable tree, or through a scope that the user's systemd gives away.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkernel import Outcome, Sandbox, errors
from agentkernel.backends.local.hierarchy import CGROUP_ROOT

MIB = 1 << 20
MEMORY_BOMB = "exec python3 -c 'held = bytearray(400 << 20); held[::4096] = held[::4096]'"

if not (CGROUP_ROOT / "cgroup.controllers").exists():
    pytest.skip("this machine has no cgroup v2 at /sys/fs/cgroup", allow_module_level=True)


@pytest.fixture(scope="module", autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A daemon of this module's own; skips if v2 is there and not for this user."""
    path = tmp_path_factory.mktemp("cgroup2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTKERNEL_STATE_DIR", str(path))
        try:
            with Sandbox.create(memory_bytes=64 * MIB, cpus=1.0):
                pass
            yield path
        except errors.UnenforceableError as error:
            if "cgroup2" in os.environ.get("MUST_WORK", "").split(","):
                raise
            pytest.skip(f"{error}; {error.hint}")
        finally:
            cli("sandbox", "gc", "--older-than", "1ms")
            cli("daemon", "stop")


def cli(*words: str) -> str:
    command = [sys.executable, "-m", "agentkernel", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def groups_of(id: str) -> list[Path]:
    return [path for path in CGROUP_ROOT.rglob(id) if path.is_dir()]


def until(condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


def test_every_line_holds_by_a_control_group() -> None:
    with Sandbox.create(memory_bytes=64 * MIB, cpus=0.5, pids=50) as sandbox:
        lines = {line["what"]: line for line in sandbox.refresh().raw["effective"]}
        assert "control group" in lines["memory"]["enforced_by"]
        assert "control group" in lines["cpus"]["enforced_by"]
        assert "control group" in lines["pids"]["enforced_by"]
        inside = sandbox.exec("cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/pids.max").stdout
        assert inside.split() == [str(64 * MIB), "50"]
        assert sandbox.exec("cat /proc/self/cgroup").stdout == "0::/\n", "the path is hidden"
        write = sandbox.exec("echo max > /sys/fs/cgroup/memory.max")
        assert write.exit_code != 0


def test_memory() -> None:
    with Sandbox.create(memory_bytes=128 * MIB) as sandbox:
        assert sandbox.exec(MEMORY_BOMB).outcome is Outcome.OOM
        usage = sandbox.refresh().raw["usage"]
        assert usage["counted_by"] == "control group"
        assert usage["peak_memory_bytes"] is None or usage["peak_memory_bytes"] > 64 * MIB
        assert sandbox.exec("echo alive").stdout == "alive\n"
    with Sandbox.create(memory_bytes=1024 * MIB) as sandbox:
        assert sandbox.exec(MEMORY_BOMB).exit_code == 0, "control"


def test_processes() -> None:
    count = "for i in $(seq 60); do sleep 30 & done 2>/dev/null; ls -d /proc/[0-9]* | wc -l"
    with Sandbox.create(pids=200) as sandbox:
        assert int(sandbox.exec(count).stdout) > 60, "control"
    with Sandbox.create(pids=20) as sandbox:
        sandbox.exec(count)
        (group,) = groups_of(sandbox.id)
        assert int((group / "pids.current").read_text()) <= 20
        until(lambda: "pids" in limits_met(sandbox.id))


def limits_met(id: str) -> list[str]:
    lines = cli("sandbox", "logs", "--json", id).splitlines()
    found = [json.loads(line) for line in lines]
    return [event["body"]["limit"] for event in found if event.get("kind") == "sandbox.limit"]


def test_cpus() -> None:
    until_held = "until grep -q 'nr_throttled [1-9]' /sys/fs/cgroup/cpu.stat; do :; done"
    with Sandbox.create(cpus=0.2) as sandbox:
        assert sandbox.exec(f"({until_held}) & ({until_held}) & wait").exit_code == 0
        usage = sandbox.refresh().raw["usage"]
        (group,) = groups_of(sandbox.id)
        words = (group / "cpu.stat").read_text().split()
        periods = int(words[words.index("nr_periods") + 1])
        assert usage["throttled_seconds"] > 0
        assert usage["cpu_seconds"] <= 1.3 * (periods + 2) * 0.2 * 0.1
    with Sandbox.create(cpus=64) as sandbox:
        assert sandbox.exec("i=0; while [ $i -lt 9999 ]; do i=$((i+1)); done").exit_code == 0
        assert sandbox.refresh().raw["usage"]["throttled_seconds"] == 0, "control"


def test_a_sandbox_outlives_its_daemon(state: Path) -> None:
    sandbox = Sandbox.create(name="stays", memory_bytes=128 * MIB)
    before = groups_of(sandbox.id)
    sandbox.exec("sleep 1000 > /dev/null 2>&1 & echo $! > /root/pid")
    pid = json.loads((state / "daemon.json").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in status_of(pid))
    again = Sandbox.connect("stays")
    assert again.exec("kill -0 $(cat /root/pid) && echo there").stdout == "there\n"
    assert groups_of(sandbox.id) == before
    assert again.exec(MEMORY_BOMB).outcome is Outcome.OOM, "the limit holds on"
    # A new one beside it, by the new daemon.
    with Sandbox.create(memory_bytes=128 * MIB) as other:
        assert other.exec(MEMORY_BOMB).outcome is Outcome.OOM
    again.remove()
    assert groups_of(sandbox.id) == []


def status_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]
    except OSError:
        return "Z"


def test_removal_leaves_no_group() -> None:
    ids = []
    for _ in range(3):
        with Sandbox.create(memory_bytes=64 * MIB) as sandbox:
            ids.append(sandbox.id)
            assert len(groups_of(sandbox.id)) == 1
    assert [groups_of(id) for id in ids] == [[], [], []]


def test_the_daemon_is_not_among_the_sandboxes(state: Path) -> None:
    """Its own group is a leaf beside theirs: neither is below the other."""
    with Sandbox.create(memory_bytes=64 * MIB) as sandbox:
        pid = json.loads((state / "daemon.json").read_text())["pid"]
        own = CGROUP_ROOT / Path(f"/proc/{pid}/cgroup").read_text().strip().removeprefix("0::/")
        (group,) = groups_of(sandbox.id)
        assert not group.is_relative_to(own) or own == CGROUP_ROOT
        assert not own.is_relative_to(group.parent)
