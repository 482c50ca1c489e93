"""What is told of volumes."""

from __future__ import annotations

from typing import Final

import msgspec

from agentkernel.backends.base import VolumeMount
from agentkernel.kernel.store import SandboxRecord, VolumeRecord

MINIMUM_QUOTA: Final = 16 << 20


class VolumeUser(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox that has the volume, running or not."""

    id: str
    name: str | None
    state: str
    path: str
    read_only: bool


class VolumeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A volume. `used_bytes`: what it takes on the disk, if that was asked for; `used_complete`
    false: it is that, and more, in directories too deep to be looked at."""

    id: str
    name: str
    owner: str
    state: str
    exclusive: bool
    quota_bytes: int | None
    created_at: float
    sandboxes: list[VolumeUser]
    used_bytes: int | None = None
    used_files: int | None = None
    used_complete: bool | None = None


def volumes_of(record: SandboxRecord) -> list[VolumeMount]:
    """Those that a sandbox was made with."""
    return msgspec.convert(record.blueprint.get("volumes") or [], list[VolumeMount])


def info_of(record: VolumeRecord, sandboxes: list[SandboxRecord]) -> VolumeInfo:
    users = [
        VolumeUser(
            id=sandbox.id,
            name=sandbox.name,
            state=sandbox.state,
            path=mount.path,
            read_only=mount.read_only,
        )
        for sandbox in sandboxes
        for mount in volumes_of(sandbox)
        if mount.id == record.id
    ]
    return VolumeInfo(**msgspec.structs.asdict(record), sandboxes=users)
