"""Removes an empty store, for example after a refused import."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.errors import StoreLockedError
from statelog.storage.file.creation import sync_directory
from statelog.storage.file.sidecar_files import lock_path
from statelog.storage.read_transaction import ReadTransaction

if TYPE_CHECKING:
    from statelog.storage.lmdb_file import LmdbFile
    from statelog.storage.wal.checkpointer import Checkpointer


def withdraw(file: LmdbFile, checkpointer: Checkpointer) -> None:
    """Remove the file of a store, and its lock file, if nothing was ever committed. The caller then closes the store.

    Raises:
        StoreLockedError: another process has the store open. Nothing was removed. Facts: path.
        StorageError, OSError: the operating system reports an error.
    """
    path = file.path
    if not file.locks.try_exclusive():
        message = f"{path} is open in another process: close it there first"
        raise StoreLockedError(message, path=str(path))
    try:
        with file.write_lock:
            with ReadTransaction(file) as transaction:
                if transaction.last_lsn():
                    return
            # Remove the WAL now, because by the time this store is closed, a different store may be at the path.
            checkpointer.remove_wal()
            lock_path(path).unlink(missing_ok=True)
            path.unlink()
            sync_directory(path.parent)
    finally:
        if not file.closed:
            file.locks.acquire_presence(0)
