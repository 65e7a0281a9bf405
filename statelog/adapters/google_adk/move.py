"""Copies sessions of ADK's DatabaseSessionService and SqliteSessionService to a store. Each event becomes a version."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from google.adk.sessions.database_session_service import DatabaseSessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.sessions.state import State

from statelog.adapters.google_adk.scopes import ORDER, PREFIX, STATE, UPDATED, Scopes, merging, split_state
from statelog.adapters.google_adk.sessions import EVENTS, SESSION, read_session
from statelog.adapters.kit import lives
from statelog.adapters.kit.databases import copied
from statelog.adapters.kit.migration import copy_once, reading
from statelog.adapters.kit.ordered import Json
from statelog.adapters.kit.thread_ids import join_names, map_key, thread_id
from statelog.errors import ConflictError, FormatError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from google.adk.events.event import Event
    from google.adk.sessions.session import Session

    from statelog import Store
    from statelog.adapters.kit.databases import DatabaseCopy
    from statelog.store.threads import Threads
    from statelog.store.transaction import Transaction

_OLD_COLUMN, _NEW_TABLE = "actions", "adk_internal_metadata"
"""A column of DatabaseSessionService's first schema, and a table of its second. SqliteSessionService has neither."""

_SESSIONS = "SELECT app_name, user_id, id FROM sessions ORDER BY app_name, user_id, id"
_USERS = "SELECT app_name, user_id FROM user_states WHERE state <> '{}' EXCEPT SELECT app_name, user_id FROM sessions"
_APPS = """
    SELECT app_name FROM app_states WHERE state <> '{}' EXCEPT SELECT app_name FROM sessions
    EXCEPT SELECT app_name FROM user_states WHERE state <> '{}'
"""
"""Queries for sessions, for users with a state but no session, and for apps with a state but no session or user."""

_SHARED = (State.APP_PREFIX, State.USER_PREFIX)


@contextmanager
def opened(path: Path) -> Iterator[_AdkDatabase]:
    """Yield the sessions of a database, from a consistent copy. The file is not written to.

    Raises:
        FormatError: the file is not a database of ADK's sessions.
        UsageError: ADK needs a package that is not installed to read this database.
    """
    with (
        copied(path, "ADK's sessions", "sessions", "events", "app_states", "user_states") as database,
        asyncio.Runner() as runner,
    ):
        service = _service_of(database)
        try:
            keys = [key for query in (_SESSIONS, _USERS, _APPS) for key in database.rows(query)]
            yield _AdkDatabase(runner, service, keys)
        finally:
            runner.run(service.close())


def _service_of(database: DatabaseCopy) -> DatabaseSessionService | SqliteSessionService:
    columns = {name for (name,) in database.rows("SELECT name FROM pragma_table_info('events')")}
    if _NEW_TABLE not in database.tables() and _OLD_COLUMN not in columns:
        return SqliteSessionService(str(database.path))
    try:
        return DatabaseSessionService(f"sqlite+aiosqlite:///{database.path}")
    except ImportError as error:
        message = (
            f"reading this database needs SQLAlchemy, which is not installed: pip install 'google-adk[db]' ({error})"
        )
        raise UsageError(message) from error


class _AdkDatabase:
    unit = "session"
    remarks = ()

    def __init__(
        self,
        runner: asyncio.Runner,
        service: DatabaseSessionService | SqliteSessionService,
        keys: Sequence[tuple[str, ...]],
    ) -> None:
        self._runner = runner
        self._service = service
        self._keys = {join_names(*key): key for key in keys}

    def names(self) -> Sequence[str]:
        """Return sessions as `app/user/id`, and users and apps with a state but no session as `app/user` and `app`."""
        return list(self._keys)

    def copy(self, name: str, store: Store) -> bool:
        """Copy a session and its shared state in one transaction, and compare the copy.

        See `statelog.adapters.kit.migration.MigrationSource`.
        """
        key = self._keys[name]
        with reading(f"session {name!r}"):
            wanted = self._runner.run(self._read(*key))
        if len(key) == len(("app", "user", "session")):
            move: _Shared = _WholeSession(wanted)
        else:
            move = _Shared(wanted, has_user=len(key) > 1)
        return copy_once(store, f"session {name!r}", move.wanted, held=move.held, write=move.write)

    async def _read(self, app_name: str, user_id: str | None = None, session_id: str | None = None) -> Session:
        if session_id is None:  # Create a session in the copied database, because it shows the shared state.
            return await self._service.create_session(app_name=app_name, user_id=user_id or uuid.uuid4().hex)
        found = await self._service.get_session(app_name=app_name, user_id=user_id or "", session_id=session_id)
        if found is None:
            message = "it is listed, but does not exist"
            raise FormatError(message)
        return found


