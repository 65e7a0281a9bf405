"""Writes an image of a store in use: the bytes that its file would have if the store had been closed at one moment.

A read transaction keeps LMDB from overwriting the pages of that moment. The image contains the meta page of that moment
twice. It has neither the dirty flag nor the word that a compaction writes. Free pages are zeros in the image, because
they contain deleted data and change with every commit.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from statelog.errors import StorageError
from statelog.storage.file.failures import translate_os
from statelog.storage.file.preopen_checks import FirstPages, read_first_pages
from statelog.storage.read_transaction import ReadTransaction

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.storage.lmdb_file import LmdbFile

PIECE_SIZE_BYTES = 1024 * 1024
"""The number of bytes passed to one call of `write`."""

_BEGINNINGS_MAX = 100
"""The maximum number of attempts to read a meta page. An attempt fails if others commit twice during it."""


class WrittenImage(NamedTuple):
    """A written image.

    Attributes:
        lsn: the LSN of its last record.
        size_bytes: its size.
    """

    lsn: int
    size_bytes: int


def write_image(file: LmdbFile, write: Callable[[bytes], object]) -> WrittenImage:
    """Write an image of the store, from the first byte to the last.

    Raises:
        CorruptionError: the file is damaged. Facts: path.
        StorageError: the file cannot be read, or others commit without a pause. Facts: path.
    """
    for _again in range(_BEGINNINGS_MAX):
        with ReadTransaction(file) as transaction:
            first = read_first_pages(transaction.handles.descriptor, file.path, transaction.id)
            if first is not None:  # Otherwise, two commits have overwritten the snapshot's meta page, so try again.
                try:
                    return _write(transaction, first, write)
                except OSError as error:
                    raise translate_os(error, path=file.path) from error
    message = f"{file.path}: no image could be read, because other writers commit without a pause"
    raise StorageError(message, path=str(file.path))


def _write(transaction: ReadTransaction, first: FirstPages, write: Callable[[bytes], object]) -> WrittenImage:
    size, end = first.page_size_bytes, (first.last_page + 1) * first.page_size_bytes
    for start in range(0, end, PIECE_SIZE_BYTES):
        stop = min(start + PIECE_SIZE_BYTES, end)
        piece = bytearray(os.pread(transaction.handles.descriptor, stop - start, start))
        piece.extend(bytes(stop - start - len(piece)))  # The file may lack free pages at its end, so add zeros.
        for number in first.free.intersection(range(start // size, stop // size)):
            at = number * size - start
            piece[at : at + size] = bytes(size)
        if not start:
            piece[: len(first.data)] = first.data
        write(bytes(piece))
    return WrittenImage(transaction.last_lsn(), end)
