"""SQL of events: append, read with gaps told, keep a bounded number."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from agentkernel.kernel.store.records import (
    COLUMNS,
    EventPage,
    EventRecord,
    NewEvent,
    from_row,
    to_row,
)

PRUNE_ROWS = 1000
AGE_CHECK_SECONDS = 60.0
PRUNED = "events_pruned_through"

_COLUMNS = COLUMNS[EventRecord]
# Many rows in one statement: SQLite's calls give up the interpreter's lock, and a busy loop takes
# its time to give it back.
_CHUNKS = (64, 8, 1)
_VALUES = "(?, ?, coalesce(?, (SELECT owner FROM sandboxes WHERE id = ?)), ?, ?)"
_INSERTS = {
    size: "INSERT INTO events (at, sandbox_id, owner, kind, body) VALUES "
    + ", ".join([_VALUES] * size)
    for size in _CHUNKS
}

Row = tuple[Any, ...]


def to_rows(new: Iterable[NewEvent], now: float) -> list[Row]:
    """Validated rows for `append`."""
    rows = []
    for event in new:
        event, row = to_row(event)
        at = now if event.at is None else event.at
        sandbox = event.sandbox_id
        rows.append((at, sandbox, event.owner, sandbox, event.kind, row["body"]))
    return rows


def append(connection: sqlite3.Connection, rows: Sequence[Row]) -> range:
    """The seqs that the rows got."""
    last = done = 0
    for size in _CHUNKS:
        while len(rows) - done >= size:
            chunk = rows[done : done + size]
            values = [value for row in chunk for value in row]
            last = connection.execute(_INSERTS[size], values).lastrowid or 0
            done += size
    # Nobody else writes, so the numbers of one transaction follow one another.
    return range(last - done + 1, last + 1)


def newest(connection: sqlite3.Connection) -> int:
    """The highest seq that was ever given out."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
    return row[0] if row else 0


def page(
    connection: sqlite3.Connection,
    after: int,
    *,
    sandbox_id: str | None,
    owner: str | None,
    kinds: Sequence[str],
    limit: int,
) -> EventPage:
    connection.execute("BEGIN")  # one view for bounds and rows; the reader ends it
    last = newest(connection)
    pruned = _pruned_through(connection)
    where = ["seq > ?"]
    values: list[Any] = [after]
    if sandbox_id is not None:
        where.append("sandbox_id = ?")
        values.append(sandbox_id)
    if owner is not None:
        where.append("owner = ?")
        values.append(owner)
    if kinds:
        where.append(f"kind IN ({', '.join('?' * len(kinds))})")
        values.extend(kinds)
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM events WHERE {' AND '.join(where)} ORDER BY seq LIMIT ?",
        [*values, limit],
    ).fetchall()
    records = [from_row(EventRecord, row) for row in rows]
    return EventPage(
        records=records,
        next=records[-1].seq if len(records) == limit else last,
        oldest=pruned + 1,
        newest=last,
        gap=after < pruned or after > last,
    )


def _pruned_through(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (PRUNED,)).fetchone()
    return int(row[0]) if row else 0


class Retention:
    """How many events are kept, and for how long. Belongs to the writer's thread.

    Events go from the front only, so those that are kept have no holes.
    """

    def __init__(self, max_events: int, max_age: float) -> None:
        self.max_events = max_events
        self.max_age = max_age
        self._count = 0
        self._counted_at = 0
        self._next_age_check = 0.0

    def load(self, connection: sqlite3.Connection) -> None:
        self._count = connection.execute("SELECT count(*) FROM events").fetchone()[0]
        self._counted_at = newest(connection)

    def due(self, last: int, now: float) -> bool:
        self._count += last - self._counted_at
        self._counted_at = last
        # Some slack, so that the common append prunes nothing.
        slack = min(PRUNE_ROWS, self.max_events // 10)
        return self._count > self.max_events + slack or now >= self._next_age_check

    def prune(self, connection: sqlite3.Connection, now: float) -> int:
        """Deletes one batch from the front; how many."""
        front = connection.execute(
            "SELECT seq, at FROM events ORDER BY seq LIMIT ?", (PRUNE_ROWS,)
        ).fetchall()
        surplus = self._count - self.max_events
        count = 0
        for _, at in front:
            if count >= surplus and at >= now - self.max_age:
                break
            count += 1
        if count < PRUNE_ROWS:
            self._next_age_check = now + AGE_CHECK_SECONDS
        if count:
            through = front[count - 1][0]
            connection.execute("DELETE FROM events WHERE seq <= ?", (through,))
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (PRUNED, str(through)))
        return count

    def pruned(self, count: int) -> None:
        """What `prune` deleted is committed."""
        self._count -= count
