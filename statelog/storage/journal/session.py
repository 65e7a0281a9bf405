"""The journal's session, as who begins to write finds it, or begins it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from statelog.storage.file.disk import flush_file, write_zeros
from statelog.storage.file.failures import DISK_FULL_ERRNOS
from statelog.storage.file.locks import is_same_file
from statelog.storage.file.neighbours import broken_error, journal_path, missing_error, older_error, removed_error
from statelog.storage.file.place import replaced_error
from statelog.storage.journal.journal import HALVES_AT, RECORDS_AT, check_leftover, fill, is_of_older_build, read_slots
from statelog.storage.journal.marker import clear_marker

if TYPE_CHECKING:
    from statelog.errors import JournalMissingError, StorageError
    from statelog.storage.file.headroom import Headroom
    from statelog.storage.file.opened import OpenFile

_SESSION_SIZE_BYTES = 16


def find_or_begin(
    environment: OpenFile, headroom: Headroom, descriptor: int, marked: bytes | None
) -> tuple[bytes, int]:
    """Return session and epoch of an open journal; the epoch is 0 if the session begins.

    Args:
        environment: whose journal it is.
        headroom: of its reserve blocks may be had.
        descriptor: of the journal.
        marked: the session that the data file bears, None if it bears no mark: then nobody else takes part.

    Raises:
        JournalMissingError: the marked session has another journal. Facts: path, journal.
        FormatError: it is no journal of this store. Facts: path, journal.
        OSError: the system refuses.

    """
    if marked is not None:
        newest = next((slot for slot in read_slots(descriptor) if slot.session == marked), None)
        if newest is None:
            raise older_error(environment.path) if is_of_older_build(descriptor) else missing_error(environment.path)
        return newest.session, newest.epoch
    check_leftover(environment.path, descriptor, environment.store_id)
    if os.fstat(descriptor).st_size:  # a leftover: it goes when the cleared mark is on the disk for certain
        clear_marker(environment.locks.descriptor)
        flush_file(environment.locks.descriptor)
    os.ftruncate(descriptor, 0)
    _fill_head(headroom, descriptor)
    return os.urandom(_SESSION_SIZE_BYTES), 0


def fill_first_half(descriptor: int) -> int:
    """Fill the beginning of a new journal's first half, and return up to where; on a full disk nothing is.

    So the size that the mark tells from the first moment on is one with groups in it: without them it was cut off.
    """
    start = HALVES_AT[1]
    try:
        return fill(descriptor, start, start + 1, start)
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS:
            raise
    os.ftruncate(descriptor, RECORDS_AT)
    return start


def is_taken_away(environment: OpenFile, descriptor: int) -> bool:
    """Tell whether somebody has removed, or replaced, the journal that is open, or the data file."""
    if not environment.locks.file.is_kept():
        return True
    if is_same_file(journal_path(environment.path), descriptor):
        return False
    # Not where its directory has another name now: the store has gone along.
    is_removed = not os.fstat(descriptor).st_nlink
    return is_removed or is_same_file(environment.path, environment.locks.descriptor)


def find_error(environment: OpenFile, *, is_gone: bool) -> StorageError | JournalMissingError:
    """Return the error of a store to which nothing may be written: a file is gone, or a flush has failed."""
    path = environment.path
    if environment.locks.file.is_lost:
        return replaced_error(path)
    return removed_error(path) if is_gone else broken_error(path)


def _fill_head(headroom: Headroom, descriptor: int) -> None:
    """Fill the journal's slots, on a full disk with blocks of the store's own reserve."""
    try:
        write_zeros(descriptor, 0, RECORDS_AT)
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS or not headroom.lend(RECORDS_AT):
            raise
        write_zeros(descriptor, 0, RECORDS_AT)
