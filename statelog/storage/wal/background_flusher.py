"""The background flusher: a thread that flushes deferred commits, and makes a checkpoint when the store is idle.

No guarantee depends on this thread. Without the thread, closing the store flushes the commits, and no checkpoint is
made while the store is idle. The thread starts with the first commit, and sleeps while it has nothing to do.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import lmdb

from statelog.errors import StatelogError

if TYPE_CHECKING:
    from statelog.storage.lmdb_file import LmdbFile
    from statelog.storage.notify.wake import Wake
    from statelog.storage.wal.checkpointer import Checkpointer
    from statelog.storage.wal.wal import Wal

IDLE_S = 1.0
"""The time in seconds without a commit after which the thread makes a checkpoint and releases the snapshot pin."""

_PATIENCE_S = 0.1
"""How long the thread waits for the writer lock."""

_LOOK_S = 0.02
"""The longest sleep of the thread between two checks for work."""


class Alarm:
    """An alarm that wakes the one thread that waits for it. It stays usable if a signal handler raises within `set`.

    A `threading.Event` might become unusable, because an interrupt can come before the event releases its own lock.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """A lock that is free while the alarm is set."""
        self._lock.acquire()

    def set(self) -> None:
        """Wake the thread, or let its next `wait` return at once."""
        with contextlib.suppress(RuntimeError):  # RuntimeError means that the alarm is already set.
            self._lock.release()

    def wait(self, timeout_s: float) -> bool:
        """Wait until the alarm is set, and clear it. Return False if `timeout_s` passes first."""
        return self._lock.acquire(timeout=timeout_s)


class BackgroundFlusher:
    """The background flusher of one store that is open for writing.

    Attributes:
        interval_s: the time between two flushes: the shortest interval of all openings of the store.
        flushes: whether commits have left their flush to the thread.
        is_at_work: whether the thread checks for work at intervals. Otherwise it sleeps until a commit wakes it.
        has_thread: whether the thread has started.
        commits: the number of commits. A write transaction adds 1, and calls `commit_made` if the thread has to act.
    """

    def __init__(
        self, file: LmdbFile, wal: Wal, checkpointer: Checkpointer, wake: Wake, *, interval_s: float, flushes: bool
    ) -> None:
        self.interval_s = interval_s
        self._file = file
        self._wal = wal
        self._checkpointer = checkpointer
        self._wake = wake
        self._is_interval = flushes
        self.flushes = flushes
        self.is_at_work = False
        self.has_thread = False
        self.commits = 0
        self._alarm = Alarm()
        """The alarm of the current thread. An earlier thread, which has a different alarm, ends."""

    def commit_made(self, *, is_flushed: bool) -> None:
        """Start or wake the thread for a commit that is about to be made. The caller holds `write_lock`.

        `is_flushed` is True if the committing thread flushes the commit.
        """
        if self._wal.is_off:
            return
        if not self.is_at_work:
            self.start()
        if not (is_flushed or self.flushes):
            self.flushes = True
            self._alarm.set()
        elif not self._checkpointer.is_plain and self._checkpointer.is_checkpoint_begun:
            self._alarm.set()

    def start(self) -> None:
        """Start the thread, or wake it. The caller holds `write_lock`."""
        if self.has_thread:
            self._alarm.set()
        else:
            self._alarm = Alarm()
            name = f"statelog {self._file.path.name}"
            thread = threading.Thread(target=self._run, args=(self._alarm,), name=name, daemon=True)
            try:
                thread.start()
            # If no thread can be started, or the interpreter is exiting, do without: closing the store flushes the
            # commits.
            except RuntimeError:
                return
        # Set these last: if an interrupt comes before this line, the next commit starts the thread again.
        self.has_thread = self.is_at_work = True

    def stop(self) -> None:
        """Make the thread end soon. Do not wait for it. The caller holds `write_lock`."""
        alarm, self._alarm = self._alarm, Alarm()
        alarm.set()
        self.is_at_work = self.has_thread = False

    def _run(self, alarm: Alarm) -> None:
        unflushed = 0
        while self._alarm is alarm:
            self._work(alarm)
            while self._alarm is alarm and not alarm.wait(IDLE_S):
                unflushed = self._flush_for_others(alarm, unflushed)

    def _flush_for_others(self, alarm: Alarm, before: int) -> int:
        """Flush commits that were already unflushed at the last call, because their processes may have died.

        `before` is the result of the last call. Return the LSN of the last record that is unflushed now, or 0.
        """
        file, now = self._file, self._wal.unflushed_to()
        if now and now == before:
            with contextlib.suppress(StatelogError, lmdb.Error, OSError, MemoryError):
                with file.write_lock, file.locks.writing(min(file.lock_timeout_s, _PATIENCE_S)):
                    if self._alarm is not alarm:
                        return 0
                    self._checkpointer.prepare()  # Open the WAL, because this process may not have written yet.
                    self.start()
                self._wal.flush()
                self._wake.notify_all()
        return now

    def _work(self, alarm: Alarm) -> None:
        """Flush commits and finish checkpoints until the store is idle, or the thread has to end."""
        wal, checkpointer = self._wal, self._checkpointer
        seen, busy_s = -1, time.monotonic()
        flushed_s = busy_s
        while self._alarm is alarm:
            interval_s = min(self.interval_s, IDLE_S)
            left_s = flushed_s + interval_s - time.monotonic()
            alarm.wait(max(min(left_s, _LOOK_S), 0.0) if self.flushes else _LOOK_S)
            if self._alarm is not alarm:
                return
            # Ignore errors, because the next writer gets the same error.
            with contextlib.suppress(StatelogError, lmdb.Error, OSError, MemoryError):
                now_s = time.monotonic()
                if self.flushes and now_s >= flushed_s + interval_s:
                    flushed_s = now_s
                    if wal.is_dirty:
                        wal.flush()
                self._wake.tell_flushed(wal.flushed_to())
                if seen != self.commits:
                    seen, busy_s = self.commits, now_s
                checkpointer.finish_if_begun()
                wal.note_flushed()
                wal.look_for_file()
                checkpointer.release_old_pins()
                if now_s - busy_s >= IDLE_S:
                    busy_s = now_s  # If the checkpoint fails, the thread tries again after `IDLE_S`.
                    if self._end_work(alarm, seen):
                        self._wake.tell_flushed(wal.flushed_to())
                        return

    def _end_work(self, alarm: Alarm, seen: int) -> bool:
        """Make a checkpoint if no commit was made since `seen` was read. Return True if nothing is left to do."""
        file = self._file
        with file.write_lock:
            if self._alarm is not alarm:
                return True
            if seen != self.commits:
                return False
            with file.locks.writing(min(file.lock_timeout_s, _PATIENCE_S)):
                if not self._checkpointer.checkpoint_when_idle():
                    return False
            self.is_at_work = False
            self.flushes = self._is_interval
            return True
