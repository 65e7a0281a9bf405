"""The base class of `StatelogStore` and `StatelogCache`, which keep their items in the latest state of one thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import statelog
from statelog.adapters.langgraph.values.conn_string import ConnString
from statelog.aio.bridge import Runner

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.adapters.langgraph.memory.items.changes import State

KEEP_LAST = 1
"""The number of versions that the thread's retention policy keeps. Up to 64 more exist until the next pruning."""


class ThreadHolder(ConnString):
    """Holds a thread of a store. It closes the store if `open` opened the store."""

    _THREAD_ID: ClassVar[str]

    _store: statelog.Store
    _thread: statelog.Thread
    _clock: Callable[[], float]
    _pool: Runner
    _has_policy = False

    def _hold(self, store: statelog.Store, clock: Callable[[], float]) -> None:
        if not isinstance(store, statelog.Store):
            name = type(self).__name__
            message = f"a {name} needs an open store (or call {name}.open), not {store!r}"
            raise statelog.UsageError(message, argument="store", value=store)
        self._store = store
        self._thread = store.thread(self._THREAD_ID)
        self._clock = clock
        self._pool = Runner()

    @property
    def store(self) -> statelog.Store:
        """The statelog store."""
        return self._store

    def close(self) -> None:
        """Stop background work, and close the store if `open` opened it."""
        try:
            super().close()
        finally:
            self._pool.close()

    def _now_us(self) -> int:
        return int(self._clock() * 1_000_000)

    def _edit(self, change: Callable[[State], object]) -> None:
        """Change the state of the thread in one commit. The first commit also sets the retention policy."""
        if not self._has_policy and self._thread.version < 0:
            self._store.set_retention(keep_last=KEEP_LAST, threads=self._THREAD_ID)
        self._has_policy = True
        self._thread.edit(change, lazy=True)
