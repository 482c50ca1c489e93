"""The image of a blueprint: looked at before ids are chosen, resolved for them afterwards.

Which id a sandbox of one id has, and whose its workspace is, may be a matter of the image's own
passwd; so an image that is stored is unpacked and looked into first. What was found of one is true
for ever, since its reference is pinned; what was found of the machine itself, for a moment.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from agentkernel.backends.base import Blueprint, Progress
from agentkernel.backends.local import idmaps
from agentkernel.errors import InvalidInputError
from agentkernel.images.accounts import Account, find_account
from agentkernel.images.cache import find
from agentkernel.images.model import IdView, RootFilesystem, image_kind
from agentkernel.images.oci.rootfs import UnpackedImage, resolve_oci, unpack_image
from agentkernel.images.oci.work import LayerWorker
from agentkernel.images.resolve import resolve_image
from agentkernel.images.view import View

# How long what was found of the `host` image is taken for true. Layers that were resolved lately
# are never pruned, and the machine's own directories are seen as they are in any case.
_GOOD_SECONDS = 1.0
_MOST_REMEMBERED = 32

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class Looked:
    """What is known of an image before ids are chosen: who its commands run as, and its layers if
    it is a stored one."""

    account: Account
    image: UnpackedImage | None = None


class Images:
    """The images of one state directory."""

    def __init__(self, state_dir: Path, worker: LayerWorker) -> None:
        self.directory = state_dir / "images"
        self._state_dir = state_dir
        self._worker = worker
        self._looked: dict[tuple[str, str], Looked] = {}
        self._resolved: dict[object, tuple[float, RootFilesystem]] = {}

    async def look(self, blueprint: Blueprint, progress: Progress | None = None) -> Looked:
        """Raises as `unpack_image` does, and for a user that the image has not."""
        if image_kind(blueprint.image) != "oci":
            return Looked(_account(blueprint))
        key = (blueprint.image, blueprint.user)
        looked = self._looked.get(key)
        if looked is None or not self._is_here(looked.image):
            # Unpacking takes its time, and there are other sandboxes.
            looked = await asyncio.to_thread(self._look, blueprint, progress)
            _remember(self._looked, key, looked)
        return looked

    async def view(self, blueprint: Blueprint, progress: Progress | None = None) -> View | None:
        """None: the machine's own image."""
        match image_kind(blueprint.image):
            case "host":
                return None
            case "directory":
                return _directory_view(blueprint.image)
        looked = await self.look(blueprint, progress)
        return looked.image.view if looked.image else None

    def _look(self, blueprint: Blueprint, progress: Progress | None) -> Looked:
        image = unpack_image(blueprint.image, self.directory, self._worker, progress)
        return Looked(find_account(image.view, blueprint.user), image)

    def _is_here(self, image: UnpackedImage | None) -> bool:
        layers = image.layers if image else ()
        return all(find(self.directory, os.path.basename(path)) for path in layers)

    async def resolve(
        self,
        blueprint: Blueprint,
        looked: Looked,
        maps: idmaps.IdMaps,
        progress: Progress | None = None,
    ) -> RootFilesystem:
        """Of sandboxes that are made at once one looks at the machine."""
        outside = tuple(sorted(_outside(blueprint).items())) if looked.image is None else ()
        authority = blueprint.network.authority if blueprint.network else ""
        key = (
            *(blueprint.image, blueprint.user, blueprint.toolchains, maps.mode, maps.root_owner),
            *(outside, authority, blueprint.building),
        )
        made, root = self._resolved.get(key, (0.0, None))
        is_good = looked.image is not None or time.monotonic() - made < _GOOD_SECONDS
        if root is None or not is_good or not self._are_here(root):
            root = await asyncio.to_thread(self._resolve, blueprint, looked, maps, progress)
            if image_kind(blueprint.image) != "directory":
                _remember(self._resolved, key, (time.monotonic(), root))
        return root

    def _are_here(self, root: RootFilesystem) -> bool:
        return root.kind != "oci" or all(
            find(self.directory, os.path.basename(path)) for path in root.stacks[0].lowers
        )

    def _resolve(
        self,
        blueprint: Blueprint,
        looked: Looked,
        maps: idmaps.IdMaps,
        progress: Progress | None,
    ) -> RootFilesystem:
        view = IdView(kind=maps.mode, guest_uid=looked.account.uid, host_uid=maps.root_owner)
        if looked.image is not None:
            root = resolve_oci(
                looked.image,
                self.directory,
                view,
                looked.account,
                building=blueprint.building,
            )
        else:
            root = resolve_image(
                blueprint.image,
                cache_dir=self.directory,
                ids=view,
                toolchains=blueprint.toolchains,
                progress=progress,
                environment=_outside(blueprint),
                protected=(self._state_dir,),
            )
        if not blueprint.network or not blueprint.network.authority or is_shifted(maps):
            return root
        from agentkernel.images.bundles import with_authority

        return with_authority(root, blueprint.network.authority, self.directory)


def is_shifted(maps: idmaps.IdMaps) -> bool:
    """The image belongs to the user's subuids, so that inside the user itself is nobody, and so
    are directories of a layer that the user makes."""
    return maps.mode == "subuid" and bool(maps.upper_owner)


def check_ids(account: Account, user: str) -> None:
    """Raises InvalidInputError for a user that no range of ids has."""
    if max(account.uid, account.gid) >= idmaps.RANGE_SIZE:
        raise InvalidInputError(
            f"the user {user!r} has the ids {account.uid}:{account.gid}; a sandbox has those below "
            f"{idmaps.RANGE_SIZE}",
            hint="choose another with --user",
        )


def _account(blueprint: Blueprint) -> Account:
    """Of the machine's own image, or of a directory."""
    user = blueprint.user
    if image_kind(blueprint.image) == "directory" and user not in ("root", "user"):
        return find_account(_directory_view(blueprint.image), user)
    uid = idmaps.guest_uid(user)
    return Account(uid, uid, user, "/root" if uid == 0 else "/home/user")


def _directory_view(path: str) -> View:
    return View([("/", [os.path.realpath(os.path.expanduser(path))])])


def _outside(blueprint: Blueprint) -> Mapping[str, str]:
    """The environment that says where toolchains are: the user's, or else our own."""
    if not blueprint.host_env:
        return os.environ
    return {"HOME": os.environ.get("HOME", ""), **blueprint.host_env}


def _remember(known: dict[K, V], key: K, value: V) -> None:
    """The newest few."""
    known.pop(key, None)
    known[key] = value
    while len(known) > _MOST_REMEMBERED:
        del known[next(iter(known))]
