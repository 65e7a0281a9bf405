"""Making a new store: whole or not at all, whoever is killed, whoever else tries.

LMDB's own creation writes into the final name step by step, and a crash leaves a
file that no one can open. Here the store is built under a temporary name, flushed,
and then linked to its own name, which fails if that name is taken: of two
processes creating at once, one's store is the store, and the other's is dropped.
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

META_TABLE = b"meta"
LOG_TABLE = b"log"
INDEX_TABLE = b"index"
TABLES_MAX = 4
"""The three tables, and room for one that a later format may add."""

FILE_MODE = 0o600
"""State of an agent is its owner's alone, until the owner says otherwise with chmod."""

_TEMPORARY_SUFFIX = ".creating"
_ATTEMPTS = 10
_NO_LINK_ERRNOS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


def create_store(path: Path, store_id: bytes | None = None) -> None:
    """Create an empty store at `path`, durably, unless there is a file already; with an id of its own, or this one.

    Raises:
        StoreNotFoundError: there is no such directory. Facts: path.
        AccessError: no permission to write it. Facts: path.
        StoreFullError: the disk is full. Facts: path.
        FormatError: something else bears the name of its journal. Facts: path, journal.
        StorageError: what else the operating system refuses. Facts: path.
    """
    try:
        check_before_creation(path)
        remove_leftovers(path)
        for _ in range(_ATTEMPTS):
            # A temporary file vanishes only by another's remove_leftovers, in the
            # instant between its creation and its lock.
            with contextlib.suppress(FileNotFoundError), _temporary(path) as temporary:
                _fill(temporary, store_id or os.urandom(STORE_ID_SIZE_BYTES))
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
        return StoreNotFoundError(f"no store can be made at {path}: {path.parent}: {error.strerror}", path=str(path))
    return translate_os(error, path=path)


def remove_leftovers(path: Path, *, suffix: str = _TEMPORARY_SUFFIX) -> None:
    """Remove temporary files of creations of `path`, or of what has another suffix, that were killed.

    That of a writer who is alive is locked, and stays.
    """
    for entry in path.parent.iterdir():
        if entry.name.startswith(_temporary_prefix(path)) and entry.name.endswith(suffix):
            with contextlib.suppress(OSError):
                # held by its creator as long as that lives
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
    """Lend an empty temporary file beside `path`, locked, and removed at the end."""
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


def _fill(temporary: Path, store_id: bytes) -> None:
    """Write an empty store into `temporary`, flushed."""
    created_us = max(time.time_ns() // 1000, 1)  # as a clock before 1970 does not say
    header = encode_header(store_id=store_id, created_us=created_us)
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
    """Lend the descriptor of an empty file. At the end it is flushed, and gets its name, unless there was an error.

    Raises:
        AlreadyExistsError: there is something of that name. Facts: path.
        StoreNotFoundError, AccessError, StoreFullError, StorageError: the system refuses. Facts: path.
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
        message = f"there is something at {path} already"
        raise AlreadyExistsError(message, path=str(path))


def _publish(temporary: Path, path: Path) -> bool:
    """Give the finished file its name, durably, unless the name is taken: False."""
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
    """Publish on a file system without hard links: one creator at a time, by a lock of the directory."""
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
    """Clear away the temporary file of a compaction of `path` that was cut. One look at the directory if there is none.

    That of one that is going on is left alone.

    Raises:
        StorageError: it cannot be removed. Facts: path.
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
    """Hold a temporary file's lock, as its compaction does as long as it fills it. Raises BlockingIOError."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a file system without such locks
        return


def compaction_path(path: Path) -> Path:
    """Where the new file is made. One name is enough: one process at a time compacts a store."""
    return path.with_name(f".{path.name}.compacting")


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable, where the file system can."""
    descriptor = open_file(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def make_name_durable(path: Path) -> None:
    """Flush the directory of a store, which its creation or compaction may have been killed before doing.

    A name that a power cut takes away, or gives back to the old file, takes along whatever was committed under it.

    Raises:
        StorageError: the directory cannot be flushed. Facts: path.
    """
    try:
        with contextlib.suppress(PermissionError):  # a directory that lets its names be used, but not be read
            sync_directory(path.parent)
    except OSError as error:
        message = f"{path}: its directory cannot be flushed: {error.strerror}"
        raise StorageError(message, path=str(path)) from error
