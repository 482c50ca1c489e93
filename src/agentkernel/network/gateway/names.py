"""Which name has which synthetic address, for one sandbox and its whole life; and its bytes so far.

The file has one name a line, and the line's number is the address: nothing can be there twice, and
no address is ever given to another name. A line is in the file before the guest learns of it, so a
gateway that is killed and started again knows every address a guest may still have. The first line
has the bytes that went up and down. It is written through memory, so the next gateway goes on
counting there, or whatever kills a gateway would be a way around caps.
"""

from __future__ import annotations

import contextlib
import ipaddress
import mmap
import os
import re

from agentkernel.errors import InvalidInputError
from agentkernel.network.policy.names import canonical_name

RANGE = ipaddress.IPv4Network("198.18.0.0/15")
PROXY_ADDRESS = "198.18.0.1"
RESOLVER_ADDRESS = "198.18.0.2"
_FIRST = int(RANGE.network_address) + 256
"""The first 256 are our own."""
_ROOM = RANGE.num_addresses - 256 - 1


_COUNTED = re.compile(rb"up ([0-9a-f]{16}) down ([0-9a-f]{16})\n")


class NamesFull(Exception):
    """The sandbox has asked for as many different names as it may."""


class Names:
    """Raises OSError if the file can't be read or made."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._names: list[str] = []
        self._index: dict[str, int] = {}
        self._memory: mmap.mmap | None = None
        self.up = self.down = 0
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    def _load(self) -> None:
        size = os.fstat(self._fd).st_size
        data = b""
        while len(data) < size and (piece := os.read(self._fd, 1 << 20)):
            data += piece
        if found := _COUNTED.match(data):
            self.up, self.down = (int(number, 16) for number in found.groups())
        else:
            data = _counted(0, 0)
            os.pwrite(self._fd, data, 0)
        # A line that was cut by a crash was never told to anybody.
        whole = data[: data.rfind(b"\n") + 1]
        os.ftruncate(self._fd, len(whole))
        os.lseek(self._fd, len(whole), os.SEEK_SET)
        self._memory = mmap.mmap(self._fd, len(_counted(0, 0)))
        for line in whole.decode("ascii", "replace").splitlines()[1 : _ROOM + 1]:
            with contextlib.suppress(InvalidInputError):
                line = canonical_name(line)
            self._index.setdefault(line, len(self._names))
            self._names.append(line)

    def __len__(self) -> int:
        return len(self._names)

    def address_of(self, name: str, most: int) -> str:
        """The address of a canonical name, a new one if need be. Raises NamesFull, OSError."""
        index = self._index.get(name)
        if index is None:
            index = len(self._names)
            if index >= min(most, _ROOM):
                raise NamesFull
            self._append(name)
            self._names.append(name)
            self._index[name] = index
        return str(ipaddress.IPv4Address(_FIRST + index))

    def _append(self, name: str) -> None:
        line = name.encode("ascii") + b"\n"
        at = os.lseek(self._fd, 0, os.SEEK_CUR)
        if os.write(self._fd, line) != len(line):
            # A full disk: what was written of the line must not stand before the next.
            os.ftruncate(self._fd, at)
            os.lseek(self._fd, at, os.SEEK_SET)
            raise OSError("the file of names can't be written")

    def name_of(self, address: str) -> str | None:
        index = int(ipaddress.IPv4Address(address)) - _FIRST
        return self._names[index] if 0 <= index < len(self._names) else None

    def count(self, up: int, down: int) -> None:
        self.up += up
        self.down += down
        if self._memory:
            self._memory[:] = _counted(self.up, self.down)

    def close(self) -> None:
        if self._memory:
            self._memory.close()
            self._memory = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _counted(up: int, down: int) -> bytes:
    return b"up %016x down %016x\n" % (up, down)


def is_synthetic(address: str) -> bool:
    return address.startswith(("198.18.", "198.19."))
