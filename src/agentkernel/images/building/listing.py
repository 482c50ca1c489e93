"""What an image's layers hold, read from their archives: names, modes, owners, links.

The archives have the ids as the image means them, whatever this user's layers have on disk; and a
guest's 0700 directory can be listed. A layer is listed once: the list is kept beside the cache.
Preconditions: the layer has been unpacked, so that its archive was judged by stricter code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from agentkernel.errors import ImageInvalidError
from agentkernel.images.building.archives import clean_name, entry_of, opened
from agentkernel.images.building.tree import Entry, Kind, Tree
from agentkernel.images.oci.store import ImageStore, StoredImage

WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"
# Read along with the list, as owners are named there.
KEPT_FILES = ("etc/passwd", "etc/group")
_KEPT_BYTES = 1 << 20
_MAX_ENTRIES = 10_000_000
_CHUNK = 1 << 20


class Record(msgspec.Struct, frozen=True, array_like=True):
    """One member. Names are bytes: an image's need not be text. `same_as`: a hard link's target."""

    name: bytes
    kind: Kind
    mode: int
    uid: int
    gid: int
    mtime: int
    size: int = 0
    link: bytes = b""
    same_as: bytes = b""


class Listing(msgspec.Struct, frozen=True):
    records: list[Record]
    files: dict[str, bytes] = {}


class Listings:
    """The lists of this user's layers, in a directory of their own."""

    def __init__(self, store: ImageStore, directory: Path) -> None:
        self._store = store
        self._directory = directory

    def of(self, digest: str) -> Listing:
        """Of a layer, by the digest of its blob."""
        path = self._directory / f"{digest.removeprefix('sha256:')}.list"
        try:
            listing = msgspec.msgpack.decode(path.read_bytes(), type=Listing)
            os.utime(path)
            return listing
        except (FileNotFoundError, msgspec.MsgspecError):
            pass
        with open(self._store.blob_path(digest), "rb") as blob:
            listing = read_listing(blob)
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self._directory / f".new-{os.urandom(6).hex()}"
        new.write_bytes(msgspec.msgpack.encode(listing))
        new.rename(path)
        return listing

    def tree(self, layers: Sequence[str]) -> ImageTree:
        """Of an image, by its layers' blobs, lowest first."""
        tree = ImageTree(self._store)
        for digest in layers:
            tree.add(digest, self.of(digest))
        return tree


class ImageTree(Tree):
    """The names of an image, and where its files' bytes are: a layer and a member's name."""

    def __init__(self, store: ImageStore) -> None:
        super().__init__()
        self._store = store
        self.files: dict[str, bytes] = {}

    def add(self, digest: str, listing: Listing) -> None:
        """One more layer. What it hides is hidden in those below it, never in itself."""
        for record in listing.records:
            directory, _, name = os.fsdecode(record.name).rpartition("/")
            if name == OPAQUE:
                self.clear(directory)
            elif name.startswith(WHITEOUT):
                self.remove(f"{directory}/{name.removeprefix(WHITEOUT)}")
        for record in listing.records:
            path = os.fsdecode(record.name)
            if not path.rpartition("/")[2].startswith(WHITEOUT):
                self.put(path, self._entry(digest, record))
        self.files |= listing.files

    def _entry(self, digest: str, record: Record) -> Entry:
        if record.same_as:
            found = self.get(os.fsdecode(record.same_as))
            if found is None or found.entry.kind != "file":
                return Entry("other")
            return found.entry
        return Entry(
            record.kind,
            mode=record.mode,
            uid=record.uid,
            gid=record.gid,
            mtime=record.mtime,
            size=record.size,
            link=os.fsdecode(record.link),
            content=(digest, os.fsdecode(record.name)),
        )

    def text(self, path: str) -> str:
        """One of KEPT_FILES, if the image has it."""
        node = self.get(path)
        if node is None or node.entry.kind != "file":
            return ""
        return self.files.get(path, b"").decode("utf-8", "replace")

    def contents(
        self, wanted: Iterable[tuple[str, str]]
    ) -> Iterator[tuple[tuple[str, str], Pieces]]:
        """Files by layer and member, in the order in which they are found: each archive is read
        once, from its beginning. The pieces of one are to be taken before the next."""
        by_layer: dict[str, set[str]] = {}
        for digest, name in wanted:
            by_layer.setdefault(digest, set()).add(name)
        for digest, names in by_layer.items():
            with open(self._store.blob_path(digest), "rb") as blob:
                yield from _members(blob, digest, names)


Pieces = Callable[[], Iterator[bytes]]


def _members(
    blob: BinaryIO, digest: str, names: set[str]
) -> Iterator[tuple[tuple[str, str], Pieces]]:
    left = set(names)
    with opened(blob) as archive:
        for member in archive:
            name = clean_name(member.name)
            if name not in left or not member.isreg():
                continue
            left.discard(name)
            file = archive.extractfile(member)
            if file is None:
                raise ImageInvalidError("a layer's archive has a file without content")

            def pieces(file: BinaryIO = file) -> Iterator[bytes]:  # type: ignore[assignment]
                while piece := file.read(_CHUNK):
                    yield piece

            yield (digest, name), pieces
            if not left:
                return
    if left:
        raise ImageInvalidError(f"a layer's archive lacks {sorted(left)[0][:200]!r}")


def read_listing(blob: BinaryIO) -> Listing:
    records: dict[str, Record] = {}
    files: dict[str, bytes] = {}
    with opened(blob) as archive:
        for member in archive:
            if len(records) >= _MAX_ENTRIES:
                raise ImageInvalidError("the layer has too many entries")
            name = clean_name(member.name)
            entry = entry_of(member)
            records.pop(name, None)  # the last of a name counts, where it stands
            records[name] = Record(
                os.fsencode(name),
                entry.kind,
                entry.mode,
                entry.uid,
                entry.gid,
                entry.mtime,
                entry.size,
                os.fsencode(entry.link),
                os.fsencode(clean_name(member.linkname)) if member.islnk() else b"",
            )
            if name in KEPT_FILES and entry.kind == "file" and entry.size <= _KEPT_BYTES:
                file = archive.extractfile(member)
                files[name] = file.read() if file else b""
            archive.members.clear()  # type: ignore[attr-defined]
    return Listing(list(records.values()), files)


def tree_of(image: StoredImage, listings: Listings) -> ImageTree:
    return listings.tree([layer.digest for layer in image.manifest.layers])
