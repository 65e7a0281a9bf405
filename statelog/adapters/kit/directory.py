"""A directory: the names that a framework lists, each with what the list shows of it.

A list reads one thread, however many names it has. What it shows is written in the transaction that changes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog import reducers
from statelog.adapters.kit.lives import write
from statelog.adapters.kit.ordered import Json

if TYPE_CHECKING:
    from statelog.store.threads import Threads

__all__ = ["Directory"]

_NAMES = "names"
_SCHEMA = {_NAMES: reducers.merge}


class Directory:
    """The names of one thread, each with a JSON value.

    Args:
        id: of the thread that holds it, as `thread_id("adk", app, user)`.

    """

    def __init__(self, id: str) -> None:
        self.id = id

    def get(self, within: Threads, name: str) -> Any:
        """Return what is shown of a name; None where it does not stand here."""
        kept = within.thread(self.id, schema=_SCHEMA).state.get(_NAMES, {}).get(name)
        return None if kept is None else kept.value

    def all(self, within: Threads) -> dict[str, Any]:
        """Return every name with what is shown of it, sorted by name."""
        found = within.thread(self.id, schema=_SCHEMA).state.get(_NAMES, {})
        return {name: kept.value for name, kept in sorted(found.items())}

    def put(self, within: Threads, shown: dict[str, Any]) -> None:
        """Write what is shown of some names. Raises ValueTypeError: it is no JSON."""
        change = {_NAMES: {name: Json.of(value) for name, value in shown.items()}}
        write(within, self.id, _SCHEMA, lambda thread: thread.commit(change))

    def remove(self, within: Threads, *names: str) -> None:
        """Take names out; those that do not stand here are left alone."""

        def take_out(state: Any) -> None:
            held = state.get(_NAMES, {})
            for name in names:
                if name in held:
                    del held[name]

        write(within, self.id, _SCHEMA, lambda thread: thread.edit(take_out, lazy=True))
