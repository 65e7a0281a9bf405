"""Finds the recorded items of a run: in the head of its thread, or in the version before the end of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.durable.keys import HEADER, STEPS
from statelog.durable.runs import ENDED, find, thread_of
from statelog.errors import CheckpointNotFoundError, ExpiredError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from statelog.durable.record import Item
    from statelog.store.snapshot import Snapshot
    from statelog.store.store import Store


class Recorded(NamedTuple):
    """The location of the recorded items of a run.

    Attributes:
        thread: the thread of the run; None if it or its branch was deleted.
        version: the version that contains the items; -1 if there are none, or if the version was removed.
        run: the id of the run.
    """

    thread: Any
    version: int
    run: str

    def held(self) -> Any:
        """Return a lazy view of the items."""
        try:
            state = self.thread.at(self.version).state if self.version >= 0 else {}
        except (CheckpointNotFoundError, ExpiredError):
            state = {}
        header = state.get(HEADER)
        return [] if header is None or header["run"] != self.run else state.get(STEPS, [])

    def items(self) -> list[Item]:
        """Return the items, or an empty list if the thread was deleted or re-created since, or its version removed."""
        try:
            held = self.held()
            return list(held) if isinstance(held, list) else list(held.to_python())
        except NotFoundError:
            return []


def recorded_of(store: Store | Snapshot, value: Mapping[str, Any]) -> Recorded:
    """Return the location of the recorded items of a run."""
    run = value["id"]
    checkpoint = value.get("checkpoint") if value["status"] in ENDED else value.get("retry", {}).get("checkpoint")
    thread = None
    try:
        thread = thread_of(store, value)
        if not checkpoint:
            return Recorded(thread, thread.version, run)
        return Recorded(thread, thread.at(checkpoint).version - 1, run)
    except NotFoundError:  # The version was removed, or the thread was deleted.
        return Recorded(thread, -1, run)


def recorded_items(store: Store, run: str) -> list[Item]:
    """Return the recorded items of a run; if it has ended, those that it had at its end. Raises RunNotFoundError."""
    with store.snapshot() as seen:
        return recorded_of(seen, find(seen, run).value).items()
