"""Waking whoever waits for a commit, across processes.

Each who waits has a slot in a file beside the store (`wake_file`), with a word to sleep on. A commit notifies the slots
whose masks overlap what it has changed, and may call the first who waits for a subject. A file that is not there is
made by the first who waits; who commits looks for it now and then.

Where the file does not reach (it cannot be made, is another user's, has no slot left, a sandbox maps it for itself),
the log is looked at: that always reaches. So it is also noticed that somebody commits who does not reach this process:
the log grows by more records than are noted in the file.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from statelog.storage.waiter import STALE_MS, Waiter
from statelog.storage.wake_reach import Reach

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.storage.file.opened import OpenFile

ANY = 1
"""The mask of those who want to know of every record on the disk."""

EVERY_SEGMENT = 1 << 63
"""The mask of those who want to know of any key. Whoever changes a key of the board sets it."""

_SEGMENT_BITS = 62

_POLL_S_MIN = 0.0005
_POLL_S_MAX = 0.02
_PENDING_MAX = 1024
EVERYBODY = (1 << 64) - 1


def segment_bit(segment: str) -> int:
    """Return the mask of those who want to know of keys with this first segment; others may share it."""
    return 2 << xxh3_64_intdigest(segment.encode()) % _SEGMENT_BITS


class Wake(Reach):
    """The wake-up file of one environment."""

    def __init__(self, environment: OpenFile, flushed_lsn: Callable[[], int]) -> None:
        super().__init__(environment)
        self._flushed_lsn = flushed_lsn
        self._lock = threading.Lock()
        self._pending: deque[tuple[int, int]] = deque()
        """LSNs and masks of commits that are not on the disk yet."""

    # --- those who commit ----------------------------------------------------------------

    def note(self, records: int) -> None:
        """Say that records were committed, flushed or not. Never raises for lack of a file."""
        if time.monotonic() < self.look_at_s:
            if self._file is not None:
                self._file.slots.note(records)
        elif (slots := self.slots(create=False)) is not None:
            slots.note(records)

    def notify(self, mask: int, lsn: int) -> None:
        """Tell those who want to know, in any process, that all is on the disk up to a record; as `note`."""
        if self._pending:
            mask |= self._take_pending(lsn)
        if (slots := self.slots(create=False)) is not None:
            slots.call_mask(mask | ANY)

    def defer(self, mask: int, lsn: int) -> None:
        """Have them told once a record is on the disk: see `tell_flushed`."""
        with self._lock:
            if len(self._pending) >= _PENDING_MAX:
                mask |= self._pending.pop()[1]
            self._pending.append((lsn, mask))

    def tell_flushed(self, lsn: int) -> None:
        """Tell those who want to know of what `defer` has left, now that all is on the disk up to a record."""
        if self._pending and self._pending[0][0] <= lsn:
            self.notify(0, lsn)

    def notify_all(self) -> None:
        """Tell all who want to know of anything: who has committed it is not there any more."""
        self.notify(EVERYBODY, 0)

    def close(self) -> None:
        """Let go of the file; a waiter that holds it still finds the environment closed."""
        if self._pending:
            self.notify_all()
        self.let_go()

    def call_next(self, fits: Callable[[bytes], bool]) -> bool:
        """Wake the first of those who wait with a subject that fits, and were not called before; False if none does."""
        slots = self.slots(create=False)
        return slots is not None and slots.call_next(fits, stale_ms=STALE_MS)

    # --- those who wait ------------------------------------------------------------------

    def wait(self, after: int, timeout_s: float) -> bool:
        """Wait until a record above an LSN is on the disk; False when the time is up.

        Raises:
            ClosedError, ForkedError: the environment is not usable.
        """
        deadline = time.monotonic() + timeout_s
        pause_s = _POLL_S_MIN
        if self._flushed_lsn() > after:
            return True
        with self.enter(ANY) as waiter:
            while self._flushed_lsn() <= after:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return False
                if waiter.has_slot:
                    waiter.pass_slice(left_s)
                else:
                    waiter.pass_slice(min(pause_s, left_s))
                    pause_s = min(2 * pause_s, _POLL_S_MAX)
        return True

    def enter(self, mask: int, subject: bytes = b"", *, bell: Waiter | None = None) -> Waiter:
        """Return a waiter, which is used as a context manager.

        Args:
            mask: the mask of the notifications that wake the waiter; ignored if there is a subject.
            subject: the subject of its notifications, with up to `WAKE_SUBJECT_SIZE_BYTES_MAX` bytes.
            bell: another waiter of the same thread. A notification of this waiter wakes it, too.
        """
        return Waiter(self, mask, subject, bell)

    def positions(self, *, within_s: float) -> int | None:
        """Return the lowest position of those who wait, or did so within that time; None if nobody has one."""
        slots = self.slots(create=False)
        return None if slots is None else slots.lowest_position(within_ms=int(within_s * 1000))

    def _take_pending(self, lsn: int) -> int:
        mask = 0
        with self._lock:
            while self._pending and (self._pending[0][0] <= lsn or not lsn):
                mask |= self._pending.popleft()[1]
        return mask
