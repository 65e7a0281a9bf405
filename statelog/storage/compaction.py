"""Compaction: the store in a new file, in key order, without free pages.

The new file is filled under a temporary name and flushed; then it takes the store's
name in one rename, and the directory is flushed. Cut anywhere, the name leads to the
old file or to the new one, both whole and of the same contents.

Nobody commits to the new file before the rename is durable: the environment takes its
name for volatile until the directory has been flushed, also if the rename reported an
error and happened, and so does whoever opens a file (`JournaledFile.open_handles`).

While it runs, no other process has the store open (exclusive presence), and commits
of this process wait; reading goes on, but for the moment of the swap.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lmdb

from statelog.errors import CorruptionError, StorageError, StoreLockedError, UsageError
from statelog.storage import registry
from statelog.storage.faults import point
from statelog.storage.file.checks import check_file, read_live_meta
from statelog.storage.file.creation import (
    FILE_MODE,
    INDEX_TABLE,
    LOG_TABLE,
    META_TABLE,
    TABLES_MAX,
    compaction_path,
    finish_leftovers,
    lock_temporary,
)
from statelog.storage.file.descriptors import follow_owner, keep_standard_streams, open_file
from statelog.storage.file.disk import flush_file, write_all
from statelog.storage.file.failures import error_code, is_full, translate_os
from statelog.storage.file.locks import FileLocks, is_same_file
from statelog.storage.file.place import replaced_error
from statelog.storage.file.residency import MAPPED_AROUND_BYTES, MappedPages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from statelog.storage.commit.journaled import JournaledFile

    CheckRecord = Callable[[int, bytes | memoryview], None]
    Progress = Callable[[int, int], None]

_COPIED_SIZE_BYTES = 8 * 1024 * 1024
"""Copied per transaction of the new file: LMDB holds the pages of one in memory."""

_SPARE_SIZE_BYTES = 64 * 1024 * 1024
"""Map beyond the old file's size: a transaction takes new pages before it gives back old ones."""

_PAGE_SIZE_BYTES_MAX = 65_536
"""Of LMDB: a disk without room for so much has refused a page."""

_PROGRESS_ENTRIES = 1024

_TRANSACTION_ID_AT = 16 + 24 + 2 * 48 + 8
"""In a meta page, behind page header, meta head, two database records and the last page's number."""

_TRANSACTION_ID = struct.Struct("=Q")

_busy: set[JournaledFile] = set()
"""Environments being compacted. One that is forked is another object in the child: nothing is left behind there."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did to the file."""

    size_before_bytes: int
    size_after_bytes: int
    records: int
    index_entries: int


@contextmanager
def exclusively(environment: JournaledFile) -> Iterator[None]:
    """Keep every other process out of the store while the `with` block runs.

    Raises:
        ForkedError, ReadOnlyError, ClosedError: as named.
        UsageError: called from within a commit, or the file has several names (hard links).
        StoreLockedError: another process has the store open. Facts: path.
        StorageError: there are no locks here that would tell whether one has. Facts: path.
    """
    path = environment.path
    if os.getpid() != environment.process_id:
        raise environment.forked_error()
    environment.check_writable()
    if environment.is_writing():
        message = "a store cannot be compacted from within a commit"
        raise UsageError(message, path=str(path))
    with environment.read():  # raises if it is closed
        pass
    if environment in _busy:
        message = f"{path} is being compacted by another thread"
        raise StoreLockedError(message, path=str(path))
    if not environment.locks.try_exclusive():
        if environment.locks.supported:
            message = f"{path} is open in another process: close it there first"
            raise StoreLockedError(message, path=str(path))
        message = f"{path}: no locks on this system that tell whether another process has it open"
        raise StorageError(message, path=str(path))
    _busy.add(environment)
    try:
        finish_leftovers(path)
        if os.fstat(environment.locks.descriptor).st_nlink > 1:
            message = f"{path} has several names (hard links): a new file would take the place of one of them only"
            raise UsageError(message, path=str(path))
        yield
    finally:
        _busy.discard(environment)
        if not environment.closed:
            environment.locks.acquire_presence(0)


