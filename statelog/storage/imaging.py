"""An image of a store in use: its file at one moment, each page in its place, as that of a closed store.

A read transaction holds the moment: LMDB writes over none of its pages meanwhile. Both meta pages are that of the
moment. The mark of a store in use and the word of a compaction are left out. Pages that are free then are zeros: they
hold what was let go, and change with every commit.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from statelog.errors import StorageError
from statelog.storage.file.checks import FirstPages, read_first_pages
from statelog.storage.file.failures import translate_os
from statelog.storage.read_transaction import ReadTransaction

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.storage.lmdb_file import LmdbFile

PIECE_SIZE_BYTES = 1024 * 1024
"""Handed on at once."""

_BEGINNINGS_MAX = 100
"""How often others may commit twice between the beginning of a transaction and a look at its meta page."""


class Image(NamedTuple):
    """What was written.

    Attributes:
        lsn: of its last record.
        size_bytes: of all of it.

    """

    lsn: int
    size_bytes: int


def write_image(file: LmdbFile, write: Callable[[bytes], object]) -> Image:
    """Hand on the bytes of an image, in order.

    Args:
        file: the LMDB file.
        write: called with a MiB at a time, the last time with what is left.

    Raises:
        CorruptionError: the file is damaged. StorageError: the system refuses to read it. Facts: path.

    """
    for _again in range(_BEGINNINGS_MAX):
        with ReadTransaction(file) as transaction:
            first = read_first_pages(transaction.handles.descriptor, file.path, transaction.id)
            if first is not None:  # else its meta page was written over since: that is there for two commits
                try:
                    return _write(transaction, first, write)
                except OSError as error:
                    raise translate_os(error, path=file.path) from error
    message = f"{file.path}: others commit without a pause"
    raise StorageError(message, path=str(file.path))


def _write(transaction: ReadTransaction, first: FirstPages, write: Callable[[bytes], object]) -> Image:
    size, end = first.page_size_bytes, (first.last_page + 1) * first.page_size_bytes
    for start in range(0, end, PIECE_SIZE_BYTES):
        stop = min(start + PIECE_SIZE_BYTES, end)
        piece = bytearray(os.pread(transaction.handles.descriptor, stop - start, start))
        piece.extend(bytes(stop - start - len(piece)))  # a file may end before its last page, if that is free
        for number in first.free.intersection(range(start // size, stop // size)):
            at = number * size - start
            piece[at : at + size] = bytes(size)
        if not start:
            piece[: len(first.data)] = first.data
        write(bytes(piece))
    return Image(transaction.last_lsn(), end)
