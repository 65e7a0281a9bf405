"""Opening LMDB's environment on a file that was found fit for it."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import lmdb

from statelog.errors import CorruptionError, FormatError
from statelog.format.header import HEADER_KEY, decode_header
from statelog.limits import READERS_MAX
from statelog.storage.file.checks import check_file
from statelog.storage.file.creation import INDEX_TABLE, LOG_TABLE, META_TABLE, TABLES_MAX
from statelog.storage.file.descriptors import SHARED_MODE, keep_standard_streams
from statelog.storage.file.failures import translate_lmdb
from statelog.storage.file.locks import is_same_file
from statelog.storage.file.neighbours import prepare_lock_file
from statelog.storage.file.opened import Handles, OpenFile
from statelog.storage.file.place import replaced_error
from statelog.storage.file.upgrading import is_older, upgrade

if TYPE_CHECKING:
    from pathlib import Path

    from statelog.storage.file.locks import FileLocks

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
            handles.raw.close()
            handles = _open_lmdb(file, max_size_bytes, sync=True)
            upgrade(handles, locks, path, read_only=read_only, lock_timeout_s=file.lock_timeout_s)
            handles.raw.close()
            handles = _open_lmdb(file, max_size_bytes, sync=False)
        return handles, _read_header(handles, path)
    except BaseException as error:
        handles.raw.close()
        if isinstance(error, lmdb.Error):
            raise translate_lmdb(error, path=path, max_size_bytes=max_size_bytes) from error
        raise


def _check_place(locks: FileLocks, path: Path) -> None:
    if not is_same_file(path, locks.descriptor):
        raise replaced_error(path)


def _open_lmdb(file: OpenFile, max_size_bytes: int, *, sync: bool) -> Handles:
    locks, path, read_only = file.locks, file.path, file.read_only
    page_size_bytes = check_file(locks.descriptor, path).page_size_bytes
    prepare_lock_file(path, locks)
    keep_standard_streams()
    raw: lmdb.Environment | None = None
    try:
        raw = lmdb.open(
            os.fsencode(path),
            map_size=max_size_bytes // page_size_bytes * page_size_bytes,
            subdir=False,
            readonly=read_only,
            create=False,
            mode=os.fstat(locks.descriptor).st_mode & SHARED_MODE,  # of a lock file that was just removed
            sync=sync,  # by itself it flushes nothing: see `steady`
            max_readers=READERS_MAX,
            max_dbs=TABLES_MAX,
            max_spare_txns=_SPARE_READS,
        )
        # To write, LMDB wants a write transaction even to open what is there.
        with contextlib.nullcontext() if read_only else locks.writing(file.lock_timeout_s):
            return _open_tables(raw, path, locks.descriptor)
    except BaseException as error:
        if raw is not None:
            raw.close()
        if isinstance(error, lmdb.Error):
            raise translate_lmdb(error, path=path, max_size_bytes=max_size_bytes) from error
        raise


def _open_tables(raw: lmdb.Environment, path: Path, descriptor: int) -> Handles:
    try:
        meta, log, index = (raw.open_db(name, create=False) for name in (META_TABLE, LOG_TABLE, INDEX_TABLE))
    except (lmdb.NotFoundError, lmdb.IncompatibleError) as error:
        message = f"{path} is an LMDB file, but not a statelog store"
        raise FormatError(message, path=str(path)) from error
    return Handles(raw, raw.begin, meta, log, index, raw.stat()["psize"], descriptor)


def _read_header(handles: Handles, path: Path) -> dict[str, Any]:
    with handles.begin() as transaction:
        value = transaction.get(HEADER_KEY, db=handles.meta)
    if value is None:
        message = f"{path} is damaged: it has no header"
        raise CorruptionError(message, path=str(path))
    try:
        return decode_header(value)
    except (CorruptionError, FormatError) as error:
        message = f"{path}: {error.message}"
        raise type(error)(message, **{"path": str(path), **error.facts}) from None
