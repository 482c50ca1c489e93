"""Archives of images on this machine's disk, read and written. Blocking: callers use threads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from types import TracebackType

from agentkernel.errors import InvalidInputError
from agentkernel.ids import new_id

LocalPath = str | os.PathLike[str]
_PIECE = 1 << 18


def archive_pieces(path: LocalPath) -> Generator[bytes, None, None]:
    """A file as it is; a directory, which is an OCI layout, as tar. Raises OSError."""
    if os.path.isdir(path):
        if not os.path.isfile(os.path.join(path, "oci-layout")):
            raise InvalidInputError(
                f"{os.fspath(path)!r} is no OCI layout: it has no file oci-layout",
                hint="a directory with a root file system becomes an image by: agentkernel image "
                "import DIR NAME",
            )
        return _directory(path)
    return _file(os.open(path, os.O_RDONLY | os.O_CLOEXEC))


def _file(fd: int) -> Generator[bytes, None, None]:
    try:
        while piece := os.read(fd, _PIECE):
            yield piece
    finally:
        os.close(fd)


def _directory(path: LocalPath) -> Generator[bytes, None, None]:
    from agentkernel.client.tree_copies import TreeUpload

    limits = {"limit_bytes": 1 << 50, "limit_files": 1 << 20}
    yield from TreeUpload(path, limits).chunks()


class NewFile:
    """A file that nobody sees under its name before all of it is there."""

    def __init__(self, path: LocalPath) -> None:
        self._path = os.fspath(path)
        self._part = f"{self._path}.{new_id()}.part"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(self._part, flags, 0o666)
        self._size = 0

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]
        self._size += len(data)

    def keep(self) -> int:
        """Its size. Nothing can be written any more."""
        os.fsync(self._fd)
        os.replace(self._part, self._path)
        return self._size

    def __enter__(self) -> NewFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._fd)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._part)
