"""The file: made whole, migrated with a copy kept, refused untouched."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from agentkernel.errors import AgentKernelError, StateCorruptError, StateError, StateTooNewError
from agentkernel.kernel.store import Idempotency, NewEvent, Store, schema

from .making import OWNER, Clock, execute, job, numbered, sandbox

VERSIONS = Path(__file__).parent / "versions"
CURRENT = len(schema.MIGRATIONS)


def digests(folder: Path) -> dict[str, str]:
    """All files but SQLite's index of the log, which is memory, not state."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if not path.name.endswith("-shm") and path.stat().st_size
    }


def described(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(
            "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name"
        ).fetchall()


def load_version(number: int, path: Path) -> None:
    """A database as that version of agentkernel left it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript((VERSIONS / f"{number}.sql").read_text())


def add_column(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE jobs ADD COLUMN note TEXT")


def rebuild(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE meta2 (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT")
    connection.execute("INSERT INTO meta2 SELECT * FROM meta")
    connection.execute("DROP TABLE meta")
    connection.execute("ALTER TABLE meta2 RENAME TO meta")


def fail_late(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM sandboxes")
    connection.execute("SELECT * FROM nowhere")


def orphan(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM sandboxes")


async def filled(path: Path) -> list[str]:
    """Ids of the sandboxes in a store that was closed in order."""
    async with await Store.open(path) as store:
        records = [sandbox(f"n{n}", labels={"n": str(n)}) for n in range(3)]
        for record in records:
            await store.insert_sandbox(record)
            await store.insert_job(job(record.id))
        await store.append_events(numbered(200))
        return [record.id for record in records]


async def crashed(path: Path) -> list[str]:
    """The same, with everything still in the log, as after kill -9."""
    origin = path.parent / "origin"
    origin.mkdir()
    store = await Store.open(origin / "state.db")
    try:
        record = (await store.insert_sandbox(sandbox())).record
        for name in ("state.db", "state.db-wal"):
            shutil.copy(origin / name, path.with_name(name))
    finally:
        await store.close()
        shutil.rmtree(origin)
    assert path.with_name("state.db-wal").stat().st_size
    return [record.id]


def test_every_version_has_its_file() -> None:
    names = {path.name for path in VERSIONS.iterdir()}
    assert names == {f"{number}.sql" for number in range(1, CURRENT + 1)}


@pytest.mark.parametrize("number", range(1, CURRENT + 1))
async def test_every_version_becomes_the_current_one(
    number: int, path: Path, tmp_path: Path
) -> None:
    load_version(number, path)
    fresh = tmp_path / "fresh.db"
    schema.prepare(fresh)
    async with await Store.open(path, clock=Clock(1_700_000_100.0)) as store:
        first, second = await store.all_sandboxes()
        assert (first.name, first.owner, first.state) == ("web", OWNER, "running")
        assert (first.handle, first.env, first.labels) == (
            {"pid": 17},
            {"A": "b"},
            {"team": "a"},
        )
        assert (second.name, second.error, second.ephemeral) == (None, "it broke", True)
        assert [one.argv for one in await store.jobs_of(first.id)] == [["sleep", "1"]]
        page = await store.events()
        assert [(event.seq, event.kind) for event in page.records] == [(1, "a"), (2, "b")]
        assert (await store.find_sandboxes(OWNER, labels={"team": "a"})).records == [first]
        repeated = await store.insert_sandbox(sandbox(), Idempotency(key="k", fingerprint="f"))
        assert repeated == (first, False)
    # A released step was not edited, and the steps together give what a new file gets.
    assert described(path) == described(fresh)


async def test_a_migration_keeps_a_copy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = await filled(path)
    before = described(path)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, add_column, rebuild))
    async with await Store.open(path) as store:
        assert [record.id for record in await store.all_sandboxes()] == ids
        assert (await store.statistics()).schema_version == CURRENT + 2
    first, second = (path.with_name(f"state.db.before-{CURRENT + n}") for n in (1, 2))
    assert described(first) == before
    assert "note" in dict(described(second))["jobs"]
    assert first.stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(path.parent)) == sorted([path.name, first.name, second.name])
    # The copy is a state that the older version opens.
    monkeypatch.undo()
    async with await Store.open(first) as store:
        assert [record.id for record in await store.all_sandboxes()] == ids


async def test_a_migration_takes_what_is_in_the_log(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await crashed(path)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, add_column))
    for opened in (path, path.with_name(f"state.db.before-{CURRENT + 1}")):
        async with await Store.open(opened) as store:
            assert [record.id for record in await store.all_sandboxes()] == ids


@pytest.mark.parametrize("step", [fail_late, orphan])
async def test_a_migration_that_fails_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, step: schema.Step
) -> None:
    ids = await filled(path)
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, step))
        for _ in range(2):
            with pytest.raises(StateError, match=f"version {CURRENT + 1}") as caught:
                await Store.open(path)
            assert caught.value.hint
    async with await Store.open(path) as store:
        assert [record.id for record in await store.all_sandboxes()] == ids


@pytest.mark.parametrize("make", [filled, crashed], ids=["closed", "crashed"])
async def test_a_newer_state_is_refused_untouched(
    path: Path, make: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(path)  # type: ignore[misc]
    before = digests(path.parent)
    monkeypatch.setattr(schema, "MIGRATIONS", ())
    for _ in range(2):
        with pytest.raises(StateTooNewError, match=f"version {CURRENT}") as caught:
            await Store.open(path)
        assert caught.value.code == "state_too_new"
        assert "newer" in (caught.value.hint or "")
        assert caught.value.details == {"version": CURRENT, "known": 0}
    assert digests(path.parent) == before
    if make is filled:
        assert os.listdir(path.parent) == [path.name]


def garbage(path: Path) -> None:
    path.write_bytes(b"SQLite format 4\0" + os.urandom(8000))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def short(path: Path) -> None:
    os.truncate(path, 50)


def scribbled(path: Path, start: int = 4096) -> None:
    data = bytearray(path.read_bytes())
    for page in range(start, len(data), 4096):
        data[page : page + 200] = b"\xff" * 200
    path.write_bytes(data)


def without_schema(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100:4096] = bytes(3996)
    path.write_bytes(data)


def foreign(path: Path) -> None:
    path.unlink()
    execute(path, "CREATE TABLE t (x)", f"PRAGMA user_version = {CURRENT}")


def version_lost(path: Path) -> None:
    execute(path, "PRAGMA user_version = 0")


def only_the_log(path: Path) -> None:
    path.rename(path.with_name("state.db-wal"))


@pytest.mark.parametrize(
    "damage",
    [
        garbage,
        empty,
        cut,
        short,
        scribbled,
        without_schema,
        foreign,
        version_lost,
        only_the_log,
    ],
)
async def test_damage_is_refused_untouched(path: Path, damage: Callable[[Path], None]) -> None:
    await filled(path)
    damage(path)
    before = digests(path.parent)
    for _ in range(2):
        with pytest.raises(StateCorruptError, match=r"state\.db") as caught:
            await Store.open(path)
        assert caught.value.code == "state_corrupt"
        assert "before-N" in (caught.value.hint or "")
    assert digests(path.parent) == before


async def test_damage_that_shows_later_is_told_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await Store.open(path) as store:
        await store.append_events([NewEvent(kind="a", body={"x": "y" * 500_000})])
    scribbled(path, os.stat(path).st_size // 8192 * 4096)
    monkeypatch.setattr(schema, "ALWAYS_CHECKED_BYTES", 0)
    async with await Store.open(path) as store:
        with pytest.raises(StateCorruptError):
            await store.events(0, limit=1000)
    execute(path, "UPDATE meta SET value = '0' WHERE key = 'clean'")
    with pytest.raises(StateCorruptError):
        await Store.open(path)


async def test_an_interrupted_creation_is_begun_anew(path: Path) -> None:
    path.with_name("state.db.new").write_bytes(b"half")
    path.with_name("state.db.new-wal").write_bytes(b"of it")
    assert await filled(path)
    assert os.listdir(path.parent) == [path.name]
    assert os.stat(path).st_mode & 0o777 == 0o600


async def test_a_place_that_can_not_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(AgentKernelError, match="state") as caught:
        await Store.open(tmp_path / "nothing" / "state.db")
    assert not isinstance(caught.value, StateCorruptError)
    (tmp_path / "folder").mkdir()
    with pytest.raises(StateError):
        await Store.open(tmp_path / "folder")


async def test_odd_paths_are_only_paths(tmp_path: Path) -> None:
    folder = tmp_path / "a?mode=ro#b%41 ü"
    folder.mkdir()
    async with await Store.open(folder / "state.db") as store:
        await store.append_events([NewEvent(kind="a")])
    assert os.listdir(folder) == ["state.db"]
