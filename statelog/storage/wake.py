"""Waking whoever waits for a commit, across processes.

One word of shared memory per store, in a file of /dev/shm named after the store's
id: not in LMDB's lock file, which LMDB remakes at will and whose plain closing
would drop its locks. A commit moves the word on and wakes those who sleep on it.

Where the word does not reach (no /dev/shm, another user's, a sandbox or container
with its own, no futex), the last record on the disk is polled: that always reaches.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

from statelog.storage.file.descriptors import open_file, open_side_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.storage.file.opened import OpenFile

try:
    from statelog import kernels
except ImportError:  # not compiled: poll
    kernels = None  # type: ignore[assignment]

WAKE_DIRECTORY = Path("/dev/shm")  # noqa: S108 - shared memory by definition; opened without following links
_WORD_SIZE_BYTES = 8

_SLICE_S = 0.05
"""Longest sleep on the word, so a commit whose wake-up does not reach is seen this much later; and
how often one who commits looks whether somebody has made a word to wait on."""

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
    """The wake-up word of one environment: made by the first who waits, looked for by those who commit."""

    __slots__ = ("_environment", "_flushed_lsn", "_path", "_word", "look_at_s")

    def __init__(self, environment: OpenFile, flushed_lsn: Callable[[], int]) -> None:
        self._environment = environment
        self._flushed_lsn = flushed_lsn
        self._path = ""
        self._word: mmap.mmap | None = None
        self.look_at_s = 0.0
        """When to look again for a word; long past where there is one."""

    def notify(self) -> None:
        """Tell all who wait, in any process, that there was a commit. Never raises for lack of a word."""
        word = self._word
        if word is None:
            now_s = time.monotonic()
            if now_s < self.look_at_s:
                return
            self.look_at_s = now_s + _SLICE_S
            self._path = self._path or str(wake_path(self._environment.store_id))
            if os.access(self._path, os.F_OK):  # mostly it is not, which an exception tells in ten times the time
                word = self._map(create=False)
        if word is not None:
            kernels.wake_notify(word)

    def wait(self, after: int, timeout_s: float) -> bool:
        """Wait until a record above an LSN is on the disk; False when the time is up.

        Raises:
            ClosedError, ForkedError: the environment is not usable.
        """
        deadline = time.monotonic() + timeout_s
        pause_s = _POLL_S_MIN
        if self._flushed_lsn() > after:
            return True
        word = self._word or self._map(create=True)
        while True:
            sequence = 0 if word is None else kernels.wake_read(word)
            if self._flushed_lsn() > after:
                return True
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            if word is None:
                time.sleep(min(pause_s, left_s))
                pause_s = min(2 * pause_s, _POLL_S_MAX)
            else:
                kernels.wake_wait(word, sequence, min(_SLICE_S, left_s))

    def close(self) -> None:
        """Let go of the word; a waiter that holds it still finds the environment closed."""
        self._word = None
        self.look_at_s = float("inf")

    def _map(self, *, create: bool) -> mmap.mmap | None:
        """Map the word; None where there is none and none can be made."""
        if kernels is not None:
            with contextlib.suppress(OSError, ValueError):
                store = os.fstat(self._environment.locks.descriptor)
                self._word = _map_word(wake_path(self._environment.store_id), store, create=create)
                if self._word is not None:
                    self.look_at_s = 0.0
        return self._word


def _map_word(path: Path, store: os.stat_result, *, create: bool) -> mmap.mmap | None:
    flags = os.O_RDWR | os.O_NOFOLLOW
    descriptor = open_side_file(path, flags, store) if create else open_file(path, flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in {store.st_uid, os.geteuid()}:
            return None  # anyone may put a file there: trust only our own, and the store's owner
        if status.st_size < _WORD_SIZE_BYTES:
            os.ftruncate(descriptor, _WORD_SIZE_BYTES)  # zeros; two who do it at once agree
        return mmap.mmap(descriptor, _WORD_SIZE_BYTES)
    finally:
        os.close(descriptor)
