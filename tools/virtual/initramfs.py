"""The smallest initramfs that finds the root disk: busybox, a few modules, a script.

Debian's cloud kernel has ext4 built in and virtio as modules, so something has to load those.
One that Debian's own tools make unpacks 20 MB under emulation before anything starts.
"""

from __future__ import annotations

import gzip
import os
import stat
from pathlib import Path

# In this order, each after what modules.dep says it needs.
MODULES = ("virtio_pci", "virtio_blk", "virtio_console", "overlay")

SCRIPT = """#!/bin/busybox sh
/bin/busybox mount -t devtmpfs devtmpfs /dev
for module in {modules}; do
    /bin/busybox insmod /modules/$module
done
tries=0
until [ -b /dev/vda ]; do
    tries=$((tries + 1))
    if [ "$tries" -gt 100 ]; then echo "no root disk"; /bin/busybox poweroff -f; fi
    /bin/busybox usleep 100000
done
/bin/busybox mount -t ext4 -o rw,noatime /dev/vda /root
/bin/busybox mount -o move /dev /root/dev
exec /bin/busybox switch_root /root /lib/systemd/systemd
"""


def build(root: Path, release: str) -> bytes:
    """A compressed archive for the kernel `release` that is installed below `root`."""
    modules = needed_modules(root / "lib/modules" / release)
    archive = Archive()
    for name in ("bin", "dev", "root", "modules"):
        archive.add(name, stat.S_IFDIR | 0o755)
    archive.add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    archive.add("bin/busybox", stat.S_IFREG | 0o755, (root / "bin/busybox").read_bytes())
    for path in modules:
        archive.add(f"modules/{path.name}", stat.S_IFREG | 0o644, path.read_bytes())
    script = SCRIPT.format(modules=" ".join(path.name for path in modules))
    archive.add("init", stat.S_IFREG | 0o755, script.encode())
    return gzip.compress(archive.finish(), compresslevel=1)


def needed_modules(folder: Path) -> list[Path]:
    needs: dict[str, list[str]] = {}
    for line in (folder / "modules.dep").read_text().splitlines():
        path, _, others = line.partition(":")
        # The last one named has to be loaded first.
        needs[path] = others.split()[::-1]
    by_name = {os.path.basename(path).split(".")[0]: path for path in needs}
    ordered: list[str] = []
    for name in MODULES:
        path = by_name[name]
        ordered += [one for one in (*needs[path], path) if one not in ordered]
    return [folder / path for path in ordered]


class Archive:
    """cpio in the "newc" format, the only one that the kernel reads."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._inode = 0

    def add(
        self, name: str, mode: int, body: bytes = b"", device: tuple[int, int] = (0, 0)
    ) -> None:
        self._inode += 1
        # inode, mode, uid, gid, links, mtime, size, device (2), rdev (2), length of name, checksum
        fields = (self._inode, mode, 0, 0, 1, 0, len(body), 0, 0, *device, len(name) + 1, 0)
        header = b"070701" + b"".join(b"%08X" % field for field in fields)
        self._parts.append(_padded(header + name.encode() + b"\0"))
        self._parts.append(_padded(body))

    def finish(self) -> bytes:
        self.add("TRAILER!!!", 0)
        return b"".join(self._parts)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
