"""The thread that writes: group commit, syncing of the log, pruning of events."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from agentkernel import faults
from agentkernel.kernel.store import events, schema
from agentkernel.kernel.store.failures import translate
from agentkernel.kernel.store.records import NewEvent
from agentkernel.kernel.store.workers import Call, Worker

# More events than can be committed between two syncs. What a power cut took away may have been
# seen by somebody, so its numbers are not given out again.
SEQ_LEAP = 1_000_000


class Transaction:
    """What a write works with. `newest_event` is set by whoever appends events."""

    __slots__ = ("connection", "newest_event")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.newest_event = 0


def append_all(transaction: Transaction, rows: Sequence[events.Row]) -> range:
    """Events as part of a write; their seqs."""
    seqs = events.append(transaction.connection, rows)
    if seqs:
        transaction.newest_event = seqs[-1]
    return seqs


class Writer(Worker[Transaction]):
    """See the module. `on_events` is called on the loop with each newly committed seq."""

    def __init__(
        self,
        path: Path,
        retention: events.Retention,
        *,
        clock: Callable[[], float],
        sync_seconds: float,
        on_events: Callable[[int], None],
    ) -> None:
        super().__init__("agentkernel-state-writer", path)
        self.retention = retention
        self.newest_event = 0
        self.writes = 0
        self.transactions = 0
        self.failed_syncs = 0
        self._clock = clock
        self._sync_seconds = sync_seconds
        self._sync_due: float | None = None
        self._on_events = on_events
        self._announced = 0
        self._connection: sqlite3.Connection | None = None
        self._log_fd = -1

    def _open(self) -> None:
        schema.prepare(self.path)
        self._connection = connection = schema.connect(self.path, "rw")
        # Reads every page of events: what is damaged shows before anything is written.
        self.retention.load(connection)
        connection.execute("BEGIN IMMEDIATE")
        self._begin_session(connection)
        connection.execute("COMMIT")
        self.newest_event = self._announced = events.newest(connection)
        self._log_fd = os.open(f"{self.path}-wal", os.O_RDONLY | os.O_CLOEXEC)
        # From here on a power cut finds the session open.
        os.fsync(self._log_fd)
        self._prune(connection)

    def _begin_session(self, connection: sqlite3.Connection) -> None:
        """Notes that we run; if the machine stopped under the last one, marks the gap."""
        meta = dict(connection.execute("SELECT key, value FROM meta"))
        boot = _boot_id()
        if meta.get("clean") == "0" and meta.get("boot_id") != boot:
            leap = events.newest(connection) + SEQ_LEAP
            connection.execute("DELETE FROM sqlite_sequence WHERE name = 'events'")
            connection.execute("INSERT INTO sqlite_sequence VALUES ('events', ?)", (leap,))
            body = {"reason": "the machine stopped", "window_seconds": self._sync_seconds}
            gap = NewEvent(kind="state.gap", body=body)
            events.append(connection, events.to_rows([gap], self._clock()))
            self.retention.load(connection)
        connection.execute(
            "INSERT OR REPLACE INTO meta VALUES ('clean', '0'), ('boot_id', ?)", (boot,)
        )

    def _serve(self, calls: Sequence[Call[Transaction]]) -> None:
        assert self._connection is not None
        if not self._commit(self._connection, calls):
            # Somebody's failure undid everybody's work: each for itself, so that it stays theirs.
            for call in calls:
                self._commit(self._connection, [call])
        if self._sync_due is None:
            self._sync_due = time.monotonic() + self._sync_seconds

    def _commit(self, connection: sqlite3.Connection, calls: Sequence[Call[Transaction]]) -> bool:
        """One transaction. False, with nothing written: to be done again one by one."""
        call = calls[0]
        try:
            connection.execute("BEGIN IMMEDIATE")
            transaction = Transaction(connection)
            for call in calls:
                before = connection.total_changes
                try:
                    call.result = call.work(transaction)
                except Exception as exc:
                    if connection.total_changes != before or not connection.in_transaction:
                        raise
                    # Refused before it had written anything: the others go on.
                    call.error = translate(exc, self.path)
            faults.point("store.commit")
            connection.execute("COMMIT")
        except Exception as exc:
            # Some errors make SQLite roll back by itself.
            if connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
            if len(calls) > 1:
                for call in calls:
                    call.result = call.error = None
                return False
            call.error = translate(exc, self.path)
            return True
        self.transactions += 1
        self.writes += len(calls)
        self.newest_event = transaction.newest_event or self.newest_event
        return True

    def _settle(self, calls: Sequence[Call[Transaction]]) -> None:
        if self.newest_event != self._announced:
            self._announced = self.newest_event
            self._on_events(self.newest_event)
        super()._settle(calls)

    def _patience(self) -> float | None:
        return None if self._sync_due is None else max(0.0, self._sync_due - time.monotonic())

    def _rest(self) -> None:
        assert self._connection is not None
        if self._sync_due is not None and time.monotonic() >= self._sync_due:
            self._sync_due = None
            try:
                os.fsync(self._log_fd)
            except OSError:
                self.failed_syncs += 1
        self._prune(self._connection)

    def _prune(self, connection: sqlite3.Connection) -> None:
        while self.retention.due(self.newest_event, self._clock()):
            connection.execute("BEGIN IMMEDIATE")
            try:
                count = self.retention.prune(connection, self._clock())
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            self.retention.pruned(count)
            if not count:
                break

    def _shut(self) -> None:
        if self._log_fd >= 0:
            os.close(self._log_fd)
            self._log_fd = -1
        if self._connection is not None:
            connection, self._connection = self._connection, None
            try:
                connection.execute("UPDATE meta SET value = '1' WHERE key = 'clean'")
            finally:
                # As the last connection: brings the log into the database, syncs and removes it.
                connection.close()


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as handle:
            return handle.read().strip()
    except OSError:
        return ""
