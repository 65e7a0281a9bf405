"""Creates a store: completely or not at all, even if the process is killed or others create the same store.

LMDB would create the file step by step under its final name, and a crash would leave a file that cannot be opened. Here
the store is built under a temporary name, flushed, and then linked to its final name. The link fails if the name is
taken. So if two processes create a store at the same time, one of the two stores is dropped.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from typing import TYPE_CHECKING

import lmdb

from statelog.errors import AlreadyExistsError, StorageError, StoreNotFoundError
from statelog.format.header import HEADER_KEY, STORE_ID_SIZE_BYTES, encode_header
from statelog.limits import MAX_SIZE_BYTES_MIN
from statelog.storage import faults
from statelog.storage.file.descriptors import keep_standard_streams, open_file
from statelog.storage.file.disk import flush_file
from statelog.storage.file.failures import translate_lmdb, translate_os
from statelog.storage.file.sidecar_files import check_before_creation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from statelog.errors import StatelogError
    from statelog.format.mac import StoreKey

META_TABLE = b"meta"
LOG_TABLE = b"log"
INDEX_TABLE = b"index"
TABLES_MAX = 4
"""The maximum number of LMDB tables: `meta`, `log`, `index`, and one that a later format may add."""

FILE_MODE = 0o600
"""The mode of a new file: only its owner may read and write the state of agents."""

_TEMPORARY_SUFFIX = ".creating"
_ATTEMPTS = 10
_NO_LINK_ERRNOS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


def create_store(path: Path, store_id: bytes | None = None, *, key: StoreKey | None = None) -> None:
    """Create an empty store at `path` durably, unless a file exists there.

    Without `store_id`, the store gets a random id.

    Raises:
        StoreNotFoundError: the directory does not exist. Facts: path.
        AccessError: no permission to write to the directory. Facts: path.
        StoreFullError: the disk is full. Facts: path.
        FormatError: another file has the name that the WAL needs. Facts: path, journal.
        StorageError: the operating system reports a different error. Facts: path.
    """
    try:
        check_before_creation(path)
        remove_leftovers(path)
        for _ in range(_ATTEMPTS):
            # Try again if another process's `remove_leftovers` has removed the temporary file before it was locked.
            with contextlib.suppress(FileNotFoundError), _temporary(path) as temporary:
                _fill(temporary, store_id or os.urandom(STORE_ID_SIZE_BYTES), key)
                _publish(temporary, path)
            if path.exists():
                return
            path.parent.stat()
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    except OSError as error:
        raise _refusal(error, path) from error
    except lmdb.Error as error:
        raise translate_lmdb(error, path=path, max_size_bytes=MAX_SIZE_BYTES_MIN) from error


def _refusal(error: OSError, path: Path) -> StatelogError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        message = f"a store cannot be created at {path}: {path.parent}: {error.strerror}"
        return StoreNotFoundError(message, path=str(path))
    return translate_os(error, path=path)


def remove_leftovers(path: Path, *, suffix: str = _TEMPORARY_SUFFIX) -> None:
    """Remove the temporary files that killed processes left when they created `path`.

    The file of a living process is locked, and stays. `suffix` selects a different kind of temporary file.
    """
    for entry in path.parent.iterdir():
        if entry.name.startswith(_temporary_prefix(path)) and entry.name.endswith(suffix):
            with contextlib.suppress(OSError):
                # A process that is creating a store holds this lock on its temporary file, so locking it fails.
                _remove_leftover(entry, lambda descriptor: fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB))


def _remove_leftover(temporary: Path, lock: Callable[[int], None]) -> None:
    descriptor = open_file(temporary, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        lock(descriptor)
        temporary.unlink()
    finally:
        os.close(descriptor)


def _temporary_prefix(path: Path) -> str:
    return f".{path.name}."


@contextlib.contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Yield the path of an empty, locked temporary file beside `path`, and remove the file at the end."""
    faults.point("creation.before_temporary")
    temporary = path.parent / f"{_temporary_prefix(path)}{os.urandom(8).hex()}{_TEMPORARY_SUFFIX}"
    descriptor = open_file(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        faults.point("creation.after_temporary")
        yield temporary
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        os.close(descriptor)
        faults.point("creation.after_unlink")


def _fill(temporary: Path, store_id: bytes, key: StoreKey | None) -> None:
    """Write an empty store into `temporary`, and flush it."""
    created_us = max(time.time_ns() // 1000, 1)  # The clock may show a time before 1970, which a header cannot store.
    header = encode_header(store_id=store_id, created_us=created_us, key=key)
    keep_standard_streams()
    environment = lmdb.open(
        os.fsencode(temporary),
        subdir=False,
        lock=False,
        map_size=MAX_SIZE_BYTES_MIN,
        max_dbs=TABLES_MAX,
        mode=FILE_MODE,
    )
    try:
        with environment.begin(write=True) as transaction:
            meta = environment.open_db(META_TABLE, txn=transaction)
            environment.open_db(LOG_TABLE, txn=transaction)
            environment.open_db(INDEX_TABLE, txn=transaction)
            transaction.put(HEADER_KEY, header, db=meta)
            faults.point("creation.before_lmdb_commit")
        faults.point("creation.after_lmdb_commit")
        environment.sync(True)
    finally:
        environment.close()


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[int]:
    """Yield the descriptor of an empty file that becomes `path`.

    At the end of the `with` block, flush the file and give it the name `path`, unless an error was raised.

    Raises:
        AlreadyExistsError: the name is taken. Facts: path.
        StoreNotFoundError, AccessError, StoreFullError, StorageError: the operating system reports an error. Facts:
            path.
    """
    try:
        remove_leftovers(path)
        with _temporary(path) as temporary:
            descriptor = open_file(temporary, os.O_WRONLY)
            try:
                yield descriptor
                flush_file(descriptor)
            finally:
                os.close(descriptor)
            is_published = _publish(temporary, path)
    except OSError as error:
        raise _refusal(error, path) from error
    if not is_published:
        message = f"{path} already exists"
        raise AlreadyExistsError(message, path=str(path))


def _publish(temporary: Path, path: Path) -> bool:
    """Give the finished file its final name durably. Return False if the name is taken."""
    faults.point("creation.before_link")
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINK_ERRNOS:
            raise
        if not _rename_unless_taken(temporary, path):
            return False
    faults.point("creation.after_link")
    sync_directory(path.parent)
    faults.point("creation.after_directory_sync")
    return True


def _rename_unless_taken(temporary: Path, path: Path) -> bool:
    """Rename the file while holding a lock on the directory. This is for file systems without hard links.

    Return False if the name is taken.
    """
    descriptor = open_file(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        is_free = not os.path.lexists(path)
        if is_free:
            temporary.rename(path)
        return is_free
    finally:
        os.close(descriptor)


def finish_leftovers(path: Path) -> None:
    """Remove the temporary file of an interrupted compaction of `path`. Keep the file of a running compaction.

    Raises:
        StorageError: the file cannot be removed. Facts: path.
    """
    temporary = compaction_path(path)
    if not os.path.lexists(temporary):
        return
    try:
        _remove_leftover(temporary, lock_temporary)
    except (FileNotFoundError, BlockingIOError):
        return
    except OSError as error:
        raise translate_os(error, path=path) from error


def lock_temporary(descriptor: int) -> None:
    """Lock the temporary file of a compaction. Raises BlockingIOError if the compaction is running."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # If the file system does not support flock, continue without the lock.
        return


def compaction_path(path: Path) -> Path:
    """Return the path of the new file of a compaction. One name is enough, because compactions never overlap."""
    return path.with_name(f".{path.name}.compacting")


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable, if the file system supports this."""
    descriptor = open_file(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def make_name_durable(path: Path) -> None:
    """Flush the directory of a store, because its creation or compaction may have been killed before the flush.

    Without this, a power failure could remove the name or restore the old file, and later commits would be lost.

    Raises:
        StorageError: the directory cannot be flushed. Facts: path.
    """
    try:
        # Skip the flush if this user may not read the directory, because opening it is then impossible.
        with contextlib.suppress(PermissionError):
            sync_directory(path.parent)
    except OSError as error:
        message = f"{path}: its directory cannot be flushed: {error.strerror}"
        raise StorageError(message, path=str(path)) from error
