"""The writer lock: a page in shared memory that one process at a time owns.

Only ``WriterPage.acquire`` blocks. It releases the GIL, and returns at the latest when its time is up.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from statelog._kernels import lib
from statelog.errors import UsageError
from statelog.kernels.calls import from_buffer, new

if TYPE_CHECKING:
    from collections.abc import Callable

LOCK_OWNED: Final = 0
LOCK_ABANDONED: Final = 1
LOCK_BUSY: Final = 2
LOCK_LOST: Final = 3
LOCK_INVALID: Final = 4

_initialise: Callable[[Any, int], int] = lib.sl_lock_initialise
_check: Callable[[Any, int], int] = lib.sl_lock_check
_acquire: Callable[[Any, Any, int, int], int] = lib.sl_lock_acquire
_try: Callable[[Any, Any, int], int] = lib.sl_lock_try
_release: Callable[[Any, Any, int, bool], int] = lib.sl_lock_release
_abandon: Callable[[Any, Any, int], int] = lib.sl_lock_abandon
_repaired: Callable[[Any, Any, int], int] = lib.sl_lock_repaired


def writer_page_size() -> int:
    """Return the size of a page in bytes, or 0 if the system has no robust mutexes."""
    size: int = lib.sl_lock_size()
    return size


def mutex_owner_at() -> int:
    """Return the offset of the owner's 32-bit word in a robust mutex, or -1 if the system has no robust mutexes."""
    at: int = lib.sl_lock_owner_at()
    return at


class WriterPage:
    """One user of the writer lock in a page.

    Only one OS thread may use it at a time. The OS thread that acquires the lock must release it.

    Args:
        page: writable shared memory of at least ``writer_page_size()`` bytes, aligned to 8. The object keeps a
            reference to it.

    Attributes:
        acquire: a function that waits for the lock for at most a given time in milliseconds (below 2**32). It returns a
            ``LOCK_*`` status. After ``LOCK_BUSY`` this user keeps its place in the queue.
        give_back: a function that releases the lock or gives up the place in the queue. It does nothing if this user
            has neither. If its argument is True, the process wants the lock again at once, and keeps its turn until the
            turn is over. It returns ``LOCK_INVALID`` if another OS thread owns the lock.
    """

    __slots__ = ("_lock", "_page", "_size", "acquire", "give_back")

    acquire: Callable[[int], int]
    give_back: Callable[[bool], int]

    def __init__(self, page: Any) -> None:
        self._page = from_buffer("uint8_t[]", page, require_writable=True)
        self._size = len(self._page)
        self._lock = new("sl_lock *")
        # Each commit calls both functions, so they are partial objects, which need no Python frame.
        self.acquire = partial(_acquire, self._lock, self._page, self._size)
        self.give_back = partial(_release, self._lock, self._page, self._size)

    @property
    def is_held(self) -> bool:
        """Whether this user owns the lock. C sets this at the moment when it acquires the lock."""
        return bool(self._lock.is_held)

    def initialise(self) -> bool:
        """Initialise the page, which no other process may use yet. Return False if the system does not support this."""
        return _initialise(self._page, self._size) == LOCK_OWNED

    def is_valid(self) -> bool:
        """Return True if a build with the same layout has initialised the page."""
        return _check(self._page, self._size) == LOCK_OWNED

    def try_acquire(self) -> int:
        """Acquire the lock if it is free, ahead of all waiters. Return a ``LOCK_*`` status."""
        return _try(self._lock, self._page, self._size)

    def abandon(self) -> bool:
        """Release the lock, if owned, as if its owner had died. Return False if another OS thread owns the lock."""
        return _abandon(self._lock, self._page, self._size) == LOCK_OWNED

    def mark_repaired(self) -> None:
        """Record that the state left by a dead owner is repaired. Later owners do not get ``LOCK_ABANDONED``."""
        if _repaired(self._lock, self._page, self._size) != LOCK_OWNED:
            message = "only the owner of the writer lock may mark its store as repaired"
            raise UsageError(message)
