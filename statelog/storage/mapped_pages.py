"""Mapped pages, which are released while a whole store is read.

LMDB reads through its map, and every page that it touches counts as memory of this process until the kernel needs it.
This does no harm, but a gigabyte looks alarming. So an operation that reads a whole store sometimes releases the pages
that it has read. They stay in the page cache. Nothing is written through the map, so nothing is lost.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from statelog.storage.file.descriptors import maps_of

if TYPE_CHECKING:
    from statelog.storage.lmdb_file import LmdbFile

RELEASE_SIZE_BYTES = 32 * 1024 * 1024
"""The number of bytes that are read before the pages are released."""

MAPPED_AROUND_BYTES = 64 * 1024
"""Linux maps up to 16 pages around one that is touched."""

_DONT_NEED = 4
"""MADV_DONTNEED on Linux."""


class MappedPages:
    """The pages that this process has touched in the map of one LMDB file, and in the maps of other files."""

    __slots__ = ("_file", "_others", "_read_bytes")

    def __init__(self, file: LmdbFile, *others: int) -> None:
        self._file = file
        self._others = others
        self._read_bytes = 0

    def read(self, size_bytes: int) -> None:
        """Count bytes that were read in one place, and release the pages from time to time."""
        self._read_bytes += size_bytes + MAPPED_AROUND_BYTES
        if self._read_bytes >= RELEASE_SIZE_BYTES:
            self._read_bytes = 0
            for descriptor in (self._file.locks.descriptor, *self._others):
                release(descriptor)


def release(descriptor: int) -> None:
    """Release the mapped pages of a file, if the system can."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        madvise = ctypes.CDLL(None).madvise
        for each in maps_of(descriptor):
            if each.permissions.startswith("r-"):  # Never release a map that can be written.
                madvise(ctypes.c_void_p(each.start), ctypes.c_size_t(each.stop - each.start), _DONT_NEED)
