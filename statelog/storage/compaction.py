"""Compaction: replaces the file of a store in use by a new file, in key order and without free pages.

A compaction first copies one snapshot into a file with a temporary name, and flushes it, while others commit. Then it
takes the writer lock, adds the later commits, flushes again, and renames the new file over the old one. A word in the
old file (`file/moved.py`) sends every process to the new file with its next transaction. A transaction that has already
begun continues to use the old file, which each process closes after its last such transaction. If a compaction is
interrupted, the path leads to the old file or to the new one. Both are complete and have the same contents.

No process commits to the new file before the rename is durable, because opening the file flushes the directory first
(`LmdbFile.open`). Until then, the WAL of the old file stays, because the old file may need it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lmdb

from statelog.errors import CorruptionError, StorageError, StoreLockedError, UsageError
from statelog.format.header import HEADER_KEY, encode_header
from statelog.format.seal import unseal
from statelog.storage.faults import point
from statelog.storage.file.creation import (
    FILE_MODE,
    LOG_TABLE,
    TABLES_MAX,
    compaction_path,
    finish_leftovers,
    lock_temporary,
)
from statelog.storage.file.descriptors import follow_owner, keep_standard_streams, open_file
from statelog.storage.file.disk import flush_file, write_all
from statelog.storage.file.failures import error_code, is_full
from statelog.storage.file.locks import is_same_file
from statelog.storage.file.moved import MOVED, SUCCESSOR, write_word
from statelog.storage.file.preopen_checks import check_file, read_live_meta
from statelog.storage.mapped_pages import MAPPED_AROUND_BYTES, MappedPages
from statelog.storage.read_transaction import ReadTransaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from statelog.format.mac import StoreKey, StoreMac
    from statelog.storage.lmdb_file import LmdbFile
    from statelog.storage.wal.wal import Wal

    CheckRecord = Callable[[int, bytes | memoryview], None]
    Progress = Callable[[int, int], None]

_COPIED_SIZE_BYTES = 8 * 1024 * 1024
"""The number of bytes that one transaction copies. The limit is needed because LMDB holds its changed pages in memory.
"""

_CREATIONS_MAX = 10
"""The maximum number of attempts to create the new file. Another process may remove it before it is locked."""

_FILLS_MAX = 3
"""The maximum number of attempts to fill the new file while others commit. After that, it is filled under the writer
lock.
"""

_SPARE_SIZE_BYTES = 64 * 1024 * 1024
"""How much larger the new file's map is than the old file. LMDB needs this space because a transaction takes new pages
before it frees old ones.
"""

_PAGE_SIZE_BYTES_MAX = 65_536
"""The largest page size of LMDB. If a disk has less free space than this, a failed LMDB write counts as a full disk."""

_PROGRESS_ENTRIES = 1024

_TRANSACTION_ID_AT = 16 + 24 + 2 * 48 + 8
"""The offset of the transaction id in a meta page, after the page header, the meta head, two database records and the
last page number.
"""

_TRANSACTION_ID = struct.Struct("=Q")


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result of a compaction."""

    size_before_bytes: int
    size_after_bytes: int
    records: int
    index_entries: int


def check_compactable(file: LmdbFile, wal: Wal) -> None:
    """Raise the errors of `compact_file` that can be detected before it starts.

    Raises:
        ForkedError, ReadOnlyError, ClosedError, FencedError: the store is in this state.
        UsageError: called from within a commit, or the file has several names (hard links).
        StorageError: the system has no locks that keep others from opening the file during the compaction, or an
            earlier flush has failed. Facts: path.
    """
    path = file.path
    if os.getpid() != file.process_id:
        raise file.forked_error()
    file.check_writable()
    file.check_fence()
    if file.is_writing():
        message = "a store cannot be compacted from within a commit"
        raise UsageError(message, path=str(path))
    # Beginning a transaction raises if the store is closed. After an earlier compaction, it opens the new file.
    with ReadTransaction(file):
        pass
    wal.refuse_if_broken()
    if not file.locks.supported:
        message = (
            f"{path}: this system has no locks that keep other processes from opening the file during the compaction"
        )
        raise StorageError(message, path=str(path))
    if os.fstat(file.locks.descriptor).st_nlink > 1:
        message = f"{path} has several names (hard links): a new file would replace only one of them"
        raise UsageError(message, path=str(path))