def compact_file(
    environment: JournaledFile, *, check_record: CheckRecord | None = None, progress: Progress | None = None
) -> Compacted:
    """Put a new file, filled in key order, in the place of the store's. The caller is in `exclusively`.

    Everything opened on the environment goes on working, on the new file.

    Args:
        environment: the store.
        check_record: called with LSN and bytes of each record; what it raises stops the
            compaction, so that damage is not carried over.
        progress: called with (entries copied, entries in all).

    Raises:
        CorruptionError: LMDB or `check_record` found damage; the old file stays.
        StoreFullError: no room for a second file beside the first; the old file stays.
        UsageError: a read outlived the time allowed for it; the old file stays.
        StorageError: what else the system refuses. Facts: path. The store is whole, and if
            the new file has its name but that is not durable, the next use makes it so.
    """
    temporary = compaction_path(environment.path)
    with environment.write_lock:
        try:
            environment.steady.retire()
            descriptor = _create(temporary, environment)
            try:
                compacted = _fill(environment, temporary, descriptor, check_record, progress)
                _swap(environment, temporary, descriptor)
            finally:
                if environment.locks.descriptor != descriptor:  # it did not become the store
                    _drop(temporary, descriptor)
        except lmdb.Error as error:
            raise environment.translate(error) from error
        except OSError as error:
            raise translate_os(error, path=environment.path) from error
    return compacted


# --- filling ----------------------------------------------------------------------


def _create(temporary: Path, environment: JournaledFile) -> int:
    """Make the temporary file, with mode and owner of the old one; return a descriptor of it."""
    point("compaction.before_temporary")
    status = os.fstat(environment.locks.descriptor)
    descriptor = open_file(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE_MODE)
    try:
        lock_temporary(descriptor)
        follow_owner(descriptor, status, stat.S_IMODE(status.st_mode))
        point("compaction.after_temporary")
    except BaseException:
        _drop(temporary, descriptor)
        raise
    return descriptor


def _drop(temporary: Path, descriptor: int) -> None:
    with contextlib.suppress(OSError):
        temporary.unlink()
    os.close(descriptor)


def _fill(
    environment: JournaledFile,
    temporary: Path,
    descriptor: int,
    check_record: CheckRecord | None,
    progress: Progress | None,
) -> Compacted:
    """Copy the store into the temporary file, and flush that."""
    size_before_bytes = os.fstat(environment.locks.descriptor).st_size
    map_size_bytes = size_before_bytes + _SPARE_SIZE_BYTES
    keep_standard_streams()
    target = lmdb.open(
        str(temporary), subdir=False, lock=False, map_size=map_size_bytes, max_dbs=TABLES_MAX, sync=False
    )
    try:
        with environment.read(), environment.handles.begin(buffers=True) as source, _full_if_short(descriptor):
            copied = _copy_tables(environment, source, target, descriptor, check_record, progress)
    except lmdb.MapFullError as error:  # cannot be: it is the old file without its free pages
        raise StorageError(f"{environment.path} does not fit its own size", path=str(environment.path)) from error
    finally:
        target.close()
    last = read_live_meta(environment.locks.descriptor, environment.path).transaction_id
    _advance_transaction_id(descriptor, temporary, last)
    point("compaction.before_file_sync")
    flush_file(descriptor)
    point("compaction.after_file_sync")
    return Compacted(size_before_bytes, os.fstat(descriptor).st_size, *copied)


@contextmanager
def _full_if_short(descriptor: int) -> Iterator[None]:
    """Tell a full disk from a failing one: LMDB calls a write that came short an input/output error. Raises OSError."""
    try:
        yield
    except lmdb.Error as error:
        if error_code(error) == errno.EIO:
            try:
                write_all(descriptor, bytes(_PAGE_SIZE_BYTES_MAX), os.fstat(descriptor).st_size)
            except OSError as refusal:
                if is_full(refusal):
                    raise refusal from error
        raise


def _copy_tables(
    environment: JournaledFile,
    source: lmdb.Transaction,
    target: lmdb.Environment,
    descriptor: int,
    check_record: CheckRecord | None,
    progress: Progress | None,
) -> tuple[int, int]:
    """Copy the three tables; return the entries of log and index."""
    handles = environment.handles
    tables = ((META_TABLE, handles.meta), (LOG_TABLE, handles.log), (INDEX_TABLE, handles.index))
    counts = [source.stat(table)["entries"] for _name, table in tables]
    done, whole = 0, sum(counts)

    def advance() -> None:
        nonlocal done
        done += 1
        if progress is not None and (done % _PROGRESS_ENTRIES == 0 or done == whole):
            progress(done, whole)

    appender = _Appender(target, MappedPages(environment, descriptor))
    try:
        for (name, table), count in zip(tables, counts, strict=True):
            before = done
            copy = target.open_db(name, txn=appender.transaction)
            _copy_table(source.cursor(table), appender, copy, check_record if name == LOG_TABLE else None, advance)
            if done - before != count:
                message = f"{environment.path} is damaged: table {name.decode()} has {done - before} of {count} entries"
                raise CorruptionError(message, path=str(environment.path))
        appender.transaction.commit()
    finally:
        appender.transaction.abort()
    return counts[1], counts[2]


