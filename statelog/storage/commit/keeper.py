"""The thread that flushes what commits have left to it, and rests a store that is idle.

Nothing depends on it: without it what is left is flushed when the store is closed, and one that is
idle stays unsteady. It begins with the first commit, and waits where there is nothing to do.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import lmdb

from statelog.errors import StatelogError

if TYPE_CHECKING:
    from statelog.storage.file.opened import OpenFile
    from statelog.storage.file.writing import TableWriter
    from statelog.storage.journal.checkpointing import Steady
    from statelog.storage.wake import Wake

IDLE_S = 1.0
"""So long without a commit, and everything is flushed where it lies, and no page is held any more."""

_PATIENCE_S = 0.1
"""How long it waits for others' commits to make the store steady."""

_SETTLE_S = 0.02
"""So often it looks."""


class Keeper:
    """Looks after an environment that was written to."""

    def __init__(self, environment: OpenFile, steady: Steady, wake: Wake) -> None:
        self._environment = environment
        self._steady = steady
        self._wake = wake
        self._is_interval = environment.options.durability == "interval"
        self.flushes = self._is_interval
        """Whether commits have left flushes to it: then it looks often."""
        self.is_at_work = False
        """Whether its thread looks, and does not wait."""
        self.has_thread = False
        """Whether it has one."""
        self._alarm = threading.Event()
        """Wakes its thread; that of another has ended."""
        self.commits = 0

    def looks_after(self, transaction: TableWriter) -> None:
        """Count a commit that is about to be made, and have it looked after. The caller holds `write_lock`."""
        steady = self._steady
        if steady.is_off:
            return
        self.commits += 1
        if not self.is_at_work:
            self.start()
        if not (transaction.is_flushed or self.flushes):
            self.flushes = True
            self._alarm.set()
        elif not steady.is_plain and steady.is_advance_begun:
            self._alarm.set()

    def start(self) -> None:
        """Look, in a thread of its own. The caller holds `write_lock`."""
        self.is_at_work = True
        if self.has_thread:
            self._alarm.set()
            return
        self._alarm = threading.Event()
        name = f"statelog {self._environment.path.name}"
        thread = threading.Thread(target=self._run, args=(self._alarm,), name=name, daemon=True)
        self.has_thread = True
        try:
            thread.start()
        except RuntimeError:  # no thread can be had, or the interpreter is ending: closing flushes
            self.is_at_work = self.has_thread = False

    def stop(self) -> None:
        """End soon. The caller holds `write_lock`."""
        alarm, self._alarm = self._alarm, threading.Event()
        alarm.set()
        self.is_at_work = self.has_thread = False

    def _run(self, alarm: threading.Event) -> None:
        left = 0
        while self._alarm is alarm:
            self._look(alarm)
            while not alarm.wait(IDLE_S):
                left = self._flush_for_others(alarm, left)
            if self._alarm is alarm:
                alarm.clear()

    def _flush_for_others(self, alarm: threading.Event, left: int) -> int:
        """Flush what others have committed, and left for so long that they must have died; return what is left."""
        environment, now = self._environment, self._steady.unflushed_to()
        if now and now == left:
            with contextlib.suppress(StatelogError, lmdb.Error, OSError, MemoryError):
                with environment.write_lock, environment.locks.writing(min(environment.lock_timeout_s, _PATIENCE_S)):
                    if self._alarm is not alarm:
                        return 0
                    self._steady.prepare()  # opens the journal, if this process has not yet
                    self.start()
                self._steady.flush()
                self._wake.notify_all()
        return now

    def _look(self, alarm: threading.Event) -> None:
        """Look after what is committed, until the store is at rest, or this is to end."""
        environment, steady = self._environment, self._steady
        seen, busy_s = -1, time.monotonic()
        flushed_s = busy_s
        while self._alarm is alarm:
            interval_s = min(environment.interval_s, IDLE_S)
            left_s = flushed_s + interval_s - time.monotonic()
            if alarm.wait(max(min(left_s, _SETTLE_S), 0.0) if self.flushes else _SETTLE_S):  # to end, or to look sooner
                if self._alarm is not alarm:
                    return
                alarm.clear()
            with contextlib.suppress(StatelogError, lmdb.Error, OSError, MemoryError):  # who writes next meets it, too
                now_s = time.monotonic()
                if self.flushes and now_s >= flushed_s + interval_s:
                    flushed_s = now_s
                    if steady.is_dirty:
                        steady.flush()
                self._wake.tell_flushed(steady.flushed_to())
                if seen != self.commits:
                    seen, busy_s = self.commits, now_s
                steady.complete_if_begun()
                steady.note_flushed()
                steady.look_for_journal()
                steady.let_go_of_old()
                if now_s - busy_s >= IDLE_S:
                    busy_s = now_s  # else it is tried again after that time
                    if self._rest(alarm, seen):
                        self._wake.tell_flushed(steady.flushed_to())
                        return

    def _rest(self, alarm: threading.Event, seen: int) -> bool:
        """Make the store steady if it is idle; tell whether there is nothing left to look after."""
        environment = self._environment
        with environment.write_lock:
            if self._alarm is not alarm:
                return True
            if seen != self.commits:
                return False
            with environment.locks.writing(min(environment.lock_timeout_s, _PATIENCE_S)):  # a commit here waits, too
                if not self._steady.rest():
                    return False
            self.is_at_work = False
            self.flushes = self._is_interval
            return True