def compact_file(
    file: LmdbFile,
    wal: Wal,
    *,
    check_record: CheckRecord | None = None,
    progress: Progress | None = None,
    key: StoreKey | None = None,
) -> Compacted:
    """Replace the file of a store by a new one that is filled in key order.

    All openings of the store, in every process, continue with the new file.

    Args:
        file: the LMDB file.
        wal: the write-ahead log. It shows whether records were rewritten during the compaction.
        check_record: called with LSN and bytes of each record. An error that it raises stops the compaction, so that
            damage is not copied.
        progress: called with (entries copied, entries in all).
        key: the key of the new file. If None, the key does not change.

    Raises:
        ...: the errors of `check_compactable`.
        CorruptionError: LMDB or `check_record` found damage. The old file stays.
        StoreFullError: there is no room for a second file. The old file stays.
        StoreLockedError: another process compacts the store, or writes or opens it until the timeout. The old file
            stays. Facts: path.
        StorageError: the operating system reports a different error. Facts: path. The store is intact. If the rename
            succeeded, but its flush failed, the next opening flushes it.
    """
    check_compactable(file, wal)
    temporary = compaction_path(file.path)
    with file.translating():
        finish_leftovers(file.path)
        with temporary_file(file, temporary) as descriptor:
            filling = _Filling(file, wal, temporary, descriptor, _EntryCopier(file, check_record, key), progress)
            for _attempt in range(_FILLS_MAX):
                with file.write_lock, file.locks.writing(file.lock_timeout_s):
                    filling.count_rewritten()
                filling.fill()
                if filling.is_current:
                    break
            timeout_s = file.lock_timeout_s  # Take the locks in the same order as an opening, to avoid a deadlock.
            with file.write_lock, file.locks.moving(timeout_s), file.locks.writing(timeout_s):
                file.locks.file.check()
                filling.complete()
                try:
                    swap(file, temporary, descriptor)
                finally:
                    if key is not None and is_same_file(file.path, descriptor):
                        file.key = key
        file.follow()
    return filling.compacted()


# --- filling ----------------------------------------------------------------------


@contextmanager
def temporary_file(file: LmdbFile, temporary: Path) -> Iterator[int]:
    """Yield the descriptor of a temporary file with the mode and owner of the old file.

    Remove it at the end, unless it was renamed.
    """
    point("compaction.before_temporary")
    status = os.fstat(file.locks.descriptor)
    descriptor = _create(file, temporary)
    try:
        follow_owner(descriptor, status, stat.S_IMODE(status.st_mode))
        point("compaction.after_temporary")
        yield descriptor
    finally:
        if is_same_file(temporary, descriptor):
            with contextlib.suppress(OSError):
                temporary.unlink()
        os.close(descriptor)


def _create(file: LmdbFile, temporary: Path) -> int:
    """Create and lock the temporary file, and return its descriptor.

    Raises:
        StoreLockedError: another compaction uses the temporary file. Facts: path.
    """
    for _attempt in range(_CREATIONS_MAX):
        try:
            descriptor = open_file(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE_MODE)
        except FileExistsError:
            break
        # Before the lock is taken, a process that opens the store may lock and remove the file as a leftover.
        with contextlib.suppress(BlockingIOError):
            lock_temporary(descriptor)
            if is_same_file(temporary, descriptor):
                return descriptor
        os.close(descriptor)
    message = f"{file.path} is being compacted, by another process or thread"
    raise StoreLockedError(message, path=str(file.path))


class _Filling:
    """Fills the temporary file with the contents of the old file."""

    def __init__(
        self,
        file: LmdbFile,
        wal: Wal,
        temporary: Path,
        descriptor: int,
        copier: _EntryCopier,
        progress: Progress | None,
    ) -> None:
        self._file = file
        self._wal = wal
        self._temporary = temporary
        self._descriptor = descriptor
        self._copier = copier
        self._progress = progress
        self._rewritten = 0
        self._copied = (0, 0)
        self._size_before_bytes = self._size_after_bytes = 0

    def compacted(self) -> Compacted:
        """Return the sizes of both files and the numbers of copied entries."""
        return Compacted(self._size_before_bytes, self._size_after_bytes, *self._copied)

    def count_rewritten(self) -> None:
        """Note the number of rewrites so far, for `is_current`.

        The caller keeps others from committing, because a commit counts its rewrite before it writes.
        """
        self._rewritten = self._wal.shared().rewritten

    def fill(self) -> None:
        """Copy a snapshot of the store, and flush the copy, while others commit."""
        os.ftruncate(self._descriptor, 0)
        self._size_before_bytes = os.fstat(self._file.locks.descriptor).st_size
        with self._opened() as (source, target):
            appender = Appender(target, MappedPages(self._file, self._descriptor))
            self._copied = _copy_tables(self._file, source, appender, self._copier, self._progress)
        point("compaction.before_first_sync")
        flush_file(self._descriptor)

    @property
    def is_current(self) -> bool:
        """Whether the copied records are current: nothing has rewritten records since `count_rewritten`."""
        return self._wal.shared().rewritten == self._rewritten

    def complete(self) -> None:
        """Copy the commits made since `fill`, and flush them. The caller keeps others from committing."""
        if not self.is_current:
            self.count_rewritten()
            self.fill()
        else:
            with self._opened() as (source, target):
                self._copied = _copy_changes(self._file, source, target, self._copier)
        finish_file(self._file, self._temporary, self._descriptor)
        self._size_after_bytes = os.fstat(self._descriptor).st_size

    @contextmanager
    def _opened(self) -> Iterator[tuple[lmdb.Transaction, lmdb.Environment]]:
        """Open the old file for reading a snapshot, and the new file for writing."""
        with (
            ReadTransaction(self._file) as snapshot,
            snapshot.handles.begin_read(buffers=True) as source,
            opened_for_filling(self._file, self._temporary, self._descriptor) as target,
        ):
            yield source, target


