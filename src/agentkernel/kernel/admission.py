"""Who may still come in: how many sandboxes, and how much memory must stay free."""

from __future__ import annotations

from dataclasses import dataclass

from agentkernel.errors import ResourceExhaustedError


@dataclass(frozen=True)
class Admission:
    """Bounds of one kernel. A refusal says which bound and what to do."""

    max_sandboxes: int = 1000
    memory_floor_bytes: int = 256 << 20

    def check(self, running: int) -> None:
        if running >= self.max_sandboxes:
            raise ResourceExhaustedError(
                f"{running} sandboxes exist, which is the most there may be",
                hint="remove some, or raise max_sandboxes",
            )
        available = available_memory()
        if available is not None and available < self.memory_floor_bytes:
            raise ResourceExhaustedError(
                f"only {available >> 20} MiB of memory are available, and "
                f"{self.memory_floor_bytes >> 20} MiB must stay free",
                hint="stop sandboxes or other programs",
            )


def available_memory() -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
