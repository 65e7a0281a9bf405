"""Kernels for the wake word, a sequence in shared memory that processes wait on, and for the file of waiters' slots."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from statelog._kernels import ffi, lib
from statelog.kernels.calls import ABSENT, FALLBACK, OK, USAGE, fail, from_buffer, new, unpack_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

_NANOSECONDS: Final = 1_000_000_000
_WAIT_S_MAX: Final = 1e9

_wake_notify: Callable[..., int] = lib.sl_wake_notify
_wake_read: Callable[..., int] = lib.sl_wake_read
_wake_wait: Callable[..., int] = lib.sl_wake_wait


def _wake_word(buffer: Any) -> Any:
    word = from_buffer("uint32_t[]", buffer, require_writable=True)
    if len(word) < 2:
        fail(USAGE, "wake word of 8 bytes")
    return word


def wake_notify(address_buffer: Any) -> None:
    """Increment the sequence of a wake word, and wake its waiters in all processes.

    Args:
        address_buffer: 8 writable bytes, aligned to 4, such as a shared mmap.
    """
    status = _wake_notify(_wake_word(address_buffer))
    if status != OK:
        fail(status, "wake word, which is aligned to 4")


def wake_read(address_buffer: Any) -> int:
    """Return the sequence of a wake word."""
    sequence = new("uint32_t *")
    status = _wake_read(_wake_word(address_buffer), sequence)
    if status != OK:
        fail(status, "wake word, which is aligned to 4")
    value: int = sequence[0]
    return value


def wake_wait(address_buffer: Any, seen: int, timeout_s: float) -> bool:
    """Wait until the sequence of a wake word is no longer ``seen``.

    Returns:
        True if the sequence changed within ``timeout_s`` seconds. Signal handlers run during the wait.
    """
    word = _wake_word(address_buffer)
    deadline_ns = time.monotonic_ns() + int(min(timeout_s, _WAIT_S_MAX) * _NANOSECONDS)
    while True:
        left_ns = max(deadline_ns - time.monotonic_ns(), 0)
        status = _wake_wait(word, seen, left_ns)
        if status == OK or (status == ABSENT and left_ns == 0):
            return status == OK
        if status != ABSENT:
            fail(status, "wake word, which is aligned to 4")


WAKE_FILE_SIZE_BYTES: Final[int] = lib.SL_WAKE_FILE_SIZE
WAKE_SUBJECT_SIZE_BYTES_MAX: Final[int] = lib.SL_WAKE_SUBJECT_SIZE_MAX

WAKE_WOKEN: Final = OK
WAKE_ASLEEP: Final = ABSENT
WAKE_LOST: Final = FALLBACK

_OWNER_BITS: Final = 64
_TICKET_NONE: Final = 0

_enter: Callable[..., int] = lib.sl_wake_enter
_leave: Callable[..., int] = lib.sl_wake_leave
_sleep: Callable[..., int] = lib.sl_wake_sleep
_is_first: Callable[..., int] = lib.sl_wake_is_first
_describe: Callable[..., int] = lib.sl_wake_describe
_ticket: Callable[..., int] = lib.sl_wake_ticket
_positions: Callable[..., int] = lib.sl_wake_positions
_next: Callable[..., int] = lib.sl_wake_next
_call: Callable[..., int] = lib.sl_wake_call
_call_mask: Callable[..., int] = lib.sl_wake_call_mask
_note: Callable[..., int] = lib.sl_wake_note
_noted: Callable[..., int] = lib.sl_wake_noted

_WHAT: Final = "wake file"


class WakePlace:
    """The slot of a waiter. `WakeSlots.enter` returns it."""

    __slots__ = ("_place",)

    def __init__(self, place: Any) -> None:
        self._place = place

    @property
    def ticket(self) -> int:
        """The ticket of the waiter. Lower tickets were drawn earlier."""
        ticket: int = self._place.ticket
        return ticket

    @ticket.setter
    def ticket(self, ticket: int) -> None:
        self._place.ticket = ticket

    @property
    def slot(self) -> int:
        """The number of the slot."""
        slot: int = self._place.slot
        return slot

    @property
    def bell(self) -> int:
        """The number plus 1 of a second slot that a notification of this one also wakes, or 0."""
        bell: int = self._place.bell
        return bell

    @bell.setter
    def bell(self, bell: int) -> None:
        self._place.bell = bell


class WakeSlots:
    """A file of slots, shared by all waiters. Only ``sleep`` blocks.

    Args:
        file: writable shared memory of ``WAKE_FILE_SIZE_BYTES``, aligned to 8. The object keeps a reference to it.

    Raises:
        CorruptionError: the file has the wrong magic.
        UsageError: the file is too small, or not aligned.
    """

    __slots__ = ("_file", "_size")

    def __init__(self, file: Any) -> None:
        self._file = from_buffer("uint8_t[]", file, require_writable=True)
        self._size = len(self._file)
        status = lib.sl_wake_open(self._file, self._size)
        if status != OK:
            fail(status, _WHAT)

    def enter(
        self, mask: int, subject: bytes, *, stale_ms: int, ticket: int = _TICKET_NONE, position: int = 0, bell: int = 0
    ) -> WakePlace | None:
        """Take a slot that is free, or was not renewed for `stale_ms`. Return None if no slot is available.

        Args:
            mask: the mask of the notifications that wake the waiter; ignored if there is a subject.
            subject: the subject of the notifications that wake the waiter.
            stale_ms: the age after which a slot that was not renewed may be taken.
            ticket: a ticket that was drawn before; 0 draws the next ticket.
            position: see `describe`.
            bell: see `WakePlace.bell`.
        """
        from secrets import randbits

        place = new("sl_wake_place *")
        place.owner = randbits(_OWNER_BITS) or 1
        place.ticket = ticket
        place.bell = bell
        status = _enter(self._file, self._size, place, mask, position, subject, len(subject), stale_ms)
        if status == ABSENT:
            return None
        if status != OK:
            fail(status, _WHAT)
        return WakePlace(place)

    def leave(self, place: WakePlace) -> bool:
        """Release the slot. Return True if a notification is pending that has not woken its owner."""
        was_called = new("int *")
        _leave(self._file, self._size, place._place, was_called)  # noqa: SLF001 - it is of this file, as below
        return bool(was_called[0])

    def sleep(self, place: WakePlace, timeout_s: float, *, stale_ms: int) -> int:
        """Wait once for a call or a notification, and renew the slot. Return a ``WAKE_*`` status.

        A signal ends the wait. A notification since the last return, or since `enter`, ends the wait at once.
        """
        timeout_ns = int(max(min(timeout_s, _WAIT_S_MAX), 0.0) * _NANOSECONDS)
        return _sleep(self._file, self._size, place._place, timeout_ns, stale_ms)  # noqa: SLF001

    def is_first(self, place: WakePlace, *, stale_ms: int) -> bool:
        """Return True if no live waiter has a lower ticket for the same subject."""
        return _is_first(self._file, self._size, place._place, stale_ms) == OK  # noqa: SLF001

    def describe(self, place: WakePlace, *, mask: int, position: int) -> None:
        """Write `mask`, `position`, and the ticket and bell of `place` into the slot. 0 stands for none."""
        _describe(self._file, self._size, place._place, mask, position)  # noqa: SLF001

    def draw_ticket(self) -> int:
        """Return the next ticket."""
        ticket = new("uint64_t *")
        _ticket(self._file, self._size, ticket)
        drawn: int = ticket[0]
        return drawn

    def call(self, place: WakePlace) -> None:
        """Notify the owner of a slot, unless an earlier notification is still pending."""
        _call(self._file, self._size, place._place)  # noqa: SLF001

    def lowest_position(self, *, within_ms: int) -> int | None:
        """Return the lowest position in the slots that were renewed within `within_ms`, or None."""
        lowest = new("uint64_t *")
        if _positions(self._file, self._size, within_ms, lowest) != OK:
            return None
        position: int = lowest[0]
        return position

    def call_next(self, fits: Callable[[bytes], bool], *, stale_ms: int) -> bool:
        """Notify the first waiter whose subject fits. Return False if there is none.

        Args:
            fits: a function that returns True if a subject fits.
            stale_ms: the age after which a slot that was not renewed is skipped.
        """
        place = new("sl_wake_place *")
        room = new("char[]", WAKE_SUBJECT_SIZE_BYTES_MAX)
        subject = new("sl_output *")
        subject.bytes, subject.capacity = ffi.cast("uint8_t *", room), len(room)
        while _next(self._file, self._size, place, stale_ms, subject) == OK:
            if fits(unpack_bytes(room, subject.size)) and _call(self._file, self._size, place) == OK:
                return True
        return False

    def call_mask(self, mask: int) -> None:
        """Notify all waiters without a subject whose masks share a bit with `mask`."""
        _call_mask(self._file, self._size, mask)

    def note(self, records: int) -> None:
        """Add a number of records to the count of committed records."""
        _note(self._file, self._size, records)

    def noted(self) -> int:
        """Return the count of committed records, modulo 2**64."""
        records = new("uint64_t *")
        _noted(self._file, self._size, records)
        value: int = records[0]
        return value