@contextmanager
def opened_for_filling(
    file: LmdbFile, temporary: Path, descriptor: int, more_size_bytes: int = 0
) -> Iterator[lmdb.Environment]:
    """Open the new file with a map that has room for the old file's contents and `more_size_bytes`."""
    size_bytes = os.fstat(file.locks.descriptor).st_size + os.fstat(descriptor).st_size + more_size_bytes
    keep_standard_streams()
    target = lmdb.open(
        os.fsencode(temporary),
        subdir=False,
        lock=False,
        map_size=size_bytes + _SPARE_SIZE_BYTES,
        max_dbs=TABLES_MAX,
        sync=False,
    )
    try:
        with _full_if_short(descriptor):
            yield target
    except lmdb.MapFullError as error:  # This cannot happen, because the new file has no free pages.
        raise StorageError(f"{file.path} does not fit into a new file of its own size", path=str(file.path)) from error
    finally:
        target.close()


class _EntryCopier:
    """Converts values of the old file to values of the new file."""

    def __init__(self, file: LmdbFile, check_record: CheckRecord | None, key: StoreKey | None) -> None:
        self._check_record = check_record
        self._former = file.handles.mac
        self._mac: StoreMac | None = None
        if key is not None:
            created_us = file.header["created_us"]
            self._mac = key.for_store(file.store_id)
            self._header = encode_header(store_id=file.store_id, created_us=created_us, key=key)

    def record(self, lsn: int, value: bytes | memoryview) -> bytes | memoryview:
        """Return a record's value in the form that the new file stores. Raises CorruptionError for a damaged record."""
        record = value if self._former is None else self._former.open_record(lsn, bytes(value))
        if self._check_record is not None:
            self._check_record(lsn, record)
        return value if self._mac is None else self._mac.seal_record(lsn, record)

    def row(self, key: bytes | memoryview, value: bytes | memoryview) -> bytes | memoryview:
        """Return the value of an `index` or `meta` row in the form that the new file stores.

        If the store gets a new key, raise CorruptionError for a damaged old value.
        """
        if self._mac is None:
            return value
        key = bytes(key)
        if key == HEADER_KEY:
            return self._header
        return self._mac.seal(key, (unseal if self._former is None else self._former.unseal)(key, value))


@contextmanager
def _full_if_short(descriptor: int) -> Iterator[None]:
    """If LMDB fails because the disk is full, raise the OSError for a full disk instead.

    LMDB reports a partial write on a full disk as an input/output error.
    """
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
    file: LmdbFile,
    source: lmdb.Transaction,
    appender: Appender,
    copier: _EntryCopier,
    progress: Progress | None,
) -> tuple[int, int]:
    """Copy the three tables in key order, so that each page is filled before the next one begins.

    Returns:
        The numbers of entries in the log and in the index.
    """
    tables = file.handles.tables
    counts = [source.stat(table)["entries"] for table in tables.values()]
    done, whole = 0, sum(counts)
    try:
        for (name, table), count in zip(tables.items(), counts, strict=True):
            before, copy, cursor = done, appender.open_table(name), source.cursor(table)
            is_more = cursor.first()
            while is_more:
                key, value = cursor.item()
                new = copier.record(int.from_bytes(key), value) if name == LOG_TABLE else copier.row(key, value)
                appender.put(key, new, copy)
                done += 1
                if progress is not None and (done % _PROGRESS_ENTRIES == 0 or done == whole):
                    progress(done, whole)
                is_more = cursor.next()
            if done - before != count:
                message = f"{file.path} is damaged: table {name.decode()} has {done - before} of {count} entries"
                raise CorruptionError(message, path=str(file.path))
        appender.transaction.commit()
    finally:
        appender.transaction.abort()
    return counts[1], counts[2]


