"""Folders for copies that last as long as their process."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = ".scratch-"


@contextmanager
def scratch(cache: Path) -> Iterator[Path]:
    """Yield a new folder. It is removed at the end, or, if this process is killed, by the next call of any process."""
    for left in cache.glob(f"{_PREFIX}*"):
        _remove(left, _locked(left))
    lock = None
    while lock is None:  # Another process may remove the folder as a leftover before it is locked.
        folder = Path(tempfile.mkdtemp(dir=cache, prefix=_PREFIX))
        lock = _locked(folder)
    try:
        yield folder
    finally:
        _remove(folder, lock)


def _locked(folder: Path) -> int | None:
    """Return a descriptor that locks a folder, or None if another process has it or it is gone."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if folder.exists():
            return descriptor
    os.close(descriptor)
    return None


def _remove(folder: Path, lock: int | None) -> None:
    if lock is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
