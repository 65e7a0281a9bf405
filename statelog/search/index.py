"""The text index: a contentless FTS5 table, and a table with the place of each text.

The index stores no texts, and its rows are not trusted. A row is a hit only if the store has the text at the row's
place. The index follows the log from a cursor, and can be deleted at any time.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import contextmanager, suppress
from os import getpid
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from xxhash import xxh3_64_intdigest

from statelog.errors import (
    AccessError,
    StatelogError,
    StoreFullError,
    StoreLockedError,
)
from statelog.log.chain import read_chained
from statelog.search.configuration import read_configuration
from statelog.search.log_texts import ENTRY, LogTexts, TextSource
from statelog.search.versions import Versions
from statelog.storage.file.index_file import (
    APPLICATION_ID,
    create_index,
    foreign_error,
    index_lock,
    index_path,
    inode_of,
    refuse_foreign,
    remove_index,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from statelog.log.engine import Engine
    from statelog.log.view import View
    from statelog.search.configuration import Configuration
    from statelog.search.graphs import GraphThreads
    from statelog.search.log_texts import TextRows

T = TypeVar("T")

_FORMAT: Final = 3
_BATCH_RECORDS: Final = 4096
_BATCH_CHARACTERS: Final = 16 * 1024 * 1024
"""The maximum number of characters that one transaction indexes.

The limit shortens the time for which the transaction holds the store's pages and locks the index.
"""

_HASH_SIZE_BYTES: Final = 64 * 1024 * 1024
"""The memory that FTS5 fills before it writes a segment. A transaction of 16 MB of text then writes one segment."""

_MERGED_SEGMENTS: Final = 12
"""The number of segments that FTS5 merges at once.

With its default of four, up to half of the file would be free pages.
"""

_MERGE_ROWS_MIN: Final = 10_000
_MERGE_GROWTH: Final = 2
"""The minimum number of rows, and the growth since the last merge, at which all segments are merged into one.

So each row is merged about twice, whatever the size of the index.
"""
_MERGE_PAGES: Final = 256
"""The number of pages that one transaction of a merge writes.

So the file grows by one megabyte, and is not locked for long.
"""

_SECOND_US: Final = 1_000_000
_TIMEOUT_S: Final = 30.0
_COUNTS_MAX: Final = 4096
_LAST: Final = "\U0010ffff"
"""A character that sorts after all others, which ends a range of strings."""
_GROWTH: Final = 8
"""The factor by which each further read asks for more rows than the previous read."""
_BASE_S: Final = "(SELECT value FROM meta WHERE name = 'base_s')"
# A statement with LIMIT and bm25() takes two thirds of the time of ORDER BY rank, for which FTS5 prepares and sorts
# a second statement. Only the places of the best rows are read. The LEFT JOIN shows if a damaged index lacks a row.
_BEST: Final = f"""
    SELECT score, number, docs.source, docs.version, docs.item, docs.hash, docs.time_s + {_BASE_S},
        sources.kind, sources.thread, sources.branch, sources.path
    FROM (
        SELECT texts.rowid AS number, bm25(texts) AS score FROM texts {{conditions}} ORDER BY score, number LIMIT ?
    ) LEFT JOIN docs ON docs.id = number LEFT JOIN sources ON sources.id = docs.source ORDER BY score, number
"""  # noqa: S608 - a constant
_BEST_OF_ALL: Final = _BEST.format(conditions="WHERE texts MATCH ?")
_BEST_BELOW: Final = """
    SELECT bm25(texts) AS score, docs.id AS number, sources.path, docs.hash
    FROM texts CROSS JOIN docs ON docs.id = texts.rowid CROSS JOIN sources ON sources.id = docs.source
    WHERE texts MATCH ? AND sources.kind = ? AND sources.path >= ? AND sources.path < ?
    ORDER BY score, number LIMIT ?
"""
_HASH_MASK: Final = (1 << 31) - 1

_SCHEMA = """
CREATE TABLE meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE roles(id INTEGER PRIMARY KEY, name TEXT UNIQUE);
CREATE TABLE sources(id INTEGER PRIMARY KEY, kind INT, thread INT, branch INT, path TEXT,
    UNIQUE(thread, branch, path, kind));
