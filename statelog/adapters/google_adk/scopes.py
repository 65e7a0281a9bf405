"""Stores the shared parts of sessions: the app's state, the user's state, and the list of sessions.

A user's thread has the listed data of each session, so that listing reads one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.adk.sessions.state import State
from pydantic_core import to_jsonable_python

from statelog import reducers
from statelog.adapters.kit import lives
from statelog.adapters.kit.ordered import Json
from statelog.adapters.kit.thread_ids import map_key, thread_id
from statelog.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from statelog.store.threads import Threads

PREFIX = "adk"
STATE, ORDER, USERS, UPDATED, STATES, ORDERS, LONG = "state", "order", "users", "updated", "states", "orders", "long"
APP = Schema.of({STATE: reducers.merge, ORDER: reducers.extend, USERS: reducers.merge})
"""The channels of an app's thread. `order` lists the names in `state` in order of arrival, because stored dicts are
sorted. `users` maps keys (see `map_key`) to user ids."""
USER = Schema.of(
    {ORDER: reducers.extend} | dict.fromkeys((STATE, UPDATED, STATES, ORDERS, LONG), reducers.merge),
)
"""The channels of a user's thread. Four of them map a session's key (see `map_key`) to the time of its last change, its
state, the order of the names in this state unless they are sorted, and its id if the id differs from the key."""


def split_state(state: dict[str, Any] | None) -> dict[str, dict[str, Json]]:
    """Return the encoded values of a state, keyed by scope: "app", "user" and "session". Temporary values are left out.

    Raises:
        ValueTypeError: a value cannot be encoded as JSON, even by pydantic.
    """
    found: dict[str, dict[str, Json]] = {"app": {}, "user": {}, "session": {}}
    for key, value in (state or {}).items():
        if key.startswith(State.APP_PREFIX):
            scope, name = "app", key.removeprefix(State.APP_PREFIX)
        elif key.startswith(State.USER_PREFIX):
            scope, name = "user", key.removeprefix(State.USER_PREFIX)
        elif key.startswith(State.TEMP_PREFIX):
            continue
        else:
            scope, name = "session", key
        found[scope][name] = Json.of(value, default=to_jsonable_python)
    return found


def values(kept: Any, order: Iterable[str]) -> dict[str, Any]:
    """Return the decoded values of the stored state `kept`, with the names in the order of `order`."""
    found = {name: item.value for name, item in kept.items()}
    return dict.fromkeys(name for name in order if name in found) | found


def values_of(state: Any) -> dict[str, Any]:
    """Return the decoded values in the state of an app's, a user's or a session's thread, in order of arrival."""
    return values(state.get(STATE, {}), state.get(ORDER, ()))


def merging(state: Any, delta: dict[str, Json]) -> dict[str, Any]:
    """Return the writes that merge `delta` into a thread whose state is `state`."""
    if not delta:
        return {}
    held = state.get(STATE, {})
    new = [name for name in delta if name not in held]
    return {STATE: delta, ORDER: new} if new else {STATE: delta}


class Scopes:
    """Reads and writes the state of an app and of one of its users, in a store, a transaction or a snapshot."""

    def __init__(self, within: Threads, app_name: str, user_id: str) -> None:
        self.within = within
        self.user_id = user_id
        self.app_thread = thread_id(PREFIX, app_name)
        self.user_thread = thread_id(PREFIX, app_name, user_id)

    def app(self) -> Any:
        """Return the state of the app's thread."""
        return self.within.thread(self.app_thread, schema=APP).state

    def user(self) -> Any:
        """Return the state of the user's thread."""
        return self.within.thread(self.user_thread, schema=USER).state

    def shared_state(self) -> dict[str, Any]:
        """Return the state that all sessions of the user share. Names have ADK's prefixes."""
        app, user = values_of(self.app()), values_of(self.user())
        return {
            **{State.APP_PREFIX + name: value for name, value in app.items()},
            **{State.USER_PREFIX + name: value for name, value in user.items()},
        }

    def write_app(self, delta: dict[str, Json], users: dict[str, str] | None = None) -> None:
        """Merge `delta` into the app's state, and `users` into its users."""
        more = {USERS: users} if users else {}
        lives.write(
            self.within, self.app_thread, APP, lambda thread: thread.commit(more | merging(thread.state, delta))
        )

    def write_user(self, delta: dict[str, Json]) -> None:
        """Merge `delta` into the user's state."""
        self._write_user({}, delta)

    def _write_user(self, change: dict[str, Any], delta: dict[str, Json]) -> None:
        lives.write(
            self.within, self.user_thread, USER, lambda thread: thread.commit(change | merging(thread.state, delta))
        )

    def show(
        self, session_id: str, updated: float, *, whole: dict[str, Json] | None = None, of_user: dict[str, Json]
    ) -> None:
        """Write the listed data of a session.

        Args:
            session_id: the session.
            updated: the time of the change.
            whole: the session's complete new state in its order, or None if the state does not change.
            of_user: values to merge into the user's state.
        """
        key = map_key(session_id)
        change: dict[str, Any] = {UPDATED: {key: updated}}
        if whole is not None:
            change[STATES] = {key: whole}
            if (order := list(whole)) != sorted(order):
                change[ORDERS] = {key: Json.of(order)}
            if key != session_id:
                change[LONG] = {key: session_id}
        self._write_user(change, of_user)

    def show_change(self, session_id: str, updated: float, delta: dict[str, Json], of_user: dict[str, Json]) -> bool:
        """Merge `delta` into a listed session's state, and `of_user` into the user's state.

        Return False, and change nothing, if the session is not listed.
        """
        key = map_key(session_id)

        def merge(state: Any) -> bool:
            held = state[STATES].get(key)
            if held is None:
                return False
            state[UPDATED][key] = updated
            if new := [name for name in delta if name not in held]:
                before = state[ORDERS].get(key)
                order = [*(held if before is None else before.value), *new]
                if order != sorted(order):
                    state[ORDERS][key] = Json.of(order)
            for name, item in delta.items():
                held[name] = item
            if of_user:
                state[ORDER].extend([name for name in of_user if name not in state[STATE]])
                for name, item in of_user.items():
                    state[STATE][name] = item
            return True

        return lives.write(self.within, self.user_thread, USER, lambda thread: thread.edit(merge, lazy=True))

    def forget(self, session_id: str) -> None:
        """Remove a session from the list."""

        def remove(state: Any) -> None:
            key = map_key(session_id)
            for channel in (UPDATED, STATES, ORDERS, LONG):
                if key in state.get(channel, {}):
                    del state[channel][key]

        lives.write(self.within, self.user_thread, USER, lambda thread: thread.edit(remove, lazy=True))
