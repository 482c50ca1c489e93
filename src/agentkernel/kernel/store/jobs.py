"""SQL of jobs."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import Any

import msgspec

from agentkernel.errors import ConflictError, NotFoundError
from agentkernel.kernel.store import sandboxes
from agentkernel.kernel.store.records import (
    COLUMNS,
    JOB_CHANGES,
    JobPage,
    JobRecord,
    check_changes,
    from_row,
    to_row,
)

_FIELDS = JobRecord.__struct_fields__
_COLUMNS = COLUMNS[JobRecord]
_QUALIFIED = ", ".join(f"j.{name}" for name in _FIELDS)
MAX_OVER = 1000
"""Of each sandbox, so many jobs that are over are kept: what runs inside starts some, too."""
# Whatever tells how a session ended is not among them.
_FORGET = (
    "DELETE FROM jobs WHERE seq IN (SELECT seq FROM jobs WHERE sandbox_id = ? AND"
    " state IN ('ended', 'lost') AND id NOT IN (SELECT job_id FROM agent_sessions)"
    " ORDER BY seq DESC LIMIT -1 OFFSET ?)"
)
_INSERT = f"INSERT INTO jobs ({_COLUMNS}) VALUES ({', '.join(f':{name}' for name in _FIELDS)})"


def insert(connection: sqlite3.Connection, record: JobRecord, row: dict[str, Any]) -> JobRecord:
    """`record` and `row` are what `to_row` gave. The oldest that are over make room."""
    try:
        connection.execute(_INSERT, row)
    except sqlite3.IntegrityError:
        sandboxes.exists(connection, record.sandbox_id)
        raise ConflictError(f"there is a job {record.id} already") from None
    connection.execute(_FORGET, (record.sandbox_id, MAX_OVER))
    return record


def update(
    connection: sqlite3.Connection,
    id: str,
    expected: Collection[str] | None,
    changes: dict[str, Any],
) -> JobRecord:
    old = get(connection, id)
    if expected is not None and old.state not in expected:
        raise ConflictError(
            f"job {id} is {old.state}, not {' or '.join(sorted(expected))}", state=old.state
        )
    check_changes(changes, JOB_CHANGES)
    record, row = to_row(msgspec.structs.replace(old, **changes), only=changes)
    if changes:
        connection.execute(
            f"UPDATE jobs SET {', '.join(f'{name} = :{name}' for name in changes)} WHERE id = :id",
            row,
        )
    return record


def get(connection: sqlite3.Connection, id: str, owner: str | None = None) -> JobRecord:
    """One of another owner's sandbox is not there, in the same words as one that never was."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM jobs WHERE id = ?", (id,)).fetchone()
    record = None if row is None else from_row(JobRecord, row)
    if record is not None and owner is not None:
        try:
            sandboxes.get(connection, record.sandbox_id, owner)
        except NotFoundError:
            record = None
    if record is None:
        raise NotFoundError(f"no job {id}", hint="list the jobs of the sandbox")
    return record


def of_sandbox(
    connection: sqlite3.Connection, sandbox_id: str, states: Collection[str]
) -> list[JobRecord]:
    where = f" AND state IN ({', '.join('?' * len(states))})" if states else ""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM jobs WHERE sandbox_id = ?{where} ORDER BY seq",
        [sandbox_id, *states],
    ).fetchall()
    return [from_row(JobRecord, row) for row in rows]


def find(
    connection: sqlite3.Connection,
    *,
    owner: str | None,
    sandbox_id: str | None,
    states: Collection[str],
    after: int | None,
    limit: int,
) -> JobPage:
    """Of all sandboxes, in the order of insertion."""
    where = ["1"]
    values: list[Any] = []
    for clause, value in (
        ("s.owner = ?", owner), ("j.sandbox_id = ?", sandbox_id), ("j.seq > ?", after),
    ):  # fmt: skip
        if value is not None:
            where.append(clause)
            values.append(value)
    if states:
        where.append(f"j.state IN ({', '.join('?' * len(states))})")
        values += states
    rows = connection.execute(
        f"SELECT j.seq, {_QUALIFIED} FROM jobs j CROSS JOIN sandboxes s ON s.id = j.sandbox_id"
        f" WHERE {' AND '.join(where)} ORDER BY j.seq LIMIT ?",
        [*values, limit + 1],
    ).fetchall()
    more = len(rows) > limit
    rows = rows[:limit]
    return JobPage([from_row(JobRecord, row[1:]) for row in rows], rows[-1][0] if more else None)


def mark_lost(connection: sqlite3.Connection, sandbox_id: str, now: float) -> list[JobRecord]:
    """The jobs that were running."""
    running = of_sandbox(connection, sandbox_id, ["running"])
    return [update(connection, job.id, None, {"state": "lost", "ended_at": now}) for job in running]
