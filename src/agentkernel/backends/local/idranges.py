"""Ranges of 65,536 host ids, one for each sandbox that root makes.

One directory for the whole machine, not for a state directory: two daemons with two states must not
hand out one range twice. A slot is a file whose name is the slot and whose content is its owner
(the sandbox's directory); one whose directory is gone is free, so a crash leaks nothing for ever.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentkernel.backends.local.idmaps import RANGE_SIZE, read_subids
from agentkernel.errors import HostError, ResourceExhaustedError

# Unused by convention on Linux: above systemd's container ranges, below 2^31. Room for 4,096.
FIRST_ID = 0x70000000
SLOTS = 4096
DEFAULT_DIRECTORY = Path("/var/lib/agentkernel/id-ranges")


class IdRanges:
    """The allocator. Every call holds the directory's lock for microseconds."""

    def __init__(self, directory: Path = DEFAULT_DIRECTORY) -> None:
        self._directory = directory

    def allocate(self, owner: str) -> int:
        """The first id of a range that belongs to `owner` (a directory) until it is released."""
        with self._locked():
            taken = {int(name): name for name in os.listdir(self._directory) if name.isdigit()}
            for slot in self._candidates(set(taken)):
                self._write(slot, owner)
                return FIRST_ID + slot * RANGE_SIZE
            for slot in sorted(taken):
                if not os.path.isdir(self._owner(slot)):
                    self._write(slot, owner)
                    return FIRST_ID + slot * RANGE_SIZE
        raise ResourceExhaustedError(
            f"all {SLOTS} id ranges are in use", hint="remove sandboxes you no longer need"
        )

    def release(self, first: int, owner: str) -> None:
        """Gives a range back. Releasing what one no longer owns does nothing."""
        slot = (first - FIRST_ID) // RANGE_SIZE
        with self._locked():
            if self._owner(slot) == owner:
                (self._directory / str(slot)).unlink(missing_ok=True)

    def release_all(self, owner: str) -> None:
        """Gives back whatever `owner`, which is gone, still has."""
        for first, holder in self.owners().items():
            if holder == owner:
                self.release(first, owner)

    def owners(self) -> dict[int, str]:
        """First id → owner, for leak checks."""
        with self._locked():
            names = [int(n) for n in os.listdir(self._directory) if n.isdigit()]
            return {FIRST_ID + slot * RANGE_SIZE: self._owner(slot) for slot in names}

    def _candidates(self, taken: set[int]) -> Iterator[int]:
        reserved = read_subids("/etc/subuid") + read_subids("/etc/subgid")
        for slot in range(SLOTS):
            first = FIRST_ID + slot * RANGE_SIZE
            if slot not in taken and not any(
                start < first + RANGE_SIZE and first < start + count for _, start, count in reserved
            ):
                yield slot

    def _owner(self, slot: int) -> str:
        try:
            return (self._directory / str(slot)).read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def _write(self, slot: int, owner: str) -> None:
        path = self._directory / str(slot)
        temporary = self._directory / f".{slot}"
        temporary.write_text(owner, encoding="utf-8")
        temporary.rename(path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise HostError(
                f"no id range can be reserved: {self._directory}: {exc.strerror}",
                hint=f"make {self._directory} writable, or run agentkernel as a normal user",
            ) from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)
