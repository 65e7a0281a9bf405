"""Sessions of ADK. Each session is stored as a thread. Each event is one commit with all its changes."""

from __future__ import annotations

import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from google.adk.errors._invocation_not_found_error import InvocationNotFoundError
from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events._rewind_events import _apply_rewinds
from google.adk.events.event import Event
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session
from google.adk.sessions.state import State
from pydantic import TypeAdapter

import statelog
from statelog import reducers
from statelog.adapters.google_adk.scopes import (
    LONG,
    ORDER,
    ORDERS,
    PREFIX,
    STATE,
    STATES,
    UPDATED,
    USERS,
    Scopes,
    merging,
    split_state,
    values,
    values_of,
)
from statelog.adapters.kit import items as stored_items
from statelog.adapters.kit import lives
from statelog.adapters.kit.ordered import Json, join_list
from statelog.adapters.kit.thread_ids import map_key, thread_id
from statelog.aio.bridge import run
from statelog.errors import CheckpointNotFoundError, ConflictError, ExpiredError, ThreadDeletedError
from statelog.schema import Schema

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from typing import Self

    from statelog import Checkpoint, Store
    from statelog.store.threads import Threads
    from statelog.store.transaction import Transaction

EVENTS = "events"
SESSION = Schema.of({EVENTS: reducers.extend, STATE: reducers.merge, ORDER: reducers.extend, UPDATED: reducers.replace})
_EVENTS = TypeAdapter(list[Event])
_NOT_OF_SESSION = (State.APP_PREFIX, State.USER_PREFIX, State.TEMP_PREFIX)


