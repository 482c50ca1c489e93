"""What images need of whoever can enter the user's namespaces: layers unpacked, packed, removed.

On disk a layer has the ids that its sandboxes see: as root of the machine the very ids of the
archive, with subuids those mapped, with one id that one for all. So a layer is made, read and
removed inside the user namespace that its ids are of, by code that can reach nothing but the layer.
`backends/local` has that code; this is all that images know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol

# How many compressed bytes of the blob have been read so far.
Count = Callable[[int], None]


@dataclass(frozen=True)
class LayerLimits:
    """What no layer may be more than."""

    bytes: int = 1 << 40
    entries: int = 10_000_000


LAYER_LIMITS = LayerLimits()


@dataclass(frozen=True)
class Unpacked:
    """What became of an archive. `left_out`: devices and sockets, which no layer has."""

    entries: int
    bytes: int
    whiteouts: int = 0
    left_out: int = 0


@dataclass(frozen=True)
class Packed:
    """An archive that was written: the digest and the size of its uncompressed tar."""

    diff_id: str
    size: int


class LayerWorker(Protocol):
    """Every call blocks; call it in a thread. Raises HostError where the machine forbids user
    namespaces, ResourceExhaustedError where the disk is full."""

    def layer_name(self, diff_id: str) -> str:
        """What the unpacked layer is called in `images/layers`: one that has other ids on disk has
        another name."""

    def unpack(
        self,
        blob: str,
        diff_id: str,
        target: str,
        *,
        limits: LayerLimits = LAYER_LIMITS,
        progress: Count | None = None,
    ) -> Unpacked:
        """Fills the empty directory `target` from an archive (gzip, zstd or plain: its first bytes
        tell). Raises ImageInvalidError for one that attacks, is damaged, ends too early or has
        another digest than `diff_id` when uncompressed: then whatever was made of it is still in
        `target`, for `remove`. When it returns, all of it is on disk."""

    def pack(self, source: str, output: BinaryIO, *, exclude: Sequence[str] = ()) -> Packed:
        """Writes the tar of a layer, or of the upper of a sandbox that does not run: the same tree
        gives the same bytes. `exclude`: paths below it that are left out, with all below them."""

    def remove(self, path: str) -> None:
        """Removes a directory that `unpack` or a guest has filled. Idempotent."""
