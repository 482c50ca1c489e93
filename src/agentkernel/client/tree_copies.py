"""Directories of this machine on their way in and out of a sandbox. Blocking: callers use threads.

What comes out is a sandbox's word: it is parsed and written by `trees`, which trust nothing in it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

from agentkernel.client import wire
from agentkernel.errors import InvalidInputError
from agentkernel.trees.entries import (
    DEFAULT_TREE_BYTES,
    DEFAULT_TREE_FILES,
    FileType,
    TreeEntry,
    TreeSummary,
    in_chunks,
)
from agentkernel.trees.local import TreePacker, TreeUnpacker
from agentkernel.trees.tar_reader import TarReader
from agentkernel.trees.tar_writer import ERROR_MARK, SUMMARY_MARK, TarWriter

LocalPath = str | os.PathLike[str]
_SUMMARY = re.compile(rb"%b files=(\d+) bytes=(\d+) skipped=(\d+)" % SUMMARY_MARK.encode())


def tree_limits(limit_bytes: int | None, limit_files: int | None) -> dict[str, int]:
    return {
        "limit_bytes": DEFAULT_TREE_BYTES if limit_bytes is None else limit_bytes,
        "limit_files": DEFAULT_TREE_FILES if limit_files is None else limit_files,
    }


class TreeDownload:
    """Feed it the archive, `finish`, and `close` in any case. The directory is made when needed."""

    def __init__(self, directory: LocalPath, limits: dict[str, int]) -> None:
        self._directory = directory
        self._limits = limits
        self._reader = TarReader(**limits)
        self._unpacker: TreeUnpacker | None = None

    @property
    def summary(self) -> TreeSummary:
        return self._reader.summary

    def feed(self, data: bytes) -> None:
        if self._unpacker is None:
            os.makedirs(self._directory, exist_ok=True)
            self._unpacker = TreeUnpacker(self._directory, **self._limits)
        try:
            for part in self._reader.feed(data):
                self._unpacker.feed(part)
        except InvalidInputError as exc:
            raise wire.broken(exc.message) from None

    def explain(self) -> None:
        """Raises what the daemon said of an archive that broke off, if it could say something."""
        mark, _, problem = self._reader.comment.partition(b" ")
        if mark == ERROR_MARK.encode():
            raise wire.error_of(json.loads(problem))

    def finish(self) -> TreeSummary:
        told = _SUMMARY.match(self._reader.comment)
        try:
            self._reader.finish()
        except InvalidInputError as exc:
            raise wire.broken(exc.message) from None
        if self._unpacker is None or told is None:
            raise wire.broken("a directory without its end")
        self._unpacker.finish()
        files, size, skipped = map(int, told.groups())
        summary = self._unpacker.summary(skipped)
        if (summary.files, summary.bytes) != (files, size):
            raise wire.broken("a part of the directory is missing")
        return summary

    def close(self) -> None:
        if self._unpacker is not None:
            self._unpacker.close()


class TreeUpload:
    """`chunks` is the archive; `summary` is right when that is exhausted."""

    def __init__(self, directory: LocalPath, limits: dict[str, int]) -> None:
        # Nothing is to be made inside for a directory that is not there.
        os.close(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        self._packer = TreePacker(directory, **limits)

    @property
    def summary(self) -> TreeSummary:
        return self._packer.summary

    def chunks(self) -> Iterator[bytes]:
        return in_chunks(self._pieces())

    def _pieces(self) -> Iterator[bytes]:
        writer = TarWriter()
        for part in self._packer.parts():
            yield writer.feed(part)
        yield writer.end(TreeEntry(".", FileType.DIRECTORY, mode=0o755), self.summary)
