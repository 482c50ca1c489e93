"""A file of the host's replaced or taken away, unless the host is changing it this very moment.

To look first and then to rename leaves a moment in between, and what the host writes in it is lost.
So the file is first put aside, by one step of the kernel's, and only then looked at: if it is not
the one that was meant, or somebody has it open to write, it goes back.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import signal

_EXCHANGE = 2
_NO_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP)
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class ChangingError(Exception):
    """The host has changed the file this moment, or may be about to."""


def replace(directory: int, new: str, name: str, seen: os.stat_result) -> None:
    """`new` takes the place of `name`, which is as `seen`, and is gone. Raises ChangingError, with
    all as it was and `new` still there; OSError."""
    try:
        _exchange(directory, new, name)
    except OSError as exc:
        if exc.errno not in _NO_EXCHANGE:
            raise
        # A file system that can't: then the moment is as short as it can be.
        _check(directory, name, seen)
        os.rename(new, name, src_dir_fd=directory, dst_dir_fd=directory)
        return
    ours = os.stat(name, dir_fd=directory, follow_symlinks=False)
    try:
        _check(directory, new, seen)
    except BaseException:
        _put_back(directory, new, name, ours.st_ino)
        raise
    os.unlink(new, dir_fd=directory)


def remove(directory: int, aside: str, name: str, seen: os.stat_result) -> None:
    """Takes `name` away, by way of the name `aside`. Raises as `replace` does."""
    os.rename(name, aside, src_dir_fd=directory, dst_dir_fd=directory)
    try:
        _check(directory, aside, seen)
    except BaseException:
        # Unless the host has made it anew meanwhile.
        with contextlib.suppress(FileExistsError):
            os.link(aside, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
        os.unlink(aside, dir_fd=directory)
        raise
    os.unlink(aside, dir_fd=directory)


def _check(directory: int, name: str, seen: os.stat_result) -> None:
    info = os.stat(name, dir_fd=directory, follow_symlinks=False)
    # A rename changes the time of change; every writing those of content.
    if _marks(info) != _marks(seen):
        raise ChangingError
    if (info.st_mode & 0o170000) == 0o100000 and _is_written(directory, name):
        raise ChangingError


def _marks(info: os.stat_result) -> tuple[int, int, int, int]:
    return info.st_ino, info.st_size, info.st_mtime_ns, info.st_mode


def _is_written(directory: int, name: str) -> bool:
    """Whether somebody has it open to write: then the kernel gives nobody a lease to read."""
    try:
        fd = os.open(name, _READ, dir_fd=directory)
    except PermissionError:
        return False
    try:
        # Whoever breaks a lease makes the kernel send a signal: one that nobody minds.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as exc:
        return exc.errno in (errno.EAGAIN, errno.EACCES) and os.geteuid() in (
            0,
            os.fstat(fd).st_uid,
        )
    finally:
        os.close(fd)
    return False


def _put_back(directory: int, aside: str, name: str, ours: int) -> None:
    """What was put aside, unless the host has written there meanwhile, which is newer."""
    with contextlib.suppress(OSError):
        for _ in range(8):
            if os.stat(name, dir_fd=directory, follow_symlinks=False).st_ino != ours:
                return
            _exchange(directory, aside, name)
            if os.stat(aside, dir_fd=directory, follow_symlinks=False).st_ino == ours:
                return
            # Something came between the look and the step: it is what has to stand there.
            _exchange(directory, aside, name)


def _exchange(directory: int, one: str, other: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        call = libc.renameat2
    except AttributeError:
        raise OSError(errno.ENOSYS, "no renameat2") from None
    if call(directory, os.fsencode(one), directory, os.fsencode(other), ctypes.c_uint(_EXCHANGE)):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
