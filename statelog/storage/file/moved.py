"""The word in a data file that every process looks at: this file has a successor, or is one, or is fenced.

It stands in the first page, before the mark of a store in use, where LMDB never writes. Every process that has the
store open maps it. `MOVED` is written under the writer lock, just before the new file takes the name: who finds it, and
that the path leads elsewhere, goes on in the new file. `SUCCESSOR` stands in the new file until what belongs to
the old one was removed from beside it. Neither is flushed: after a loss of power no process is left that it could help.
`FENCED` is written under the writer lock and flushed: nobody commits to this file any more.
"""

from __future__ import annotations

import mmap
import os

from statelog.storage.file.disk import write_all

_AT = 4096 - 64 - 8

MOVED = int.from_bytes(b"stlgmove", "little")
SUCCESSOR = int.from_bytes(b"stlgnext", "little")

FENCED = int.from_bytes(b"stlgfenc", "little")

NOT_MOVED = memoryview(bytes(8)).cast("Q")
"""Of a file that is not open any more."""


def map_word(descriptor: int) -> memoryview:
    """Map the word of a file, read-only. Of what is no store it may be anything. Raises OSError."""
    if os.fstat(descriptor).st_size < _AT + 8:
        return NOT_MOVED
    page = mmap.mmap(descriptor, _AT + 8, prot=mmap.PROT_READ)
    return memoryview(page)[_AT:].cast("Q")


def read_word(descriptor: int) -> int:
    """Return the word of a file."""
    return int.from_bytes(os.pread(descriptor, 8, _AT), "little")


def write_word(descriptor: int, word: int) -> None:
    """Write the word of a file; 0 takes it out. Raises OSError."""
    write_all(descriptor, word.to_bytes(8, "little"), _AT)