class _Shared:
    """The state that the sessions of a user or an app share.

    The store may have more values than the database. Missing values are added, and existing values are not changed.
    """

    def __init__(self, source: Session, *, has_user: bool) -> None:
        self._source = source
        self._has_user = has_user
        self._scopes = split_state(source.state)

    @property
    def wanted(self) -> Any:
        return self._source.state

    def held(self, within: Threads) -> Any:
        known = Scopes(within, self._source.app_name, self._source.user_id).shared_state()
        shared = {key: value for key, value in known.items() if key in self._source.state}
        return shared if len(shared) == len(self._source.state) else None

    def write(self, tx: Transaction) -> None:
        scopes = Scopes(tx, self._source.app_name, self._source.user_id)
        app, user = self._scopes["app"], self._scopes["user"]
        _check_shared(scopes.app(), app, scopes.app_thread)
        if self._has_user:
            _check_shared(scopes.user(), user, scopes.user_thread)
            self._write_user(scopes, user)
        scopes.write_app(app, {map_key(scopes.user_id): scopes.user_id} if self._has_user else None)

    def _write_user(self, scopes: Scopes, state: dict[str, Json]) -> None:
        scopes.write_user(state)


class _WholeSession(_Shared):
    """A session with its own and its shared state."""

    def __init__(self, source: Session) -> None:
        super().__init__(source, has_user=True)
        self._id = source.id.strip()  # ADK's services and StatelogSessionService strip ids as well.

    @property
    def wanted(self) -> Any:
        return self._source.state, self._source.events, self._source.last_update_time

    def held(self, within: Threads) -> Any:
        found = read_session(within, self._source.app_name, self._source.user_id, self._id)
        if found is None:
            return None
        state = {
            key: value for key, value in found.state.items() if key in self._source.state or not key.startswith(_SHARED)
        }
        return state, found.events, found.last_update_time

    def write(self, tx: Transaction) -> None:
        super().write(tx)
        id = thread_id(PREFIX, self._source.app_name, self._source.user_id, self._id)
        first, *rest = _versions(self._source, self._scopes["session"])
        lives.write(tx, id, SESSION, lambda thread: thread.commit(first, expected_version=-1))
        thread = tx.thread(id, schema=SESSION)
        for event, change in zip(self._source.events, rest, strict=True):
            thread.commit(change, metadata={"event": event.id})

    def _write_user(self, scopes: Scopes, state: dict[str, Json]) -> None:
        scopes.show(self._id, self._source.last_update_time, whole=self._scopes["session"], of_user=state)


def _versions(session: Session, last: dict[str, Json]) -> Iterator[dict[str, Any]]:
    """Yield the initial state of a session, as far as it is known, and then the changes made by each event.

    Values that no event has set belong to the initial state.

    Args:
        session: the session from the database.
        last: the session's own state, encoded.
    """
    deltas = [split_state(event.actions.state_delta)["session"] for event in session.events]
    set_later = {key for delta in deltas for key in delta}
    state = {key: value for key, value in last.items() if key not in set_later}
    updated = session.events[0].timestamp if session.events else session.last_update_time
    yield {EVENTS: [], STATE: dict(state), ORDER: list(state), UPDATED: updated}
    for event, delta in zip(session.events, deltas, strict=True):
        at, change = event.timestamp, delta
        if event is session.events[-1]:  # After the last event, the state must equal the state in the database.
            after = {**state, **delta}
            rest = {key: value for key, value in last.items() if after.get(key) != value}
            at, change = session.last_update_time, {**delta, **rest}
        yield {EVENTS: [_encode(event)], UPDATED: at, **merging({STATE: state}, change)}
        state.update(change)


def _encode(event: Event) -> Json:
    return Json(event.model_dump_json(exclude_none=True))


def _check_shared(known: Any, new: dict[str, Json], thread: str) -> None:
    state = known.get(STATE, {})
    for key, value in new.items():
        if key in state and state[key].value != value.value:
            message = f"the store has a different value of {key!r} in thread {thread!r}"
            raise ConflictError(message, thread=thread)
