"""What the machine's own refusals mean to a caller: no raw OSError leaves an engine."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from agentkernel.errors import AgentKernelError, HostError, ResourceExhaustedError

_SHORT = {
    errno.ENOSPC: ("no space is left", "make room on the disk that holds the state directory"),
    errno.EDQUOT: ("this user's quota is used up", "make room, or raise the quota"),
    errno.EMFILE: ("too many files are open in this process", "raise `ulimit -n`, or remove some"),
    errno.ENFILE: ("too many files are open on this machine", "raise fs.file-max by sysctl"),
    errno.EAGAIN: ("no more processes may be started", "end some, or raise `ulimit -u`"),
    errno.ENOMEM: ("no memory is left", "stop sandboxes or other programs"),
}


def is_shortage(error: OSError) -> bool:
    return error.errno in _SHORT


def host_error(error: OSError, doing: str, hint: str | None = None) -> AgentKernelError:
    """`hint`: what mends it where nothing is short."""
    at = f" ({os.fsdecode(error.filename)})" if isinstance(error.filename, str | bytes) else ""
    if error.errno in _SHORT:
        words, remedy = _SHORT[error.errno]
        return ResourceExhaustedError(f"{words}: {doing}{at}", hint=remedy)
    return HostError(f"{doing} failed{at}: {error.strerror or error}", hint=hint)


@contextmanager
def host_errors(doing: str) -> Iterator[None]:
    """Turns what the system refuses in the block into errors of ours, which pass as they are."""
    try:
        yield
    except OSError as exc:
        if isinstance(exc, AgentKernelError):
            raise
        raise host_error(exc, doing) from exc
