"""The files of an agent's conversations, taken out of one sandbox and put into another.

They are a guest's: on the host they are archives that nobody unpacks, and what they name stays
below the directory that was taken, whatever they say.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO, Final

from agentkernel.errors import AgentKernelError, GuestFileTooLargeError, InvalidInputError
from agentkernel.guest.file_types import tree_bytes
from agentkernel.guest.files import GuestFiles
from agentkernel.kernel.agents.files import SessionFiles, private
from agentkernel.kernel.threads import in_thread
from agentkernel.trees.entries import FileType, TreeEntry, TreeSummary
from agentkernel.trees.tar_reader import TarReader
from agentkernel.trees.tar_writer import TarWriter

MAX_BYTES: Final = 256 << 20
MAX_FILES: Final = 50_000
_LIMITS: Final = {"limit_bytes": MAX_BYTES, "limit_files": MAX_FILES}
_CHUNK: Final = 1 << 18


async def save(
    guest: GuestFiles, files: SessionFiles, keep: Sequence[str], exclude: Sequence[str]
) -> list[str]:
    """Absolute paths inside, each a directory or a file; what could not be kept, in words."""
    problems = []
    for number, path in enumerate(keep):
        fresh = files.directory / "state.new"
        try:
            if not await guest.exists(path):
                continue
            if (await guest.stat(path)).type is FileType.DIRECTORY:
                await _save_tree(guest, path, exclude, fresh)
                fresh.rename(files.state_tree(number))
            else:
                content = await guest.read(path, max_bytes=MAX_BYTES)
                await in_thread(_write, fresh, content)
                fresh.rename(files.state_file(number))
        except (AgentKernelError, OSError) as exc:
            why = exc.message if isinstance(exc, AgentKernelError) else exc.strerror
            problems.append(f"{path} is not kept: {why}")
        finally:
            fresh.unlink(missing_ok=True)
    return problems


async def _save_tree(guest: GuestFiles, path: str, exclude: Sequence[str], target: Path) -> None:
    writer = TarWriter()
    skipping = False
    files = size = 0
    with await in_thread(_open, target) as file:
        async with aclosing(guest.tree_read(path, **_LIMITS)) as parts:
            async for part in parts:
                if isinstance(part, TreeSummary):
                    break
                if isinstance(part, TreeEntry):
                    skipping = _is_excluded(f"{path}/{part.path}", exclude)
                    files, size = files + (not skipping), size + (0 if skipping else part.size)
                if not skipping:
                    await in_thread(file.write, writer.feed(part))
        root = TreeEntry(".", FileType.DIRECTORY, mode=0o700)
        file.write(writer.end(root, TreeSummary(files, size)))


def _open(path: Path) -> BinaryIO:
    return open(private(path, os.O_TRUNC), "wb")


def _write(path: Path, content: bytes) -> None:
    with _open(path) as file:
        file.write(content)


def _is_excluded(path: str, exclude: Sequence[str]) -> bool:
    return any(path == one or path.startswith(f"{one}/") for one in exclude)


async def restore(guest: GuestFiles, files: SessionFiles, keep: Sequence[str]) -> None:
    """Into a sandbox that has none of it yet. What can't be read any more is left out."""
    for number, path in enumerate(keep):
        tree, single = files.state_tree(number), files.state_file(number)
        with contextlib.suppress(InvalidInputError, GuestFileTooLargeError):
            if tree.is_file():
                async with aclosing(_records(tree)) as records:
                    await guest.tree_write(path, records, **_LIMITS)
            elif single.is_file():
                content = await in_thread(single.read_bytes)
                await guest.write(path, content, parents=True, mode=0o600)


async def _records(archive: Path) -> AsyncGenerator[bytes, None]:
    reader = TarReader(**_LIMITS)
    with archive.open("rb") as file:
        while data := await in_thread(file.read, _CHUNK):
            if made := b"".join(tree_bytes(part) for part in reader.feed(data)):
                yield made
    reader.finish()
