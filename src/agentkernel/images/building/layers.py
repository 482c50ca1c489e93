"""The layer of a COPY: its items written down, with their bytes from wherever they are."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import IO

from agentkernel.errors import InvalidInputError
from agentkernel.images.building.archives import clean_name, entry_of, is_tar, opened
from agentkernel.images.building.context import Context
from agentkernel.images.building.copying import Archive, Item
from agentkernel.images.building.listing import ImageTree
from agentkernel.images.building.tree import Entry
from agentkernel.images.building.writing import Layer, LayerTar, write_layer
from agentkernel.images.oci.store import ImageStore
from agentkernel.trees.entries import DEFAULT_TREE_BYTES, DEFAULT_TREE_FILES

_CHUNK = 1 << 20


def copied_layer(
    store: ImageStore, items: Iterable[Item], context: Context | None, image: ImageTree | None
) -> Layer:
    """`image`: what files with a place in a layer are of; `context`: those with one in it."""
    return write_layer(store, lambda tar: _fill(tar, list(items), context, image))


def _fill(
    tar: LayerTar, items: list[Item], context: Context | None, image: ImageTree | None
) -> None:
    """Directories and links first, by path, so that what is in them has a place."""
    elsewhere: dict[tuple[str, str], list[Item]] = {}
    for item in sorted(items, key=lambda one: one.path):
        content = item.entry.content
        if item.entry.kind != "file":
            tar.add(item.path, item.entry)
        elif isinstance(content, tuple):
            elsewhere.setdefault(content, []).append(item)
        elif isinstance(content, bytes):
            tar.add(item.path, item.entry, [content] if content else [])
        elif context is not None:
            tar.add(item.path, item.entry, context.pieces(item.entry))
    archives = {key: found for key, found in elsewhere.items() if key[0].startswith(_MEMBER)}
    for key in archives:
        del elsewhere[key]
    if archives and context is not None:
        _fill_from_archives(tar, archives, context)
    while elsewhere and image is not None:
        # The same bytes may be wanted twice; each reading gives them once.
        for key, pieces in image.contents(elsewhere):
            item = elsewhere[key].pop()
            tar.add(item.path, item.entry, pieces())
        elsewhere = {key: left for key, left in elsewhere.items() if left}


# Before the place of an archive in the context: what the content of a member begins with.
_MEMBER = "archive:"


def unpacked(entry: Entry, context: Context) -> Archive | None:
    """What ADD makes of a file of the context; None: it is no archive. The members are only named
    here. Raises InvalidInputError, ImageInvalidError for one that leads out or is too large."""
    if not is_tar(context.open(entry)):
        return None
    members: dict[str, Entry] = {}
    total = 0
    with opened(context.open(entry)) as archive:
        for number, member in enumerate(archive):
            name = clean_name(member.name)
            total += member.size
            if total > DEFAULT_TREE_BYTES or number >= DEFAULT_TREE_FILES:
                raise InvalidInputError("the archive holds too much")
            if name:
                members.pop(name, None)  # the last of a name counts, where it stands
                members[name] = _member(member, number, entry, members)
            archive.members.clear()  # type: ignore[attr-defined]
    return Archive(list(members.items()), entry.digest)


def _member(
    member: tarfile.TarInfo, number: int, archive: Entry, members: dict[str, Entry]
) -> Entry:
    if member.islnk():
        target = members.get(clean_name(member.linkname))
        if target is None or target.kind != "file":
            raise InvalidInputError(f"the archive has a hard link to nothing: {member.name[:200]}")
        return target
    found = entry_of(member)
    if found.kind != "file":
        return found
    return replace(found, content=(f"{_MEMBER}{archive.content!r}:{archive.size}", str(number)))


def _fill_from_archives(
    tar: LayerTar, wanted: dict[tuple[str, str], list[Item]], context: Context
) -> None:
    """Each archive is read once for every time that one of its files is wanted."""
    while wanted:
        for place in sorted({key[0] for key in wanted}):
            start, size = place.removeprefix(_MEMBER).split(":")
            file = context.open(Entry("file", size=int(size), content=int(start)))
            with opened(file) as archive:
                for number, member in enumerate(archive):
                    if items := wanted.get((place, str(number))):
                        item = items.pop()
                        tar.add(item.path, item.entry, _pieces(archive.extractfile(member)))
                    archive.members.clear()  # type: ignore[attr-defined]
        wanted = {key: items for key, items in wanted.items() if items}


def _pieces(file: IO[bytes] | None) -> Iterator[bytes]:
    while file is not None and (piece := file.read(_CHUNK)):
        yield piece