class StatelogSessionService(BaseSessionService):
    """ADK's session service on a store. Any number of processes may use it.

    One transaction writes an event, the states of its session, user and app, and the listed data. A session object is
    stale if the session has changed since it was read: an append to it raises StaleSessionError.

    Args:
        store: an open store. The caller closes it. `StatelogSessionService.open(path)` opens a store itself.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._owns_store = False

    @classmethod
    def open(cls, path: str | os.PathLike[str], **options: Any) -> Self:
        """Open a store for this service. `close` closes it. Options are as for `statelog.open`."""
        made = cls(statelog.open(path, **options))
        made._owns_store = True
        return made

    async def close(self) -> None:
        """Close the store if `open` opened it."""
        if self._owns_store:
            await run(self.store.close)

    # --- methods of ADK's interface -------------------------------------------------

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        """Create a session. Raises AlreadyExistsError if the id is in use."""
        id = (session_id or "").strip() or str(uuid.uuid4())
        await run(self._create, app_name, user_id, id, split_state(state))
        made = await self.get_session(app_name=app_name, user_id=user_id, session_id=id)
        if made is None:
            message = f"Session {id} was deleted while it was being created."
            raise SessionNotFoundError(message)
        return made

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """Return a session, or None."""
        return await run(self._get, app_name, user_id, session_id.strip(), config)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the sessions of a user, or of all users, without events. The most recently changed one is last."""
        return ListSessionsResponse(sessions=await run(self._list, app_name, user_id))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session with all its versions. The id can be used again."""
        await run(self._delete, app_name, user_id, session_id.strip())

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state that all sessions of a user share. Names have no prefix."""
        return await run(lambda: values_of(Scopes(self.store, app_name, user_id).user()))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event. Partial events are not stored.

        Raises:
            SessionNotFoundError: the session was deleted.
            StaleSessionError: the session has changed since `session` was read. Nothing was stored.
            InvocationNotFoundError: the event is a rewind to a turn that an earlier rewind dropped. Nothing was stored.
        """
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        marker = await run(self._append, session, event)
        session._storage_update_marker = marker  # noqa: SLF001 - ADK's own services use it for their marker
        session.last_update_time = event.timestamp
        return self._commit_event_to_session(session, event)

    # --- methods that ADK's own services lack ----------------------------------------

    async def fork_session(
        self, *, app_name: str, user_id: str, session_id: str, at: str | None = None, new_session_id: str | None = None
    ) -> Session:
        """Create a session with the state and events that another session had right after an event.

        The sessions share these events: no event is stored again.

        Args:
            app_name: the app of both sessions.
            user_id: the user of both sessions.
            session_id: the existing session.
            at: the id of the event. By default, the last event.
            new_session_id: the id of the new session. By default, a generated id.

        Raises:
            SessionNotFoundError: the session does not exist.
            AlreadyExistsError: the new id is in use.
            ValueError: the session has no such event, or retention has removed its version.
        """
        new = (new_session_id or "").strip() or str(uuid.uuid4())
        await run(self._fork, app_name, user_id, session_id.strip(), at, new)
        made = await self.get_session(app_name=app_name, user_id=user_id, session_id=new)
        assert made is not None, "the new session"
        return made

    # --- access to the store ---------------------------------------------------------

    def _create(self, app_name: str, user_id: str, session_id: str, state: dict[str, dict[str, Json]]) -> None:
        id = thread_id(PREFIX, app_name, user_id, session_id)
        now = time.time()
        first = {EVENTS: [], STATE: state["session"], ORDER: list(state["session"]), UPDATED: now}

        def create(tx: Transaction) -> None:
            scopes = Scopes(tx, app_name, user_id)
            lives.write(tx, id, SESSION, lambda thread: thread.commit(first, expected_version=-1))
            scopes.show(session_id, now, whole=state["session"], of_user=state["user"])
            user = {map_key(user_id): user_id}
            if state["app"] or user.keys() - scopes.app().get(USERS, {}).keys():
                scopes.write_app(state["app"], user)

        try:
            lives.transact(self.store, create)
        except ConflictError as error:
            raise _there_already(session_id) from error

    def _get(self, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None) -> Session | None:
        with self.store.snapshot() as snapshot:
            return read_session(snapshot, app_name, user_id, session_id, config)

    def _list(self, app_name: str, user_id: str | None) -> list[Session]:
        with self.store.snapshot() as snapshot:
            if user_id is None:
                users: Iterable[str] = Scopes(snapshot, app_name, "").app().get(USERS, {}).values()
            else:
                users = (user_id,)
            found = [session for user in users for session in _shown(Scopes(snapshot, app_name, user), app_name)]
        return sorted(found, key=lambda session: (session.last_update_time, session.user_id, session.id))

    def _delete(self, app_name: str, user_id: str, session_id: str) -> None:
        def delete(tx: Transaction) -> None:
            lives.gone(tx, thread_id(PREFIX, app_name, user_id, session_id))
            Scopes(tx, app_name, user_id).forget(session_id)

        lives.transact(self.store, delete)

    def _append(self, session: Session, event: Event) -> str:
        if _rewound_to(event):
            _restore_state(self.store, _thread_of(session), event)
        delta = split_state(event.actions.state_delta)
        text = Json(event.model_dump_json(exclude_none=True))
        try:
            with self.store.transaction() as tx:
                scopes = Scopes(tx, session.app_name, session.user_id)
                thread = tx.thread(_thread_of(session), schema=SESSION)
                head = _head_that(session, thread.head)
                write = {EVENTS: [text], UPDATED: event.timestamp, **merging(head.state, delta["session"])}
                made = thread.commit(write, expected_version=head, metadata={"event": event.id})
                shown = session.id, event.timestamp, delta["session"], delta["user"]
                if head.kind == "rollback" or not scopes.show_change(*shown):
                    scopes.show(session.id, event.timestamp, whole=_kept_state(made), of_user=delta["user"])
                if delta["app"]:
                    scopes.write_app(delta["app"])
        except ThreadDeletedError as error:
            raise _no_session(session.id) from error
        except ConflictError as error:
            raise _stale(session) from error
        return made.id

    def _fork(self, app_name: str, user_id: str, session_id: str, at: str | None, new: str) -> None:
        source, target = (thread_id(PREFIX, app_name, user_id, id) for id in (session_id, new))
        try:
            with self.store.transaction() as tx:
                scopes = Scopes(tx, app_name, user_id)
                thread = tx.thread(source, schema=SESSION)
                if thread.version < 0:
                    raise _no_session(session_id)
                found = thread.head if at is None else _version_with(thread.head, at)
                if found is None:
                    message = f"Session {session_id} has no event {at!r}, or its version was removed"
                    raise ValueError(message)
                copied = tx.copy_thread(source, target, recreate=True)
                made = copied.head
                if at is not None:
                    made = copied.rollback(found.version, metadata={"fork of": session_id, "at": at})
                assert made is not None, "what was copied"
                scopes.show(new, made.state[UPDATED], whole=_kept_state(made), of_user={})
        except ConflictError as error:  # A thread with the new id exists.
            raise _there_already(new) from error


def read_session(
    within: Threads, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
) -> Session | None:
    """Return a session with its shared state, or None."""
    head = within.thread(thread_id(PREFIX, app_name, user_id, session_id), schema=SESSION).head
    if head is None:
        return None
    made = Session(
        id=session_id,
        app_name=app_name,
        user_id=user_id,
        state={**values_of(head.state), **Scopes(within, app_name, user_id).shared_state()},
        last_update_time=head.state[UPDATED],
        events=_read_events(head, config),
    )
    made._storage_update_marker = head.id  # noqa: SLF001 - see `append_event`
    return made


def _there_already(session_id: str) -> AlreadyExistsError:
    return AlreadyExistsError(f"Session with id {session_id} already exists.")


def _no_session(session_id: str) -> SessionNotFoundError:
    return SessionNotFoundError(f"Session {session_id} not found.")


def _stale(session: Session) -> StaleSessionError:
    return StaleSessionError(f"Session {session.id} was changed since it was read.")


def _thread_of(session: Session) -> str:
    return thread_id(PREFIX, session.app_name, session.user_id, session.id)


def _head_that(session: Session, head: Checkpoint[Any] | None) -> Checkpoint[Any]:
    """Return `head` if `session` was read at this head. If the session has no marker, its update time decides.

    Raises:
        SessionNotFoundError, StaleSessionError: as in `append_event`.
    """
    if head is None:
        raise _no_session(session.id)
    marker = session._storage_update_marker  # noqa: SLF001 - see `append_event`
    if session.last_update_time < head.state[UPDATED] if marker is None else marker != head.id:
        raise _stale(session)
    return head


def _kept_state(made: Checkpoint[Any]) -> dict[str, Json]:
    """Return a session's encoded state, with the names in order of arrival."""
    kept = made.state[STATE]
    return {name: kept[name] for name in made.state.get(ORDER, ())}


