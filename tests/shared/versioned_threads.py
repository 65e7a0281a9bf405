"""Threads and entries of schema version 1 and their migration to version 3, for tests that kill it."""

from __future__ import annotations

import statelog
from statelog import reducers, versioned
from statelog.store import entry_migrations, migrations

THREADS = ENTRIES = 9
_GROUP_THREADS = 4
"""The number of threads or entries that one transaction migrates. There are three transactions."""


def schema_of_version_3():
    """Return the schema with its steps."""
    schema = versioned({"memories": reducers.append, "count": int, "size": int}, name="chat", version=3)
    schema.rename(1, "notes", "memories")
    schema.step(2)(lambda state: {**state, "size": len(state["memories"])})
    return schema


def build(path):
    """Make the threads, each with a branch."""
    with statelog.open(path) as store, store.transaction() as tx:
        for number in range(THREADS):
            thread = tx.thread(f"chat-{number}", schema={"notes": reducers.append, "count": int})
            thread.commit({"notes": "a" * 50, "count": number})
            thread.fork("other", update={"notes": "b"})


def migrate(path):
    """Migrate all threads."""
    migrations._GROUP_THREADS_MAX = _GROUP_THREADS
    with statelog.open(path) as store:
        store.migrate(schema_of_version_3(), threads="chat-*")


def build_entries(path):
    """Make the entries."""
    with statelog.open(path) as store, store.transaction() as tx:
        for number in range(ENTRIES):
            tx.board().set(f"tasks/{number}", {"notes": ["a" * 50], "count": number})


def migrate_entries(path):
    """Migrate all entries."""
    entry_migrations._GROUP_ENTRIES_MAX = _GROUP_THREADS
    with statelog.open(path) as store:
        store.board().schema("tasks/*", schema_of_version_3())
        store.board().migrate()
