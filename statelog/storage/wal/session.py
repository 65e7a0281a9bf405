"""Sessions of the WAL: a process that begins to write joins the session of the store, or begins one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from statelog.storage.file.disk import flush_file, write_zeros
from statelog.storage.file.failures import DISK_FULL_ERRNOS
from statelog.storage.file.file_identity import replaced_error
from statelog.storage.file.locks import is_same_file
from statelog.storage.file.sidecar_files import broken_error, journal_path, missing_error, older_error, removed_error
from statelog.storage.wal.dirty_flag import clear_dirty_flag
from statelog.storage.wal.wal_format import HALVES_AT, RECORDS_AT, check_leftover, fill, is_of_older_build, read_slots

if TYPE_CHECKING:
    from statelog.errors import JournalMissingError, StorageError
    from statelog.storage.disk_reserve import DiskReserve
    from statelog.storage.lmdb_file import LmdbFile

_SESSION_SIZE_BYTES = 16


def join_or_begin(
    file: LmdbFile, disk_reserve: DiskReserve, descriptor: int, flagged: bytes | None
) -> tuple[bytes, int]:
    """Return the session and the epoch of an open WAL. The epoch is 0 if a new session begins.

    Args:
        file: the LMDB file.
        disk_reserve: releases blocks if the disk is full.
        descriptor: of the WAL.
        flagged: the session that the dirty flag names. None: the flag is not set, so no other process is in a session.

    Raises:
        JournalMissingError: the WAL is not that of the session that the flag names. Facts: path, journal.
        FormatError: the file is not a WAL of this store. Facts: path, journal.
        OSError: the operating system refuses.

    """
    if flagged is not None:
        newest = next((slot for slot in read_slots(descriptor) if slot.session == flagged), None)
        if newest is None:
            raise older_error(file.path) if is_of_older_build(descriptor) else missing_error(file.path)
        return newest.session, newest.epoch
    check_leftover(file.path, descriptor, file.store_id)
    if os.fstat(descriptor).st_size:  # A leftover may be cut off only after the cleared flag is on the disk.
        clear_dirty_flag(file.locks.descriptor)
        flush_file(file.locks.descriptor)
    os.ftruncate(descriptor, 0)
    _fill_head(disk_reserve, descriptor)
    return os.urandom(_SESSION_SIZE_BYTES), 0


def fill_first_half(descriptor: int) -> int:
    """Fill the beginning of a new WAL's first half, and return the end of it. On a full disk, fill nothing.

    The first extent that the data file records then includes space for groups. So a WAL that was cut off before its
    first group is detected.
    """
    start = HALVES_AT[1]
    try:
        return fill(descriptor, start, start + 1, start)
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS:
            raise
    os.ftruncate(descriptor, RECORDS_AT)
    return start


def is_removed(file: LmdbFile, descriptor: int) -> bool:
    """Return True if somebody has removed or replaced the open WAL, or the data file."""
    if not file.locks.file.is_kept():
        return True
    if is_same_file(journal_path(file.path), descriptor):
        return False
    # If the directory was renamed, the path leads to neither file, and both files are still beside each other.
    return not os.fstat(descriptor).st_nlink or is_same_file(file.path, file.locks.descriptor)


def broken_wal_error(file: LmdbFile, *, is_gone: bool) -> StorageError | JournalMissingError:
    """Return the error of a store that cannot be written: a file is gone, or a flush has failed."""
    path = file.path
    if file.locks.file.is_lost:
        return replaced_error(path)
    return removed_error(path) if is_gone else broken_error(path)


def _fill_head(disk_reserve: DiskReserve, descriptor: int) -> None:
    """Fill the slots of the WAL. If the disk is full, use blocks of the store's own reserve."""
    try:
        write_zeros(descriptor, 0, RECORDS_AT)
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS or not disk_reserve.release_blocks(RECORDS_AT):
            raise
        write_zeros(descriptor, 0, RECORDS_AT)
