"""Releases the mapped pages that an operation touches while it reads a whole store.

LMDB reads through its map, and every page that it touches counts as memory of this process until the kernel reclaims
it. This is harmless, but a process that seems to use a gigabyte looks alarming. So an operation that reads a whole
store releases the pages from time to time. They stay in the page cache.

Releasing a private map discards what the process has written into it, for example the addresses that the dynamic loader
has written into a library. So this module releases only shared maps. Of the store's maps, it releases only LMDB's own,
because no other thread can remove this map and reuse its addresses while the gate is held.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import lmdb

from statelog.format.header import HEADER_KEY
from statelog.kernels import address_of
from statelog.storage.file.descriptors import maps_of

if TYPE_CHECKING:
    from statelog.storage.file.descriptors import FileMap
    from statelog.storage.lmdb_file import LmdbFile, LmdbHandles

RELEASE_SIZE_BYTES = 32 * 1024 * 1024
"""How many bytes an operation reads before it releases the pages."""

MAPPED_AROUND_BYTES = 64 * 1024
"""The number of bytes that Linux maps when one page is touched: the page and its neighbours, up to 16 pages."""

_DONT_NEED = 4
"""The value of MADV_DONTNEED on Linux."""

_SHARED = "r--s"
"""The permissions of LMDB's map. Python's maps of the store's first page have the same permissions."""


class MappedPages:
    """Counts the bytes read through the map of one LMDB file, and releases the mapped pages from time to time.

    An operation that fills a new file also counts the bytes of that file.
    """

    __slots__ = ("_file", "_filled", "_read_bytes")

    def __init__(self, file: LmdbFile, filled: int | None = None) -> None:
        """Begin to count. `filled` is the descriptor of a new file that only the calling thread has mapped, or None."""
        self._file = file
        self._filled = filled
        self._read_bytes = 0

    def read(self, size_bytes: int) -> None:
        """Count `size_bytes` consecutive bytes that were read. Release the pages if enough bytes were read."""
        self._read_bytes += size_bytes + MAPPED_AROUND_BYTES
        if self._read_bytes >= RELEASE_SIZE_BYTES:
            self._read_bytes = 0
            release(self._file)
            if self._filled is not None:
                for each in maps_of(self._filled):
                    _release(each)


def release(file: LmdbFile) -> None:
    """Release the mapped pages of a file, if the system can. Do nothing while another thread uses the gate."""
    if not file.gate.acquire(blocking=False):
        return
    try:
        if not file.is_shut and file.handles is not None:
            address = _map_address(file.handles)
            for each in maps_of(file.locks.descriptor):
                if each.start == address:
                    _release(each)
    finally:
        file.gate.release()


def _map_address(handles: LmdbHandles) -> int:
    """Return the address of LMDB's map, or 0 if it is unknown. The caller holds the gate."""
    if not handles.map_address and not handles.reader_lock[0]:
        with contextlib.suppress(lmdb.Error), handles.begin_read(buffers=True) as transaction:
            header = transaction.get(HEADER_KEY, db=handles.meta)
            if isinstance(header, memoryview):  # With `buffers`, LMDB returns a memoryview into the map.
                handles.find_map(address_of(header))
                header.release()
    return handles.map_address


def _release(mapped: FileMap) -> None:
    """Release the pages of a map, unless it is private or can be written."""
    import ctypes

    if mapped.permissions == _SHARED:
        with contextlib.suppress(OSError, AttributeError):
            size_bytes = mapped.stop - mapped.start
            ctypes.CDLL(None).madvise(ctypes.c_void_p(mapped.start), ctypes.c_size_t(size_bytes), _DONT_NEED)
