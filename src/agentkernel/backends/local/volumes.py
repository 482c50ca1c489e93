"""Volumes on this machine's disk, and how a sandbox gets them.

STATE/volumes/<id>/data     the files, with the ids that a sandbox's own files have on disk
STATE/volumes/<id>/image    instead, with a quota: a file that holds an ext4 file system of that
                            size, with `data` in it; several sandboxes mount one and the same

`data` is made by the launcher for the first sandbox that has the volume, and belongs to that
sandbox's user. What is in it is as guests left it: nothing here goes in but in a user namespace
that has their ids, and nothing follows a link.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentkernel import faults
from agentkernel.backends.base import NEW_VOLUME, Blueprint, EffectiveLine
from agentkernel.backends.local import idmaps
from agentkernel.backends.local.diagnose import explain
from agentkernel.backends.local.launcher import LaunchFailure, measure_sources
from agentkernel.backends.local.plan import LaunchPlan
from agentkernel.backends.local.sandbox import remove_guest_files
from agentkernel.backends.local.shortages import host_errors
from agentkernel.backends.local.uppers import make_image, no_image
from agentkernel.config.volumes import is_below
from agentkernel.errors import InvalidInputError, UnenforceableError, UnsupportedError
from agentkernel.guest.binary import agentd_path
from agentkernel.images.accounts import Account
from agentkernel.images.model import RootFilesystem
from agentkernel.quantities import size_text

DIRECTORY = "volumes"
_DATA = "data"
_IMAGE = "image"


@dataclass(frozen=True)
class Measured:
    """What files take on the disk. `complete` False: it is that, and more."""

    bytes: int
    entries: int
    complete: bool = True


class VolumeFiles:
    """The files of all volumes of one state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._directory = state_dir / DIRECTORY

    def ids(self) -> list[str]:
        """Of all of which anything is there."""
        try:
            return sorted(os.listdir(self._directory))
        except FileNotFoundError:
            return []

    async def make(self, id: str, quota_bytes: int | None) -> None:
        """Raises UnenforceableError for a quota that can't be held here."""
        if quota_bytes is not None:
            refuse_quota()
        path = self._directory / id
        with host_errors("making the volume"):
            path.mkdir(mode=0o700, parents=True)
            faults.point("volume.directory")
            if quota_bytes is not None:
                await make_image(path / _IMAGE, quota_bytes)

    async def remove(self, id: str) -> None:
        """Idempotent. Raises as `remove_guest_files` does."""
        path = self._directory / id
        await remove_guest_files(path / _DATA, idmaps.own_maps())
        with host_errors("removing the volume"):
            # All else in there is ours.
            if path.is_symlink():
                path.unlink()
            elif path.exists():
                shutil.rmtree(path)

    def remove_empty(self, id: str) -> bool:
        """False: something is in it, and it stays."""
        try:
            os.rmdir(self._directory / id)
        except OSError:
            return False
        return True

    async def measure(self, ids: Sequence[str]) -> dict[str, Measured]:
        """What they take now, also while sandboxes write to them."""
        found = await measure([self._directory / id for id in ids])
        return dict(zip(ids, found, strict=True))


def refuse_quota() -> None:
    reason, remedy = no_image()
    if reason:
        raise UnenforceableError(
            f"a volume's quota can't be enforced: {reason}",
            hint=f"{remedy}; or leave the quota out",
            limit="quota",
        )


async def measure(paths: Sequence[Path]) -> list[Measured]:
    """What is at each path and below. Guests may have shaped it; what is not there takes nothing.
    Raises HostError where the system forbids the user namespace that the files belong to."""
    if not paths:
        return []
    maps = idmaps.own_maps()
    plan = LaunchPlan(maps, "", "", "", frozenset(), b"")
    numbers = [plan.source(str(path)) for path in paths]
    try:
        lines = await measure_sources(str(agentd_path()), plan.encode())
    except LaunchFailure as failure:
        raise explain(failure, as_root=maps.mode == "range", upper=None) from None
    return [
        Measured(size, entries, bool(whole))
        for size, entries, whole in map(lines.__getitem__, numbers)
    ]


def refuse_volumes(blueprint: Blueprint, maps: idmaps.IdMaps) -> None:
    """Ids on disk mean the same in each sandbox that has the volume, or it has not."""
    if blueprint.volumes and maps.mode == "subuid" and maps.upper_owner:
        raise UnsupportedError(
            "a sandbox whose image belongs to this user's subuids can have no volumes: their files "
            "would be nobody's in it",
            hint="use an image of your own files, or the host image",
        )


def check_places(blueprint: Blueprint, root: RootFilesystem) -> None:
    """Nothing can be made in what is read-only."""
    for volume in blueprint.volumes:
        for tree in root.trees:
            if volume.path == tree.target or is_below(volume.path, tree.target):
                raise InvalidInputError(
                    f"the volume {volume.name} can't be at {volume.path}: {tree.target} is "
                    f"read-only inside ({tree.reason})",
                    hint="choose another place, such as /data",
                )


def stage_volumes(
    plan: LaunchPlan, blueprint: Blueprint, account: Account, state_dir: Path
) -> list[int]:
    """The numbers of their sources, in their order."""
    # With one id there is no other to own it; inside it is whatever that id is called.
    owner = 0 if plan.maps.mode == "single" else account.uid
    numbers = []
    for volume in blueprint.volumes:
        path = state_dir / DIRECTORY / volume.id
        image = volume.quota_bytes is not None
        numbers.append(
            plan.volume(
                str(path / _IMAGE if image else path),
                writable=not volume.read_only,
                image=image,
                owner=owner,
            )
        )
    return numbers


def add_volumes(plan: LaunchPlan, blueprint: Blueprint, account: Account, state_dir: Path) -> None:
    """Last of all that is mounted, so that they lie on the rest."""
    numbers = stage_volumes(plan, blueprint, account, state_dir)
    for volume, number in zip(blueprint.volumes, numbers, strict=True):
        plan.op("bind", volume.path, index=number)


def volume_lines(blueprint: Blueprint) -> list[EffectiveLine]:
    lines = []
    for volume in blueprint.volumes:
        quota = volume.quota_bytes
        words = [
            "bind: nosuid, nodev" + (", read-only" if volume.read_only else ""),
            "no other sandbox runs with it" if volume.exclusive else "others may have it, too",
            "no quota" if quota is None else f"quota {size_text(quota)}: size of its ext4 image",
        ]
        if volume.is_new:
            words.insert(0, NEW_VOLUME)
        lines.append(EffectiveLine("volume", f"{volume.name} at {volume.path}", "; ".join(words)))
    return lines
