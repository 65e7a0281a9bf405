"""The lookups with which an import of threads converts events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.errors import CorruptionError
from statelog.portable.overlay import Overlay

if TYPE_CHECKING:
    from statelog.guard.hook import Redactor
    from statelog.log.transaction import IndexedLog
    from statelog.log.view import View
    from statelog.portable.thread_rows import EventRow, ImportLookups, NodePlace


class Lookups:
    """Looks up threads, nodes and events of the stream by number, and anything in the store with the staged records.

    Attributes:
        places: locations of the nodes that this transaction has imported, by number in the stream.
        events: rows of the events that this transaction has imported, by number in the stream.
        threads: LSNs of the threads that this transaction has begun, by number in the stream.
    """

    def __init__(self, transaction: IndexedLog, remembered: ImportLookups, guard: Redactor | None = None) -> None:
        self.places: dict[int, NodePlace] = {}
        self.events: dict[int, EventRow] = {}
        self.threads: dict[int, int] = {}
        self._remembered = remembered
        self._overlay = Overlay(transaction, guard)

    @property
    def view(self) -> View:
        """The store with the staged records."""
        return self._overlay.view

    def thread(self, number: int) -> int:
        """Return the LSN of the thread with the given number in the stream."""
        return self.threads.get(number) or self._remembered.thread(number)

    def place(self, number: int) -> NodePlace:
        """Return the location of the node with the given number in the stream."""
        found = self.places.get(number)
        if found is None:
            found = self._remembered.place(number)
            if not found.lsn:
                message = f"it refers to node {number}, which comes later"
                raise CorruptionError(message)
        return found

    def event(self, number: int) -> EventRow:
        """Return the row of the event with the given number in the stream."""
        found = self.events.get(number)
        return self._remembered.event(number) if found is None else found
