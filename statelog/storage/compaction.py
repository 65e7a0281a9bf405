"""Compaction: the store in a new file, in key order, without free pages, while others use it.

The new file is filled under a temporary name from one snapshot, and flushed, while commits go on. Then, under the
writer lock, it is brought up to date, flushed again, and takes the store's name in one rename. The word of the old file
says so (`file/moved.py`): every process, this one too, goes on in the new file with its next transaction, and its
earlier ones end in the old one, which is gone with the last of them. Cut anywhere, the name leads to the
old file or to the new one, both whole and of the same contents.

Nobody commits to the new file before the rename is durable: whoever opens a file, or follows, flushes the directory
first (`JournaledFile.open_handles`). The old file's journal stays until then, so that the old file is whole with it.
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
from statelog.storage.file.failures import error_code, is_full, is_of_system, translate_os
from statelog.storage.file.locks import is_same_file
from statelog.storage.file.moved import MOVED, SUCCESSOR, write_word
from statelog.storage.file.residency import MAPPED_AROUND_BYTES, MappedPages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from statelog.storage.commit.journaled import JournaledFile
    from statelog.storage.wal.shared_state import SharedState

    CheckRecord = Callable[[int, bytes | memoryview], None]
    Progress = Callable[[int, int], None]

_COPIED_SIZE_BYTES = 8 * 1024 * 1024
"""Copied per transaction of the new file: LMDB holds the pages of one in memory."""

_CREATIONS_MAX = 10
"""How often another may take the new file for a leftover, in the instant before it is locked."""

_FILLS_MAX = 3
"""Of a file in which others let go of versions meanwhile: the last one is made while nobody can commit."""

_SPARE_SIZE_BYTES = 64 * 1024 * 1024
"""Map beyond the old file's size: a transaction takes new pages before it gives back old ones."""

_PAGE_SIZE_BYTES_MAX = 65_536
"""Of LMDB: a disk without room for so much has refused a page."""

_PROGRESS_ENTRIES = 1024

_TRANSACTION_ID_AT = 16 + 24 + 2 * 48 + 8
"""In a meta page, behind page header, meta head, two database records and the last page's number."""

