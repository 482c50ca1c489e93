"""Bytes between a guest and the other side, untouched.

One buffer serves every connection: what was read is sent on at once, and only what the receiver has
no room for is kept, at most one buffer of it a direction. Until that is gone nothing more is read,
so a slow receiver slows the sender.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable

from agentkernel.network.gateway import sockets
from agentkernel.network.gateway.flow import CapReached

IDLE_SECONDS = 3600.0
HALF_CLOSED_SECONDS = 300.0
_BUFFER = memoryview(bytearray(256 << 10))

Account = Callable[[int, int], float]
"""Counts bytes up and down; how long to wait before the next. Raises CapReached."""


class _Pump:
    """One direction."""

    def __init__(
        self,
        relay: Relay,
        source: socket.socket,
        target: socket.socket,
        account: Callable[[int], float],
    ) -> None:
        self._relay = relay
        self._loop = relay.loop
        self._source = source
        self._from = source.fileno()
        self._target = target
        self._to = target.fileno()
        self._account = account
        self._rest = memoryview(b"")
        self._pause = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.ended = False

    def start(self) -> None:
        self._timer = None
        self._loop.add_reader(self._from, self._read)

    def _read(self) -> None:
        try:
            count = self._source.recv_into(_BUFFER)
        except BlockingIOError:
            return
        except OSError:
            self._relay.finish()
            return
        self._relay.active = time.monotonic()
        if not count:
            self._loop.remove_reader(self._from)
            self._end()
            return
        try:
            self._pause = self._account(count)
            sent = self._target.send(_BUFFER[:count])
        except BlockingIOError:
            sent = 0
        except CapReached as exc:
            self._relay.finish(exc)
            return
        except OSError:
            self._relay.finish()
            return
        if sent < count:
            self._rest = memoryview(bytes(_BUFFER[sent:count]))
            self._loop.remove_reader(self._from)
            self._loop.add_writer(self._to, self._write)
        elif self._pause:
            self._loop.remove_reader(self._from)
            self._resume()

    def _write(self) -> None:
        try:
            sent = self._target.send(self._rest)
        except BlockingIOError:
            return
        except OSError:
            self._relay.finish()
            return
        self._relay.active = time.monotonic()
        self._rest = self._rest[sent:]
        if not self._rest:
            self._loop.remove_writer(self._to)
            self._resume()

    def _resume(self) -> None:
        if self._pause:
            self._timer = self._loop.call_later(self._pause, self.start)
            self._pause = 0.0
        else:
            self.start()

    def _end(self) -> None:
        """The source has said all: so the target is told, and may still answer."""
        self.ended = True
        try:
            self._target.shutdown(socket.SHUT_WR)
        except OSError:
            self._relay.finish()
            return
        self._relay.half_closed()

    def stop(self) -> None:
        self._loop.remove_reader(self._from)
        self._loop.remove_writer(self._to)
        if self._timer:
            self._timer.cancel()


class Relay:
    def __init__(self, client: socket.socket, upstream: socket.socket, account: Account) -> None:
        self.loop = asyncio.get_running_loop()
        self.active = time.monotonic()
        self._done: asyncio.Future[None] = self.loop.create_future()
        self._pumps = (
            _Pump(self, client, upstream, lambda count: account(count, 0)),
            _Pump(self, upstream, client, lambda count: account(0, count)),
        )

    async def run(self) -> None:
        """Until both sides have ended, one breaks, or nothing moved for too long. Raises
        CapReached. The sockets are the caller's to close."""
        for pump in self._pumps:
            pump.start()
        try:
            while not self._done.done():
                await asyncio.wait((self._done,), timeout=self._left())
                if self._left() <= 0:
                    return
            self._done.result()
        finally:
            for pump in self._pumps:
                pump.stop()

    def _left(self) -> float:
        ended = any(pump.ended for pump in self._pumps)
        most = HALF_CLOSED_SECONDS if ended else IDLE_SECONDS
        return self.active + most - time.monotonic()

    def half_closed(self) -> None:
        if all(pump.ended for pump in self._pumps):
            self.finish()

    def finish(self, failure: CapReached | None = None) -> None:
        for pump in self._pumps:
            pump.stop()
        if self._done.done():
            return
        if failure:
            self._done.set_exception(failure)
        else:
            self._done.set_result(None)


async def relay(client: socket.socket, upstream: socket.socket, account: Account) -> None:
    """Carries everything both ways, and closes both."""
    sockets.tune(client)
    sockets.tune(upstream)
    try:
        await Relay(client, upstream, account).run()
    except BaseException:
        sockets.reset(client)
        sockets.reset(upstream)
        raise
    client.close()
    upstream.close()
