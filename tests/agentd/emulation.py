"""agentd of another architecture under qemu's user emulation: AGENTD_EMULATED=aarch64.

What it runs is native; agentd itself, its supervisors and its file workers are emulated. The
launcher is not part of it: the harness makes the namespaces. What qemu can't do is skipped by name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

VARIABLE = "AGENTD_EMULATED"

# qemu's prctl refuses to make a process a reaper. Pretended, so that all the rest can be tried: a
# child that outlives its command then belongs to PID 1 and not to its supervisor.
_SHIM = """\
#include <sys/prctl.h>
#define prctl(option, ...) \\
    ((option) == PR_SET_CHILD_SUBREAPER ? 0 : (prctl)((option), __VA_ARGS__))
"""
_REAPER = "emulated: qemu's prctl has no PR_SET_CHILD_SUBREAPER"
_MEMORY = "emulated: qemu's own memory and threads count as agentd's"
_SECCOMP = "emulated: qemu installs no seccomp filter"
SKIPPED = {
    "test_100_mb_each_way": _MEMORY,
    "test_a_flood_that_nobody_reads": _MEMORY,
    "test_a_host_that_does_not_read_at_all": _MEMORY,
    "test_an_idle_agent_is_small_and_sleeps": _MEMORY,
    "test_seccomp_filter": _SECCOMP,
    "test_a_filter_that_kills_is_an_honest_end": _SECCOMP,
    "test_a_broken_filter_is_told": _SECCOMP,
    "test_fork_bomb[2000]": "emulated: each of 2000 processes would be a qemu",
    "test_at_most_4096_records": "emulated: 4096 forks of qemu take longer than a test may",
    "test_timeout_kills_the_whole_tree[double fork]": _REAPER,
    "test_timeout_kills_the_whole_tree[orphans, one stopped]": _REAPER,
    "test_kill_takes_one_tree_and_no_other": _REAPER,
    "test_kill_of_what_a_finished_job_has_left": _REAPER,
    "test_killed_supervisor_after_the_exit": _REAPER,
    "test_time_passes_for_a_stopped_agent": "emulated: signals for agentd reach qemu, which has its"
    " own use for some",
}


def architecture() -> str | None:
    return os.environ.get(VARIABLE) or None


def program(build: Callable[..., bool], directory: Path, arch: str) -> Path:
    """A program that runs an agentd of `arch`, which is compiled for it."""
    emulator = shutil.which(f"qemu-{arch}-static") or shutil.which(f"qemu-{arch}")
    if emulator is None:
        pytest.fail(f"{VARIABLE}={arch}: qemu-{arch}-static is not installed (qemu-user-static)")
    shim = directory / "shim.h"
    shim.write_text(_SHIM)
    build(directory / f"agentd-{arch}", compiler="zig", arch=arch, include=shim)
    script = directory / "agentd"
    script.write_text(f'#!/bin/sh\nexec {emulator} {directory}/agentd-{arch} "$@"\n')
    script.chmod(0o755)
    return script


def skip_what_it_cannot(items: list[pytest.Item]) -> None:
    for item in items:
        if reason := SKIPPED.get(item.name):
            item.add_marker(pytest.mark.skip(reason=reason))
