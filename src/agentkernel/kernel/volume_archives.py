"""Tar archives of volumes, made and unpacked by agentd in a sandbox that has the volume.

The archive is hostile, and so is what guests left in the volume. What an archive may say is listed
in `trees.tar_reader`; whatever passes there can reach nothing but the volume, because there is
nothing else in that sandbox.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import aclosing
from typing import Final

from agentkernel.errors import GuestProtocolError
from agentkernel.guest.channel import GuestChannel
from agentkernel.guest.file_types import tree_bytes
from agentkernel.guest.files import GuestFiles
from agentkernel.trees.entries import FileType, Part, TreeEntry, TreeSummary, below
from agentkernel.trees.tar_reader import TarReader
from agentkernel.trees.tar_writer import TarWriter

_PARENT: Final = "/mnt"
_NAME: Final = "volume"
EXPORT_PATH: Final = f"{_PARENT}/{_NAME}"
"""Where that sandbox has the volume."""
_LIMITS: Final = {"limit_bytes": 1 << 50, "limit_files": 100_000_000}
_CHUNK: Final = 1 << 16


async def read_archive(channel: GuestChannel) -> AsyncGenerator[bytes, None]:
    """Raises in the middle where the volume can't be read to its end: then there is no end."""
    files, writer, buffer = GuestFiles(channel), TarWriter(), bytearray()
    found = await files.stat(EXPORT_PATH)
    root = TreeEntry(
        ".",
        FileType.DIRECTORY,
        mode=found.mode,
        mtime_ms=found.mtime_ms,
        uid=found.uid,
        gid=found.gid,
    )
    async with aclosing(files.tree_read(EXPORT_PATH, **_LIMITS)) as parts:
        async for part in parts:
            buffer += writer.end(root, part) if isinstance(part, TreeSummary) else writer.feed(part)
            if len(buffer) >= _CHUNK:
                yield bytes(buffer)
                buffer.clear()
    yield bytes(buffer)


async def write_archive(channel: GuestChannel, pieces: AsyncIterable[bytes]) -> TreeSummary:
    """Raises InvalidInputError for what is no such archive, GuestDiskFullError where it is full."""
    reader = TarReader(**_LIMITS)
    async with aclosing(_records(reader, pieces)) as records:
        summary = await GuestFiles(channel).tree_restore(_PARENT, records, **_LIMITS)
    ours = reader.summary
    root = 0 if reader.root is None else 1
    if (summary.files, summary.bytes) != (ours.files + root, ours.bytes):
        raise GuestProtocolError("agentd lost a part of a tree")
    return ours


async def _records(reader: TarReader, pieces: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    async for piece in pieces:
        if records := b"".join(_record(part) for part in reader.feed(piece)):
            yield records
    reader.finish()
    if reader.root is not None:
        # Last, as what it says of itself may be that nobody can write there.
        yield tree_bytes(reader.root._replace(path=_NAME), owners=True)


def _record(part: Part) -> bytes:
    if isinstance(part, TreeEntry):
        part = part._replace(path=below(_NAME, part.path))
    return tree_bytes(part, owners=True)
