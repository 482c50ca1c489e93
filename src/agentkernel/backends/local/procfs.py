"""What a guest finds in /proc besides its own processes.

`MASKED` and `READ_ONLY` start from the OCI runtimes' defaults; the rest are files that tell about
the machine (measured: see the isolation page). What stays readable, because programs need it, tells
about the machine too: cpuinfo, stat, loadavg, uptime and the like. `info` and the docs say so.
"""

from __future__ import annotations

import os

MASKED = (
    # the OCI default
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    # devices, disks, memory and modules of the machine
    "/proc/buddyinfo",
    "/proc/bus",
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/consoles",
    "/proc/devices",
    "/proc/diskstats",
    "/proc/dma",
    "/proc/driver",
    "/proc/fb",
    "/proc/fs",
    "/proc/iomem",
    "/proc/ioports",
    "/proc/irq",
    "/proc/kallsyms",
    "/proc/key-users",
    "/proc/kmsg",
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/locks",
    "/proc/mdstat",
    "/proc/misc",
    "/proc/modules",
    "/proc/mtrr",
    "/proc/pagetypeinfo",
    "/proc/partitions",
    "/proc/pressure",
    "/proc/schedstat",
    "/proc/slabinfo",
    "/proc/softirqs",
    "/proc/swaps",
    "/proc/sysrq-trigger",
    "/proc/tty/driver",
    "/proc/vmallocinfo",
    "/proc/zoneinfo",
)
READ_ONLY = ("/proc/sys",)
# agentd's files in /proc belong to guest root, who could make the OOM killer prefer agentd or slow
# it down. The whole directory: what matters is below `task/1` once more.
AGENT_READ_ONLY = ("/proc/1",)


def replaced_files(memory_bytes: int | None) -> dict[str, str]:
    """Files of /proc that are ours: the same shape as the kernel's, nothing of the machine."""
    release = os.uname().release
    return {
        "/proc/meminfo": meminfo(memory_bytes),
        "/proc/version": f"Linux version {release} (sandbox) #1\n",
        "/proc/sys/kernel/random/boot_id": _random_uuid(),
        "/proc/sys/kernel/core_pattern": "core\n",
    }


def meminfo(limit: int | None) -> str:
    """A /proc/meminfo that says what the sandbox may use, so that JVM and Node size themselves."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    kilobytes = min(limit or total, total) // 1024
    values = {
        "MemTotal": kilobytes,
        "MemFree": kilobytes,
        "MemAvailable": kilobytes,
        "Buffers": 0,
        "Cached": 0,
        "SwapCached": 0,
        "Active": 0,
        "Inactive": 0,
        "SwapTotal": 0,
        "SwapFree": 0,
        "Dirty": 0,
        "AnonPages": 0,
        "Mapped": 0,
        "Shmem": 0,
        "SReclaimable": 0,
        "CommitLimit": kilobytes,
        "Committed_AS": 0,
        "HugePages_Total": 0,
        "HugePages_Free": 0,
        "Hugepagesize": 2048,
    }
    lines = []
    for name, value in values.items():
        unit = "" if name.startswith("HugePages_") else " kB"
        lines.append(f"{name + ':':<16}{value:>8}{unit}\n")
    return "".join(lines)


def _random_uuid() -> str:
    digits = os.urandom(16).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])) + "\n"
