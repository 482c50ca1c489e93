"""SQL of sandboxes: one row each, labels to search by, keys that make a create repeatable."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from agentkernel.errors import ConflictError, NotFoundError
from agentkernel.kernel.store.records import (
    COLUMNS,
    SANDBOX_CHANGES,
    Idempotency,
    Inserted,
    Overseer,
    SandboxPage,
    SandboxRecord,
    check_changes,
    from_row,
    to_row,
)

KEY_SECONDS = 24 * 3600.0

_FIELDS = SandboxRecord.__struct_fields__
_COLUMNS = COLUMNS[SandboxRecord]
_QUALIFIED = ", ".join(f"s.{name}" for name in _FIELDS)
_INSERT = f"INSERT INTO sandboxes ({_COLUMNS}) VALUES ({', '.join(f':{name}' for name in _FIELDS)})"


def insert(
    connection: sqlite3.Connection,
    record: SandboxRecord,
    row: dict[str, Any],
    idempotency: Idempotency | None,
    now: float,
) -> Inserted:
    """`record` and `row` are what `to_row` gave."""
    if idempotency is not None:
        earlier = _earlier(connection, record.owner, idempotency, now)
        if earlier is not None:
            return Inserted(earlier, created=False)
    try:
        seq = connection.execute(_INSERT, row).lastrowid or 0
    except sqlite3.IntegrityError:
        _check_name_is_free(connection, record)
        raise ConflictError(f"there is a sandbox {record.id} already") from None
    _write_labels(connection, seq, record.labels)
    if idempotency is not None:
        connection.execute(
            "INSERT OR REPLACE INTO idempotency_keys (owner, key, fingerprint, expires_at, sandbox)"
            " VALUES (?, ?, ?, ?, ?)",
            (record.owner, idempotency.key, idempotency.fingerprint, now + KEY_SECONDS, seq),
        )
    return Inserted(record, created=True)


def update(
    connection: sqlite3.Connection,
    id: str,
    expected: Collection[str] | None,
    changes: dict[str, Any],
    now: float,
) -> SandboxRecord:
    seq, old = expect(connection, id, expected)
    check_changes(changes, SANDBOX_CHANGES)
    # A clock that was set back must not make a row older than it was.
    record = msgspec.structs.replace(old, **changes, updated_at=max(now, old.updated_at))
    record, row = to_row(record, only=changes)
    if record.name != old.name:
        _check_name_is_free(connection, record)
    names = [*changes, "updated_at"]
    connection.execute(
        f"UPDATE sandboxes SET {', '.join(f'{name} = :{name}' for name in names)} WHERE id = :id",
        row,
    )
    if record.labels != old.labels:
        _delete_labels(connection, seq, old.labels)
        _write_labels(connection, seq, record.labels)
    return record


def remove(connection: sqlite3.Connection, seq: int, record: SandboxRecord) -> None:
    """What `expect` found. Labels, jobs and keys go with it."""
    connection.execute("DELETE FROM sandboxes WHERE seq = ?", (seq,))
    _delete_labels(connection, seq, record.labels)


def get(connection: sqlite3.Connection, id_or_name: str, owner: str | None) -> SandboxRecord:
    """By id first, which is all an Overseer has of others' sandboxes. Without an owner, a name
    that several owners use is refused."""
    found = _row(connection, id_or_name)
    everyone = owner is None or isinstance(owner, Overseer)
    if found is not None and (everyone or found[1].owner == owner):
        return found[1]
    where, values = "name = ?", [id_or_name]
    if owner is not None:
        where, values = "owner = ? AND name = ?", [owner, id_or_name]
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM sandboxes WHERE {where} LIMIT 2", values
    ).fetchall()
    if not rows:
        raise _missing(id_or_name)
    if len(rows) > 1:
        raise ConflictError(
            f"several owners have a sandbox named {id_or_name}", hint="use the sandbox's id"
        )
    return from_row(SandboxRecord, rows[0])


def find(
    connection: sqlite3.Connection,
    *,
    owner: str | None,
    labels: Mapping[str, str],
    states: Collection[str],
    after: int | None,
    limit: int,
    newest_first: bool,
) -> SandboxPage:
    source, where = "sandboxes s", ["1"]
    values: list[Any] = []
    wanted = list(labels.items())
    if wanted:
        # One label leads, in the order of pages; CROSS keeps SQLite from turning it round.
        source = "sandbox_labels l CROSS JOIN sandboxes s ON s.seq = l.sandbox"
        where.append("l.key = ? AND l.value = ?")
        values += wanted.pop()
    order = "l.sandbox" if labels else "s.seq"
    for label in wanted:
        where.append(
            "EXISTS (SELECT 1 FROM sandbox_labels WHERE key = ? AND value = ? AND sandbox = s.seq)"
        )
        values += label
    if owner is not None:
        where.append("s.owner = ?")
        values.append(owner)
    if states:
        where.append(f"s.state IN ({', '.join('?' * len(states))})")
        values += states
    if after is not None:
        where.append(f"{order} {'<' if newest_first else '>'} ?")
        values.append(after)
    rows = connection.execute(
        f"SELECT s.seq, {_QUALIFIED} FROM {source} WHERE {' AND '.join(where)}"
        f" ORDER BY {order} {'DESC' if newest_first else 'ASC'} LIMIT ?",
        [*values, limit + 1],
    ).fetchall()
    more = len(rows) > limit
    rows = rows[:limit]
    records = [from_row(SandboxRecord, row[1:]) for row in rows]
    return SandboxPage(records, rows[-1][0] if more else None)


def everything(connection: sqlite3.Connection) -> list[SandboxRecord]:
    rows = connection.execute(f"SELECT {_COLUMNS} FROM sandboxes ORDER BY seq").fetchall()
    return [from_row(SandboxRecord, row) for row in rows]


def exists(connection: sqlite3.Connection, id: str) -> None:
    """Raises NotFoundError unless there is that sandbox."""
    if connection.execute("SELECT 1 FROM sandboxes WHERE id = ?", (id,)).fetchone() is None:
        raise _missing(id)


def _earlier(
    connection: sqlite3.Connection, owner: str, idempotency: Idempotency, now: float
) -> SandboxRecord | None:
    """The sandbox that this key made."""
    connection.execute("DELETE FROM idempotency_keys WHERE expires_at <= ?", (now,))
    row = connection.execute(
        f"SELECT k.fingerprint, {_QUALIFIED} FROM idempotency_keys k"
        " JOIN sandboxes s ON s.seq = k.sandbox WHERE k.owner = ? AND k.key = ?",
        (owner, idempotency.key),
    ).fetchone()
    if row is None:
        return None
    if row[0] != idempotency.fingerprint:
        raise ConflictError(
            f"the idempotency key {idempotency.key!r} was used for another request",
            hint="repeat a request unchanged, or give a new one a key of its own",
        )
    return from_row(SandboxRecord, row[1:])


def expect(
    connection: sqlite3.Connection, id: str, expected: Collection[str] | None
) -> tuple[int, SandboxRecord]:
    """The row in one of the expected states, with its seq."""
    found = _row(connection, id)
    if found is None:
        raise _missing(id)
    state = found[1].state
    if expected is not None and state not in expected:
        raise ConflictError(
            f"sandbox {found[1].name or id} is {state}, not {' or '.join(sorted(expected))}",
            state=state,
        )
    return found


def _row(connection: sqlite3.Connection, id: str) -> tuple[int, SandboxRecord] | None:
    row = connection.execute(
        f"SELECT seq, {_COLUMNS} FROM sandboxes WHERE id = ?", (id,)
    ).fetchone()
    return None if row is None else (row[0], from_row(SandboxRecord, row[1:]))


def _check_name_is_free(connection: sqlite3.Connection, record: SandboxRecord) -> None:
    if record.name is None:
        return
    row = connection.execute(
        "SELECT id FROM sandboxes WHERE owner = ? AND name = ?", (record.owner, record.name)
    ).fetchone()
    if row is not None:
        raise ConflictError(
            f"there is a sandbox named {record.name} already",
            hint="choose another name, or remove that sandbox first",
            id=row[0],
        )


def _write_labels(connection: sqlite3.Connection, seq: int, labels: Mapping[str, str]) -> None:
    if labels:
        connection.execute(
            "INSERT INTO sandbox_labels (key, value, sandbox) VALUES "
            + ", ".join(["(?, ?, ?)"] * len(labels)),
            [value for label in labels.items() for value in (*label, seq)],
        )


def _delete_labels(connection: sqlite3.Connection, seq: int, labels: Mapping[str, str]) -> None:
    for label in labels.items():
        connection.execute(
            "DELETE FROM sandbox_labels WHERE key = ? AND value = ? AND sandbox = ?", (*label, seq)
        )


def _missing(id_or_name: str) -> NotFoundError:
    return NotFoundError(f"no sandbox {id_or_name}", hint="list the sandboxes there are")
