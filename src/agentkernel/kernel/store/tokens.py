"""SQL of tokens."""

from __future__ import annotations

import sqlite3
from typing import Any

from agentkernel.errors import ConflictError
from agentkernel.kernel.store.records import COLUMNS, TokenRecord, from_row

_FIELDS = TokenRecord.__struct_fields__
_COLUMNS = COLUMNS[TokenRecord]
_INSERT = f"INSERT INTO tokens ({_COLUMNS}) VALUES ({', '.join(f':{name}' for name in _FIELDS)})"


def insert(connection: sqlite3.Connection, record: TokenRecord, row: dict[str, Any]) -> None:
    """`record` and `row` are what `to_row` gave."""
    try:
        connection.execute(_INSERT, row)
    except sqlite3.IntegrityError:
        raise ConflictError(f"there is a token {record.id} already") from None


def mark(connection: sqlite3.Connection, id: str, column: str, at: float) -> None:
    """Sets `last_used_at` or `revoked_at`."""
    assert column in ("last_used_at", "revoked_at")
    connection.execute(f"UPDATE tokens SET {column} = ? WHERE id = ?", (at, id))


def forget(connection: sqlite3.Connection, before: float) -> None:
    """Removes those that ended, by either way, before a time."""
    connection.execute("DELETE FROM tokens WHERE min(ifnull(revoked_at, 9e99), "
                       "ifnull(expires_at, 9e99)) < ?", (before,))  # fmt: skip


def everything(connection: sqlite3.Connection) -> list[TokenRecord]:
    rows = connection.execute(f"SELECT {_COLUMNS} FROM tokens ORDER BY created_at, id").fetchall()
    return [from_row(TokenRecord, row) for row in rows]
