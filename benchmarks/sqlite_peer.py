"""Does the same work in the standard library's SQLite, with a WAL and `synchronous=FULL` or `NORMAL`.

A commit inserts one row for the message and one for the new version, in one transaction, like an agent's own table. It
keeps no earlier states and no digests, which favours SQLite.
"""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

NAME = "SQLite"
DURABILITY = "WAL, synchronous=FULL"
FULL = "FULL"
"""A power failure loses no acknowledged commit, as with `commit`."""
NORMAL = "NORMAL"
"""A power failure loses the commits since the last WAL checkpoint. With `interval`, it loses fewer."""

BUSY_TIMEOUT_S = 60.0

_TABLES = """
CREATE TABLE message (thread TEXT, version INTEGER, body TEXT, PRIMARY KEY (thread, version)) WITHOUT ROWID;
CREATE TABLE checkpoint (thread TEXT, version INTEGER, time_us INTEGER, metadata TEXT,
                         PRIMARY KEY (thread, version)) WITHOUT ROWID;
CREATE TABLE state (thread TEXT, channel TEXT, value TEXT, PRIMARY KEY (thread, channel)) WITHOUT ROWID;
"""


class SqlitePeer:
    """One connection, for one OS thread. Statements are prepared once, because sqlite3 caches them."""

    def __init__(self, path: Path, thread: str, synchronous: str) -> None:
        self._connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        self._connection.execute(f"PRAGMA synchronous={synchronous}")
        self._thread = thread
        self._version = -1

    def append(self, message: Mapping[str, object]) -> None:
        """Commit a message."""
        with self._transaction():
            self._connection.execute(
                "INSERT INTO message VALUES (?, ?, ?)", (self._thread, self._version + 1, json.dumps(message))
            )

    def write(self, channel: str, value: object) -> None:
        """Commit a value."""
        with self._transaction():
            self._connection.execute(
                "INSERT INTO state VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
                (self._thread, channel, json.dumps(value)),
            )

    def read(self, channel: str) -> object:
        """Return the value of a channel."""
        query = "SELECT value FROM state WHERE thread = ? AND channel = ?"
        return json.loads(self._connection.execute(query, (self._thread, channel)).fetchone()[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            yield
            version = self._version + 1
            execute(
                "INSERT INTO checkpoint VALUES (?, ?, ?, ?)",
                (self._thread, version, time.time_ns() // 1000, "{}"),
            )
            execute("COMMIT")
        except BaseException:
            self._connection.rollback()
            raise
        self._version = version

    def close(self) -> None:
        """Close the connection. The last connection copies the write-ahead log into the database file."""
        self._connection.close()


def create(path: Path) -> None:
    """Create a database with its tables."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.executescript(_TABLES)


@contextmanager
def connected(path: Path, thread: str = "agent", *, synchronous: str = FULL) -> Iterator[SqlitePeer]:
    """Open a connection to a database. Create the database if it does not exist."""
    if not path.exists():
        create(path)
    peer = SqlitePeer(path, thread, synchronous)
    try:
        yield peer
    finally:
        peer.close()
