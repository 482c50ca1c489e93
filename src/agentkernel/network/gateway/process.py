"""The gateway as a process: closed to others, alone in its state directory, gone in time."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import logging
import os
import resource
import shutil
import signal
import time
from collections.abc import Coroutine, Sequence
from typing import Any

LOG_NAME = "gateway.log"
LOG_BYTES = 1 << 20
LOCK_SECONDS = 5.0
"""How long to wait for one that is leaving."""
FIRST_GRACE_SECONDS = 20.0
GRACE_SECONDS = 2.0
UNUSED_SECONDS = 300.0
"""How long a daemon keeps a gateway that serves nobody. It starts another when it needs one."""
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38

_log = logging.getLogger("agentkernel.gateway")


def main(arguments: Sequence[str]) -> int:
    close_to_others()
    if len(arguments) != 1:
        os.write(2, b"usage: python -m agentkernel.network.gateway STATE_DIR\n")
        return 2
    directory = arguments[0]
    os.umask(0o077)
    with contextlib.suppress(OSError):
        os.setsid()
    # Keeps the host's search list out of lookups: guests ask for whole names. A dot at a name's end
    # would do that too, but hides what /etc/hosts says of it.
    os.environ["LOCALDOMAIN"] = "."
    lock = take_lock(directory)
    if lock is None:
        return 0  # another one serves this directory
    open_log(directory)
    raise_descriptors()
    try:
        _run(serve(directory))
    except Exception:
        _log.exception("the gateway failed")
        return 1
    return 0


def close_to_others() -> None:
    """No core dump, and no ptrace or /proc/PID/mem by processes of the same user; nor are the keys
    of connections that carry secrets written down for whoever looks into their packets."""
    os.environ.pop("SSLKEYLOGFILE", None)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((_PR_SET_DUMPABLE, 0), (_PR_SET_NO_NEW_PRIVS, 1)):
        if libc.prctl(option, value, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), f"prctl {option}")


def take_lock(directory: str) -> int | None:
    from agentkernel.network.gateway.messages import LOCK_NAME

    path = os.path.join(directory, LOCK_NAME)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(fd)
                return None
            time.sleep(0.02)


class _Log(logging.Handler):
    """Lines to descriptor 2. When the file is full, it becomes the one before and begins anew."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            if os.fstat(2).st_size > LOG_BYTES:
                shutil.copyfile(self._path, f"{self._path}.1")
                os.ftruncate(2, 0)
            text = self.format(record)[:8192]
            # Guests choose some of the words: none may make a line of its own, or act on a screen.
            lines = (ascii(line)[1:-1] for line in text.split("\n"))
            os.write(2, "\n    ".join(lines).encode() + b"\n")


def open_log(directory: str) -> None:
    path = os.path.join(directory, LOG_NAME)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(path, flags, 0o600)
    for standard in (1, 2):
        os.dup2(fd, standard)
    os.close(fd)
    handler = _Log(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def raise_descriptors() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _run(work: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


async def serve(directory: str) -> None:
    """Until there is nothing left to do."""
    from agentkernel.network.gateway.control import Control
    from agentkernel.network.gateway.server import Gateway

    gateway = Gateway(directory)
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    control = Control(gateway, directory, changed.set)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, gateway.stopping.set)
    loop.add_signal_handler(signal.SIGHUP, lambda: None)
    try:
        grace = FIRST_GRACE_SECONDS
        while not gateway.stopping.is_set():
            patience = UNUSED_SECONDS if control.connected else grace
            waiting = [
                loop.create_task(event.wait())
                for event in (gateway.stopping, gateway.emptied, changed)
            ]
            done, _ = await asyncio.wait(
                waiting,
                timeout=None if gateway.sandboxes else patience,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in waiting:
                task.cancel()
            if not done and not gateway.sandboxes:
                break
            gateway.emptied.clear()
            changed.clear()
            grace = GRACE_SECONDS
    finally:
        await control.close()
        await gateway.close()
