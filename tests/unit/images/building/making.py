"""Contexts and images for the tests of builds, without a daemon or a sandbox."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, cast

from agentkernel.images.building.context import Context
from agentkernel.images.building.listing import ImageTree, read_listing
from agentkernel.images.building.tree import Entry
from agentkernel.images.oci.store import ImageStore
from agentkernel.trees.entries import FileType, TreeEntry, TreeSummary
from agentkernel.trees.tar_writer import TarWriter

# A file's content, a directory (None), or a link's target in a tuple.
Files = Mapping[str, bytes | None | tuple[str]]


def archive_of(files: Files, modes: Mapping[str, int] | None = None) -> bytes:
    """As a client sends a context."""
    writer = TarWriter()
    parts = []
    for path, what in files.items():
        kind = FileType.DIRECTORY if what is None else FileType.FILE
        target, content = "", what if isinstance(what, bytes) else b""
        if isinstance(what, tuple):
            kind, target = FileType.LINK, what[0]
        mode = (modes or {}).get(path, 0o755 if what is None else 0o644)
        entry = TreeEntry(path, kind, size=len(content), mode=mode, mtime_ms=9000, target=target)
        parts.append(writer.feed(entry))
        if content:
            parts.append(writer.feed(content))
    root = TreeEntry(".", FileType.DIRECTORY, mode=0o755)
    return b"".join([*parts, writer.end(root, TreeSummary(0, 0))])


def context_of(files: Files, modes: Mapping[str, int] | None = None) -> Context:
    context = Context(cast(BinaryIO, io.BytesIO()))
    context.feed(archive_of(files, modes))
    context.finish()
    return context


def tar_of(*members: tarfile.TarInfo | tuple[str, bytes], mode: str = "w") -> bytes:
    """An archive of any kind, in order."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return buffer.getvalue()


def member(
    name: str, kind: bytes = tarfile.DIRTYPE, link: str = "", **more: int
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, 0o755
    for key, value in more.items():
        setattr(info, key, value)
    return info


def image_tree(store: ImageStore, *layers: bytes) -> ImageTree:
    """Of layers given as tars, which are in the store then."""
    tree = ImageTree(store)
    for layer in layers:
        digest = store.put_document(layer)
        tree.add(digest, read_listing(io.BytesIO(layer)))
    return tree


def shown(tree: ImageTree) -> dict[str, Entry]:
    return dict(tree.below(tree.root))


def store_in(path: Path) -> ImageStore:
    return ImageStore(path / "images")
