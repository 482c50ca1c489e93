"""A connection to the daemon that blocks. `asyncio_stream` is its twin for asyncio."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from _thread import allocate_lock as Lock
from collections.abc import Callable

from agentkernel.client.daemon import Daemon
from agentkernel.errors import DaemonError, DaemonTimeoutError

__all__ = ["Lock", "Stream", "Turns", "in_thread"]

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from agentkernel.client.remote import Remote

    T = TypeVar("T")

_CHUNK = 1 << 16


def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    return function(*arguments)


class Turns:
    """Something that only one may do at a time and that serves all who wait for it."""

    def __init__(self) -> None:
        self._taken = False
        self._given_back = 0
        from threading import Condition

        self._changed = Condition()

    def take(self, deadline: float | None) -> bool:
        """True: it is the caller's, who gives it back. False: somebody else was done meanwhile."""
        with self._changed:
            if not self._taken:
                self._taken = True
                return True
            before = self._given_back
            timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._changed.wait_for(lambda: self._given_back != before, timeout):
                raise _late()
            return False

    def give_back(self) -> None:
        with self._changed:
            self._taken = False
            self._given_back += 1
            self._changed.notify_all()


class Stream:
    """Every call takes a deadline (by `time.monotonic`) or None."""

    def __init__(self, connection: socket.socket) -> None:
        # The other end closed without having read all that we sent.
        self.was_reset = False
        self._socket = connection
        self._closed = False

    @classmethod
    def connect(cls, daemon: Daemon | Remote, deadline: float) -> Stream | None:
        """None: there is no daemon."""
        while True:
            try:
                connection = daemon.connect()
                return None if connection is None else cls(connection)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise _late() from None
                time.sleep(0.01)

    def read(self, deadline: float | None) -> bytes:
        """Some bytes; none at the end."""
        while not self._closed:
            try:
                return self._socket.recv(_CHUNK)
            except BlockingIOError:
                self._wait(select.POLLIN, deadline)
            except OSError as exc:
                self.was_reset = isinstance(exc, ConnectionResetError)
                return b""
        return b""

    def write(self, data: bytes, deadline: float | None) -> None:
        view = memoryview(data)
        try:
            while view:
                try:
                    view = view[self._socket.send(view) :]
                except BlockingIOError:
                    self._wait(select.POLLOUT, deadline)
        except BaseException as exc:
            self.close()  # part of it may have gone: nothing can follow
            if isinstance(exc, OSError) and not isinstance(exc, DaemonError):
                raise DaemonError("the daemon closed the connection") from None
            raise

    def usable(self) -> bool:
        """Open, and nothing has come that nobody asked for, the end above all."""
        return not self._closed and not self._poll(select.POLLIN, 0)

    def detach(self) -> socket.socket:
        """The socket, non-blocking, which is the caller's from now on."""
        self._closed = True
        return socket.socket(fileno=self._socket.detach())

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()

    def __del__(self) -> None:
        self._socket.close()

    def _wait(self, events: int, deadline: float | None) -> None:
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        if not self._poll(events, timeout):
            raise _late()

    def _poll(self, events: int, timeout: float | None) -> bool:
        poll = select.poll()
        poll.register(self._socket, events)
        return bool(poll.poll(timeout))


def _late() -> DaemonTimeoutError:
    return DaemonTimeoutError("the daemon did not answer in time")
