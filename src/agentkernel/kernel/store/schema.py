"""The database file: how it comes to be, how it grows, and when it is refused.

Everything that could refuse the file happens on a read-only connection, before one that may write
exists: what is newer or damaged stays byte for byte as it was. A new database is made under another
name and renamed, so an empty or half-made `state.db` is never ours and never taken for a new one.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from agentkernel.errors import HostError, StateCorruptError, StateError, StateTooNewError
from agentkernel.kernel.store.failures import corrupt, translate

APPLICATION_ID = 0x616B6E6C  # "aknl"
OLDEST_SQLITE = (3, 37, 0)  # STRICT tables
BUSY_SECONDS = 5.0
WAL_KEEP_BYTES = 16 << 20
# A check of the whole file takes about 2.5 ms a MiB. Larger files are checked only when the last
# daemon did not end in order.
ALWAYS_CHECKED_BYTES = 8 << 20

_MAGIC = b"SQLite format 3\0"

Step = Callable[[sqlite3.Connection], None]


def _version_1(connection: sqlite3.Connection) -> None:
    for statement in (
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
        # seq is the order of pages: a row that comes later stands later, whatever its clock said.
        """CREATE TABLE sandboxes (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            name TEXT,
            owner TEXT NOT NULL,
            backend TEXT NOT NULL,
            state TEXT NOT NULL,
            blueprint TEXT NOT NULL,
            env TEXT NOT NULL,
            labels TEXT NOT NULL,
            ephemeral INTEGER NOT NULL,
            created_at REAL NOT NULL,
            updated_at REAL NOT NULL,
            started_at REAL,
            ttl_seconds REAL,
            idle_seconds REAL,
            on_ttl TEXT NOT NULL,
            on_idle TEXT NOT NULL,
            expires_at REAL,
            handle TEXT,
            error TEXT
        ) STRICT""",
        """CREATE UNIQUE INDEX sandboxes_by_name ON sandboxes (owner, name)
            WHERE name IS NOT NULL""",
        # A second form of sandboxes.labels, to search by. No reference: it would need one more
        # index, and every page that an insert touches is written to the log.
        """CREATE TABLE sandbox_labels (
            key TEXT NOT NULL,
            value TEXT NOT NULL,
            sandbox INTEGER NOT NULL,
            PRIMARY KEY (key, value, sandbox)
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE jobs (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            sandbox_id TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
            argv TEXT NOT NULL,
            options TEXT NOT NULL,
            state TEXT NOT NULL,
            status TEXT,
            created_at REAL NOT NULL,
            ended_at REAL
        ) STRICT""",
        "CREATE INDEX jobs_by_sandbox ON jobs (sandbox_id)",
        # No reference to sandboxes: events outlive them.
        """CREATE TABLE events (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            at REAL NOT NULL,
            sandbox_id TEXT,
            owner TEXT,
            kind TEXT NOT NULL,
            body TEXT NOT NULL
        ) STRICT""",
        """CREATE INDEX events_by_sandbox ON events (sandbox_id)
            WHERE sandbox_id IS NOT NULL""",
        """CREATE TABLE idempotency_keys (
            owner TEXT NOT NULL,
            key TEXT NOT NULL,
            fingerprint TEXT NOT NULL,
            expires_at REAL NOT NULL,
            sandbox INTEGER NOT NULL REFERENCES sandboxes (seq) ON DELETE CASCADE,
            PRIMARY KEY (owner, key)
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX idempotency_keys_by_sandbox ON idempotency_keys (sandbox)",
        "CREATE INDEX idempotency_keys_by_expiry ON idempotency_keys (expires_at)",
    ):
        connection.execute(statement)


def _version_2(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE sandboxes ADD COLUMN config TEXT")


def _version_3(connection: sqlite3.Connection) -> None:
    # Of a secret there is nothing but its hash.
    connection.execute(
        """CREATE TABLE tokens (
            id TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            owner TEXT NOT NULL,
            scopes TEXT NOT NULL,
            sha256 TEXT NOT NULL,
            created_at REAL NOT NULL,
            expires_at REAL,
            last_used_at REAL,
            revoked_at REAL
        ) STRICT, WITHOUT ROWID"""
    )


def _version_4(connection: sqlite3.Connection) -> None:
    # What a sandbox may reach, and which of its ports are published; both change while it lives.
    connection.execute("ALTER TABLE sandboxes ADD COLUMN network TEXT")
    connection.execute("ALTER TABLE sandboxes ADD COLUMN ports TEXT")


def _version_5(connection: sqlite3.Connection) -> None:
    # A row before its directory exists; gone after it does not any more.
    connection.execute(
        """CREATE TABLE volumes (
            id TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            owner TEXT NOT NULL,
            state TEXT NOT NULL,
            exclusive INTEGER NOT NULL,
            quota_bytes INTEGER,
            created_at REAL NOT NULL
        ) STRICT, WITHOUT ROWID"""
    )
    connection.execute("CREATE UNIQUE INDEX volumes_by_name ON volumes (owner, name)")


def _version_6(connection: sqlite3.Connection) -> None:
    # No reference to sandboxes: what an agent did is known for longer than where.
    connection.execute(
        """CREATE TABLE agent_sessions (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            owner TEXT NOT NULL,
            agent TEXT NOT NULL,
            version TEXT NOT NULL,
            mode TEXT NOT NULL,
            state TEXT NOT NULL,
            sandbox_id TEXT NOT NULL,
            own_sandbox INTEGER NOT NULL,
            job_id TEXT NOT NULL,
            task TEXT,
            model TEXT,
            project TEXT,
            conversation TEXT,
            created_at REAL NOT NULL,
            ended_at REAL,
            exit_code INTEGER,
            error TEXT,
            usage TEXT NOT NULL,
            request TEXT NOT NULL
        ) STRICT"""
    )
    connection.execute("CREATE INDEX agent_sessions_by_sandbox ON agent_sessions (sandbox_id)")
    connection.execute("CREATE INDEX agent_sessions_by_project ON agent_sessions (project, agent)")


# Step n brings version n to n + 1. A step that was released is never edited, and its result is
# kept in tests/unit/store/versions.
MIGRATIONS: tuple[Step, ...] = (
    _version_1, _version_2, _version_3, _version_4, _version_5, _version_6,
)  # fmt: skip


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """A connection for the calling thread; `mode` is "rw" or "ro". Transactions are by hand."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        timeout=BUSY_SECONDS,
        cached_statements=256,
    )
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        if mode == "rw":
            # The log is synced by the writer, once in a while, not by each commit.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA journal_size_limit = {WAL_KEEP_BYTES}")
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(path: Path) -> None:
    """Brings `path` to our version: makes it, migrates it, or refuses it untouched."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise HostError(
            f"Python's SQLite is {sqlite3.sqlite_version}; 3.37 or newer is needed",
            hint="use a Python that brings its own SQLite, such as one from `uv python install`",
        )
    try:
        version = _inspect(path)
        if version is None:
            _create(path)
        elif version < len(MIGRATIONS):
            _migrate(path, version)
    except (sqlite3.Error, OSError) as exc:
        raise translate(exc, path) from exc


def _inspect(path: Path) -> int | None:
    """The version of the file, None if there is none. Raises rather than write."""
    log = path.with_name(path.name + "-wal")
    log_bytes = log.stat().st_size if log.exists() else 0
    if not path.exists():
        if log_bytes:
            raise corrupt(path, f"{log.name} is there, the database is not")
        return None
    if not log_bytes:
        # All is in the file itself, whose header can be read without making SQLite's side files.
        with path.open("rb") as handle:
            header = handle.read(100)
        if len(header) < 100 or not header.startswith(_MAGIC):
            raise corrupt(path, "not a database")
        _check_version(path, int.from_bytes(header[60:64], "big"))
    with closing(connect(path, "ro")) as connection:
        version = _pragma(connection, "user_version")
        _check_version(path, version)
        if _pragma(connection, "application_id") != APPLICATION_ID or version < 1:
            raise corrupt(path, "a database, but not one of agentkernel")
        row = connection.execute("SELECT value FROM meta WHERE key = 'clean'").fetchone()
        in_order = row is not None and row[0] == "1"
        if not in_order or path.stat().st_size <= ALWAYS_CHECKED_BYTES:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise corrupt(path, found)
    return version


def _check_version(path: Path, version: int) -> None:
    if version > len(MIGRATIONS):
        raise StateTooNewError(
            f"the state in {path} has version {version}; this agentkernel knows {len(MIGRATIONS)}",
            hint="use the newer agentkernel that wrote it, or set AGENTKERNEL_STATE_DIR to another"
            " directory",
            version=version,
            known=len(MIGRATIONS),
        )


def _create(path: Path) -> None:
    fresh = path.with_name(path.name + ".new")
    for leftover in (fresh, *(fresh.with_name(fresh.name + end) for end in ("-wal", "-shm"))):
        leftover.unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    with closing(connect(fresh, "rw")) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise HostError(
                f"the file system of {path} can't hold a write-ahead log",
                hint="set AGENTKERNEL_STATE_DIR to a directory on a local disk",
            )
        _run_steps(connection, 0, backup=None)
    _publish(fresh, path)


def _migrate(path: Path, version: int) -> None:
    with closing(connect(path, "rw")) as connection:
        _run_steps(connection, version, backup=path)


def _run_steps(connection: sqlite3.Connection, version: int, backup: Path | None) -> None:
    # A step may rebuild a table that others refer to; the check before the commit makes up for it.
    connection.execute("PRAGMA foreign_keys = OFF")
    for number, step in enumerate(MIGRATIONS[version:], version + 1):
        if backup is not None:
            _copy(connection, backup.with_name(f"{backup.name}.before-{number}"))
        connection.execute("BEGIN IMMEDIATE")
        try:
            step(connection)
            if connection.execute("PRAGMA foreign_key_check").fetchone():
                raise sqlite3.IntegrityError("a row refers to one that is not there")
            connection.execute(f"PRAGMA user_version = {number}")
            connection.execute("COMMIT")
        except Exception as exc:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if backup is None:
                raise
            meaning = translate(exc, backup)
            if isinstance(meaning, StateError) and not isinstance(meaning, StateCorruptError):
                raise meaning from exc
            raise StateError(
                f"the state in {backup} could not be brought to version {number}: {exc}",
                hint="it was left as it was; use the agentkernel that wrote it, and report this",
            ) from exc


def _copy(connection: sqlite3.Connection, target: Path) -> None:
    """A copy of the database with all that is committed, there whole or not at all."""
    fresh = target.with_name(target.name + ".new")
    fresh.unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    with closing(sqlite3.connect(fresh)) as copy:
        connection.backup(copy)
    _publish(fresh, target)


def _publish(fresh: Path, target: Path) -> None:
    with fresh.open("rb") as handle:
        os.fsync(handle.fileno())
    fresh.rename(target)
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
