"""A directory of this machine as the context of a build. Blocking: callers use threads.

What the daemon is sent is one archive: first what is to be built, as JSON, then the files that
.dockerignore does not leave out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Mapping
from typing import Any, Final

from agentkernel.errors import InvalidInputError
from agentkernel.trees.entries import (
    DEFAULT_TREE_BYTES,
    DEFAULT_TREE_FILES,
    FileType,
    TreeEntry,
    TreeSummary,
    in_chunks,
)
from agentkernel.trees.ignoring import MAX_IGNORE_BYTES, Ignore
from agentkernel.trees.local import TreePacker
from agentkernel.trees.tar_writer import TarWriter

LocalPath = str | os.PathLike[str]
BUILD_FILE: Final = ".agentkernel-build.json"
DEFAULT_DOCKERFILES: Final = ("Dockerfile", "Containerfile")
_MAX_DOCKERFILE: Final = 4 << 20


def find_dockerfile(context: LocalPath | None, name: LocalPath | None) -> str:
    """The file that is meant. Raises InvalidInputError."""
    if name is not None:
        return os.fspath(name)
    for default in DEFAULT_DOCKERFILES:
        path = os.path.join(context or ".", default)
        if os.path.isfile(path):
            return path
    raise InvalidInputError(
        f"there is no Dockerfile in {os.fspath(context or '.')!r}", hint="name it with -f FILE"
    )


def read_ignore(context: LocalPath, dockerfile: LocalPath | None) -> Ignore:
    """That of the Dockerfile (NAME.dockerignore) before that of the directory."""
    places = [os.path.join(context, ".dockerignore")]
    if dockerfile is not None:
        places.insert(0, f"{os.fspath(dockerfile)}.dockerignore")
    for place in places:
        try:
            with open(place, "rb") as file:
                return Ignore(file.read(MAX_IGNORE_BYTES + 1))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            continue
    return Ignore()


def read_dockerfile(path: LocalPath) -> str:
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_DOCKERFILE + 1)
    except OSError as exc:
        raise InvalidInputError(
            f"the Dockerfile {os.fspath(path)!r} can't be read: {exc.strerror}"
        ) from None
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise InvalidInputError(f"{os.fspath(path)!r} is not UTF-8") from None


def context_pieces(
    context: LocalPath | None, ignore: Ignore, wanted: Mapping[str, Any]
) -> Generator[bytes, None, None]:
    """The archive. Without a directory the context is empty."""
    return in_chunks(_pieces(context, ignore, wanted))  # type: ignore[return-value]


def _pieces(
    context: LocalPath | None, ignore: Ignore, wanted: Mapping[str, Any]
) -> Generator[bytes, None, None]:
    writer = TarWriter()
    content = json.dumps(dict(wanted)).encode()
    yield writer.feed(TreeEntry(BUILD_FILE, FileType.FILE, size=len(content), mode=0o600))
    yield writer.feed(content)
    summary = TreeSummary(0, 0)
    if context is not None:
        packer = TreePacker(context, limit_bytes=DEFAULT_TREE_BYTES, limit_files=DEFAULT_TREE_FILES)
        packer.ignore = ignore
        for part in packer.parts():
            if isinstance(part, TreeEntry) and part.path == BUILD_FILE:
                raise InvalidInputError(
                    f"the context has a file {BUILD_FILE}, which is a name of ours",
                    hint="call it otherwise, or leave it out in .dockerignore",
                )
            yield writer.feed(part)
        summary = packer.summary
    yield writer.end(TreeEntry(".", FileType.DIRECTORY, mode=0o755), summary)
