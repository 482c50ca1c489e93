"""Control groups, on a made-up cgroup v2 tree (this machine may have v1 only) and on the real one.

What a made-up tree can't show, that the kernel honours the files, is shown on real machines.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from agentkernel.backends.local.cgroups import SandboxGroups
from agentkernel.backends.local.hierarchy import Hierarchy
from agentkernel.errors import HostError
from agentkernel.security.profiles import security_profile

LIMITS = dataclasses.replace(security_profile().limits, memory_bytes=64 << 20, cpus=0.5, pids=20)


@pytest.fixture
def unified(tmp_path: Path) -> Path:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids")
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory pids")
    (tmp_path / "cgroup.procs").touch()
    (tmp_path / "agentkernel").mkdir()
    (tmp_path / "agentkernel/cgroup.subtree_control").write_text("cpu memory pids")
    return tmp_path


def test_v2_limits_are_written(unified: Path) -> None:
    groups = SandboxGroups(Hierarchy(unified), "abc")
    groups.create(LIMITS)
    group = unified / "agentkernel/abc"
    assert (group / "memory.max").read_text() == str(64 << 20)
    assert (group / "pids.max").read_text() == "20"
    assert (group / "cpu.max").read_text() == "50000 100000"
    assert groups.enforced == {"memory", "pids", "cpus"}
    assert groups.join_files == [str(group / "cgroup.procs")]
    assert groups.mounts == [("/sys/fs/cgroup", "cgroup2", "")]


def test_v2_out_of_memory_is_seen_once(unified: Path) -> None:
    groups = SandboxGroups(Hierarchy(unified), "abc")
    groups.create(LIMITS)
    events = unified / "agentkernel/abc/memory.events"
    events.write_text("low 0\noom 1\noom_kill 1\n")
    assert groups.was_out_of_memory()
    assert not groups.was_out_of_memory()
    events.write_text("low 0\noom 2\noom_kill 2\n")
    assert groups.was_out_of_memory()


def test_a_controller_that_is_not_there_is_not_enforced(unified: Path) -> None:
    (unified / "cgroup.controllers").write_text("cpu pids")
    groups = SandboxGroups(Hierarchy(unified), "abc")
    groups.create(LIMITS)
    assert "memory" not in groups.enforced


def test_no_hierarchy_at_all(tmp_path: Path) -> None:
    hierarchy = Hierarchy(tmp_path / "none")
    groups = SandboxGroups(hierarchy, "abc")
    groups.create(LIMITS)
    assert (groups.enforced, groups.join_files, groups.mounts) == (set(), [], [])
    assert "is not there" in hierarchy.why_not("memory")[0]


def test_a_group_that_can_not_be_made_is_a_host_error(unified: Path) -> None:
    (unified / "agentkernel/abc").write_text("in the way")
    with pytest.raises(HostError, match="control group"):
        SandboxGroups(Hierarchy(unified), "abc").create(LIMITS)


def test_real_groups_come_and_go() -> None:
    hierarchy = Hierarchy()
    if not hierarchy.parents:
        pytest.skip(f"no control groups for this user: {hierarchy.why_not('memory')}")
    groups = SandboxGroups(hierarchy, f"test-{os.getpid()}")
    groups.create(LIMITS)
    try:
        assert {"memory", "pids"} <= groups.enforced
        assert all(Path(path).exists() for path in groups.join_files)
        assert not groups.was_out_of_memory()
    finally:
        assert groups.remove()
    assert not any(Path(path).exists() for path in groups.join_files)
