"""A directory: the names that a framework lists, each with the data that the list shows.

Listing reads one thread for any number of names. The shown data is written in the transaction that changes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog import reducers
from statelog.adapters.kit.lives import write
from statelog.adapters.kit.ordered import Json
from statelog.adapters.kit.thread_ids import map_key
from statelog.schema import Schema

if TYPE_CHECKING:
    from statelog.store.threads import Threads

__all__ = ["Directory"]

_NAMES, _LONG = "names", "long"
_SCHEMA = Schema.of({_NAMES: reducers.merge, _LONG: reducers.merge})
"""The channels of a directory. `long` has the names that differ from their key, by key."""


class Directory:
    """Reads and writes the names in one thread, each with a JSON value.

    Args:
        id: the id of the directory's thread, such as `thread_id("adk", app, user)`.
    """

    def __init__(self, id: str) -> None:
        self.id = id

    def get(self, within: Threads, name: str) -> Any:
        """Return the value of a name, or None."""
        kept = within.thread(self.id, schema=_SCHEMA).state.get(_NAMES, {}).get(map_key(name))
        return None if kept is None else kept.value

    def all(self, within: Threads) -> dict[str, Any]:
        """Return every name with its value, sorted by name."""
        state = within.thread(self.id, schema=_SCHEMA).state
        long = state.get(_LONG, {})
        found = {long.get(key, key): kept.value for key, kept in state.get(_NAMES, {}).items()}
        return dict(sorted(found.items()))

    def put(self, within: Threads, shown: dict[str, Any]) -> None:
        """Set the values of names. Raises ValueTypeError if a value is not JSON."""
        keys = {name: map_key(name) for name in shown}
        change: dict[str, dict[str, Any]] = {_NAMES: {keys[name]: Json.of(value) for name, value in shown.items()}}
        if long := {key: name for name, key in keys.items() if key != name}:
            change[_LONG] = long
        write(within, self.id, _SCHEMA, lambda thread: thread.commit(change))

    def remove(self, within: Threads, *names: str) -> None:
        """Remove names. Unknown names are ignored."""

        def take_out(state: Any) -> None:
            for channel in (_NAMES, _LONG):
                held = state.get(channel, {})
                for key in map(map_key, names):
                    if key in held:
                        del held[key]

        write(within, self.id, _SCHEMA, lambda thread: thread.edit(take_out, lazy=True))
