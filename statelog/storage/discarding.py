"""Taking back a store that was made in vain, as that of an import that was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.errors import StoreLockedError
from statelog.storage.file.creation import sync_directory
from statelog.storage.file.sidecar_files import lock_path

if TYPE_CHECKING:
    from statelog.storage.commit.journaled import JournaledFile


def withdraw(environment: JournaledFile) -> None:
    """Remove the file of a store, and its lock file, if nothing was ever committed. It is to be closed right after.

    Raises:
        StoreLockedError: another process has it open: it stays. Facts: path.
        StorageError, OSError: the system refuses.
    """
    path = environment.path
    if not environment.locks.try_exclusive():
        message = f"{path} is open in another process: close it there first"
        raise StoreLockedError(message, path=str(path))
    try:
        with environment.write_lock:
            with environment.read() as transaction:
                if transaction.last_lsn():
                    return
            # Now, because at the closing a WAL of that name may be another store's.
            environment.checkpointer.remove_wal()
            lock_path(path).unlink(missing_ok=True)
            path.unlink()
            sync_directory(path.parent)
    finally:
        if not environment.closed:
            environment.locks.acquire_presence(0)
