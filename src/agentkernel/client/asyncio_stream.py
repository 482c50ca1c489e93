"""A connection to the daemon for asyncio. `socket_stream` is its blocking twin.

On bare sockets rather than asyncio's transports: nothing of one is tied to an event loop while it
is idle, so a pool may outlive a loop, and one that is dropped needs no loop to be closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import time
from asyncio import Lock as AsyncLock
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from agentkernel.client.daemon import Daemon
from agentkernel.errors import DaemonError, DaemonTimeoutError

if TYPE_CHECKING:
    from agentkernel.client.remote import Remote

__all__ = ["AsyncLock", "AsyncStream", "AsyncTurns", "in_thread"]

_CHUNK = 1 << 16
T = TypeVar("T")


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """A caller that is cancelled waits for the thread: nothing goes on behind its back."""
    future = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait((future,))
        raise


class AsyncTurns:
    """Something that only one may do at a time and that serves all who wait for it."""

    def __init__(self) -> None:
        self._taken = False
        self._waiting: list[asyncio.Future[None]] = []

    async def take(self, deadline: float | None) -> bool:
        """True: it is the caller's, who gives it back. False: somebody else was done meanwhile."""
        if not self._taken:
            self._taken = True
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        async with _until(deadline):
            await future
        return False

    def give_back(self) -> None:
        self._taken = False
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


class AsyncStream:
    """Every call takes a deadline (by `time.monotonic`) or None."""

    def __init__(self, connection: socket.socket) -> None:
        # The other end closed without having read all that we sent.
        self.was_reset = False
        self._socket = connection
        self._reading = False
        self._closed = False

    @classmethod
    async def connect(cls, daemon: Daemon | Remote, deadline: float) -> AsyncStream | None:
        """None: there is no daemon."""
        while True:
            try:
                # One that is far away is not connected in a moment.
                near = isinstance(daemon, Daemon)
                connection = daemon.connect() if near else await in_thread(daemon.connect)
                return None if connection is None else cls(connection)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise _late() from None
                await asyncio.sleep(0.01)

    async def read(self, deadline: float | None) -> bytes:
        """Some bytes; none at the end."""
        if self._closed:
            return b""
        self._reading = True
        try:
            async with _until(deadline):
                return await asyncio.get_running_loop().sock_recv(self._socket, _CHUNK)
        except OSError as exc:
            if isinstance(exc, DaemonError):
                raise
            self.was_reset = isinstance(exc, ConnectionResetError)
            return b""
        finally:
            self._reading = False
            if self._closed:
                self._socket.close()

    async def write(self, data: bytes, deadline: float | None) -> None:
        try:
            async with _until(deadline):
                await asyncio.get_running_loop().sock_sendall(self._socket, data)
        except BaseException as exc:
            self.close()  # part of it may have gone: nothing can follow
            if isinstance(exc, OSError) and not isinstance(exc, DaemonError):
                raise DaemonError("the daemon closed the connection") from None
            raise

    def usable(self) -> bool:
        """Open, and nothing has come that nobody asked for, the end above all."""
        return not self._closed and not _readable(self._socket)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if not self._reading:
            self._socket.close()

    def __del__(self) -> None:
        self._socket.close()


@contextlib.asynccontextmanager
async def _until(deadline: float | None) -> Any:
    timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
    try:
        async with asyncio.timeout(timeout):
            yield
    except TimeoutError as exc:
        if isinstance(exc, DaemonError):
            raise
        raise _late() from None


def _late() -> DaemonTimeoutError:
    return DaemonTimeoutError("the daemon did not answer in time")


def _readable(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))
