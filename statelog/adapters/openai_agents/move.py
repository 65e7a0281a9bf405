"""Copies sessions of the SDK's SQLiteSession and AdvancedSQLiteSession to a store, with their branches."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession

from statelog.adapters.kit import lives
from statelog.adapters.kit.databases import copied
from statelog.adapters.kit.migration import copy_once, reading
from statelog.adapters.kit.ordered import read_list
from statelog.adapters.kit.shared_parts import settle
from statelog.adapters.openai_agents.conversation import ITEMS, MAIN, SCHEMA, TURNS, encode_items
from statelog.adapters.openai_agents.session import StatelogSession
from statelog.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from statelog import Store, Thread
    from statelog.adapters.kit.databases import DatabaseCopy
    from statelog.store.threads import Threads
    from statelog.store.transaction import Transaction

_STRUCTURE = "message_structure"
_ITEMS = "SELECT 'main', COUNT(*) FROM agent_messages WHERE session_id = ?"
_ITEMS_OF_BRANCHES = "SELECT branch_id, COUNT(*) FROM message_structure WHERE session_id = ? GROUP BY branch_id"


@contextmanager
def opened(path: Path) -> Iterator[_AgentsDatabase]:
    """Yield the sessions of a database, from a consistent copy. The file is not written to.

    Raises:
        FormatError: the file is not a database of the SDK's sessions.
    """
    with copied(path, "the SDK's sessions", "agent_sessions") as database:
        rows = database.rows("SELECT session_id FROM agent_sessions ORDER BY session_id")
        yield _AgentsDatabase(database, [name for (name,) in rows], has_branches=_STRUCTURE in database.tables())


class _AgentsDatabase:
    unit = "session"
    remarks = ()

    def __init__(self, database: DatabaseCopy, names: Sequence[str], *, has_branches: bool) -> None:
        self._database = database
        self._path = database.path
        self._names = names
        self._has_branches = has_branches

    def names(self) -> Sequence[str]:
        """Return the ids of the sessions."""
        return self._names

    def copy(self, name: str, store: Store) -> bool:
        """Copy a session in one transaction, and compare the copy.

        See `statelog.adapters.kit.migration.MigrationSource`.
        """
        what = f"session {name!r}"
        with reading(what):
            wanted = asyncio.run(self._read(name))
            self._check_whole(name, wanted)
        id = StatelogSession(name, store).thread_id

        def write(tx: Transaction) -> None:
            lives.write(tx, id, SCHEMA, lambda thread: thread.edit(_setting(wanted[MAIN]), expected_version=-1))
            for branch, items in wanted.items():
                if branch != MAIN:
                    tx.thread(id).fork(branch).edit(_setting(items), lazy=True)

        return copy_once(store, what, wanted, held=lambda within: _held(within, id), write=write)

    def _check_whole(self, name: str, wanted: dict[str, list[Any]]) -> None:
        """Raise FormatError if the database has items that are not JSON, because the SDK's classes skip them."""
        counts = dict(self._database.rows(_ITEMS_OF_BRANCHES if self._has_branches else _ITEMS, name))
        for each, items in wanted.items():
            if len(items) != counts.get(each, 0):
                message = f"{counts.get(each, 0) - len(items)} items of branch {each!r} cannot be read"
                raise FormatError(message)

    async def _read(self, name: str) -> dict[str, list[Any]]:
        """Return the items of a session, keyed by branch."""
        if not self._has_branches:
            plain = SQLiteSession(name, self._path)
            try:
                return {MAIN: list(await plain.get_items())}
            finally:
                plain.close()
        session = AdvancedSQLiteSession(session_id=name, db_path=self._path, create_tables=True)
        try:
            names = [each["branch_id"] for each in await session.list_branches()]
            found = {each: list(await session.get_items(branch_id=each)) for each in names}
        finally:
            session.close()
        return {MAIN: found.pop(MAIN, []), **found}


def _setting(items: list[Any]) -> Any:
    encoded, begins = encode_items(items)

    def change(state: Any) -> None:
        settle(state, ITEMS, encoded)
        settle(state, TURNS, begins)

    return change


def _held(within: Threads, id: str) -> dict[str, list[Any]] | None:
    thread: Thread[Any, Any] = within.thread(id, schema=SCHEMA)
    if thread.version < 0:
        return None
    return {info.name: read_list(thread.checkout(info.name).state, ITEMS) for info in thread.branches()}
