"""What is told of the disk: what takes it, and what was removed from it."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Kind = Literal[
    "sandboxes", "volumes", "kits", "layers", "blobs", "downloads", "builds", "records", "audit",
    "logs",
]  # fmt: skip
ABOUT: Final[dict[Kind, str]] = {
    "sandboxes": "files of sandboxes; those of stopped ones can go",
    "volumes": "files of volumes; those that no sandbox has can go",
    "kits": "agents as they are installed; older ones that no sandbox has can go",
    "layers": "layers of images, unpacked; those that nothing stands on can go",
    "blobs": "images as they came; those without a name or a sandbox can go",
    "downloads": "parts of blobs that were not fetched to their end",
    "builds": "what builds remember of their steps; what was not used for a day can go",
    "records": "the state's database",
    "audit": "the log of actions",
    "logs": "the daemon's and the gateway's own logs",
}


class DiskPart(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of thing. `complete` false: it is that, and more."""

    kind: Kind
    about: str
    count: int
    bytes: int
    reclaimable_bytes: int = 0
    complete: bool = True


class DiskUsage(msgspec.Struct, frozen=True, kw_only=True):
    """`free_bytes`: of the disk that holds the state. Below `reserve_bytes` nothing new is made."""

    path: str
    total_bytes: int
    free_bytes: int
    reserve_bytes: int
    short: bool
    parts: list[DiskPart]


class PrunedItem(msgspec.Struct, frozen=True, kw_only=True):
    """`problem`: why it is still there."""

    kind: Kind
    id: str
    name: str | None = None
    bytes: int = 0
    problem: str | None = None


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """What went, or would; `bytes` is the sum of what did not fail."""

    dry_run: bool
    items: list[PrunedItem]
    bytes: int