def _copy_table(
    cursor: lmdb.Cursor, appender: _Appender, copy: Any, check_record: CheckRecord | None, advance: Callable[[], None]
) -> None:
    """Append a table's entries in order: so each page is filled before the next is begun."""
    is_more = cursor.first()
    while is_more:
        key, value = cursor.item()
        if check_record is not None:
            check_record(int.from_bytes(key), value)
        appender.put(key, value, copy)
        advance()
        is_more = cursor.next()


class _Appender:
    """Appends to the new file in transactions of bounded size."""

    def __init__(self, target: lmdb.Environment, mapped: MappedPages) -> None:
        self._target = target
        self._mapped = mapped
        """Of the files that are read, and written: what was touched of them is given back."""
        self._size_bytes = 0
        self.transaction = target.begin(write=True)

    def put(self, key: bytes | memoryview, value: bytes | memoryview, table: Any) -> None:
        if self._size_bytes >= _COPIED_SIZE_BYTES:
            self._size_bytes = 0
            self.transaction.commit()
            point("compaction.between_transactions")
            self.transaction = self._target.begin(write=True)
        if not self.transaction.put(key, value, append=True, db=table):
            message = f"key {bytes(key).hex()} stands out of order"
            raise CorruptionError(message)
        self._size_bytes += len(key) + len(value)
        self._mapped.read(len(value) + MAPPED_AROUND_BYTES)  # in the one, and in the other


def _advance_transaction_id(descriptor: int, temporary: Path, last: int) -> None:
    """Number the new file's last transaction above `last`.

    Transaction ids only grow: by them waiters notice commits, and engines know whether what
    they remember is still so. LMDB writes transaction n into meta page n & 1, so parity stays.
    """
    live = read_live_meta(descriptor, temporary)
    number = last + 1 + ((last + 1 + live.slot) & 1)
    for slot, transaction_id in ((live.slot, number), (1 - live.slot, number - 1)):
        at = slot * live.page_size_bytes + _TRANSACTION_ID_AT
        write_all(descriptor, _TRANSACTION_ID.pack(transaction_id), at)
    assert check_file(descriptor, temporary).transaction_id == number


# --- swapping ---------------------------------------------------------------------


def _swap(environment: JournaledFile, temporary: Path, descriptor: int) -> None:
    """Put the new file in the old one's place, on the disk and under the environment.

    Forks, openings, transactions and flushes of this process wait meanwhile. Whatever happens, the
    environment ends on the file that has the store's name.
    """
    locks = FileLocks(descriptor, environment.path)
    with registry._lock, environment.gate, environment.steady.flushing:  # noqa: SLF001 - of this room: order as in a fork
        environment.check_open()
        environment.shut_gate()
        locks.acquire_presence(0)  # before anybody else can know the file
        locks.acquire_writable(0)
        environment.handles.raw.close()
        environment.handles = None  # type: ignore[assignment]  # gated until it is set again
        try:
            if not is_same_file(environment.path, environment.locks.descriptor):
                raise replaced_error(environment.path)
            point("compaction.before_rename")
            temporary.rename(environment.path)
        finally:  # a rename may report an error and have happened
            if is_same_file(environment.path, descriptor):
                _adopt(environment, locks)
            else:
                environment.open_handles()
        point("compaction.after_rename")
        environment.open_handles()
        point("compaction.after_directory_sync")


def _adopt(environment: JournaledFile, locks: FileLocks) -> None:
    """Make the new file the one that the environment, and the registry, know."""
    old = environment.locks.descriptor
    locks.writer = environment.locks.writer
    environment.locks = locks
    environment.is_name_durable = False
    with contextlib.suppress(OSError):
        fcntl.flock(locks.descriptor, fcntl.LOCK_UN)  # no temporary file any more
    status = os.fstat(locks.descriptor)
    registry._by_inode.pop(environment.inode, None)  # noqa: SLF001
    environment.inode = (status.st_dev, status.st_ino)
    registry._by_inode[environment.inode] = environment  # noqa: SLF001
    os.close(old)
