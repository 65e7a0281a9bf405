"""Sessions of the SDK's SQLiteSession and AdvancedSQLiteSession, copied into a store: branches come as branches."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession

from statelog.adapters.kit import lives
from statelog.adapters.kit.ordered import read_list
from statelog.adapters.kit.settling import settle
from statelog.adapters.openai_agents.conversation import ITEMS, MAIN, SCHEMA, TURNS, encode_items
from statelog.adapters.openai_agents.session import StatelogSession
from statelog.errors import ConflictError, FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from statelog import Store, Thread

_SESSIONS, _STRUCTURE = "agent_sessions", "message_structure"


@contextmanager
def opened(path: Path) -> Iterator[_Database]:
    """Yield what a database holds. It is read as it is at this moment; the file is not written to.

    Raises:
        FormatError: it is no database of the SDK's sessions.

    """
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "sessions.db"  # the SDK's classes make tables where they are missing
        try:
            with (
                closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as source,
                closing(sqlite3.connect(copied)) as target,
            ):
                source.backup(target)
                tables = {name for (name,) in target.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
                rows = target.execute(f"SELECT session_id FROM {_SESSIONS} ORDER BY session_id").fetchall()  # noqa: S608
        except sqlite3.Error as error:
            message = f"{path} is no database of the SDK's sessions: {error}"
            raise FormatError(message, path=str(path)) from error
        yield _Database(copied, [name for (name,) in rows], has_branches=_STRUCTURE in tables)


class _Database:
    def __init__(self, path: Path, names: Sequence[str], *, has_branches: bool) -> None:
        self._path = path
        self._names = names
        self._has_branches = has_branches

    def names(self) -> Sequence[str]:
        """Return the ids of the sessions."""
        return self._names

    def copy(self, name: str, store: Store) -> bool:
        """Copy a session in one transaction, and compare. See `statelog.adapters.kit.moving.Source`."""
        wanted = self._read(name)
        session = StatelogSession(name, store)
        if _is_there(store, session.thread_id):
            if _held(store, session.thread_id) != wanted:
                message = f"the store has another session {name!r}"
                raise ConflictError(message, thread=session.thread_id)
            return False
        with store.transaction() as tx:
            lives.write(tx, session.thread_id, SCHEMA, lambda thread: thread.edit(_setting(wanted[MAIN])))
            for branch, items in wanted.items():
                if branch != MAIN:
                    tx.thread(session.thread_id).fork(branch).edit(_setting(items), lazy=True)
        if _held(store, session.thread_id) != wanted:
            message = f"session {name!r} did not come back as it was"
            raise FormatError(message, thread=session.thread_id)
        return True

    def _read(self, name: str) -> dict[str, list[Any]]:
        """Return the items of a session's branches."""
        try:
            return asyncio.run(self._read_branches(name))
        except (sqlite3.Error, ValueError, TypeError) as error:
            message = f"session {name!r} cannot be read: {error}"
            raise FormatError(message, session=name) from error

    async def _read_branches(self, name: str) -> dict[str, list[Any]]:
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


def _is_there(store: Store, id: str) -> bool:
    return store.thread(id).version >= 0


def _held(store: Store, id: str) -> dict[str, list[Any]]:
    thread: Thread[Any, Any] = store.thread(id, schema=SCHEMA)
    return {info.name: read_list(thread.checkout(info.name).state, ITEMS) for info in thread.branches()}
