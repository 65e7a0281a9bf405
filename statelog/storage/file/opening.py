"""Opening LMDB's environment on a file that was found fit for it."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import lmdb

from statelog.errors import CorruptionError, FormatError, StorageError
from statelog.format.header import HEADER_KEY, decode_header
from statelog.limits import READER_SLOTS
from statelog.storage.file.checks import check_file
from statelog.storage.file.creation import INDEX_TABLE, LOG_TABLE, META_TABLE, TABLES_MAX
from statelog.storage.file.descriptors import SHARED_MODE, keep_standard_streams
from statelog.storage.file.failures import translate_lmdb
from statelog.storage.file.file_identity import replaced_error
from statelog.storage.file.lock_file import UNLOCKED, LockFile
from statelog.storage.file.locks import is_same_file
from statelog.storage.file.opened import Handles, OpenFile
from statelog.storage.file.sidecar_files import open_lock_file
from statelog.storage.file.upgrading import is_older, upgrade

if TYPE_CHECKING:
    from pathlib import Path

    from statelog.storage.file.locks import FileLocks

_ATTEMPTS = 10
"""The maximum number of attempts to open LMDB, if other threads close its lock file at the same time."""

_SPARE_READS = 0
"""Ended read transactions LMDB's binding keeps for reuse. One would save 80 ns, and be freed in the
parent's reader table by a forked child that exits, after which the parent cannot read."""


def open_handles(file: OpenFile, max_size_bytes: int) -> tuple[Handles, dict[str, Any]]:
    """Check the file, open LMDB, with a map that ends there, and the tables; return them with the header.

    Raises:
        FormatError: not a store, or a newer one. Facts: path.
        CorruptionError: a damaged store. Facts: path.
        AccessError: no permission for the file or its lock file. Facts: path.
        StoreLockedError: another process wrote all the time allowed. Facts: path, timeout_s.
        StoreReplacedError: the file was replaced. Facts: path.
        StorageError: LMDB refuses it. Facts: path.
    """
    locks, path, read_only = file.locks, file.path, file.read_only
    _check_place(locks, path)  # LMDB would make a file where there is none
    handles = _open_lmdb(file, max_size_bytes, sync=False)
    try:
        _check_place(locks, path)  # LMDB goes by the name: it may have opened another
        if is_older(handles, read_only=read_only):
            # In a transaction that LMDB itself flushes: there is no journal of another format.
            handles.close()
            handles = _open_lmdb(file, max_size_bytes, sync=True)
            upgrade(handles, locks, path, read_only=read_only, lock_timeout_s=file.lock_timeout_s)
            handles.close()
            handles = _open_lmdb(file, max_size_bytes, sync=False)
        return handles, _read_header(handles, path)
    except BaseException as error:
        handles.close()
        if isinstance(error, lmdb.Error):
            raise translate_lmdb(error, path=path, max_size_bytes=max_size_bytes) from error
        raise


def _check_place(locks: FileLocks, path: Path) -> None:
    if not is_same_file(path, locks.descriptor):
        raise replaced_error(path)


def _open_lmdb(file: OpenFile, max_size_bytes: int, *, sync: bool) -> Handles:
    for _attempt in range(_ATTEMPTS):
        handles = _open_locked(file, max_size_bytes, sync=sync)
        if handles is not None:
            break
    else:
        message = f"{file.path}-lock is opened and closed all the time by others in this process: LMDB loses its locks"
        raise StorageError(message, path=str(file.path))
    try:
        # In an environment for writing, LMDB needs a write transaction even to open an existing table.
        with contextlib.nullcontext() if file.read_only else file.locks.writing(file.lock_timeout_s):
            return _open_tables(handles, file.path)
    except BaseException as error:
        handles.close()
        if isinstance(error, lmdb.Error):
            raise translate_lmdb(error, path=file.path, max_size_bytes=max_size_bytes) from error
        raise


def _open_locked(file: OpenFile, max_size_bytes: int, *, sync: bool) -> Handles | None:
    """Open LMDB, and hold its locks. Return None if this process has closed LMDB's lock file meanwhile."""
    locks, path = file.locks, file.path
    page_size_bytes = check_file(locks.descriptor, path).page_size_bytes
    descriptor = open_lock_file(path, locks, read_only=file.read_only)
    lock_file: LockFile | None = None
    raw: lmdb.Environment | None = None
    handles: Handles | None = None
    keep_standard_streams()
    try:
        if descriptor is None:
            locks.note_untabled()
        else:
            lock_file = LockFile(descriptor, path, file.lock_timeout_s, has_locks=locks.supported)
            lock_file.await_opening()
        raw = lmdb.open(
            os.fsencode(path),
            map_size=max_size_bytes // page_size_bytes * page_size_bytes,
            subdir=False,
            readonly=file.read_only,
            create=False,
            mode=os.fstat(locks.descriptor).st_mode & SHARED_MODE,  # of a lock file that was just removed
            sync=sync,  # LMDB flushes nothing by itself: see `wal/checkpointer.py`.
            max_readers=READER_SLOTS,
            max_dbs=TABLES_MAX,
            max_spare_txns=_SPARE_READS,
        )
        if lock_file is None or lock_file.hold():
            reader_lock = UNLOCKED if lock_file is None else lock_file.reader_lock
            page_size = raw.stat()["psize"]
            handles = Handles(raw, raw.begin, page_size, locks.descriptor, lock_file, reader_lock)
    except lmdb.Error as error:
        raise translate_lmdb(error, path=path, max_size_bytes=max_size_bytes) from error
    finally:
        if handles is None:
            if raw is not None:
                raw.close()
            if lock_file is not None:
                lock_file.close()  # After LMDB, which would otherwise lose its locks.
    return handles


def _open_tables(handles: Handles, path: Path) -> Handles:
    names = (META_TABLE, LOG_TABLE, INDEX_TABLE)
    try:
        handles.meta, handles.log, handles.index = (handles.raw.open_db(name, create=False) for name in names)
    except (lmdb.NotFoundError, lmdb.IncompatibleError) as error:
        message = f"{path} is an LMDB file, but not a statelog store"
        raise FormatError(message, path=str(path)) from error
    return handles


def _read_header(handles: Handles, path: Path) -> dict[str, Any]:
    with handles.begin_read() as transaction:
        value = transaction.get(HEADER_KEY, db=handles.meta)
    if value is None:
        message = f"{path} is damaged: it has no header"
        raise CorruptionError(message, path=str(path))
    try:
        return decode_header(value)
    except (CorruptionError, FormatError) as error:
        message = f"{path}: {error.message}"
        raise type(error)(message, **{"path": str(path), **error.facts}) from None
