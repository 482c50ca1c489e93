"""The store: sandboxes, jobs and events, on disk before they are acknowledged.

    with StateLock(state_dir):
        async with await Store.open(state_dir / "state.db") as store:
            await store.insert_sandbox(record)

What a write returned survives kill -9. A power cut may take the last `sync_seconds` before it; the
next start then says so with a `state.gap` event. A call that is cancelled is carried out all the
same. Every error is an AgentKernelError; after one that the machine caused (a full disk) the store
works on as soon as the cause is gone.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar, Unpack

from agentkernel.errors import InvalidInputError, StateError
from agentkernel.kernel.store import events as event_rows
from agentkernel.kernel.store import jobs as job_rows
from agentkernel.kernel.store import sandboxes as sandbox_rows
from agentkernel.kernel.store import schema
from agentkernel.kernel.store import tokens as token_rows
from agentkernel.kernel.store import volumes as volume_rows
from agentkernel.kernel.store.records import (
    EventPage,
    Idempotency,
    Inserted,
    JobChanges,
    JobPage,
    JobRecord,
    NewEvent,
    SandboxChanges,
    SandboxPage,
    SandboxRecord,
    Statistics,
    TokenRecord,
    VolumeRecord,
    VolumeState,
    to_row,
)
from agentkernel.kernel.store.session_store import SessionStore
from agentkernel.kernel.store.workers import Reader
from agentkernel.kernel.store.writer import Transaction, Writer, append_all

MAX_EVENTS = 100_000
MAX_EVENT_AGE = 30 * 24 * 3600.0
SYNC_SECONDS = 1.0
MAX_PAGE = 1000
# Events that were posted and are not yet on disk. More are counted, not kept.
MAX_POSTED = 10_000

T = TypeVar("T")


class Store(SessionStore):
    """See the module. Belongs to the event loop it was opened on."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float],
        sync_seconds: float,
        retention: event_rows.Retention,
    ) -> None:
        self.path = path
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._newest = 0
        self._news = asyncio.Event()
        self._posts: list[event_rows.Row] = []
        self._posted = 0
        self._dropped = 0
        self._unreported = 0
        self._writer = Writer(
            path,
            retention,
            clock=clock,
            sync_seconds=sync_seconds,
            on_events=self._announce,
        )
        self._reader = Reader(path, lambda: schema.connect(path, "ro"))

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        clock: Callable[[], float] = time.time,
        sync_seconds: float = SYNC_SECONDS,
        max_events: int = MAX_EVENTS,
        max_event_age: float = MAX_EVENT_AGE,
    ) -> Store:
        """Makes, migrates or opens the database. The caller holds the StateLock.

        Raises StateTooNewError and StateCorruptError with nothing touched, and HostError.
        """
        store = cls(
            path,
            clock=clock,
            sync_seconds=sync_seconds,
            retention=event_rows.Retention(max_events, max_event_age),
        )
        try:
            await store._writer.start()
            store._newest = store._writer.newest_event
            await store._reader.start()
        except BaseException:
            await store.close()
            raise
        return store

    async def close(self) -> None:
        """Writes what is queued, then closes. Idempotent."""
        if not self._closed:
            self._flush_posts()
            self._closed = True
            self._news.set()
        await self._reader.stop()
        await self._writer.stop()

    async def __aenter__(self) -> Store:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # Sandboxes. `events` are committed together with the change, or not at all.

    async def insert_sandbox(
        self,
        record: SandboxRecord,
        idempotency: Idempotency | None = None,
        *,
        events: Sequence[NewEvent] = (),
    ) -> Inserted:
        """ConflictError for a name of this owner's, an id, or a key with another fingerprint.

        A key that is known leads to its sandbox and writes nothing. It is known for a day, at most
        as long as its sandbox.
        """
        now = self._clock()
        record, row = to_row(record)
        if idempotency is not None:
            idempotency, _ = to_row(idempotency)
        rows = event_rows.to_rows(events, now)

        def work(transaction: Transaction) -> Inserted:
            connection = transaction.connection
            inserted = sandbox_rows.insert(connection, record, row, idempotency, now)
            if inserted.created:
                append_all(transaction, rows)
            return inserted

        return await self._write(work)

    async def update_sandbox(
        self,
        id: str,
        *,
        expect_state: str | Collection[str] | None = None,
        events: Sequence[NewEvent] = (),
        **fields: Unpack[SandboxChanges],
    ) -> SandboxRecord:
        """The record as it is now. ConflictError when its state is not an expected one."""
        now = self._clock()
        expected = _states(expect_state)
        rows = event_rows.to_rows(events, now)

        def work(transaction: Transaction) -> SandboxRecord:
            connection = transaction.connection
            record = sandbox_rows.update(connection, id, expected, {**fields}, now)
            append_all(transaction, rows)
            return record

        return await self._write(work)

    async def remove_sandbox(
        self,
        id: str,
        *,
        expect_state: str | Collection[str] | None = None,
        events: Sequence[NewEvent] = (),
    ) -> SandboxRecord:
        """The record as it was. Its jobs and keys go too, its events stay."""
        expected = _states(expect_state)
        rows = event_rows.to_rows(events, self._clock())

        def work(transaction: Transaction) -> SandboxRecord:
            seq, record = sandbox_rows.expect(transaction.connection, id, expected)
            append_all(transaction, rows)  # first: they take their owner from the sandbox
            sandbox_rows.remove(transaction.connection, seq, record)
            return record

        return await self._write(work)

    async def get_sandbox(self, id_or_name: str, owner: str | None = None) -> SandboxRecord:
        """NotFoundError, also for another owner's."""
        return await self._read(lambda c: sandbox_rows.get(c, id_or_name, owner))

    async def find_sandboxes(
        self,
        owner: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        states: Collection[str] = (),
        after: int | None = None,
        limit: int = 100,
        newest_first: bool = False,
    ) -> SandboxPage:
        """A page in the order of insertion. What stays is seen exactly once over all pages."""
        _check_limit(limit)
        wanted, chosen = dict(labels or {}), _states(states) or []
        return await self._read(
            lambda c: sandbox_rows.find(
                c,
                owner=owner,
                labels=wanted,
                states=chosen,
                after=after,
                limit=limit,
                newest_first=newest_first,
            )
        )

    async def all_sandboxes(self) -> list[SandboxRecord]:
        return await self._read(sandbox_rows.everything)

    # Jobs

    async def insert_job(self, record: JobRecord) -> JobRecord:
        """NotFoundError without its sandbox."""
        record, row = to_row(record)
        return await self._write(lambda t: job_rows.insert(t.connection, record, row))

    async def update_job(
        self,
        id: str,
        *,
        expect_state: str | Collection[str] | None = None,
        events: Sequence[NewEvent] = (),
        **fields: Unpack[JobChanges],
    ) -> JobRecord:
        expected = _states(expect_state)
        rows = event_rows.to_rows(events, self._clock())

        def work(transaction: Transaction) -> JobRecord:
            record = job_rows.update(transaction.connection, id, expected, {**fields})
            append_all(transaction, rows)
            return record

        return await self._write(work)

    async def get_job(self, id: str, owner: str | None = None) -> JobRecord:
        """NotFoundError, also for one in another owner's sandbox."""
        return await self._read(lambda c: job_rows.get(c, id, owner))

    async def jobs_of(self, sandbox_id: str, *, states: Collection[str] = ()) -> list[JobRecord]:
        """In the order of insertion; none for a sandbox that is not there."""
        chosen = _states(states) or []
        return await self._read(lambda c: job_rows.of_sandbox(c, sandbox_id, chosen))

    async def find_jobs(
        self,
        owner: str | None = None,
        *,
        sandbox_id: str | None = None,
        states: Collection[str] = (),
        after: int | None = None,
        limit: int = 100,
    ) -> JobPage:
        """A page of the jobs of all sandboxes, in the order of insertion."""
        _check_limit(limit)
        chosen = _states(states) or []
        return await self._read(
            lambda c: job_rows.find(
                c, owner=owner, sandbox_id=sandbox_id, states=chosen, after=after, limit=limit
            )
        )

    async def mark_jobs_lost(self, sandbox_id: str) -> list[JobRecord]:
        """Ends what was running, with no status; returns it."""
        now = self._clock()
        return await self._write(lambda t: job_rows.mark_lost(t.connection, sandbox_id, now))

    # Tokens

    async def insert_token(self, record: TokenRecord, *, forget_before: float) -> TokenRecord:
        """Those that ended before that time are removed with it."""
        record, row = to_row(record)

        def work(transaction: Transaction) -> TokenRecord:
            token_rows.forget(transaction.connection, forget_before)
            token_rows.insert(transaction.connection, record, row)
            return record

        return await self._write(work)

    async def mark_token(self, id: str, column: str, at: float) -> None:
        await self._write(lambda t: token_rows.mark(t.connection, id, column, at))

    async def tokens(self) -> list[TokenRecord]:
        return await self._read(token_rows.everything)

    # Volumes

    async def insert_volume(self, record: VolumeRecord) -> VolumeRecord:
        """ConflictError for a name of this owner's."""
        record, row = to_row(record)
        await self._write(lambda t: volume_rows.insert(t.connection, record, row))
        return record

    async def set_volume_state(
        self, id: str, state: VolumeState, *, events: Sequence[NewEvent] = ()
    ) -> None:
        rows = event_rows.to_rows(events, self._clock())

        def work(transaction: Transaction) -> None:
            volume_rows.set_state(transaction.connection, id, state)
            append_all(transaction, rows)

        await self._write(work)

    async def remove_volume(self, id: str, *, events: Sequence[NewEvent] = ()) -> None:
        rows = event_rows.to_rows(events, self._clock())

        def work(transaction: Transaction) -> None:
            volume_rows.remove(transaction.connection, id)
            append_all(transaction, rows)

        await self._write(work)

    async def volumes(self) -> list[VolumeRecord]:
        return await self._read(volume_rows.everything)

    # Events

    async def append_events(self, events: Sequence[NewEvent]) -> list[int]:
        """All or none of them; their seqs, in order."""
        rows = event_rows.to_rows(events, self._clock())
        return list(await self._write(lambda t: append_all(t, rows)))

    def post_events(self, events: Sequence[NewEvent]) -> None:
        """Appends without waiting, many in one go. Call it on the loop's thread.

        In order with every other write. What can't be written, or is too much, is counted in
        `dropped_events`, and told by a `state.gap` event once there is room.
        """
        if self._closed:
            raise StateError("the state store is closed")
        rows = event_rows.to_rows(events, self._clock())
        if self._posted + len(self._posts) + len(rows) > MAX_POSTED:
            self._drop(len(rows))
            return
        if not self._posts:
            self._loop.call_soon(self._flush_posts)
        self._posts += rows

    async def events(
        self,
        after_seq: int = 0,
        *,
        sandbox_id: str | None = None,
        owner: str | None = None,
        kinds: Collection[str] = (),
        limit: int = 100,
    ) -> EventPage:
        """Events after a seq; `next` of the page is the `after_seq` of the following call."""
        _check_limit(limit)
        chosen = list(kinds)
        return await self._read(
            lambda c: event_rows.page(
                c, after_seq, sandbox_id=sandbox_id, owner=owner, kinds=chosen, limit=limit
            )
        )

    async def wait_for_events(self, after_seq: int) -> int:
        """The newest seq, as soon as it is another than `after_seq`. Wakes on commits only."""
        while self._newest == after_seq:
            if self._closed:
                raise StateError("the state store is closed")
            await self._news.wait()
        return self._newest

    async def statistics(self) -> Statistics:
        writer = self._writer

        def work(connection: sqlite3.Connection) -> Statistics:
            bounds = event_rows.page(connection, 0, sandbox_id=None, owner=None, kinds=(), limit=1)
            return Statistics(
                schema_version=connection.execute("PRAGMA user_version").fetchone()[0],
                sandboxes=_by_state(connection, "sandboxes"),
                jobs=_by_state(connection, "jobs"),
                events=connection.execute("SELECT count(*) FROM events").fetchone()[0],
                oldest_event=bounds.oldest,
                newest_event=bounds.newest,
                dropped_events=self._dropped,
                writes=writer.writes,
                transactions=writer.transactions,
                failed_syncs=writer.failed_syncs,
                database_bytes=_size(self.path),
                wal_bytes=_size(Path(f"{self.path}-wal")),
            )

        return await self._read(work)

    async def _write(self, work: Callable[[Transaction], T]) -> T:
        self._flush_posts()
        return await self._writer.submit(work)

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._reader.submit(work)

    def _flush_posts(self) -> None:
        if self._closed or not (self._posts or self._unreported):
            return
        rows, self._posts = self._posts, []
        count, gap = len(rows), self._unreported
        if gap:
            told = NewEvent(kind="state.gap", body={"reason": "not written", "events": gap})
            rows = [*event_rows.to_rows([told], self._clock()), *rows]
            self._unreported = 0
        self._posted += count

        def done(future: asyncio.Future[range]) -> None:
            self._posted -= count
            if future.cancelled() or future.exception() is not None:
                self._drop(count)
                self._unreported += gap

        self._writer.submit(lambda t: append_all(t, rows)).add_done_callback(done)

    def _drop(self, count: int) -> None:
        self._dropped += count
        self._unreported += count

    def _announce(self, seq: int) -> None:
        self._newest = seq
        news, self._news = self._news, asyncio.Event()
        news.set()


def _states(states: str | Collection[str] | None) -> list[str] | None:
    if states is None:
        return None
    return [states] if isinstance(states, str) else list(states)


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInputError(f"limit is {limit}; it goes from 1 to {MAX_PAGE}")


def _by_state(connection: sqlite3.Connection, table: str) -> dict[str, int]:
    return dict(connection.execute(f"SELECT state, count(*) FROM {table} GROUP BY state"))


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
