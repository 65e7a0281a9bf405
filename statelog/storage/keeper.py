"""The thread that flushes what commits have left to it, and rests a store that is idle.

Nothing depends on it: without it a store in `interval` mode is flushed when it is closed, and one that is
idle stays unsteady. It lives while there is something to do.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import lmdb

from statelog.errors import StatelogError

if TYPE_CHECKING:
    from statelog.storage.environment import Environment

IDLE_S = 1.0
"""So long without a commit, and everything is flushed where it lies, and no page is held any more."""


class Keeper:
    """Looks after an environment that was written to."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._thread: threading.Thread | None = None
        self._end = threading.Event()
        self._commits = 0

    def note_commit(self) -> None:
        """Have what was committed looked after. The caller holds `write_lock`."""
        self._commits += 1
        if self._thread is None:
            self._end = threading.Event()
            name = f"statelog {self._environment.path.name}"
            self._thread = threading.Thread(target=self._run, args=(self._end,), name=name, daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # no thread can be had, or the interpreter is ending: closing flushes
                self._thread = None

    def stop(self) -> None:
        """End soon. The caller holds `write_lock`."""
        self._end.set()
        self._thread = None

    def _run(self, end: threading.Event) -> None:
        environment = self._environment
        is_interval = environment.options.durability == "interval"
        pause_s = min(environment.options.interval_ms / 1000, IDLE_S) if is_interval else IDLE_S
        seen, idle_s = -1, 0.0
        while not end.wait(pause_s):
            with contextlib.suppress(StatelogError, lmdb.Error, OSError):  # whoever writes next meets it, too
                if is_interval:
                    environment.steady.flush()
                idle_s = idle_s + pause_s if seen == self._commits else 0.0
                seen = self._commits
                if idle_s >= IDLE_S and self._rest(end, seen):
                    return

    def _rest(self, end: threading.Event, seen: int) -> bool:
        """Make the store steady if it is idle; tell whether the thread may end."""
        environment = self._environment
        with environment.write_lock:
            if end.is_set():
                return True
            if seen != self._commits:
                return False
            environment.locks.acquire_writer(0.0)
            try:
                environment.steady.rest()
            finally:
                environment.locks.release_writer()
            self._thread = None
            return True