def _copy_changes(
    file: LmdbFile, source: lmdb.Transaction, target: lmdb.Environment, copier: _EntryCopier
) -> tuple[int, int]:
    """Copy the records that were appended since the tables were copied, and the changes to `meta` and the index.

    Returns:
        The numbers of entries in the log and in the index.
    """
    meta, log, index = file.handles.tables.values()
    copied_meta, copied_log, copied_index = map(target.open_db, file.handles.tables)
    cursor = source.cursor(log)
    with target.begin(write=True) as transaction:
        end = transaction.cursor(copied_log)
        is_more = cursor.set_range(bytes(end.key()) + b"\0") if end.last() else cursor.first()
        while is_more:
            key, value = cursor.item()
            transaction.put(key, copier.record(int.from_bytes(key), value), append=True, db=copied_log)
            is_more = cursor.next()
        for key, fact in source.cursor(meta):
            new = bytes(copier.row(key, fact))
            if transaction.get(bytes(key), db=copied_meta) != new:
                transaction.put(bytes(key), new, db=copied_meta)
        for key, change in list(_differences(transaction.cursor(copied_index), source.cursor(index), copier)):
            if change is None:
                transaction.delete(key, db=copied_index)
            else:
                transaction.put(key, change, db=copied_index)
    return source.stat(log)["entries"], source.stat(index)["entries"]


def _differences(old: lmdb.Cursor, new: lmdb.Cursor, copier: _EntryCopier) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield each key whose value differs in two tables, with the new value, or None if the key was removed."""
    has_old, has_new = old.first(), new.first()
    while has_old or has_new:
        old_key, old_value = old.item() if has_old else (b"", b"")
        new_key, new_value = new.item() if has_new else (b"", b"")
        if has_new:
            new_value = copier.row(new_key, new_value)
        old_key, new_key = bytes(old_key), bytes(new_key)
        if has_old and (not has_new or old_key < new_key):
            yield old_key, None
            has_old = old.next()
        elif has_new and (not has_old or new_key < old_key):
            yield new_key, bytes(new_value)
            has_new = new.next()
        else:
            if old_value != new_value:
                yield new_key, bytes(new_value)
            has_old, has_new = old.next(), new.next()


class Appender:
    """Appends to the new file in transactions of bounded size."""

    def __init__(self, target: lmdb.Environment, mapped: MappedPages) -> None:
        self._target = target
        self._mapped = mapped
        """Releases the mapped pages that the copy has touched in both files."""
        self._size_bytes = 0
        self.transaction = target.begin(write=True)

    def open_table(self, name: bytes) -> Any:
        """Return a table. Create the table if it does not exist."""
        return self._target.open_db(name, txn=self.transaction)

    def put(self, key: bytes | memoryview, value: bytes | memoryview, table: Any) -> None:
        """Append an entry. Raises CorruptionError if its key is not above the last key."""
        if self._size_bytes >= _COPIED_SIZE_BYTES:
            self._size_bytes = 0
            self.transaction.commit()
            point("compaction.between_transactions")
            self.transaction = self._target.begin(write=True)
        if not self.transaction.put(key, value, append=True, db=table):
            message = f"key {bytes(key).hex()} is out of order"
            raise CorruptionError(message)
        self._size_bytes += len(key) + len(value)
        # Count the pages that the copy has mapped, in the old file and in the new one.
        self._mapped.read(len(value) + MAPPED_AROUND_BYTES)


def finish_file(file: LmdbFile, temporary: Path, descriptor: int) -> None:
    """Renumber the new file's last transaction to follow the old file's. Mark the file as a successor, and flush it.

    Transaction numbers must only grow, because waiters use them to detect commits, and engines use them to detect stale
    caches. LMDB writes transaction n into meta page n & 1, so the parity must not change.
    """
    live, last = read_live_meta(descriptor, temporary), read_live_meta(file.locks.descriptor, file.path).transaction_id
    number = last + 1 + ((last + 1 + live.slot) & 1)
    for slot, transaction_id in ((live.slot, number), (1 - live.slot, number - 1)):
        at = slot * live.page_size_bytes + _TRANSACTION_ID_AT
        write_all(descriptor, _TRANSACTION_ID.pack(transaction_id), at)
    assert check_file(descriptor, temporary).transaction_id == number
    write_word(descriptor, SUCCESSOR)
    point("compaction.before_file_sync")
    flush_file(descriptor)
    point("compaction.after_file_sync")


# --- swapping ---------------------------------------------------------------------


def swap(file: LmdbFile, temporary: Path, descriptor: int, word: int = MOVED) -> None:
    """Rename the new file over the old one. The caller has the writer lock, and nobody can open the file.

    `word` is written into the old file, for the processes that have it open: `MOVED` or `PURGED`.
    """
    old = file.locks.descriptor
    file.check_open()
    file.locks.file.check()
    file.check_fence()
    write_word(old, word)
    try:
        point("compaction.before_rename")
        temporary.rename(file.path)
        point("compaction.after_rename")
    finally:  # A rename may report an error although it has succeeded, so check which file the path leads to.
        if not is_same_file(file.path, descriptor):
            write_word(old, 0)
