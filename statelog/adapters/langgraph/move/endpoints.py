"""Opens the sources and targets of moves: a saver, and facts that only its database shows.

A name is ``sqlite:PATH``, ``postgresql://...`` (``postgres://...``), or the path of a statelog store.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from langgraph.checkpoint.base import writes_sort_key

import statelog
from statelog.adapters.kit.lineage import Lineage
from statelog.adapters.langgraph import StatelogSaver
from statelog.adapters.langgraph.move.untouched import UntouchedSerializer
from statelog.adapters.langgraph.saver.checkpoint_reader import WritePosition, find_place, read_writes, written
from statelog.adapters.langgraph.values import names
from statelog.adapters.langgraph.values.own import is_hidden, writes_state
from statelog.errors import (
    FormatError,
    SchemaVersionError,
    StorageError,
    StoreFullError,
    StoreLockedError,
    StoreNotFoundError,
    UsageError,
)
from statelog.redaction import redact_error, redacted_url
from statelog.storage.file.descriptors import SHARED_MODE, follow_owner
from statelog.store.session import session_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

    from statelog import Store
    from statelog.guard.hook import Redactor

_SQLITE = "sqlite:"
_POSTGRES = ("postgresql://", "postgres://")

_PLACES = "SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id FROM checkpoints"
_COLUMNS = {
    "checkpoints": {
        *("thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id"),
        *("type", "checkpoint", "metadata"),
    },
    "writes": {
        *("thread_id", "checkpoint_ns", "checkpoint_id"),
        *("task_id", "idx", "channel", "type", "value"),
    },
}
"""The tables that a SQLite database must have, with their required columns."""

_MAKES_NO_FILE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)

_WRITTEN = (
    "SELECT task_id, idx, channel, task_path FROM {} WHERE thread_id = {} AND checkpoint_ns = {} AND checkpoint_id = {}"
)


@dataclass(frozen=True, slots=True)
class CheckpointKey:
    """The thread, namespace and id of a checkpoint."""

    thread_id: str
    namespace: str
    checkpoint_id: str

    def config(self) -> RunnableConfig:
        """Return the config that names this checkpoint in LangGraph."""
        return {
            "configurable": {
                "thread_id": self.thread_id,
                "checkpoint_ns": self.namespace,
                "checkpoint_id": self.checkpoint_id,
            }
        }

    @classmethod
    def of(cls, config: RunnableConfig) -> CheckpointKey:
        """Return the place that a complete config names."""
        named = config["configurable"]
        return cls(named["thread_id"], named.get("checkpoint_ns", ""), named["checkpoint_id"])


_FREE_MAX = 0.25
"""A store is compacted if its free pages exceed this share of its used pages."""


@dataclass(slots=True)
class Endpoint:
    """Any saver to move threads from or to. This base class uses only the saver's own methods."""

    name: str
    saver: BaseCheckpointSaver[Any]

    KEEPS_WHOLE: ClassVar = False
    """Whether the values of a checkpoint are stored as one msgpack value, which cannot hold pickled values."""

    def places(self) -> Iterable[tuple[CheckpointKey, str | None]]:
        """Return the places of all checkpoints with their parents' ids, in any order."""
        for found in self.saver.list(None):
            parent = found.parent_config
            yield CheckpointKey.of(found.config), parent["configurable"]["checkpoint_id"] if parent else None

    def written(self, place: CheckpointKey) -> list[WritePosition]:
        """Return the positions of a checkpoint's pending writes, in LangGraph's order, or [] if they are unknown."""
        return []

    def hides(self, place: CheckpointKey) -> bool:
        """Return True if a checkpoint was removed, but stays hidden in the database because others need it."""
        return False

    def guard(self) -> Redactor | None:
        """Return the guard that redacts secrets in writes, or None if no guard does."""
        return None

    def check_versions(self, place: CheckpointKey) -> None:
        """Raise SchemaVersionError if the schema version of a checkpoint would be lost in the target."""

    def lost(self, found: CheckpointTuple) -> str | None:
        """Return what the source has lost of a checkpoint's metadata, or None. The checkpoint is copied without it."""
        return None

    def flush(self) -> None:
        """Wait until all writes would survive a power cut."""

    def tidy(self) -> None:
        """Shrink the file if it has much free space and can be compacted."""


