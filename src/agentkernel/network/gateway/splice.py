"""Bytes between a guest and the other side, untouched and not even copied.

The kernel moves them from one socket through a pipe to the other (splice(2)). A direction borrows a
pipe while it has bytes in it; until they are gone nothing more is read, so a slow receiver slows
the sender, and an idle connection costs no descriptor and no memory of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Callable

from agentkernel.network.gateway import sockets
from agentkernel.network.gateway.flow import CapReached

IDLE_SECONDS = 3600.0
HALF_CLOSED_SECONDS = 300.0
_LOOK_SECONDS = 60.0
_PIPE_BYTES = 1 << 20
_COPIED_BYTES = 4096
"""As much as every pipe takes at once."""
_SPARE_PIPES = 32
_FLAGS = os.SPLICE_F_NONBLOCK | os.SPLICE_F_MOVE

Account = Callable[[int, int], float]
"""Counts bytes up and down; how long to wait before the next. Raises CapReached."""


class _Pipe:
    """`held`: how many bytes are in it."""

    def __init__(self) -> None:
        self.out, self.into = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.held = 0
        # Unprivileged users have a bound on all their pipes: then it stays as it is.
        with contextlib.suppress(OSError):
            fcntl.fcntl(self.into, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def close(self) -> None:
        os.close(self.out)
        os.close(self.into)


_spare: list[_Pipe] = []


def _borrow() -> _Pipe:
    """Raises OSError if there are no descriptors."""
    return _spare.pop() if _spare else _Pipe()


def _give_back(pipe: _Pipe) -> None:
    if pipe.held or len(_spare) >= _SPARE_PIPES:
        pipe.close()  # what one connection left in it must never reach another
    else:
        _spare.append(pipe)


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
        self._from = source.fileno()
        self._target = target
        self._to = target.fileno()
        self._account = account
        self._pipe: _Pipe | None = None
        self._writing = False
        self._pause = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.ended = False

    def start(self) -> None:
        self._timer = None
        self._loop.add_reader(self._from, self._read)

    def _read(self) -> None:
        try:
            pipe = self._pipe = _borrow()
            pipe.held = self._take(pipe)
        except BlockingIOError:
            self._release()
            return
        except OSError as exc:
            self._relay.finish(exc)
            return
        self._relay.active = time.monotonic()
        if not pipe.held:
            self._release()
            self._loop.remove_reader(self._from)
            self._end()
            return
        try:
            self._pause = self._account(pipe.held)
        except CapReached as exc:
            self._relay.finish(exc)
            return
        self._write()

    def _take(self, pipe: _Pipe) -> int:
        """How many bytes are in the pipe now, 0 at the end. Raises BlockingIOError, OSError."""
        try:
            return os.splice(self._from, pipe.into, _PIPE_BYTES, flags=_FLAGS)
        except BlockingIOError:
            # splice(2) stops at urgent data, for ever, while the socket can be read: whoever sends
            # one such byte would keep us turning. Reading goes past it.
            data = os.read(self._from, _COPIED_BYTES)
            return os.write(pipe.into, data) if data else 0

    def _write(self) -> None:
        pipe = self._pipe
        assert pipe is not None
        try:
            pipe.held -= os.splice(pipe.out, self._to, pipe.held, flags=_FLAGS)
        except BlockingIOError:
            pass
        except OSError as exc:
            self._relay.finish(exc)
            return
        self._relay.active = time.monotonic()
        if pipe.held:
            if not self._writing:
                self._writing = True
                self._loop.remove_reader(self._from)
                self._loop.add_writer(self._to, self._write)
            return
        self._release()
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._to)
            self._resume()
        elif self._pause:
            self._loop.remove_reader(self._from)
            self._resume()

    def _release(self) -> None:
        if self._pipe:
            _give_back(self._pipe)
            self._pipe = None

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
        except OSError as exc:
            self._relay.finish(exc)
            return
        self._relay.half_closed()

    def stop(self) -> None:
        self._loop.remove_reader(self._from)
        if self._writing:
            self._loop.remove_writer(self._to)
        if self._timer:
            self._timer.cancel()
        self._release()


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
        """Until both sides have ended, or nothing moved for too long. Raises CapReached, and
        OSError if one side breaks. The sockets are the caller's to close."""
        for pump in self._pumps:
            pump.start()
        try:
            while not self._done.done():
                await asyncio.wait((self._done,), timeout=min(self._left(), _LOOK_SECONDS))
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

    def finish(self, failure: Exception | None = None) -> None:
        for pump in self._pumps:
            pump.stop()
        if self._done.done():
            return
        if failure:
            self._done.set_exception(failure)
        else:
            self._done.set_result(None)


async def relay(client: socket.socket, upstream: socket.socket, account: Account) -> None:
    """Carries everything both ways, and closes both: in order, or, if one broke, by a reset, so
    that nobody takes half of something for the whole. Raises CapReached, OSError."""
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
