"""Waking whoever waits for a commit, across processes.

One word of shared memory per store, in a file of /dev/shm named after the store's
id: not in LMDB's lock file, which LMDB remakes at will and whose plain closing
would drop its locks. A commit moves the word on and wakes those who sleep on it.

Where the word does not reach (no /dev/shm, another user's, a sandbox or container
with its own, no futex), the last transaction id is polled: it always reaches.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from statelog.storage.environment import Environment

try:
    from statelog import kernels
except ImportError:  # not compiled: poll
    kernels = None  # type: ignore[assignment]

WAKE_DIRECTORY = Path("/dev/shm")  # noqa: S108 - shared memory by definition; opened without following links
_WORD_SIZE_BYTES = 8

_SLICE_S = 0.05
"""Longest sleep on the word: a commit whose wake-up does not reach is seen this much later."""

_POLL_S_MIN = 0.0005
_POLL_S_MAX = 0.02


def wake_path(store_id: bytes) -> Path:
    """Return the file of a store's wake-up word."""
    return WAKE_DIRECTORY / f"statelog-{store_id.hex()}"


def remove_wake_file(store_id: bytes) -> None:
    """Remove the word; only for one who knows that no other process has the store open."""
    with contextlib.suppress(OSError):
        wake_path(store_id).unlink()


class Wake:
    """The wake-up word of one environment, mapped when first needed."""

    __slots__ = ("_environment", "_tried", "_word")

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._word: mmap.mmap | None = None
        self._tried = False

    def notify(self) -> None:
        """Tell all who wait, in any process, that there was a commit. Never raises for lack of a word."""
        word = self._word if self._tried else self._map()
        if word is not None:
            kernels.wake_notify(word)

    def wait(self, seen_transaction_id: int, timeout_s: float) -> bool:
        """Wait until there is a commit after `seen_transaction_id`; False when the time is up.

        Raises:
            ClosedError, ForkedError: the environment is not usable.
        """
        last_transaction_id = self._environment.last_transaction_id
        deadline = time.monotonic() + timeout_s
        pause_s = _POLL_S_MIN
        while True:
            word = self._word if self._tried else self._map()
            sequence = 0 if word is None else kernels.wake_read(word)
            if last_transaction_id() > seen_transaction_id:
                return True
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            if word is None:
                time.sleep(min(pause_s, left_s))
            else:
                kernels.wake_wait(word, sequence, min(_SLICE_S, left_s))
            pause_s = min(2 * pause_s, _POLL_S_MAX)

    def close(self) -> None:
        """Unmap the word, unless a waiter still holds it."""
        word, self._word, self._tried = self._word, None, True
        if word is not None:
            with contextlib.suppress(BufferError):
                word.close()

    def _map(self) -> mmap.mmap | None:
        """Map the word, making its file if need be; None where that cannot be had."""
        self._tried = True
        if kernels is not None:
            with contextlib.suppress(OSError, ValueError):
                self._word = _map_word(wake_path(self._environment.store_id))
        return self._word


def _map_word(path: Path) -> mmap.mmap | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            return None  # anyone may put a file there: trust only our own
        if status.st_size < _WORD_SIZE_BYTES:
            os.ftruncate(descriptor, _WORD_SIZE_BYTES)  # zeros; two who do it at once agree
        return mmap.mmap(descriptor, _WORD_SIZE_BYTES)
    finally:
        os.close(descriptor)