_TRANSACTION_ID = struct.Struct("=Q")


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did to the file."""

    size_before_bytes: int
    size_after_bytes: int
    records: int
    index_entries: int


def check_compactable(environment: JournaledFile) -> None:
    """Raise what `compact_file` would raise later.

    Raises:
        ForkedError, ReadOnlyError, ClosedError, FencedError: as named.
        UsageError: called from within a commit, or the file has several names (hard links).
        StorageError: there are no locks here that keep others from opening the file meanwhile; or a flush has failed.
            Facts: path.
    """
    path = environment.path
    if os.getpid() != environment.process_id:
        raise environment.forked_error()
    environment.check_writable()
    environment.check_fence()
    if environment.is_writing():
        message = "a store cannot be compacted from within a commit"
        raise UsageError(message, path=str(path))
    with environment.read():  # raises if it is closed, and follows
        pass
    environment.wal.refuse_if_broken()
    if not environment.locks.supported:
        message = f"{path}: no locks on this system that keep other processes from opening it meanwhile"
        raise StorageError(message, path=str(path))
    if os.fstat(environment.locks.descriptor).st_nlink > 1:
        message = f"{path} has several names (hard links): a new file would take the place of one of them only"
        raise UsageError(message, path=str(path))


def compact_file(
    environment: JournaledFile, *, check_record: CheckRecord | None = None, progress: Progress | None = None
) -> Compacted:
    """Put a new file, filled in key order, in the place of the store's.

    Everything opened on the store goes on working, in every process, on the new file.

    Args:
        environment: the store.
        check_record: called with LSN and bytes of each record; what it raises stops the
            compaction, so that damage is not carried over.
        progress: called with (entries copied, entries in all).

    Raises:
        ...: what `check_compactable` raises.
        CorruptionError: LMDB or `check_record` found damage; the old file stays.
        StoreFullError: no room for a second file beside the first; the old file stays.
        StoreLockedError: another process compacts the store, or writes, or opens it all the time allowed; the old file
            stays. Facts: path.
        StorageError: what else the system refuses. Facts: path. The store is whole, and if
            the new file has its name but that is not durable, the next use makes it so.
    """
    check_compactable(environment)
    temporary = compaction_path(environment.path)
    try:
        finish_leftovers(environment.path)
        with _temporary(environment, temporary) as descriptor:
            filling = _Filling(environment, temporary, descriptor, check_record, progress)
            for _attempt in range(_FILLS_MAX):
                with environment.write_lock, environment.locks.writing(environment.lock_timeout_s):
                    filling.count_rewritten()
                filling.fill()
                if filling.is_current:
                    break
            timeout_s = environment.lock_timeout_s  # who opens the file waits for the writer lock, too: in this order
            with environment.write_lock, environment.locks.moving(timeout_s), environment.locks.writing(timeout_s):
                environment.locks.file.check()
                filling.complete()
                _swap(environment, temporary, descriptor)
        environment.follow()
    except lmdb.Error as error:
        raise environment.translate(error) from error
    except OSError as error:
        if not is_of_system(error):
            raise
        raise translate_os(error, path=environment.path) from error
    return filling.compacted()


# --- filling ----------------------------------------------------------------------


@contextmanager
def _temporary(environment: JournaledFile, temporary: Path) -> Iterator[int]:
    """Lend a temporary file, with mode and owner of the old one; remove it at the end if it has its name still."""
    point("compaction.before_temporary")
    status = os.fstat(environment.locks.descriptor)
    descriptor = _create(environment, temporary)
    try:
        follow_owner(descriptor, status, stat.S_IMODE(status.st_mode))
        point("compaction.after_temporary")
        yield descriptor
    finally:
        if is_same_file(temporary, descriptor):
            with contextlib.suppress(OSError):
                temporary.unlink()
        os.close(descriptor)


def _create(environment: JournaledFile, temporary: Path) -> int:
    """Return a descriptor of the temporary file, new and locked. Raises StoreLockedError: there is one that is used."""
    for _attempt in range(_CREATIONS_MAX):
        try:
            descriptor = open_file(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE_MODE)
        except FileExistsError:
            break
        with contextlib.suppress(BlockingIOError):  # who opens the store may take it for a leftover until it is locked
            lock_temporary(descriptor)
            if is_same_file(temporary, descriptor):
                return descriptor
        os.close(descriptor)
    message = f"{environment.path} is being compacted, by another process or thread"
    raise StoreLockedError(message, path=str(environment.path))


class _Filling:
    """Fills the temporary file."""

    def __init__(
        self,
        environment: JournaledFile,
        temporary: Path,
        descriptor: int,
        check_record: CheckRecord | None,
        progress: Progress | None,
    ) -> None:
        self._environment = environment
        self._temporary = temporary
        self._descriptor = descriptor
        self._check_record = check_record
        self._progress = progress
        self._rewritten = 0
        self._copied = (0, 0)
        self._size_before_bytes = self._size_after_bytes = 0

    def compacted(self) -> Compacted:
        """Return what was done."""
        return Compacted(self._size_before_bytes, self._size_after_bytes, *self._copied)

    def count_rewritten(self) -> None:
        """Note how often the log was rewritten: while nobody commits, as that is counted before it is committed."""
        self._rewritten = self._shared.rewritten

    def fill(self) -> None:
        """Copy the store as it is, and flush what was copied, while others commit."""
        os.ftruncate(self._descriptor, 0)
        self._size_before_bytes = os.fstat(self._environment.locks.descriptor).st_size
        with self._opened() as (source, target):
            appender = _Appender(target, MappedPages(self._environment, self._descriptor))
            self._copied = _copy_tables(self._environment, source, appender, self._check_record, self._progress)
        point("compaction.before_first_sync")
        flush_file(self._descriptor)

    @property
    def is_current(self) -> bool:
        """Whether nothing of what was copied may be gone: neither retention nor a deletion has written since."""
        return self._shared.rewritten == self._rewritten

    def complete(self) -> None:
        """Take over what was committed since, and flush it, while nobody can commit."""
        if not self.is_current:
            self.count_rewritten()
            self.fill()
        else:
            with self._opened() as (source, target):
                self._copied = _copy_changes(self._environment, source, target, self._check_record)
        last = read_live_meta(self._environment.locks.descriptor, self._environment.path).transaction_id
        _advance_transaction_id(self._descriptor, self._temporary, last)
        write_word(self._descriptor, SUCCESSOR)
        point("compaction.before_file_sync")
        flush_file(self._descriptor)
        point("compaction.after_file_sync")
        self._size_after_bytes = os.fstat(self._descriptor).st_size

    @property
    def _shared(self) -> SharedState:
        return self._environment.wal.shared()

    @contextmanager
    def _opened(self) -> Iterator[tuple[lmdb.Transaction, lmdb.Environment]]:
        """Open the new file, and a snapshot of the old one."""
        environment = self._environment
        size_bytes = os.fstat(environment.locks.descriptor).st_size + os.fstat(self._descriptor).st_size
        keep_standard_streams()
        target = lmdb.open(
            os.fsencode(self._temporary),
            subdir=False,
            lock=False,
            map_size=size_bytes + _SPARE_SIZE_BYTES,
            max_dbs=TABLES_MAX,
            sync=False,
        )
        try:
            with (
                environment.read() as snapshot,
                snapshot.handles.begin_read(buffers=True) as source,
                _full_if_short(self._descriptor),
            ):
                yield source, target
        except lmdb.MapFullError as error:  # cannot be: it is the old file without its free pages
            raise StorageError(f"{environment.path} does not fit its own size", path=str(environment.path)) from error
        finally:
            target.close()


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
    appender: _Appender,
    check_record: CheckRecord | None,
    progress: Progress | None,
) -> tuple[int, int]:
    """Copy the three tables; return the entries of log and index."""
    tables = _tables(environment)
    counts = [source.stat(table)["entries"] for _name, table in tables]
    done, whole = 0, sum(counts)

    def advance() -> None:
        nonlocal done
        done += 1
        if progress is not None and (done % _PROGRESS_ENTRIES == 0 or done == whole):
            progress(done, whole)

    try:
        for (name, table), count in zip(tables, counts, strict=True):
            before = done
            copy = appender.open_table(name)
            _copy_table(source.cursor(table), appender, copy, check_record if name == LOG_TABLE else None, advance)
            if done - before != count:
                message = f"{environment.path} is damaged: table {name.decode()} has {done - before} of {count} entries"
                raise CorruptionError(message, path=str(environment.path))
        appender.transaction.commit()
    finally:
        appender.transaction.abort()
    return counts[1], counts[2]


def _tables(environment: JournaledFile) -> Sequence[tuple[bytes, Any]]:
    handles = environment.handles
    return (META_TABLE, handles.meta), (LOG_TABLE, handles.log), (INDEX_TABLE, handles.index)


def _copy_changes(
    environment: JournaledFile, source: lmdb.Transaction, target: lmdb.Environment, check_record: CheckRecord | None
) -> tuple[int, int]:
    """Copy the records that were appended since the tables were copied, and what differs in the index.

    Returns:
        The entries of log and index.
    """
    (meta_name, meta), (log_name, log), (index_name, index) = _tables(environment)
    copied_meta = target.open_db(meta_name)
    copied_log, copied_index = target.open_db(log_name), target.open_db(index_name)
    cursor = source.cursor(log)
    with target.begin(write=True) as transaction:
        end = transaction.cursor(copied_log)
        is_more = cursor.set_range(bytes(end.key()) + b"\0") if end.last() else cursor.first()
        while is_more:
            key, value = cursor.item()
            if check_record is not None:
                check_record(int.from_bytes(key), value)
            transaction.put(key, value, append=True, db=copied_log)
            is_more = cursor.next()
        for key, fact in source.cursor(meta):
            if transaction.get(bytes(key), db=copied_meta) != bytes(fact):
                transaction.put(bytes(key), bytes(fact), db=copied_meta)
        for key, change in list(_differences(transaction.cursor(copied_index), source.cursor(index))):
            if change is None:
                transaction.delete(key, db=copied_index)
            else:
                transaction.put(key, change, db=copied_index)
    return source.stat(log)["entries"], source.stat(index)["entries"]


def _differences(old: lmdb.Cursor, new: lmdb.Cursor) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the keys whose values differ in two tables, with the new value, None where there is none."""
    has_old, has_new = old.first(), new.first()
    while has_old or has_new:
        old_key, old_value = old.item() if has_old else (b"", b"")
        new_key, new_value = new.item() if has_new else (b"", b"")
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

    def open_table(self, name: bytes) -> Any:
        """Return a table, made if need be."""
        return self._target.open_db(name, txn=self.transaction)

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
    """Give the new file the store's name. The caller is the one who writes to the old one, and nobody opens it."""
    old = environment.locks.descriptor
    environment.check_open()
    environment.locks.file.check()
    environment.check_fence()
    write_word(old, MOVED)
    try:
        point("compaction.before_rename")
        temporary.rename(environment.path)
        point("compaction.after_rename")
    finally:  # a rename may report an error and have happened
        if not is_same_file(environment.path, descriptor):
            write_word(old, 0)
