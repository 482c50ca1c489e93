"""SQL of agents' sessions."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import Any

import msgspec

from agentkernel.errors import ConflictError, NotFoundError
from agentkernel.kernel.store.records import (
    COLUMNS,
    SESSION_CHANGES,
    Overseer,
    SessionRecord,
    SessionRows,
    check_changes,
    from_row,
    to_row,
)

_FIELDS = SessionRecord.__struct_fields__
_COLUMNS = COLUMNS[SessionRecord]
_INSERT = (
    f"INSERT INTO agent_sessions ({_COLUMNS}) VALUES ({', '.join(f':{name}' for name in _FIELDS)})"
)


def insert(connection: sqlite3.Connection, record: SessionRecord, row: dict[str, Any]) -> None:
    """`record` and `row` are what `to_row` gave."""
    try:
        connection.execute(_INSERT, row)
    except sqlite3.IntegrityError:
        raise ConflictError(f"there is a session {record.id} already") from None


def get(connection: sqlite3.Connection, id: str, owner: str | None = None) -> SessionRecord:
    """Another owner's is not there, in the same words as one that never was."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM agent_sessions WHERE id = ?", (id,)
    ).fetchone()
    record = None if row is None else from_row(SessionRecord, row)
    everyone = owner is None or isinstance(owner, Overseer)
    if record is None or not (everyone or record.owner == owner):
        raise NotFoundError(
            f"no session {id[:64]!a}", hint="`agentkernel agent sessions` shows all"
        )
    return record


def update(
    connection: sqlite3.Connection,
    id: str,
    expected: Collection[str] | None,
    changes: dict[str, Any],
) -> SessionRecord:
    old = get(connection, id)
    if expected is not None and old.state not in expected:
        raise ConflictError(f"the session {id} is {old.state}", state=old.state)
    check_changes(changes, SESSION_CHANGES)
    record, row = to_row(msgspec.structs.replace(old, **changes), only=changes)
    if changes:
        connection.execute(
            f"UPDATE agent_sessions SET {', '.join(f'{name} = :{name}' for name in changes)}"
            " WHERE id = :id",
            row,
        )
    return record


def remove(connection: sqlite3.Connection, id: str) -> None:
    connection.execute("DELETE FROM agent_sessions WHERE id = ?", (id,))


def find(
    connection: sqlite3.Connection,
    *,
    owner: str | None,
    agent: str | None,
    project: str | None,
    sandbox_id: str | None,
    states: Collection[str],
    after: int | None,
    limit: int,
) -> SessionRows:
    """The newest first."""
    where = ["1"]
    values: list[Any] = []
    for clause, value in (
        ("owner = ?", owner), ("agent = ?", agent), ("project = ?", project),
        ("sandbox_id = ?", sandbox_id), ("seq < ?", after),
    ):  # fmt: skip
        if value is not None:
            where.append(clause)
            values.append(value)
    if states:
        where.append(f"state IN ({', '.join('?' * len(states))})")
        values += states
    rows = connection.execute(
        f"SELECT seq, {_COLUMNS} FROM agent_sessions WHERE {' AND '.join(where)}"
        " ORDER BY seq DESC LIMIT ?",
        [*values, limit + 1],
    ).fetchall()
    more = len(rows) > limit
    rows = rows[:limit]
    records = [from_row(SessionRecord, row[1:]) for row in rows]
    return SessionRows(records, rows[-1][0] if more else None)


def count(connection: sqlite3.Connection, states: Collection[str]) -> int:
    row = connection.execute(
        f"SELECT count(*) FROM agent_sessions WHERE state IN ({', '.join('?' * len(states))})",
        [*states],
    ).fetchone()
    return int(row[0])
