"""Generated layers on disk: built once, complete or absent, shared by every process of the user.

A layer is a directory `layers/<name>`, where the name holds a key of what it was made from. It is
built as `layers/.tmp-…` and renamed, so a name that exists is whole. The builder holds a lock on
its temporary directory; a temporary directory without a holder was left by a killed builder, and
the next builder removes it.

Files of an image's layers may belong to ids that only the user's own namespace can remove: whoever
has the means gives a `remove` for them. Without it, what can't be removed is left to those who
have.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Collection

from agentkernel.errors import AgentKernelError, HostError, ResourceExhaustedError

StrPath = str | os.PathLike[str]
Progress = Callable[[str], None]
Remove = Callable[[str], None]

TEMPORARY = ".tmp-"
USED = ".used"
_SHORT = {
    errno.ENOSPC: "make room on the disk that holds the state directory",
    errno.EDQUOT: "make room, or raise the quota",
    errno.EMFILE: "raise `ulimit -n`, or remove some sandboxes",
    errno.ENFILE: "raise fs.file-max by sysctl",
    errno.ENOMEM: "stop sandboxes or other programs",
}
# A process may have resolved a layer and not yet have written down that a sandbox uses it.
KEEP_UNUSED_S = 24 * 3600
# How often the "still used" mark of a layer is renewed; far below KEEP_UNUSED_S.
RENEW_S = 3600


def key_of(*parts: object) -> str:
    """A name for what `parts` say; they need a stable `repr`."""
    from hashlib import blake2b

    return blake2b(repr(parts).encode("utf-8", "surrogateescape"), digest_size=10).hexdigest()


def layers_dir(cache_dir: StrPath) -> str:
    return os.path.join(os.path.abspath(os.fspath(cache_dir)), "layers")


def layer(
    cache_dir: StrPath,
    name: str,
    build: Callable[[str], None],
    *,
    progress: Progress | None = None,
    message: str = "",
    flush: bool = True,
    remove: Remove | None = None,
) -> str:
    """The path of layer `name`; if there is none, `build` fills an empty directory for it.

    Safe to call from many processes at once: they may build twice, and the first rename wins.
    `flush=False` is for layers without files, for in the journal a rename follows the mkdirs
    anyway, and for builders that have flushed them.
    """
    directory = layers_dir(cache_dir)
    path = os.path.join(directory, name)
    _require_own(directory)
    if os.path.isdir(path):
        _mark_used(path)
        return path
    if progress is not None and message:
        progress(message)
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        remove_abandoned(cache_dir, remove)
        _build(directory, path, build, flush, remove or remove_tree)
    except OSError as error:
        if isinstance(error, AgentKernelError):
            raise
        raise not_written(error, directory) from error
    _mark_used(path)
    return path


def not_written(error: OSError, directory: str) -> AgentKernelError:
    """What it means that the cache can't be written."""
    words = f"cannot write the layer cache in {directory}: {error.strerror or error}"
    if error.errno in _SHORT:
        return ResourceExhaustedError(words, hint=_SHORT[error.errno])
    hint = "set AGENTKERNEL_STATE_DIR to a directory that you can write to"
    return HostError(words, hint=hint)


def _require_own(directory: str) -> None:
    """Nobody else may put layers where we look for ours."""
    try:
        info = os.stat(directory)
    except OSError:
        return  # absent: we shall make it; closed to us: building will say so
    if info.st_uid != os.geteuid() or info.st_mode & 0o022:
        raise HostError(
            f"other accounts can write to the layer cache {directory}",
            hint="point XDG_CACHE_HOME at a directory of your own (some sudo setups keep HOME)",
        )


def find(cache_dir: StrPath, name: str) -> str | None:
    """The path of layer `name` if it is there; it is in use from now on."""
    path = os.path.join(layers_dir(cache_dir), name)
    _require_own(os.path.dirname(path))
    if not os.path.isdir(path):
        return None
    _mark_used(path)
    return path


def remove_abandoned(cache_dir: StrPath, remove: Remove | None = None) -> list[str]:
    """Remove what killed builders left; returns the paths."""
    removed = []
    directory = layers_dir(cache_dir)
    for name in _names(directory):
        if not name.startswith(TEMPORARY):
            continue
        path = os.path.join(directory, name)
        fd = _lock(path)
        if fd is None:
            continue
        try:
            if remove is not None:
                remove(path)
            else:
                with contextlib.suppress(PermissionError):
                    remove_tree(path)
            if not os.path.lexists(path):
                removed.append(path)
        finally:
            os.close(fd)
    return removed


