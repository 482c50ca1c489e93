"""`agentkernel sandbox cp`: one file in or out. Nobody ever sees half of it under its own name."""

from __future__ import annotations

import os
import re
import stat

from agentkernel.client._sync.files import Files
from agentkernel.client._sync.sandbox import Sandbox
from agentkernel.client._sync.transport import Transport
from agentkernel.errors import InvalidInputError, UnsupportedError
from agentkernel.ids import new_id

_PIECE = 8 << 20
_REMOTE = re.compile(r"([a-z0-9][a-z0-9-]*):(.*)\Z", re.DOTALL)


def copy(source: str, target: str, transport: Transport) -> int:
    """NAME:/path is in a sandbox, anything else is here; `./a:b` for a local name with a colon."""
    inside, outside = _REMOTE.match(source), _REMOTE.match(target)
    if bool(inside) == bool(outside):
        raise InvalidInputError(
            "one of the two has to be in a sandbox",
            hint="agentkernel sandbox cp NAME:/path FILE, or FILE NAME:/path",
        )
    if inside:
        files = Sandbox.connect(inside[1], transport=transport).files
        return _download(files, inside[2], target)
    assert outside is not None
    files = Sandbox.connect(outside[1], transport=transport).files
    return _upload(files, source, outside[2])


def _download(files: Files, path: str, target: str) -> int:
    entry = files.stat(path)
    if entry.type == "dir":
        raise _directory()
    if os.path.isdir(target):
        target = os.path.join(target, os.path.basename(path))
    part = f"{target}.{new_id()}.part"
    size = 0
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(os.open(part, flags, 0o666), "wb") as file:
            while data := files.read_bytes(path, offset=size, length=_PIECE):
                file.write(data)
                size += len(data)
            if entry.mode & 0o100:
                os.fchmod(file.fileno(), os.fstat(file.fileno()).st_mode | 0o100)
        os.replace(part, target)
    except OSError as exc:
        if os.path.lexists(part):
            os.unlink(part)
        raise _local(exc, target) from None
    return size


def _upload(files: Files, source: str, path: str) -> int:
    try:
        with open(source, "rb") as file:
            info = os.fstat(file.fileno())
            if stat.S_ISDIR(info.st_mode):
                raise IsADirectoryError
            if path.endswith("/") or not path or _is_directory(files, path):
                path = os.path.join(path or ".", os.path.basename(source))
            data = file.read(_PIECE)
            mode = stat.S_IMODE(info.st_mode) & 0o777
            if len(data) < _PIECE:
                return files.write(path, data, mode=mode)
            part = f"{path}.{new_id()}.part"
            files.write(part, data, mode=mode)
            size = len(data)
            try:
                while data := file.read(_PIECE):
                    files.append(part, data)
                    size += len(data)
                files.move(part, path, replace=True)
            except BaseException:
                files.remove(part)
                raise
            return size
    except IsADirectoryError as exc:
        if hasattr(exc, "code"):
            raise
        raise _directory() from None
    except OSError as exc:
        raise _local(exc, source) from None


def _is_directory(files: Files, path: str) -> bool:
    try:
        return files.stat(path).type == "dir"
    except OSError:
        return False


def _local(exc: OSError, path: str) -> Exception:
    """A failure here in our words; one from inside the sandbox has its own."""
    if hasattr(exc, "code"):
        return exc
    return InvalidInputError(f"{path}: {exc.strerror}")


def _directory() -> UnsupportedError:
    return UnsupportedError(
        "directories can't be copied yet",
        hint="pack it: `agentkernel exec NAME -- tar -C DIR -cf - . | tar -xf -`",
    )
