"""`agentkernel sandbox cp`: files and directories in and out, by the rules of `docker cp`.

Nobody ever sees half a file under its own name, also not after Ctrl-C.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import stat
import sys
from collections.abc import Iterable, Iterator

from agentkernel.cli.local_files import local_errors, read_all, write_all
from agentkernel.cli.outcome import say
from agentkernel.cli.progress import Progress
from agentkernel.client._sync.files import Files
from agentkernel.client._sync.sandbox import Sandbox
from agentkernel.client._sync.transport import Transport
from agentkernel.client.results import Entry
from agentkernel.errors import InvalidInputError
from agentkernel.ids import new_id
from agentkernel.trees.entries import FileType, TreeEntry, TreeSummary
from agentkernel.trees.tar_writer import BLOCK, TarWriter

_STREAM = "-"
_REMOTE = re.compile(r"([a-z0-9][a-z0-9-]*):(.*)\Z", re.DOTALL)
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


def copy(
    source: str,
    target: str,
    transport: Transport,
    *,
    user: str | None = None,
    quiet: bool = False,
) -> TreeSummary:
    """NAME:/path is in a sandbox, `-` is tar, anything else is here (`./a:b` for a colon)."""
    inside, outside = _REMOTE.match(source), _REMOTE.match(target)
    if bool(inside) == bool(outside):
        raise InvalidInputError(
            "one of the two has to be in a sandbox",
            hint="agentkernel sandbox cp NAME:/path FILE, or FILE NAME:/path",
        )
    name, path = (inside or outside).groups()  # type: ignore[union-attr]
    if not path.startswith("/"):
        raise InvalidInputError(
            f"{path!r} is not an absolute path", hint=f"paths inside begin with /: {name}:/{path}"
        )
    files = Sandbox.connect(name, transport=transport).files
    with Progress(quiet=quiet) as progress:
        if inside:
            summary = _Download(files, user, progress).run(path, target)
        else:
            summary = _Upload(files, user, progress).run(source, path)
    if summary.refused_links:
        say(f"left out: {summary.refused_links} links that lead out of the directory")
    if summary.skipped:
        say(f"left out: {summary.skipped} FIFOs, sockets or devices")
    return summary


class _Download:
    def __init__(self, files: Files, user: str | None, progress: Progress) -> None:
        self._files = files
        self._user = user
        self._progress = progress

    def run(self, path: str, target: str) -> TreeSummary:
        entry = self._files.stat(path, user=self._user)
        name = "" if _is_content(path) else posixpath.basename(posixpath.normpath(path))
        if target == _STREAM:
            return self._stream(path, name, entry)
        if entry.type != "dir":
            return self._file(path, name, entry, target)
        with local_errors(target):
            if os.path.isdir(target):
                target = os.path.join(target, name)
            elif os.path.lexists(target):
                raise NotADirectoryError(20, "it is there and not a directory")
            else:
                os.stat(os.path.dirname(target.rstrip("/")) or ".")
            return self._files.download_tree(
                path, target, user=self._user, progress=self._progress.tree
            )

    def _file(self, path: str, name: str, entry: Entry, target: str) -> TreeSummary:
        if os.path.isdir(target):
            target = os.path.join(target, name)
        part = f"{target}.{new_id()}.part"
        size = 0
        with local_errors(target), contextlib.ExitStack() as undo:
            with open(os.open(part, _NEW_FILE, 0o666), "wb") as file:
                undo.callback(_unlink, part)
                for piece in self._progress.pieces(self._files.read_stream(path, user=self._user)):
                    file.write(piece)
                    size += len(piece)
                if entry.mode & 0o100:
                    os.fchmod(file.fileno(), os.fstat(file.fileno()).st_mode | 0o100)
            os.replace(part, target)
            undo.pop_all()
        return TreeSummary(1, size)

    def _stream(self, path: str, name: str, entry: Entry) -> TreeSummary:
        if sys.stdout.isatty():
            raise InvalidInputError("a tar archive is nothing for a terminal", hint="pipe it")
        if entry.type == "dir":
            pieces: Iterable[bytes] = self._files.download_tar(path, prefix=name, user=self._user)
        else:
            pieces = self._tar_of_file(path, name, entry)
        size = 0
        for piece in self._progress.pieces(pieces):
            size += len(piece)
            write_all(1, piece)
        return TreeSummary(1, size)

    def _tar_of_file(self, path: str, name: str, entry: Entry) -> Iterator[bytes]:
        writer = TarWriter()
        left = entry.size
        yield writer.feed(
            TreeEntry(
                name, FileType.FILE, left, mode=entry.mode, mtime_ms=int(entry.mtime * 1000),
                uid=entry.uid, gid=entry.gid,
            )
        )  # fmt: skip
        for piece in self._files.read_stream(path, length=left, user=self._user):
            left -= len(piece)
            yield writer.feed(piece)
        if left:
            raise InvalidInputError(f"{path} became shorter while it was read")
        yield bytes(2 * BLOCK)


class _Upload:
    def __init__(self, files: Files, user: str | None, progress: Progress) -> None:
        self._files = files
        self._user = user
        self._progress = progress

    def run(self, source: str, path: str) -> TreeSummary:
        if source == _STREAM:
            if sys.stdin.isatty():
                raise InvalidInputError("a tar archive is expected on stdin", hint="pipe one")
            pieces = self._progress.pieces(read_all(0))
            return self._files.upload_tar(pieces, path, user=self._user)
        name = os.path.basename(os.path.abspath(source))
        there = self._type(path)
        with local_errors(source):
            if os.path.isdir(source):
                if there == "dir" and not _is_content(source):
                    path = posixpath.join(path, name)
                return self._files.upload_tree(
                    source, path, user=self._user, progress=self._progress.tree
                )
            with open(source, "rb", buffering=0) as file:
                if there == "dir" or path.endswith("/"):
                    path = posixpath.join(path, name)
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o777
                pieces = self._progress.pieces(read_all(file.fileno()))
                return TreeSummary(1, self._files.write(path, pieces, mode=mode, user=self._user))

    def _type(self, path: str) -> str | None:
        try:
            return self._files.stat(path, user=self._user).type
        except (FileNotFoundError, NotADirectoryError):
            return None


def _is_content(path: str) -> bool:
    """`DIR/.`: what is in the directory, not the directory."""
    return path == "." or path.endswith("/.")


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
