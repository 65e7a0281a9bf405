"""The word in the data file that tells every process that the file has a successor, is a successor, or is fenced.

The word is in the first page, before the dirty flag, where LMDB never writes. Every process that has the store open
maps it:

- `MOVED`: a compaction writes it, while holding the writer lock, just before it renames the new file. A process that
  finds `MOVED` continues with the new file if the path leads there.
- `SUCCESSOR`: the new file has it until the sidecar files of the old file are removed. Neither `MOVED` nor
  `SUCCESSOR` is flushed, because a power failure ends every process.
- `FENCED`: no process may commit to the file. It is written under the writer lock, and flushed.
- `PURGED`: a purge writes it instead of `MOVED`. A process that finds it has to open the store again, because its
  cached records do not match the new file.
"""

from __future__ import annotations

import mmap
import os

from statelog.storage.file.disk import write_all

_AT = 4096 - 64 - 8

MOVED = int.from_bytes(b"stlgmove", "little")
SUCCESSOR = int.from_bytes(b"stlgnext", "little")

FENCED = int.from_bytes(b"stlgfenc", "little")
PURGED = int.from_bytes(b"stlgpurg", "little")

SUCCEEDED = frozenset((MOVED, PURGED))
"""The words of a file that has a successor, or whose compaction or purge was killed before it renamed the new file."""

NOT_MOVED = memoryview(bytes(8)).cast("Q")
"""A substitute for the mapped word of a closed file."""


def map_word(descriptor: int) -> memoryview:
    """Map the word of a file, read-only. In a file that is not a store, it may have any value. Raises OSError."""
    if os.fstat(descriptor).st_size < _AT + 8:
        return NOT_MOVED
    page = mmap.mmap(descriptor, _AT + 8, prot=mmap.PROT_READ)
    return memoryview(page)[_AT:].cast("Q")


def read_word(descriptor: int) -> int:
    """Return the word of a file."""
    return int.from_bytes(os.pread(descriptor, 8, _AT), "little")


def write_word(descriptor: int, word: int) -> None:
    """Write the word of a file. The value 0 clears the word. Raises OSError."""
    write_all(descriptor, word.to_bytes(8, "little"), _AT)
