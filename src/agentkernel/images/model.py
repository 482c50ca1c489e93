"""What an image is to a backend: stacks of read-only layers and read-only trees beside them.

A backend needs no more than this to build a root filesystem; it does not know where the layers
came from. Paths on the host stay on the host: a backend shows the guest only `target` paths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

IdKind = Literal["range", "subuid", "single"]
ImageKind = Literal["host", "directory", "oci"]


@dataclass(frozen=True)
class IdView:
    """How ids on disk will look inside, as far as building layers must know.

    `range`: we are host root and every layer is idmapped, so an id on disk is the same id inside.
    `subuid` and `single`: we are a normal user, who is guest root (or the one guest uid); what
    others own on disk is nobody's inside, and only directories of our own can be written to.
    """

    kind: IdKind
    guest_uid: int
    host_uid: int


@dataclass(frozen=True)
class Stack:
    """One overlay: `lowers` (host directories, topmost first) below the sandbox's own upper."""

    target: str
    lowers: tuple[str, ...]


@dataclass(frozen=True)
class Tree:
    """A host directory shown read-only at the same path, because its files name that path.

    `hidden` are paths inside it (absolute) that the guest must find empty: credentials and caches
    that live beside the toolchain. `reason` is what `info` prints. `owned`: it belongs to whoever
    owns the workspace. `at`: where it is inside, if it can't be at its own path.
    """

    path: str
    reason: str
    hidden: tuple[str, ...] = ()
    owned: bool = False
    at: str = ""

    @property
    def target(self) -> str:
        return self.at or self.path


@dataclass(frozen=True)
class RootFilesystem:
    """An image, resolved on this machine for one kind of id map.

    `stacks[0].target` is "/". `environment` is what every process starts from (PATH included).
    `notes` are sentences for `info` about what differs from the machine outside. What an image says
    of its command: `cwd`, which is made if it is missing, `entrypoint` and `cmd`.
    """

    reference: str
    stacks: tuple[Stack, ...]
    trees: tuple[Tree, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    kind: ImageKind = "host"
    cwd: str = "/"
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()


def image_kind(reference: str) -> ImageKind:
    """What is meant by the words after `--image`."""
    if reference == "host":
        return "host"
    return "directory" if reference.startswith(("/", ".", "~")) else "oci"
