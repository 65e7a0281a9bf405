"""Waiters for commits: a waiter sleeps on a slot of the wake-up file. A waiter without a slot polls the log."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Self

from statelog import kernels
from statelog.storage.notify.slot_file import SLICE_S

if TYPE_CHECKING:
    from statelog.storage.notify.slot_file import SlotFile

_DOUBT_SLICE_S = 0.005
_DOUBT_S = 0.05
"""How long a waiter waits for a commit to be counted in the file. During this time, it polls every `_DOUBT_SLICE_S`."""

STALE_MS = 1000
"""The time in milliseconds after which wake-ups skip a waiter that has not renewed its slot."""


class Waiter:
    """One thread that waits for commits, as a context manager. `Wake.enter` describes the arguments."""

    def __init__(self, slot_file: SlotFile, mask: int, subject: bytes, bell: Waiter | None = None) -> None:
        self._ticket = 0
        self._bell = bell
        self._slot_file = slot_file
        self._mask = mask
        self._subject = subject
        self._position = 0
        self._slots: kernels.WakeSlots | None = None
        self._place: kernels.WakePlace | None = None
        self._process_id = 0
        self._seen_lsn = 0
        self._seen_number: int | None = None
        self._gap = 0
        self._doubt_at_s = 0.0

    def __enter__(self) -> Self:
        self._process_id = os.getpid()
        try:
            self._take_slot()
            self._seen_lsn = self._slot_file.last_lsn()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        self._leave()

    @property
    def position(self) -> int:
        """The LSN up to which the waiter has read, for `Wake.positions`, or 0."""
        return self._position

    @position.setter
    def position(self, position: int) -> None:
        self._position = position
        self._describe()

    @property
    def ticket(self) -> int:
        """The place in the order of waiters: earlier waiters have lower tickets. 0 without a slot."""
        return self._ticket

    @ticket.setter
    def ticket(self, ticket: int) -> None:
        self._ticket = ticket
        if self._place is not None:
            self._place.ticket = ticket
            self._describe()

    @property
    def mask(self) -> int:
        """The mask of the notifications that wake the waiter."""
        return self._mask

    @mask.setter
    def mask(self, mask: int) -> None:
        self._mask = mask
        self._describe()

    def draw_ticket(self) -> int:
        """Return the ticket of a waiter that would arrive now, or 0 without a slot."""
        return 0 if self._slots is None or self._place is None else self._slots.draw_ticket()

    def ring(self) -> None:
        """Wake this waiter. Any thread may call this method."""
        slots, place = self._slots, self._place
        if slots is not None and place is not None:
            slots.call(place)

    def was_called(self) -> bool:
        """Renew the slot, and return True if the waiter was notified. A waiter with a bell polls with this method."""
        slots, place = self._slots, self._place
        if slots is None or place is None or self._slot_file.slots(create=True) is not slots:
            return self.pass_slice(0.0)
        if self._bell is not None and place.bell != self._bell.number:
            place.bell = self._bell.number
            self._describe()
        status = slots.sleep(place, 0.0, stale_ms=STALE_MS)
        if status == kernels.WAKE_LOST:
            self._leave()
            self._take_slot()
        return status != kernels.WAKE_ASLEEP

    @property
    def number(self) -> int:
        """The slot number plus 1, or 0 without a slot."""
        return 0 if self._place is None else self._place.slot + 1

    def _describe(self) -> None:
        slots, place = self._slots, self._place
        if slots is not None and place is not None:
            slots.describe(place, mask=self._mask, position=self._position)

    @property
    def has_slot(self) -> bool:
        """Whether the waiter has a slot. Otherwise it polls the log."""
        return self._place is not None

    def is_first(self) -> bool:
        """Return True if no waiter with the same subject arrived earlier, or if this is unknown."""
        slots, place = self._slots, self._place
        return slots is None or place is None or slots.is_first(place, stale_ms=STALE_MS)

    def wait(self, timeout_s: float) -> bool:
        """Wait until notified. Return False if the time is up.

        Notifications that came since the waiter entered, or since this method last returned, also count. A wake-up may
        be spurious.

        Raises:
            ClosedError, ForkedError: the store cannot be used.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            left_s = deadline - time.monotonic()
            if self.pass_slice(max(left_s, 0.0)):
                return True
            if left_s <= 0:
                return False

    def pass_slice(self, timeout_s: float, longest_s: float = SLICE_S) -> bool:
        """Wait as `wait` does, but at most `longest_s` seconds."""
        timeout_s = min(timeout_s, _DOUBT_SLICE_S if self._doubt_at_s else longest_s)
        slots, place = self._slots, self._place
        if slots is None or place is None:
            time.sleep(timeout_s)
            self._take_slot()
            return self._has_grown()
        status = slots.sleep(place, timeout_s, stale_ms=STALE_MS)
        if status == kernels.WAKE_WOKEN:
            return True
        if status == kernels.WAKE_LOST or self._slot_file.slots(create=True) is not slots:
            self._leave()  # Return True, because the waiter may have missed a notification of the lost slot.
            self._take_slot()
            return True
        return self._is_unreached(slots)

    def _has_grown(self) -> bool:
        last_lsn = self._slot_file.last_lsn()
        seen_lsn, self._seen_lsn = self._seen_lsn, last_lsn
        if last_lsn != seen_lsn and self._slots is None:
            self._slot_file.note_no_file()
        return last_lsn != seen_lsn

    def _is_unreached(self, slots: kernels.WakeSlots) -> bool:
        """Return True if a process that does not share the file has committed."""
        number = self._slot_file.commit_number()
        if number is not None and number == self._seen_number and not self._doubt_at_s:
            return False
        self._seen_number = number
        gap, now_s = self._slot_file.gap(slots), time.monotonic()
        if gap <= self._gap:
            self._gap, self._doubt_at_s = gap, 0.0
        elif not self._doubt_at_s:
            self._doubt_at_s = now_s
        elif now_s >= self._doubt_at_s + _DOUBT_S:
            self._slot_file.settle_suspicion(self._gap)
            self._gap, self._doubt_at_s = gap, 0.0
            return True
        return False

    def _take_slot(self) -> None:
        self._slots = slots = self._slot_file.slots(create=True)
        self._place = None
        if slots is not None:
            self._place = slots.enter(
                self._mask,
                self._subject,
                stale_ms=STALE_MS,
                ticket=self._ticket,
                position=self._position,
                bell=0 if self._bell is None else self._bell.number,
            )
        if slots is not None and self._place is not None:
            self._ticket = self._place.ticket
            self._gap = self._slot_file.gap(slots)
            self._doubt_at_s = 0.0

    def _leave(self) -> None:
        """Release the slot. If it has a wake-up that this waiter has not received, forward it to the next waiter."""
        slots, place = self._slots, self._place
        self._slots = self._place = None
        if slots is not None and place is not None and os.getpid() == self._process_id and slots.leave(place):
            slots.call_next(lambda subject: subject == self._subject, stale_ms=STALE_MS)
