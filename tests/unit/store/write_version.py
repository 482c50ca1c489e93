"""Writes versions/N.sql, once, when version N is about to be released.

PYTHONPATH=src python tests/unit/store/write_version.py
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from agentkernel.kernel.store import (
    Idempotency,
    JobRecord,
    NewEvent,
    SandboxRecord,
    SessionRecord,
    Store,
    TokenRecord,
    VolumeRecord,
    schema,
)

NOW = 1_700_000_000.0


async def fill(path: Path) -> None:
    async with await Store.open(path, clock=lambda: NOW) as store:
        first = SandboxRecord(
            id="a" * 20,
            name="web",
            owner="uid:1000",
            backend="native",
            state="running",
            blueprint={"image": "host"},
            env={"A": "b"},
            labels={"team": "a"},
            created_at=NOW,
            updated_at=NOW,
            handle={"pid": 17},
        )
        second = SandboxRecord(
            id="b" * 20,
            owner="other",
            backend="native",
            state="error",
            blueprint={},
            ephemeral=True,
            created_at=NOW,
            updated_at=NOW,
            error="it broke",
        )
        await store.insert_sandbox(first, Idempotency(key="k", fingerprint="f"))
        await store.insert_sandbox(second)
        job = JobRecord(id="c" * 20, sandbox_id=first.id, argv=["sleep", "1"], created_at=NOW)
        await store.insert_job(job)
        token = TokenRecord(
            id="d" * 20,
            name="ci",
            owner="token:ci",
            scopes=["read"],
            sha256="0" * 64,
            created_at=NOW,
        )
        await store.insert_token(token, forget_before=0)
        volume = VolumeRecord(
            id="e" * 20,
            name="cache",
            owner="uid:1000",
            state="ready",
            exclusive=True,
            quota_bytes=1 << 30,
            created_at=NOW,
        )
        await store.insert_volume(volume)
        session = SessionRecord(
            id="f" * 20,
            owner="uid:1000",
            agent="claude",
            version="2.1.0",
            mode="headless",
            state="ended",
            sandbox_id=first.id,
            own_sandbox=True,
            job_id="c" * 20,
            task="fix it",
            project="/home/me/app",
            created_at=NOW,
            exit_code=0,
            usage={"turns": 3},
            request={"agent": "claude"},
        )
        await store.insert_session(session)
        await store.append_events([NewEvent(kind="a", sandbox_id=first.id), NewEvent(kind="b")])


def main() -> None:
    number = len(schema.MIGRATIONS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "state.db")
        asyncio.run(fill(path))
        with closing(sqlite3.connect(path)) as connection:
            lines = [
                *connection.iterdump(),
                f"PRAGMA application_id = {schema.APPLICATION_ID};",
                f"PRAGMA user_version = {number};",
            ]
    target = Path(__file__).parent / "versions" / f"{number}.sql"
    target.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
