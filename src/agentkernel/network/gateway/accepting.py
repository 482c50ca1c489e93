"""Takes a sandbox's connections from the socket in its namespace, as fast as its caps say."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import struct
from collections.abc import Callable

from agentkernel.network.gateway import sockets
from agentkernel.network.gateway.routing import Router
from agentkernel.network.gateway.subjects import Connection, Sandbox

SO_ORIGINAL_DST = 80
_PAUSE_SECONDS = 0.1
_AT_ONCE = 64
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

OriginalDestination = Callable[[socket.socket], tuple[str, int]]

_log = logging.getLogger("agentkernel.gateway")


def original_destination(sock: socket.socket) -> tuple[str, int]:
    """Where the guest wanted to go, as the kernel knows it. Raises OSError."""
    raw = sock.getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16)
    _, port, address = struct.unpack("!HH4s8x", raw)
    return socket.inet_ntoa(address), port


class Acceptor:
    def __init__(
        self,
        sandbox: Sandbox,
        router: Router,
        listener: socket.socket,
        destination: OriginalDestination,
    ) -> None:
        self._sandbox = sandbox
        self._router = router
        self._listener = listener
        self._destination = destination
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._resume()

    def _resume(self) -> None:
        self._timer = None
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def _pause(self, seconds: float) -> None:
        """What comes meanwhile waits in the kernel's queue, which is bounded."""
        self._loop.remove_reader(self._listener.fileno())
        self._timer = self._loop.call_later(seconds, self._resume)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                client, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as exc:
                if exc.errno in _FULL:
                    self._limit("the gateway has no descriptors left for the moment")
                    self._pause(_PAUSE_SECONDS)
                    return
                if exc.errno in (errno.EINVAL, errno.EBADF, errno.ENOTSOCK):
                    _log.error("sandbox %s: its socket does not listen", self._sandbox.id)
                    self._loop.remove_reader(self._listener.fileno())
                    return
                continue  # the connection ended before it was taken
            self._begin(client)
            if wait := self._sandbox.admission():
                self._limit("it makes new connections faster than it may")
                self._pause(wait)
                return

    def _begin(self, client: socket.socket) -> None:
        if not self._sandbox.admits():
            self._limit("it has as many connections open as it may")
            sockets.reset(client)
            return
        client.setblocking(False)
        try:
            address, port = self._destination(client)
        except OSError:
            # Not one that the rules sent here.
            self._sandbox.tell("network.deny", "tcp", "", "a connection without a destination")
            sockets.reset(client)
            return
        connection = Connection(client)
        self._sandbox.connections.add(connection)
        connection.task = self._loop.create_task(self._router.serve(connection, address, port))
        connection.task.add_done_callback(lambda task: self._ended(connection, task))

    def _ended(self, connection: Connection, task: asyncio.Task[None]) -> None:
        self._sandbox.connections.discard(connection)
        # A task that was cancelled before its first step has closed nothing.
        connection.hang_up()
        if not task.cancelled() and (failure := task.exception()):
            _log.error("a connection of sandbox %s failed", self._sandbox.id, exc_info=failure)

    def _limit(self, words: str) -> None:
        self._sandbox.tell("network.limit", "tcp", "", words)

    def close(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
