"""The writer lock: a page in shared memory that one process at a time owns.

Here only ``WriterPage.acquire`` blocks. It releases the GIL, and returns within the time it is given.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from statelog._kernels import lib
from statelog.errors import UsageError
from statelog.kernels.calling import from_buffer, new

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
    """Return how many bytes a page needs; 0 where the system has no robust mutexes."""
    size: int = lib.sl_lock_size()
    return size


def mutex_owner_at() -> int:
    """Return the offset of the owner's 32-bit word in a robust mutex, or -1 if the system has no robust mutexes."""
    at: int = lib.sl_lock_owner_at()
    return at


class WriterPage:
    """One user of the writer lock in a page. One thread at a time calls it, and the one that acquires releases.

    Args:
        page: writable shared memory of at least ``writer_page_size()`` bytes, aligned to 8. It is kept.

    Attributes:
        acquire: takes a time in milliseconds, below 2**32. It waits to own the lock, and returns a ``LOCK_*`` status.
            After ``LOCK_BUSY`` the place in the queue is kept.
        give_back: takes whether the lock is wanted again at once: then the turn is kept, if it is not over. It gives
            back the lock, or the place in the queue, or nothing if there is neither. It returns ``LOCK_INVALID`` if
            another thread owns the lock.
    """

    __slots__ = ("_lock", "_page", "_size", "acquire", "give_back")

    acquire: Callable[[int], int]
    give_back: Callable[[bool], int]

    def __init__(self, page: Any) -> None:
        self._page = from_buffer("uint8_t[]", page, require_writable=True)
        self._size = len(self._page)
        self._lock = new("sl_lock *")
        # Each commit calls them: without a frame of Python's.
        self.acquire = partial(_acquire, self._lock, self._page, self._size)
        self.give_back = partial(_release, self._lock, self._page, self._size)

    @property
    def is_held(self) -> bool:
        """Whether this user owns the lock; known as soon as the kernel has it."""
        return bool(self._lock.is_held)

    def initialise(self) -> bool:
        """Make the page; only where no other process uses it. False if the system cannot."""
        return _initialise(self._page, self._size) == LOCK_OWNED

    def is_valid(self) -> bool:
        """Tell whether the page was made by a build with the same layout."""
        return _check(self._page, self._size) == LOCK_OWNED

    def try_acquire(self) -> int:
        """Own the lock if it is free, before those who wait; return a ``LOCK_*`` status."""
        return _try(self._lock, self._page, self._size)

    def abandon(self) -> bool:
        """Release the lock, if it is owned, as an owner that died would; False if another thread owns it."""
        return _abandon(self._lock, self._page, self._size) == LOCK_OWNED

    def mark_repaired(self) -> None:
        """Say, as the owner, that what a dead owner left was repaired: nobody is told of it any more."""
        if _repaired(self._lock, self._page, self._size) != LOCK_OWNED:
            message = "only the owner of the writer lock says that its store was repaired"
            raise UsageError(message)
