"""Mapped pages: where they begin, and giving them back while a whole store is read.

What LMDB reads it reads through its map, and every page touched counts as this process's memory until
the kernel wants it: harmless, but whoever watches sees a gigabyte. Reading a store from end
to end therefore says now and then that it is done with what it has read. The pages stay in the page
cache; who touches one again finds it there. The map is never written through, so nothing is lost.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from statelog.storage.file.opened import OpenFile

RELEASE_SIZE_BYTES = 32 * 1024 * 1024
"""Read so much, and give back."""

MAPPED_AROUND_BYTES = 64 * 1024
"""Linux maps up to 16 pages around one that is touched."""

_MAPS = Path("/proc/self/maps")
_DONT_NEED = 4
"""MADV_DONTNEED on Linux."""


class MappedPages:
    """The pages that this process has touched of one environment's map, and of the maps of other files."""

    __slots__ = ("_environment", "_others", "_read_bytes")

    def __init__(self, environment: OpenFile, *others: int) -> None:
        self._environment = environment
        self._others = others
        self._read_bytes = 0

    def read(self, size_bytes: int) -> None:
        """Note that so much was read in one place; now and then, give back what was."""
        self._read_bytes += size_bytes + MAPPED_AROUND_BYTES
        if self._read_bytes >= RELEASE_SIZE_BYTES:
            self._read_bytes = 0
            for descriptor in (self._environment.locks.descriptor, *self._others):
                release(descriptor)


def map_start(address: int, descriptor: int) -> int:
    """Return where a file's map begins that an address lies in; 0 if it lies in none, or the system does not tell."""
    with contextlib.suppress(OSError, ValueError):
        inode = os.fstat(descriptor).st_ino
        with _MAPS.open() as maps:
            for line in maps:
                addresses, _permissions, offset, _device, number = line.split()[:5]
                start, stop = (int(bound, 16) for bound in addresses.split("-"))
                if start <= address < stop:
                    return start - int(offset, 16) if int(number) == inode else 0
    return 0


def release(descriptor: int) -> None:
    """Give back the mapped pages of a file, where the system can."""
    import ctypes

    with contextlib.suppress(OSError, ValueError, AttributeError):
        inode = os.fstat(descriptor).st_ino
        madvise = ctypes.CDLL(None).madvise
        wanted = f" {inode} "
        with _MAPS.open() as maps:
            for line in maps:
                if wanted not in line:  # most are none of ours, and need not be taken apart
                    continue
                addresses, permissions, _offset, _device, number = line.split()[:5]
                if int(number) == inode and permissions.startswith("r-"):  # never one that can be written through
                    start, stop = (int(address, 16) for address in addresses.split("-"))
                    madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), _DONT_NEED)