@dataclass(slots=True)
class _StoreEndpoint(Endpoint):
    store: Store

    def written(self, place: CheckpointKey) -> list[WritePosition]:
        named = names.CheckpointName(place.thread_id, place.namespace, place.checkpoint_id)
        with self.store.snapshot() as snapshot:
            return written(read_writes(writes_state(Lineage(snapshot, place.thread_id)), named))

    def hides(self, place: CheckpointKey) -> bool:
        named = names.CheckpointName(place.thread_id, place.namespace, place.checkpoint_id)
        with self.store.snapshot() as snapshot:
            lineage = Lineage(snapshot, place.thread_id)
            return is_hidden(writes_state(lineage), named) and find_place(lineage, named) is not None

    def check_versions(self, place: CheckpointKey) -> None:
        named = names.CheckpointName(place.thread_id, place.namespace, place.checkpoint_id)
        with self.store.snapshot() as snapshot:
            found = find_place(Lineage(snapshot, place.thread_id), named)
        if found is not None and found.schema_version > 1:
            message = (
                f"thread {place.thread_id!r} has checkpoints of schema version {found.schema_version}, but"
                " LangGraph's savers do not store the version: the copied values would be migrated a second time"
            )
            raise SchemaVersionError(message, thread=place.thread_id, stored=found.schema_version, declared=1)

    def guard(self) -> Redactor | None:
        guard = session_of(self.store).owner.guard
        return None if guard is None or guard.refuses else guard

    def flush(self) -> None:
        self.store.flush()

    def tidy(self) -> None:
        statistics = self.store.statistics()
        if statistics.pages_free > _FREE_MAX * statistics.pages_used:
            # Leave the file as it is if another process has the store open, or the disk has too little space.
            with suppress(StoreLockedError, StoreFullError):
                self.store.compact()


@dataclass(slots=True)
class _SqliteEndpoint(Endpoint):
    connection: sqlite3.Connection

    KEEPS_WHOLE: ClassVar = True

    def places(self) -> Iterable[tuple[CheckpointKey, str | None]]:
        for *place, parent in self.connection.execute(_PLACES):
            yield CheckpointKey(*place), parent

    def written(self, place: CheckpointKey) -> list[WritePosition]:
        named = (place.thread_id, place.namespace, place.checkpoint_id)
        rows = self.connection.execute(_WRITTEN.format("writes", "?", "?", "?"), named)
        return _in_order(WritePosition(*row) for row in rows)


@dataclass(slots=True)
class _PostgresEndpoint(Endpoint):
    connection: Any

    def places(self) -> Iterable[tuple[CheckpointKey, str | None]]:
        for row in self.connection.execute(_PLACES).fetchall():
            yield (
                CheckpointKey(row["thread_id"], row["checkpoint_ns"], row["checkpoint_id"]),
                row["parent_checkpoint_id"],
            )

    def written(self, place: CheckpointKey) -> list[WritePosition]:
        named = (place.thread_id, place.namespace, place.checkpoint_id)
        rows = self.connection.execute(_WRITTEN.format("checkpoint_writes", "%s", "%s", "%s"), named).fetchall()
        return _in_order(WritePosition(row["task_id"], row["idx"], row["channel"], row["task_path"]) for row in rows)


def _in_order(rows: Iterable[WritePosition]) -> list[WritePosition]:
    return sorted(rows, key=lambda row: writes_sort_key(row.path, row.task_id, row.number))


@contextmanager
def opened(
    name: str, *, writing: bool, open_store: Callable[..., Store] = statelog.open, like: Path | None = None
) -> Iterator[Endpoint]:
    """Open the store or database that `name` refers to.

    Args:
        name: see the module.
        writing: True for a target, which is created if it does not exist. A source must exist, and is only read.
        open_store: a function that opens a store, as `statelog.open`.
        like: the file of a store. A new SQLite database gets its owner and mode.

    Raises:
        UsageError: the name has an unknown form, or its package is not installed.
        StoreNotFoundError: the source does not exist.
        FormatError: the file or database is not a store or has no checkpoints of LangGraph.
        StorageError: the database reported an error.
    """
    if name.startswith(_SQLITE):
        with _opened_sqlite(Path(name.removeprefix(_SQLITE)), writing=writing, like=like) as endpoint:
            yield endpoint
    elif name.startswith(_POSTGRES):
        with _opened_postgres(name, writing=writing) as endpoint:
            yield endpoint
    elif "://" in name:
        shown = redacted_url(name)
        message = (
            f"{shown} is not a source or target of threads: use sqlite:PATH, postgresql://... or the path of a store"
        )
        raise UsageError(message, argument="name", value=shown)
    else:
        with _opened_store(Path(name), open_store, writing=writing) as endpoint:
            yield endpoint


@contextmanager
def _opened_store(path: Path, open_store: Callable[..., Store], *, writing: bool) -> Iterator[Endpoint]:
    # `flush` is called at the end, so commits need not wait for the disk. A killed process loses nothing, and the next
    # move repeats what a power cut has lost.
    with open_store(path, durability="interval") if writing else open_store(path, read_only=True) as store:
        yield _StoreEndpoint(str(path), StatelogSaver(store, serde=UntouchedSerializer()), store)


