"""Who may still come in: how many sandboxes, how much memory and disk must stay free."""

from __future__ import annotations

import os
from dataclasses import dataclass

from agentkernel.config.finding import user_file
from agentkernel.errors import ResourceExhaustedError


@dataclass(frozen=True)
class Admission:
    """Bounds of one kernel. A refusal says which bound and what to do. `disk_reserve_bytes` is
    `space`'s to hold, for all that writes; None: its default."""

    max_sandboxes: int = 1000
    memory_floor_bytes: int = 256 << 20
    disk_reserve_bytes: int | None = None

    @classmethod
    def of_user(cls) -> Admission:
        """As the user's config.toml says under [daemon]. Raises for a file that is wrong."""
        path = user_file()
        if not os.path.lexists(path):
            return cls()
        from agentkernel.config.reading import read_file

        values = read_file(path, "user").values
        return cls(
            max_sandboxes=values.get("daemon.max_sandboxes", cls.max_sandboxes),
            memory_floor_bytes=values.get("daemon.memory_floor", cls.memory_floor_bytes),
            disk_reserve_bytes=values.get("daemon.disk_reserve"),
        )

    def check(self, running: int) -> None:
        if running >= self.max_sandboxes:
            raise ResourceExhaustedError(
                f"{running} sandboxes exist, which is the most there may be",
                hint="remove some, or `agentkernel config set daemon.max_sandboxes N` and "
                "`agentkernel daemon restart`",
            )
        available = available_memory()
        if available is not None and available < self.memory_floor_bytes:
            raise ResourceExhaustedError(
                f"only {available >> 20} MiB of memory are available, and "
                f"{self.memory_floor_bytes >> 20} MiB must stay free",
                hint="stop sandboxes or other programs, or lower daemon.memory_floor",
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
