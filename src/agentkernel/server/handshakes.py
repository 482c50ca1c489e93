"""TLS handshakes, bounded in number and time before anything else is spent on a connection.

An event loop's own server takes any number of connections into their handshakes. Whoever opens them
and says nothing would hold so many descriptors that the daemon's socket has none left.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final

from agentkernel.server.bounds import Bounds

_AT_ONCE: Final = 64
_PAUSE_SECONDS: Final = 1.0


class Handshakes:
    """Accepts on a listener, and gives each connection that is encrypted to one of `make`'s
    protocols."""

    def __init__(
        self,
        listener: socket.socket,
        context: ssl.SSLContext,
        bounds: Bounds,
        make: Callable[[], asyncio.Protocol],
    ) -> None:
        self._listener = listener
        self._context = context
        self._bounds = bounds
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._under_way: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._listen()

    def close(self) -> None:
        """Takes no one in; handshakes that are not done are given up."""
        self._loop.remove_reader(self._listener)
        if self._pause:
            self._pause.cancel()
        for task in list(self._under_way):
            task.cancel()

    def _listen(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor, no memory: later there may be
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(_PAUSE_SECONDS, self._listen)
                return
            if len(self._under_way) >= self._bounds.max_handshakes:
                connection.close()
                continue
            connection.setblocking(False)
            task = self._loop.create_task(self._encrypt(connection))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _encrypt(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=self._bounds.handshake_seconds,
                ssl_shutdown_timeout=self._bounds.last_words_seconds,
            )
        except (OSError, asyncio.CancelledError):  # so are ssl.SSLError and TimeoutError
            connection.close()