def _create_like(path: Path, status: os.stat_result) -> None:
    """Create an empty database with the owner and mode in `status`, unless the file exists."""
    with suppress(OSError):  # SQLite opens the file anyway, and reports the reason if it cannot.
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            follow_owner(descriptor, status, status.st_mode & SHARED_MODE)
        finally:
            os.close(descriptor)


@contextmanager
def _opened_sqlite(path: Path, *, writing: bool, like: Path | None) -> Iterator[Endpoint]:
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver
    except ModuleNotFoundError:
        raise _missing("langgraph-checkpoint-sqlite") from None
    if like is not None:
        _create_like(path, like.stat())
    if not writing and not path.is_file():
        message = f"no database at {path}"
        raise StoreNotFoundError(message, path=str(path))
    try:
        with closing(_connect(path, "mode=rwc") if writing else _connect_for_reading(path)) as connection:
            saver = SqliteSaver(connection, serde=UntouchedSerializer())
            _check_tables(connection, path, may_lack=writing)
            if writing:
                saver.setup()
            else:
                saver.is_setup = True  # Skip `setup`, which writes even if the tables exist.
                _show_task_paths(connection)
            connection.text_factory = _text
            yield _SqliteEndpoint(f"{_SQLITE}{path}", saver, connection)
    except sqlite3.Error as error:
        message = f"{path}: {error}"
        raise StorageError(message, path=str(path)) from error


def _text(encoded: bytes) -> str | bytes:
    """Return a str, or the bytes if they are not UTF-8, so that damaged names remain distinct."""
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        return encoded


def _connect(path: Path, how: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path))}?{how}", uri=True, check_same_thread=False)


def _connect_for_reading(path: Path) -> sqlite3.Connection:
    """Connect to a database for reading, even if it is on a read-only disk.

    On a read-only disk, SQLite opens a database in WAL mode only as immutable. This is safe if the database has no WAL
    file, because then no process has the database open.
    """
    connection = _connect(path, "mode=ro")
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in _MAKES_NO_FILE or Path(f"{path}-wal").exists():
            connection.close()
            raise
        connection.close()
        return _connect(path, "mode=ro&immutable=1")
    except sqlite3.DatabaseError:
        pass  # `_check_tables` reports the error.
    return connection


def _check_tables(connection: sqlite3.Connection, path: Path, *, may_lack: bool) -> None:
    """Check that LangGraph's tables exist with its columns. With `may_lack`, a whole table may be missing."""
    try:
        found = {name: _columns(connection, name) for name in _COLUMNS}
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
            raise
        message = f"{path} is not a SQLite database"
        raise FormatError(message, path=str(path)) from None
    for name, columns in _COLUMNS.items():
        if not (columns <= found[name] or (may_lack and not found[name])):
            message = f"{path} contains no LangGraph checkpoints"
            if found[name]:
                message += f": its table {name} has no column {min(columns - found[name])}"
            raise FormatError(message, path=str(path))


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """Return the names of a table's columns, or an empty set if the table does not exist."""
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


def _show_task_paths(connection: sqlite3.Connection) -> None:
    """Show writes of old releases, which stored no task paths, with empty paths. The file is not changed."""
    if "task_path" not in _columns(connection, "writes"):
        connection.execute("CREATE TEMPORARY VIEW writes AS SELECT *, '' AS task_path FROM main.writes")


@contextmanager
def _opened_postgres(url: str, *, writing: bool) -> Iterator[Endpoint]:
    try:
        import psycopg
        from langgraph.checkpoint.postgres import PostgresSaver
    except ImportError:  # psycopg also raises it if libpq is missing.
        raise _missing("langgraph-checkpoint-postgres 'psycopg[binary]'") from None
    name = redacted_url(url)
    is_address = False
    with suppress(psycopg.ProgrammingError):  # Drop the error, whose message may quote a part of the password.
        psycopg.conninfo.conninfo_to_dict(url)
        is_address = True
    if not is_address:
        message = f"{name} is not an address of a Postgres database"
        raise UsageError(message, argument="name", value=name)
    try:
        with PostgresSaver.from_conn_string(url) as saver:
            saver.serde = UntouchedSerializer()
            if writing:
                saver.setup()
            yield _PostgresEndpoint(name, saver, saver.conn)
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
        message = f"{name} contains no LangGraph checkpoints"
        raise FormatError(message, path=name) from None
    except psycopg.Error as error:
        redact_error(error)
        message = f"{name}: {(str(error).strip() or type(error).__name__).splitlines()[0]}"
        raise StorageError(message, path=name) from error


def _missing(packages: str) -> UsageError:
    return UsageError(f"this needs a package that is not installed: pip install {packages}")