def prune(
    cache_dir: StrPath,
    in_use: Collection[str],
    *,
    keep_unused_s: float = KEEP_UNUSED_S,
    remove: Remove | None = None,
) -> list[str]:
    """Remove layers that are not in `in_use` (host paths) and that nobody resolved lately."""
    removed = remove_abandoned(cache_dir, remove)
    for path in unused(cache_dir, in_use, keep_unused_s=keep_unused_s):
        discard(cache_dir, path, remove)
        removed.append(path)
    return removed


def discard(cache_dir: StrPath, path: str, remove: Remove | None = None) -> None:
    """Removes a layer. Preconditions: nothing stands on it. Idempotent."""
    # Out of sight first: a reader finds the whole layer or none. In the same directory, since one
    # of another owner can't be moved to another. Whoever sees it there may remove it.
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, os.path.join(layers_dir(cache_dir), _temporary_name()))
    _unlink(path + USED)
    remove_abandoned(cache_dir, remove)


def unused(
    cache_dir: StrPath, in_use: Collection[str], *, keep_unused_s: float = KEEP_UNUSED_S
) -> list[str]:
    """Paths of the layers that `prune` would remove."""
    directory = layers_dir(cache_dir)
    kept = {os.path.realpath(path) for path in in_use}
    now = time.time()
    found = []
    for name in _names(directory):
        path = os.path.join(directory, name)
        if name.startswith(TEMPORARY) or name.endswith(USED) or os.path.realpath(path) in kept:
            continue
        try:
            last = os.stat(path + USED).st_mtime
        except OSError:
            last = os.stat(path).st_ctime
        if now - last >= keep_unused_s:
            found.append(path)
    return found


def remove_tree(path: str) -> None:
    """Remove a directory of ours; follows no links; a missing one is fine."""
    try:
        entries = list(os.scandir(path))
    except FileNotFoundError:
        return
    except PermissionError:
        os.chmod(path, 0o700)
        entries = list(os.scandir(path))
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            remove_tree(entry.path)
        else:
            _unlink(entry.path)
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return


def _build(
    directory: str, path: str, build: Callable[[str], None], flush: bool, remove: Remove
) -> None:
    temporary, fd = _temporary(directory)
    try:
        build(temporary)
        if flush:
            _flush(temporary)
        try:
            os.rename(temporary, path)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            remove(temporary)  # another process was first; its layer is as good
    except BaseException:
        # What can't be removed now the next builder removes: nobody holds it any more.
        with contextlib.suppress(OSError, AgentKernelError):
            remove(temporary)
        raise
    finally:
        os.close(fd)


def _temporary(directory: str) -> tuple[str, int]:
    """A new directory that this process holds, as (path, descriptor)."""
    while True:
        path = os.path.join(directory, _temporary_name())
        os.mkdir(path, 0o755)
        try:
            fd = _lock(path)
        except BaseException:
            os.rmdir(path)
            raise
        if fd is None:  # a cleaner saw it before it was ours
            continue
        try:
            here = os.stat(path)
        except FileNotFoundError:
            os.close(fd)
            continue
        if here.st_ino == os.fstat(fd).st_ino:
            os.chmod(path, 0o755)
            return path, fd
        os.close(fd)


def _temporary_name() -> str:
    return f"{TEMPORARY}{os.getpid()}-{os.urandom(6).hex()}"


def _lock(path: str) -> int | None:
    """None: somebody else has it, or it is gone. Raises OSError where nothing can be opened."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def _flush(path: str) -> None:
    """Get the files to disk before the rename, or a power cut would leave empty ones for ever.

    First start writing all of them, then wait for each: the waits after the first cost little.
    """
    files = []
    pending = [path]
    for directory in pending:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    files.append(entry.path)
    for wait in (False, True):
        for name in files:
            fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if wait:
                    os.fdatasync(fd)
                else:
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


def _mark_used(path: str) -> None:
    """Note, at most once in RENEW_S, that somebody wanted this layer. Best effort."""
    mark = path + USED
    try:
        if time.time() - os.stat(mark).st_mtime < RENEW_S:
            return
        os.utime(mark)
    except FileNotFoundError:
        try:
            os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError:
            return
    except OSError:
        return


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
