"""The two threads behind the store: one writes, one reads, each with a connection of its own.

The loop queues a call and awaits its future. A thread takes all that is queued, does it, and hands
the results back in one wake-up of the loop. For the writer that is the group commit: what was
queued together shares a transaction, and nobody is told of a write before it is committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from agentkernel.errors import StateError
from agentkernel.kernel.store.failures import translate

MAX_BATCH = 512

T = TypeVar("T")
C = TypeVar("C")


class Call(Generic[C]):
    """A piece of work, and what came of it."""

    __slots__ = ("error", "future", "result", "work")

    def __init__(self, work: Callable[[C], Any], future: asyncio.Future[Any]) -> None:
        self.work = work
        self.future = future
        self.result: Any = None
        self.error: Exception | None = None


class Worker(Generic[C]):
    """A thread that serves calls in order. All methods without `_` belong to the loop's thread."""

    def __init__(self, name: str, path: Path) -> None:
        self.path = path
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[Call[C] | None] = SimpleQueue()
        self._closing = False
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        # A daemon thread: a store that nobody closed must not keep the interpreter from ending.
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    async def start(self) -> None:
        """Raises what opening raised; then nothing is left open."""
        self._thread.start()
        await asyncio.shield(self._ready)

    def submit(self, work: Callable[[C], T]) -> asyncio.Future[T]:
        """Queues `work`. It is done even if the one who awaits it is cancelled."""
        if self._closing:
            raise StateError("the state store is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._calls.put(Call(work, future))
        return future

    async def stop(self) -> None:
        """Ends the thread when all that was queued is done. Idempotent."""
        if not self._closing:
            self._closing = True
            self._calls.put(None)
        if self._thread.ident is not None:
            await asyncio.shield(self._ended)
            self._thread.join()

    def _open(self) -> None:
        raise NotImplementedError

    def _shut(self) -> None:
        raise NotImplementedError

    def _serve(self, calls: Sequence[Call[C]]) -> None:
        """Fills in result or error of every call."""
        raise NotImplementedError

    def _patience(self) -> float | None:
        """How long to wait for a call before `_rest`."""
        return None

    def _rest(self) -> None:
        """After every batch and every wait that was in vain."""

    def _settle(self, calls: Sequence[Call[C]]) -> None:
        """On the loop: tells the callers."""
        for call in calls:
            if not call.future.done():
                if call.error is not None:
                    call.future.set_exception(call.error)
                else:
                    call.future.set_result(call.result)

    def _main(self) -> None:
        try:
            self._open()
        except Exception as exc:
            with contextlib.suppress(Exception):
                self._shut()
            self._on_loop(_finish, self._ready, translate(exc, self.path))
            self._on_loop(_finish, self._ended, None)
            return
        self._on_loop(_finish, self._ready, None)
        going = True
        while going:
            calls, going = self._take()
            if calls:
                try:
                    self._serve(calls)
                except Exception as exc:
                    for call in calls:
                        call.error = call.error or translate(exc, self.path)
                self._on_loop(self._settle, calls)
            # What goes wrong here has no caller; whoever writes next meets the cause.
            with contextlib.suppress(sqlite3.Error, OSError):
                self._rest()
        with contextlib.suppress(sqlite3.Error, OSError):
            self._shut()
        self._on_loop(_finish, self._ended, None)

    def _take(self) -> tuple[list[Call[C]], bool]:
        """What is queued, and whether more may come."""
        calls: list[Call[C]] = []
        try:
            call = self._calls.get(timeout=self._patience())
        except Empty:
            return calls, True
        while call is not None:
            calls.append(call)
            if len(calls) == MAX_BATCH or self._calls.empty():
                return calls, True
            call = self._calls.get_nowait()
        return calls, False

    def _on_loop(self, function: Callable[..., object], *arguments: object) -> None:
        # A loop that is closed has nobody left to tell.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)


class Reader(Worker[sqlite3.Connection]):
    """Reads never wait for a transaction of the writer, and see all that was acknowledged."""

    def __init__(self, path: Path, connect: Callable[[], sqlite3.Connection]) -> None:
        super().__init__("agentkernel-state-reader", path)
        self._connect = connect
        self._connection: sqlite3.Connection | None = None

    def _open(self) -> None:
        self._connection = self._connect()

    def _serve(self, calls: Sequence[Call[sqlite3.Connection]]) -> None:
        connection = self._connection
        assert connection is not None
        for call in calls:
            try:
                call.result = call.work(connection)
            except Exception as exc:
                call.error = translate(exc, self.path)
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _shut(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _finish(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
        # Whoever started the thread may have been cancelled meanwhile.
        future.exception()
