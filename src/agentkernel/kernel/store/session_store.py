"""The part of the store that knows agents' sessions."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar, Unpack

from agentkernel.kernel.store import events as event_rows
from agentkernel.kernel.store import sessions as session_rows
from agentkernel.kernel.store.records import (
    NewEvent,
    SessionChanges,
    SessionRecord,
    SessionRows,
    to_row,
)
from agentkernel.kernel.store.writer import Transaction, append_all

T = TypeVar("T")


class SessionStore:
    """See the module. `events` are committed together with the change, or not at all."""

    _clock: Callable[[], float]

    async def insert_session(self, record: SessionRecord) -> SessionRecord:
        record, row = to_row(record)
        await self._write(lambda t: session_rows.insert(t.connection, record, row))
        return record

    async def get_session(self, id: str, owner: str | None = None) -> SessionRecord:
        """NotFoundError, also for another owner's."""
        return await self._read(lambda c: session_rows.get(c, id, owner))

    async def update_session(
        self,
        id: str,
        *,
        expect_state: Collection[str] | None = None,
        events: Sequence[NewEvent] = (),
        **fields: Unpack[SessionChanges],
    ) -> SessionRecord:
        """The record as it is now. ConflictError when its state is not an expected one."""
        rows = event_rows.to_rows(events, self._clock())

        def work(transaction: Transaction) -> SessionRecord:
            record = session_rows.update(transaction.connection, id, expect_state, {**fields})
            append_all(transaction, rows)
            return record

        return await self._write(work)

    async def remove_session(self, id: str, *, events: Sequence[NewEvent] = ()) -> None:
        rows = event_rows.to_rows(events, self._clock())

        def work(transaction: Transaction) -> None:
            session_rows.remove(transaction.connection, id)
            append_all(transaction, rows)

        await self._write(work)

    async def find_sessions(
        self,
        owner: str | None = None,
        *,
        agent: str | None = None,
        project: str | None = None,
        sandbox_id: str | None = None,
        states: Collection[str] = (),
        after: int | None = None,
        limit: int = 100,
    ) -> SessionRows:
        """A page, the newest first."""
        chosen = list(states)
        return await self._read(
            lambda c: session_rows.find(
                c,
                owner=owner,
                agent=agent,
                project=project,
                sandbox_id=sandbox_id,
                states=chosen,
                after=after,
                limit=limit,
            )
        )

    async def count_sessions(self, states: Collection[str]) -> int:
        return await self._read(lambda c: session_rows.count(c, states))

    async def _write(self, work: Callable[[Transaction], T]) -> T:
        raise NotImplementedError

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        raise NotImplementedError
