"""The agreed set of `tools/vm test`: who runs what inside.

To add tests, add their paths to COMMON or to one scenario; what is not in the tree counts as
skipped. What pytest can't do from inside is a function in checks.py.
"""

from __future__ import annotations

from . import checks
from .scenarios import Checks, Tests

COMMON = (
    "tests/unit/backends/test_cgroups.py",
    "tests/security/test_limits.py",
    "tests/integration/test_run.py",
    "tests/integration/test_kept.py",
    "tests/integration/test_kernel.py",
    "tests/integration/test_cgroup2.py",
    "tests/integration/test_disk_image.py",
    "tests/integration/test_usage.py",
)
MORE = (
    "tests/integration/test_host_forbids.py",
    "tests/integration/test_trees.py",
    "tests/security/test_privileges.py",
    "tests/security/test_proc.py",
    "tests/security/test_neighbours.py",
)

SCENARIOS: tuple[Tests | Checks, ...] = (
    Tests("root", "As root, in a login session.", "root", COMMON),
    Tests(
        "delegated",
        "As a normal user in a login session whose `user@.service` runs: systemd delegates the "
        "controllers memory, pids and cpu to it.",
        "delegated",
        COMMON,
    ),
    Tests(
        "tester",
        "As a normal user outside of any session, as from cron: no control group is theirs.",
        "tester",
        COMMON,
    ),
    Tests("root-more", "As root, what depends on the kernel more than on who asks.", "root", MORE),
    Tests("tester-more", "The same as a normal user outside of any session.", "tester", MORE),
    Checks(
        "reboot",
        "Kept sandboxes, a job and a run of each user; QEMU is killed, which is a power cut; the "
        "same disk is booted again.",
        checks.reboot,
    ),
    Checks(
        "systemd",
        "Limits of a sandbox of root beside a systemd that reloads, starts services with limits of "
        "their own and executes itself anew.",
        checks.systemd,
    ),
    Checks(
        "forbidden",
        "Rules of the machine that forbid what a sandbox of a normal user needs, set for real.",
        checks.forbidden,
    ),
)