CREATE TABLE docs(id INTEGER PRIMARY KEY, source INT, version INT, item INT, hash INT, role INT, time_s INT);
CREATE VIRTUAL TABLE texts USING fts5(text, content='', tokenize='{tokenizer}');
INSERT INTO texts(texts, rank) VALUES('hashsize', {hash_size_bytes});
INSERT INTO texts(texts, rank) VALUES('automerge', {merged_segments});
"""
_TOKENIZERS = {"unicode61": "unicode61 remove_diacritics 2", "trigram": "trigram"}


def hash_of(text: str) -> int:
    """Return the hash of a text that the index stores: 31 bits, which SQLite stores in four bytes."""
    return xxh3_64_intdigest(text.encode()) & _HASH_MASK


class Match(NamedTuple):
    """A row of the index that matches a query. By now, the store may have a different text at the row's place."""

    source: TextSource
    version: int
    item: int | None
    hash: int
    time_us: int
    """The time of the text, rounded down to the second."""
    score: float


class Filter(NamedTuple):
    """Conditions on rows. None means no condition. Times are compared with a precision of one second."""

    sources: Callable[[TextSource], bool] | None = None
    role: str | None = None
    since_us: int | None = None
    until_us: int | None = None


class _StaleError(Exception):
    """The index does not belong to the store in its current state, and must be rebuilt. The message is the reason."""