def _read_events(head: Checkpoint[Any], config: GetSessionConfig | None) -> list[Event]:
    start = 0
    if config is not None and config.num_recent_events is not None:
        stored = stored_items.get(head.state, EVENTS)
        start = max(0 if stored is None else stored_items.count(stored) - config.num_recent_events, 0)
    events = _EVENTS.validate_json(join_list(head.state, EVENTS, start))
    after = 0.0 if config is None else config.after_timestamp or 0.0
    window = [event for event in events if event.timestamp >= after]
    if config is None or not any(_rewound_to(event) for event in window):
        return window
    # ADK ignores a rewind to a turn before the window, and would show the turns that the rewind has dropped. So apply
    # the rewinds to all events first.
    live = {event.id for event in _apply_rewinds(_read_events(head, None))}
    return [event for event in window if event.id in live or _rewound_to(event)]


def _rewound_to(event: Event) -> str | None:
    return event.actions.rewind_before_invocation_id if event.actions else None


def _shown(scopes: Scopes, app_name: str) -> Iterable[Session]:
    user = scopes.user()
    updated = user.get(UPDATED, {})
    shared = scopes.shared_state() if updated else {}
    states, orders, long = user.get(STATES, {}), user.get(ORDERS, {}), user.get(LONG, {})
    for key, at in updated.items():
        order = orders.get(key)
        state = {**values(states.get(key, {}), () if order is None else order.value), **shared}
        yield Session(
            id=long.get(key, key), app_name=app_name, user_id=scopes.user_id, state=state, last_update_time=at
        )


def _version_with(head: Checkpoint[Any] | None, event_id: str) -> Checkpoint[Any] | None:
    """Return the version that stored an event: `head` or one of its ancestors, never a rolled-back version."""
    made = head
    with suppress(CheckpointNotFoundError, ExpiredError):  # Retention may have removed the earlier versions.
        while made is not None and made.metadata.get("event") != event_id:
            made = made.parent
        return made
    return None


def _restore_state(within: Threads, id: str, event: Event) -> None:
    """Make a rewind event restore the whole earlier state, including the values with which the session was created.

    ADK replays the deltas of events, which lack those values (adk-python#4933).

    Raises:
        InvocationNotFoundError: an earlier rewind has dropped the turn. ADK would show the turns before it again.
    """
    head = within.thread(id, schema=SESSION).head
    if head is None:
        return
    before = _rewound_to(event)
    first = next((each for each in _apply_rewinds(_read_events(head, None)) if each.invocation_id == before), None)
    if first is None:
        message = f"Invocation ID not found: {before}. An earlier rewind has dropped it, or the session never had it."
        raise InvocationNotFoundError(message)
    made = _version_with(head, first.id)
    if made is None:
        return
    try:
        parent = made.parent
    except (CheckpointNotFoundError, ExpiredError):
        parent = None
    if parent is None:  # Retention has removed the earlier version, so ADK's own delta stays.
        return
    then, now = values_of(parent.state), values_of(head.state)
    delta = {key: value for key, value in event.actions.state_delta.items() if key.startswith(_NOT_OF_SESSION)}
    delta |= {key: None for key in now if key not in then and now[key] is not None}
    delta |= {key: value for key, value in then.items() if key not in now or now[key] != value}
    event.actions.state_delta = delta
