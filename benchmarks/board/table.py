"""A simple board in SQLite: a table of entries, a table of tasks, and polling. It keeps no history."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.sqlite_peer import BUSY_TIMEOUT_S, FULL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

POLL_S = 0.01
"""The time between two polls for a task."""

_TABLES = """
CREATE TABLE entry (key TEXT PRIMARY KEY, value TEXT, version INTEGER, agent TEXT, created_us INTEGER,
                    time_us INTEGER) WITHOUT ROWID;
CREATE TABLE counter (key TEXT PRIMARY KEY, n INTEGER) WITHOUT ROWID;
CREATE TABLE task (id INTEGER PRIMARY KEY, state TEXT, priority INTEGER, body TEXT, owner TEXT, until_us INTEGER,
                   result TEXT);
CREATE INDEX task_order ON task (state, priority, id);
"""
_ENTRY = """
INSERT INTO entry VALUES (?, ?, 1, 'bench', ?, ?)
ON CONFLICT DO UPDATE SET value = excluded.value, version = version + 1, agent = excluded.agent,
                          time_us = excluded.time_us
"""
_CLAIM = """
UPDATE task SET state = 'claimed', owner = ?, until_us = ? WHERE id =
    (SELECT id FROM task WHERE state = 'pending' ORDER BY priority, id LIMIT 1)
RETURNING id, body
"""
_COMPLETE = "UPDATE task SET state = 'done', result = ? WHERE id = ? AND state = 'claimed' AND owner = ?"


class SqliteBoard:
    """One connection, for one OS thread."""

    def __init__(self, path: Path, synchronous: str) -> None:
        self._connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        self._connection.execute(f"PRAGMA synchronous={synchronous}")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def set(self, key: str, value: Any) -> None:
        """Commit an entry."""
        now_us = time.time_ns() // 1000
        self._connection.execute(_ENTRY, (key, json.dumps(value), now_us, now_us))

    def fill(self, entries: Iterable[tuple[str, Any]]) -> None:
        """Commit several entries in one transaction."""
        now_us = time.time_ns() // 1000
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(_ENTRY, ((key, json.dumps(value), now_us, now_us) for key, value in entries))
        self._connection.execute("COMMIT")

    def get(self, key: str) -> tuple[Any, ...]:
        """Return an entry."""
        found = self._connection.execute("SELECT * FROM entry WHERE key = ?", (key,)).fetchone()
        return found[0], json.loads(found[1]), *found[2:]

    def list(self, prefix: str, limit: int, *, reverse: bool = False) -> list[tuple[Any, ...]]:
        """Return entries below a prefix that ends in `/`, sorted by key. `reverse` sorts them in descending order."""
        order = "DESC" if reverse else "ASC"
        rows = self._connection.execute(
            f"SELECT * FROM entry WHERE key >= ? AND key < ? ORDER BY key {order} LIMIT ?",
            (prefix, prefix[:-1] + "0", limit),
        )
        return [(row[0], json.loads(row[1]), *row[2:]) for row in rows.fetchall()]

    def begin_counting(self, key: str) -> None:
        """Commit a counter with the value 0."""
        self._connection.execute("INSERT INTO counter VALUES (?, 0)", (key,))

    def count(self, key: str) -> None:
        """Commit an increment of the counter."""
        self._connection.execute("UPDATE counter SET n = n + 1 WHERE key = ?", (key,))

    def counted(self, key: str) -> int:
        """Return the value of a counter."""
        return int(self._connection.execute("SELECT n FROM counter WHERE key = ?", (key,)).fetchone()[0])

    def put_tasks(self, tasks: Iterable[tuple[int, Any]]) -> None:
        """Commit several tasks with their priorities in one transaction."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(
            "INSERT INTO task (state, priority, body) VALUES ('pending', ?, ?)",
            ((priority, json.dumps(body)) for priority, body in tasks),
        )
        self._connection.execute("COMMIT")

    def claim(self, owner: str, lease_s: float) -> tuple[int, Any] | None:
        """Commit a claim of a task. Return the id and body of the task, or None if there is no task."""
        self._connection.execute("BEGIN IMMEDIATE")
        until_us = time.time_ns() // 1000 + int(lease_s * 1e6)
        found = self._connection.execute(_CLAIM, (owner, until_us)).fetchone()
        self._connection.execute("COMMIT")
        return None if found is None else (found[0], json.loads(found[1]))

    def wait_for_claim(self, owner: str, lease_s: float, wait_s: float) -> tuple[int, Any] | None:
        """Poll until there is a task to claim."""
        until_s = time.monotonic() + wait_s
        while (found := self.claim(owner, lease_s)) is None and time.monotonic() < until_s:
            time.sleep(POLL_S)
        return found

    def complete(self, number: int, owner: str, result: Any) -> None:
        """Commit the completion of a task."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute(_COMPLETE, (json.dumps(result), number, owner))
        self._connection.execute("COMMIT")

    def count_done(self) -> int:
        """Return the number of completed tasks."""
        return int(self._connection.execute("SELECT count(*) FROM task WHERE state = 'done'").fetchone()[0])


@contextmanager
def connected(path: Path, *, synchronous: str = FULL) -> Iterator[SqliteBoard]:
    """Open a connection to a database. Create the database if it does not exist."""
    if not path.exists():
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.executescript(_TABLES)
    table = SqliteBoard(path, synchronous)
    try:
        yield table
    finally:
        table.close()