class Index:
    """The index of an open store. Several OS threads may share it, and a lock admits one at a time.

    Attributes:
        notes: the reasons why the index was rebuilt or is private. `take_notes` empties it.
        versions: the versions that searches have read. The `work` of `read` may use it.
    """

    def __init__(self, engine: Engine, graphs: GraphThreads) -> None:
        self._engine = engine
        self._graphs = graphs
        self.versions = Versions(engine, graphs, hash_of)
        self._lock = RLock()
        self.notes: list[str] = []
        self._connection: sqlite3.Connection | None = None
        self._counts: dict[tuple[str, int], int] = {}
        """The results of `count`, which are valid until the next commit."""
        self._followed: int | None = None
        """The last commit of the store that the index includes."""
        self._configuration: Configuration | None = None
        self._known: tuple[int, Configuration | None] = (-1, None)
        self._process_id = getpid()
        self._path = engine.store_file.path
        self._index_path = index_path(self._path)
        self._paths = str(self._path), str(self._index_path)
        """The paths of the store and the index, whose inodes each search compares."""
        self._inode = self._file = 0
        self._is_private = False
        self._sources: dict[TextSource, int] = {}
        self._source_rows: dict[int, TextSource] = {}
        self._last_source = 0
        """All sources up to this id are in `_source_rows`."""
        self._roles: dict[str, int] = {}

    def configuration(self) -> Configuration:
        """Return the configuration of the store. It is read again after each commit of the store."""
        commit_id = self._engine.last_commit_id()
        known_id, known = self._known
        if known is None or known_id != commit_id:
            known = read_configuration(self._engine)
            self._known = (commit_id, known)
        return known

    def close(self) -> None:
        """Close the file, and clear the caches."""
        connection, self._connection = self._connection, None
        self._followed = None
        self._forget()
        self.versions.clear()
        if connection is not None and self._process_id == getpid():
            with suppress(sqlite3.Error):
                connection.close()

    def _forget(self) -> None:
        self._sources, self._source_rows, self._roles = {}, {}, {}
        self._last_source = 0

    def take_notes(self) -> tuple[str, ...]:
        """Return the notes without repetitions, and clear them."""
        notes, self.notes = tuple(dict.fromkeys(self.notes)), []
        return notes

    # --- opening ------------------------------------------------------------------------

    def read(self, configuration: Configuration, work: Callable[[], T]) -> T:
        """Bring the index up to the last record, and return the result of `work`, which may call `matches`.

        `configuration` is the configuration that this search has read. If the index is damaged or belongs to a
        different store, it is rebuilt, and `work` may run again.

        Raises:
            FormatError: the file with the index's name belongs to another program. Facts: path, journal.
            StoreLockedError: another process has locked the index for too long. Facts: path.
            StoreFullError: the disk is full. Facts: path.
        """
        with self._lock:
            for is_last in (False, False, True):
                try:
                    self._open(configuration)
                    self._follow(configuration)
                    return work()
                except _StaleError as error:
                    self._discard(f"the text index was rebuilt: {error}", to_private=is_last)
                except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite's message may contain damaged names.
                    self._check_resources(error)
                    self._discard(f"the text index was damaged, and was rebuilt: {error}", to_private=is_last)
            self._open(configuration)
            self._follow(configuration)
            return work()

    def _check_resources(self, error: Exception) -> None:
        """Raise an error if rebuilding the index cannot help, for example because the disk is full."""
        self._forget()
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        path = str(self._index_path)
        if code == sqlite3.SQLITE_NOTADB and not self._is_private:
            refuse_foreign(self._path)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            message = f"{path}: another process has locked the text index for {_TIMEOUT_S:.0f} s"
            raise StoreLockedError(message, path=path) from error
        if code == sqlite3.SQLITE_FULL:
            message = f"{path}: the disk has no room for the text index"
            raise StoreFullError(message, path=path) from error

    def _discard(self, note: str, *, to_private: bool = False) -> None:
        self.close()
        self.notes.append(note)
        if to_private or self._engine.store_file.read_only:
            self._is_private = True
        if not self._is_private:
            with index_lock(self._path):
                remove_index(self._path)

    def _open(self, configuration: Configuration) -> None:
        """Open the index file, unless it is open already and was not replaced."""
        if self._connection is not None:
            if not self._is_private and self._inode != inode_of(self._paths[1]):
                self.close()  # The file was replaced, for example by a compaction.
            elif configuration == self._configuration:
                return
            elif self._is_private:
                self.close()
        self._configuration = configuration
        if self._connection is None:
            if self._engine.store_file.read_only and not inode_of(self._index_path):
                self._is_private = True
            if not self._is_private:
                try:
                    self._connection = self._open_shared()
                except AccessError:
                    self._is_private = True
            if self._is_private:
                self.notes.append(
                    "the index cannot be stored next to the store: this program builds its own temporary index"
                )
                self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
                self._connection.execute("PRAGMA temp_store=FILE")
        self._check_identity(configuration)

    def _open_shared(self) -> sqlite3.Connection:
        path = self._index_path
        with index_lock(self._path):
            create_index(self._path)
            self._inode = inode_of(path)
            connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=rw",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
                timeout=_TIMEOUT_S,
            )
            try:
                self._refuse_foreign(connection)
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=NORMAL")
            except BaseException:
                connection.close()
                raise
        return connection

    def _refuse_foreign(self, connection: sqlite3.Connection) -> None:
        """Raise FormatError for a database of another program. Facts: path, journal."""
        (count,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if count and connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise foreign_error(self._path)

    def _check_identity(self, configuration: Configuration) -> None:
        """Create the tables of an empty index. Raise _StaleError if the store or the configuration differs."""
        connection = self._connection
        assert connection is not None
        wanted = self._identity(configuration)
        if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
            with _transaction(connection):
                if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
                    self._create(connection, configuration, wanted)
        meta = dict(connection.execute("SELECT name, value FROM meta"))
        for name, value in wanted.items():
            if meta.get(name) != value:
                raise _StaleError(_REASONS[name])
        self._file = wanted["file"]
        with self._engine.read() as view:
            if _chain_at(view, meta["cursor"]) != meta["chain"]:
                raise _StaleError("it was built from a different history of this store")

    def _identity(self, configuration: Configuration) -> dict[str, Any]:
        file = self._engine.store_file.lmdb_file
        return {
            "format": _FORMAT,
            "store": file.store_id,
            "file": inode_of(self._path),
            "configuration": configuration.text,
        }

    @staticmethod
    def _create(connection: sqlite3.Connection, configuration: Configuration, identity: dict[str, Any]) -> None:
        schema = _SCHEMA.format(
            tokenizer=_TOKENIZERS[configuration.tokenizer],
            hash_size_bytes=_HASH_SIZE_BYTES,
            merged_segments=_MERGED_SEGMENTS,
        )
        for statement in schema.split(";\n")[:-1]:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        pairs = [*identity.items(), ("cursor", 0), ("chain", b""), ("base_s", 0)]
        connection.executemany("INSERT INTO meta VALUES(?, ?)", pairs)

    # --- following the log ----------------------------------------------------------------

    def _follow(self, configuration: Configuration) -> None:
        """Index all records that the log has now, in bounded transactions."""
        connection = self._connection
        assert connection is not None
        if self._is_private:
            self.versions.clear()
        elif inode_of(self._paths[0]) != self._file:
            raise _StaleError(_REASONS["file"])
        if self._known[0] == self._followed:  # `configuration` has just read `_known`, so the index is up to date.
            return
        self._counts.clear()
        with self._engine.read() as view:
            commit_id, end = view.snapshot_id(), view.transaction.last_lsn()
        while (cursor := _meta(connection, "cursor")) < end:
            try:
                with _transaction(connection):
                    cursor = _meta(connection, "cursor")  # Read it again: another process may have added rows.
                    if cursor < end:
                        self._take_in(connection, configuration, cursor, end)
            except BaseException:
                self._forget()  # The rollback frees the ids of new sources and roles.
                raise
        self._merge(connection)
        self._followed = commit_id

    @staticmethod
    def _merge(connection: sqlite3.Connection) -> None:
        """Merge the segments of FTS5 into one if the index has grown a lot.

        This makes searches faster, because a search looks for each word in each segment. Other processes may search
        during the merge.
        """
        count = connection.execute("SELECT max(id) FROM docs").fetchone()[0] or 0
        row = connection.execute("SELECT value FROM meta WHERE name = 'merged'").fetchone()
        if count < max(_MERGE_ROWS_MIN, _MERGE_GROWTH * (0 if row is None else row[0])):
            return
        pages = -_MERGE_PAGES  # A negative number makes FTS5 begin to merge all segments.
        is_done = False
        while not is_done:
            with _transaction(connection):
                before = connection.total_changes
                connection.execute("INSERT INTO texts(texts, rank) VALUES('merge', ?)", (pages,))
                is_done = connection.total_changes - before < 2  # FTS5 reports in this way that no merge is left.
                if is_done:
                    connection.execute("INSERT OR REPLACE INTO meta VALUES('merged', ?)", (count,))
            pages = _MERGE_PAGES

    def _take_in(self, connection: sqlite3.Connection, configuration: Configuration, cursor: int, end: int) -> None:
        with self._engine.read() as view:
            rows, cursor = self._read(view, configuration, cursor, end)
            chain = _chain_at(view, cursor)
        self._insert(connection, rows)
        for name, value in (("cursor", cursor), ("chain", chain)):
            connection.execute("UPDATE meta SET value = ? WHERE name = ?", (value, name))

    def _read(self, view: View, configuration: Configuration, cursor: int, end: int) -> tuple[list[TextRows], int]:
        """Return the texts of some records after the cursor, and the LSN of the last record read."""
        texts = LogTexts(self._engine, view, self._graphs, configuration.keep)
        found: list[TextRows] = []
        size, stop = 0, min(end, cursor + _BATCH_RECORDS)
        while cursor < stop and size < _BATCH_CHARACTERS:
            cursor += 1
            for rows in texts.rows(cursor):
                found.append(rows)
                size += sum([len(text) for _item, _role, text in rows.items])
        return found, cursor

    def _insert(self, connection: sqlite3.Connection, found: list[TextRows]) -> None:
        if not found:
            return
        number = connection.execute("SELECT max(id) FROM docs").fetchone()[0] or 0
        base_s = _meta(connection, "base_s")
        if not number:
            base_s = found[0].time_us // _SECOND_US
            connection.execute("UPDATE meta SET value = ? WHERE name = 'base_s'", (base_s,))
        docs: list[tuple[int | None, ...]] = []
        texts: list[tuple[int, str]] = []
        for source, version, time_us, items in found:
            source_id, time_s = self._source_id(connection, source), time_us // _SECOND_US - base_s
            for item, role, text in items:
                number += 1
                docs.append((number, source_id, version, item, hash_of(text), self._role_id(connection, role), time_s))
                texts.append((number, text))
        connection.executemany("INSERT INTO docs VALUES(?, ?, ?, ?, ?, ?, ?)", docs)
        connection.executemany("INSERT INTO texts(rowid, text) VALUES(?, ?)", texts)

    def _source_id(self, connection: sqlite3.Connection, source: TextSource) -> int:
        found = self._sources.get(source)
        if found is None:
            kind, thread, branch, path = source
            fields = kind, thread, branch, json.dumps(path, ensure_ascii=False)
            row = connection.execute(
                "SELECT id FROM sources WHERE kind = ? AND thread = ? AND branch = ? AND path = ?", fields
            ).fetchone()
            if row is None:
                inserted = connection.execute(
                    "INSERT INTO sources(kind, thread, branch, path) VALUES(?, ?, ?, ?)", fields
                )
                row = (inserted.lastrowid,)
            found = int(row[0])
            self._sources[source] = found
        return found

    def _role_id(self, connection: sqlite3.Connection, role: str) -> int:
        found = self._roles.get(role)
        if found is None:
            connection.execute("INSERT OR IGNORE INTO roles(name) VALUES(?)", (role,))
            found = self._roles[role] = connection.execute("SELECT id FROM roles WHERE name = ?", (role,)).fetchone()[0]
        return found

    # --- matches ------------------------------------------------------------------------------

    def matches(self, expression: str, conditions: Filter, *, first: int) -> Iterator[Match]:
        """Yield the rows that match an expression, best first. Only the `work` of `read` may call this.

        `first` is the number of rows that the first query reads. Further queries read more if the caller takes more
        rows.
        """
        connection = self._connection
        assert connection is not None
        where = ["texts MATCH ?"]
        values: list[str | int] = [expression]
        if conditions.sources is not None:
            wanted = [(number,) for number, source in self._all_sources(connection) if conditions.sources(source)]
            connection.execute("CREATE TEMP TABLE IF NOT EXISTS wanted(source INTEGER PRIMARY KEY)")
            connection.execute("DELETE FROM temp.wanted")
            connection.executemany("INSERT INTO temp.wanted VALUES(?)", wanted)
            where.append("docs.source IN (SELECT source FROM temp.wanted)")
        for sign, time_us in ((">=", conditions.since_us), ("<=", conditions.until_us)):
            if time_us is not None:
                where.append(f"docs.time_s + {_BASE_S} {sign} ?")
                values.append(time_us // _SECOND_US)
        if conditions.role is not None:
            where.append("docs.role = (SELECT id FROM roles WHERE name = ?)")
            values.append(conditions.role)
        query = _BEST_OF_ALL
        if len(where) > 1:
            joined = f"CROSS JOIN docs ON docs.id = texts.rowid WHERE {' AND '.join(where)}"
            query = _BEST.format(conditions=joined)
        sources = self._source_rows
        for score, _number, source_id, version, item, hash, time_s, *fields in self._best(query, values, first):
            if time_s is None or fields[0] is None:
                message = "a row is missing"
                raise _StaleError(message)
            source = sources.get(source_id)
            if source is None:
                source = sources[source_id] = _source(*fields)
            yield Match(source, version, item, hash, time_s * _SECOND_US, -score)

    def _best(self, query: str, values: Sequence[str | int], count: int) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query, which begin with score and row number. Read `count` rows first, and then more.

        Another process may add rows between the reads, so this skips rows whose numbers were yielded already.
        """
        assert self._connection is not None
        rows = self._connection.execute(query, (*values, count)).fetchall()
        yield from rows
        seen: set[int] = set()
        while len(rows) == count:
            seen.update([row[1] for row in rows])
            count *= _GROWTH
            rows = self._connection.execute(query, (*values, count)).fetchall()
            yield from (row for row in rows if row[1] not in seen)

    def count(self, expression: str, *, at_most: int) -> int:
        """Return the number of rows that match an expression, or `at_most` if there are more."""
        assert self._connection is not None
        count = self._counts.get((expression, at_most))
        if count is None:
            if len(self._counts) >= _COUNTS_MAX:
                self._counts.clear()
            query = "SELECT count(*) FROM (SELECT 1 FROM texts WHERE texts MATCH ? LIMIT ?)"
            count = int(self._connection.execute(query, (expression, at_most)).fetchone()[0])
            self._counts[expression, at_most] = count
        return count

    def items_below(self, expression: str, prefix: str, *, first: int) -> Iterator[tuple[str, int]]:
        """Yield the key and hash of the texts of entries whose keys begin with a prefix, best first.

        Only the `work` of `read` may call this. `first` is as for `matches`.
        """
        bound = json.dumps([prefix], ensure_ascii=False).removesuffix('"]')
        values = (expression, ENTRY, bound, bound + _LAST)
        for _score, _number, path, hash in self._best(_BEST_BELOW, values, first):
            yield _key_in(path), hash

    def _all_sources(self, connection: sqlite3.Connection) -> Iterator[tuple[int, TextSource]]:
        query = "SELECT id, kind, thread, branch, path FROM sources WHERE id > ? ORDER BY id"
        for number, *fields in connection.execute(query, (self._last_source,)):
            self._source_rows[number] = _source(*fields)
            self._last_source = number
        return iter(self._source_rows.items())


def _key_in(path: str) -> str:
    """Return the first name of a path that is stored as a JSON list."""
    key: str = json.loads(path)[0] if "\\" in path else path[2 : path.index('"', 2)]
    return key


def _source(kind: int, thread: int, branch: int, path: str) -> TextSource:
    try:
        return TextSource(kind, thread, branch, tuple(json.loads(path)))
    except (TypeError, ValueError) as error:
        message = "a path is damaged"
        raise _StaleError(message) from error


_REASONS = {
    "format": "a different release of statelog created it",
    "store": "it was built from a different store",
    "file": "the file of the store was replaced",
    "configuration": "configure_search was called",
}


def _meta(connection: sqlite3.Connection, name: str) -> Any:
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise _StaleError(_REASONS["format"])
    return row[0]


def _chain_at(view: View, lsn: int) -> bytes:
    """Return the chain digest at an LSN; empty if the log does not have that LSN."""
    try:
        found = read_chained(view.transaction.get_log, lsn) if lsn else None
    except StatelogError:
        return b""
    return b"" if found is None else found[1]


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
