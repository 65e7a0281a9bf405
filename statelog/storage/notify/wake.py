"""Wake-ups: commits wake the waiters of all processes.

Each waiter has a slot in the wake-up file beside the store, with a word to sleep on. A commit notifies the slots whose
masks overlap the mask of its changes. It may also wake the first waiter whose subject fits. The first waiter creates
the file. Committing processes look for the file from time to time.

Some processes may not share the file: it cannot be created, belongs to a different user, has no free slot, or a sandbox
has its own copy. In these cases, waiters poll the log, which always works. `SlotFile` detects commits of such
processes.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from statelog.storage.notify.slot_file import SlotFile
from statelog.storage.notify.waiter import STALE_MS, Waiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.storage.lmdb_file import LmdbFile

ANY = 1
"""The mask of waiters for any flushed record."""

EVERY_SEGMENT = 1 << 63
"""The mask of waiters for any key of the board. Each commit that changes a key sets this bit."""

_SEGMENT_BITS = 62

_POLL_S_MIN = 0.0005
_POLL_S_MAX = 0.02
_PENDING_MAX = 1024
EVERYBODY = (1 << 64) - 1
"""The mask of all waiters."""


def segment_bit(segment: str) -> int:
    """Return the mask of waiters for keys whose first segment is `segment`. Two segments may share a mask."""
    return 2 << xxh3_64_intdigest(segment.encode()) % _SEGMENT_BITS


class Wake:
    """Creates the waiters of one store, and notifies them."""

    def __init__(self, file: LmdbFile, flushed_lsn: Callable[[], int]) -> None:
        self.slot_file = SlotFile(file)
        self._flushed_lsn = flushed_lsn
        self._lock = threading.Lock()
        self._pending: deque[tuple[int, int]] = deque()
        """The LSNs and masks of commits that are not flushed yet."""

    # --- for commits ---------------------------------------------------------------------

    def note(self, records: int) -> None:
        """Add the number of committed records, flushed or not, to the count in the file. Without a file, do nothing."""
        slot_file = self.slot_file
        if time.monotonic() < slot_file.look_at_s:
            if slot_file.file is not None:
                slot_file.file.slots.note(records)
        elif (slots := slot_file.slots(create=False)) is not None:
            slots.note(records)

    def notify(self, mask: int, lsn: int) -> None:
        """Wake the waiters of any process whose mask overlaps `mask`. The log is flushed up to `lsn`."""
        if self._pending:
            mask |= self._take_pending(lsn)
        if (slots := self.slot_file.slots(create=False)) is not None:
            slots.call_mask(mask | ANY)

    def defer(self, mask: int, lsn: int) -> None:
        """Defer the notification of the waiters of `mask` until `tell_flushed` reports the record `lsn` as flushed."""
        with self._lock:
            if len(self._pending) >= _PENDING_MAX:
                mask |= self._pending.pop()[1]
            self._pending.append((lsn, mask))

    def tell_flushed(self, lsn: int) -> None:
        """Make the notifications that were deferred up to `lsn`, because the log is flushed up to that record."""
        if self._pending and self._pending[0][0] <= lsn:
            self.notify(0, lsn)

    def notify_all(self) -> None:
        """Wake all waiters, because a process has died after a commit, and the mask of that commit is unknown."""
        self.notify(EVERYBODY, 0)

    def close(self) -> None:
        """Close the file. A waiter that still uses it gets ClosedError."""
        if self._pending:
            self.notify_all()
        self.slot_file.close()

    def call_next(self, fits: Callable[[bytes], bool]) -> bool:
        """Wake the first waiter whose subject fits and that is not woken yet. Return False if no waiter qualifies."""
        slots = self.slot_file.slots(create=False)
        return slots is not None and slots.call_next(fits, stale_ms=STALE_MS)

    # --- for waiters ---------------------------------------------------------------------

    def wait(self, after: int, timeout_s: float) -> bool:
        """Wait until a record after the LSN `after` is flushed. Return False if the time is up.

        Raises:
            ClosedError, ForkedError: the store cannot be used.
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
        """Return a waiter, for use as a context manager.

        Args:
            mask: the mask of the notifications that wake the waiter; ignored if there is a subject.
            subject: the subject of its notifications, with up to `WAKE_SUBJECT_SIZE_BYTES_MAX` bytes.
            bell: a different waiter of the same thread. A notification of the new waiter also wakes `bell`.
        """
        return Waiter(self.slot_file, mask, subject, bell)

    def positions(self, *, within_s: float) -> int | None:
        """Return the lowest `Waiter.position` of all waiters that have renewed their slots within `within_s` seconds.

        Return None if no such waiter has a position.
        """
        slots = self.slot_file.slots(create=False)
        return None if slots is None else slots.lowest_position(within_ms=int(within_s * 1000))

    def _take_pending(self, lsn: int) -> int:
        mask = 0
        with self._lock:
            while self._pending and (self._pending[0][0] <= lsn or not lsn):
                mask |= self._pending.popleft()[1]
        return mask
