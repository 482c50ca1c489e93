"""SQL of volumes."""

from __future__ import annotations

import sqlite3
from typing import Any

from agentkernel.errors import ConflictError
from agentkernel.kernel.store.records import COLUMNS, VolumeRecord, VolumeState, from_row

_FIELDS = VolumeRecord.__struct_fields__
_COLUMNS = COLUMNS[VolumeRecord]
_INSERT = f"INSERT INTO volumes ({_COLUMNS}) VALUES ({', '.join(f':{name}' for name in _FIELDS)})"


def insert(connection: sqlite3.Connection, record: VolumeRecord, row: dict[str, Any]) -> None:
    """`record` and `row` are what `to_row` gave."""
    try:
        connection.execute(_INSERT, row)
    except sqlite3.IntegrityError:
        raise ConflictError(f"there is a volume named {record.name} already") from None


def set_state(connection: sqlite3.Connection, id: str, state: VolumeState) -> None:
    connection.execute("UPDATE volumes SET state = ? WHERE id = ?", (state, id))


def remove(connection: sqlite3.Connection, id: str) -> None:
    connection.execute("DELETE FROM volumes WHERE id = ?", (id,))


def everything(connection: sqlite3.Connection) -> list[VolumeRecord]:
    rows = connection.execute(f"SELECT {_COLUMNS} FROM volumes ORDER BY created_at, id").fetchall()
    return [from_row(VolumeRecord, row) for row in rows]
