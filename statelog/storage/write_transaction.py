"""The write transaction of a store, of which only one is open at a time, and the parts of a store file that it uses."""

from __future__ import annotations

from contextlib import contextmanager
from enum import Enum
from threading import get_ident
from typing import TYPE_CHECKING, Any

import lmdb
from xxhash import xxh3_64_digest

from statelog.errors import StorageError, UsageError
from statelog.format.header import HEADER_KEY
from statelog.format.seal import seal
from statelog.storage.faults import armed, point
from statelog.storage.file.failures import translate_os
from statelog.storage.file.file_identity import purged_error
from statelog.storage.file.locks import is_owned
from statelog.storage.file.moved import SUCCEEDED, write_word
from statelog.storage.lmdb_file import NO_HANDLES
from statelog.storage.read_transaction import NO_PAGE, ReadTransaction, encode_lsn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from statelog.storage.disk_reserve import DiskReserve
    from statelog.storage.lmdb_file import LmdbFile
    from statelog.storage.notify.wake import Wake
    from statelog.storage.wal.background_flusher import BackgroundFlusher
    from statelog.storage.wal.checkpointer import Checkpointer
    from statelog.storage.wal.wal import Wal


class StoreWriter:
    """The parts of a store file that a commit uses.

    Attributes:
        is_flushed_at_commit: whether a commit is flushed before it returns, unless its caller wants no flush.
        is_shared: whether the file is a replica of a shared log, whose records a power failure cannot undo.
    """

    def __init__(
        self,
        file: LmdbFile,
        wal: Wal,
        checkpointer: Checkpointer,
        disk_reserve: DiskReserve,
        background_flusher: BackgroundFlusher,
        wake: Wake,
        *,
        is_flushed_at_commit: bool,
    ) -> None:
        self.file = file
        self.wal = wal
        self.checkpointer = checkpointer
        self.disk_reserve = disk_reserve
        self.background_flusher = background_flusher
        self.wake = wake
        self.is_flushed_at_commit = is_flushed_at_commit
        self.is_shared = False

    def refuse_interrupter(self, what: str) -> None:
        """Raise UsageError if the calling thread holds a lock of the store.

        Then the caller runs within a commit, or is a signal handler that interrupted the store. `what` begins the
        message.
        """
        file = self.file
        if is_owned(file.write_lock) or is_owned(file.gate) or is_owned(self.wal.flushing):
            message = f"{what} from within a commit, or by a signal handler that interrupted the store"
            raise UsageError(message, path=str(file.path))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the writer lock while the `with` block runs.

        The caller holds `write_lock`, and has no transaction open.
        """
        transaction = WriteTransaction(self)
        try:
            transaction.begin()
            yield
        finally:
            try:
                transaction.abort()
            except BaseException:  # An interrupt may come as the abort begins, so abort again.
                transaction.abort()
                raise

    def checkpoint(self) -> None:
        """Make all commits durable in the data file, whatever `durability` is.

        After this call, the WAL contains none of these commits.

        Raises:
            StorageError: a flush fails, or the operating system reports a different error. Facts: path.
            StoreLockedError: another process wrote until the timeout. Facts: path, timeout_s.
        """
        with self.file.translating(), self.file.write_lock, self.alone():
            if self.checkpointer.needs_checkpoint:
                self.checkpointer.checkpoint()


class Stage(Enum):
    """The stage of a write transaction."""

    NEW = 0
    BEGUN = 1
    COMMITTING = 2
    """LMDB's commit was called. If it does not return, only reading the store shows whether it succeeded."""
    COMMITTED = 3
    """The commit is in the store and in the WAL."""


class WriteTransaction(ReadTransaction):
    """The only write transaction of the store. Its reads see its own writes.

    Only `log.commit`, `StoreWriter.alone` and recovery begin and end write transactions.

    Attributes:
        changes: the number of its writes.
        size_bytes: the size of the records that it has written.
        number: LMDB's number of the transaction, once it has begun.
        appended: the appended records, in order, for the WAL.
        is_flushed: whether the committing thread flushes the commit, so that it is durable when the caller continues.
        rewrites: whether the transaction does more than append records, so that the WAL cannot contain it.
        wakes: the mask of the waiters to wake: see `Wake.notify`.
        calls: functions to call after the commit, without the writer lock. Exceptions are ignored.
        work_error: an error that the `work` of a request raised after it had written.
    """

    # Class attributes hold the initial values, which is faster, because each commit creates an instance.
    changes = first_lsn = size_bytes = number = wakes = 0
    rewrites = False
    work_error: BaseException | None = None
    calls: tuple[Callable[[Wake], object], ...] = ()
    stage = Stage.NEW
    _raw: Any = None
    _leaf = NO_PAGE
    _may_own_pages = True

    def __init__(self, writer: StoreWriter) -> None:  # Do not call super(), which would double the time.
        self._writer = writer
        self._file = writer.file
        self._borrowed = []
        self.appended: list[bytes] = []
        self._sealed: list[bytes] = []
        self.is_flushed = writer.is_flushed_at_commit

    @property
    def snapshot_id(self) -> int:  # type: ignore[override]  # The id follows from the number of changes.
        """The number of the commit whose free list is used to check the pages that are read, or 0 for no check."""
        # After a change, this transaction may use pages that were free in the previous snapshot, so nothing is checked.
        return 0 if self.changes else self.number - 1

    @property
    def rewrite_size_bytes_max(self) -> int:
        """The size of the records that this transaction may rewrite: see `DiskReserve.rewrite_size_bytes_max`."""
        return self._writer.disk_reserve.rewrite_size_bytes_max

    # --- beginning and ending ---------------------------------------------------------

    def begin(self) -> None:
        """Acquire the writer lock, which all processes share, and begin the transaction.

        The caller holds `write_lock`, and has checked for a fork.

        Raises:
            ClosedError, ReadOnlyError: the store is closed, or open read-only.
            StoreLockedError: another process wrote until the timeout. Facts: path, timeout_s.
        """
        file = self._file
        if file.read_only:
            file.check_writable()
        file.active_transactions.add(self)
        try:
            if file.is_shut:
                file.pass_gate(self)
            writer_lock = file.locks.writer
            if writer_lock is not None:
                writer_lock.acquire(file.lock_timeout_s)
            if file.moved[0] in SUCCEEDED:
                self._follow()
                writer_lock = file.locks.writer  # Use the lock of the successor from now on.
            try:
                self._writer.checkpointer.prepare()
                handles = file.handles
                self._raw = raw = handles.begin(None, None, True, True)
            except lmdb.Error as error:
                self._raw = raw = file.begin_again(self, error, self._begin_raw)
                handles = file.handles
            file.writer_thread = get_ident()
            if writer_lock is not None and writer_lock.needs_repair:
                # Do this last, because LMDB's own lock also had a dead owner, and only the begin above repaired it.
                writer_lock.mark_repaired()
        except BaseException:
            file.active_transactions.add(self)  # `_end` needs this, and `begin_again` may have removed the transaction.
            self._end()
            raise
        self.number = raw.id()
        self._handles = handles
        self._log = handles.log
        self._index = handles.index
        self.stage = Stage.BEGUN

    def _begin_raw(self) -> lmdb.Transaction:
        self._writer.checkpointer.prepare()
        return self._file.handles.begin(None, None, True, True)

    def _follow(self) -> None:
        """Switch to the successor of the locked file if a compaction has replaced that file."""
        file = self._file
        if file.is_purged:
            raise purged_error(file.path)
        while file.has_moved:
            file.locks.release_writer()
            file.active_transactions.discard(self)
            file.follow()
            file.pass_gate(self)
            file.locks.acquire_writer(file.lock_timeout_s)
        # If the word is still set, the compaction was killed, or its rename failed. So clear the word.
        if file.moved[0] in SUCCEEDED:
            try:
                write_word(file.locks.descriptor, 0)
            except OSError as error:
                raise translate_os(error, path=file.path) from error

    def commit(self) -> None:
        """Commit to the WAL and to LMDB. Afterwards, `Wal.flush` makes the commit durable.

        The caller calls `abort` after a failure.

        If the WAL cannot contain the commit, because it rewrites records or is large, a checkpoint follows.

        Raises:
            StorageError, StoreFullError: the append to the WAL fails. Nothing was committed.
            lmdb.Error: LMDB's commit fails.
        """
        file, writer = self._file, self._writer
        if file.is_forked:  # A `work` function that forks also continues in the child, which must not commit.
            raise file.forked_error()
        if self._borrowed:
            self._take_back()
        wal, changes = writer.wal, self.changes
        if changes:
            flusher = writer.background_flusher
            flusher.commits += 1
            is_known = flusher.is_at_work and (self.is_flushed or flusher.flushes)
            if not (is_known and writer.checkpointer.is_plain):
                flusher.commit_made(is_flushed=self.is_flushed)
        self.stage = Stage.COMMITTING
        if not changes or wal.is_off:
            self._raw.commit()
        elif not self.rewrites and wal.append(self.first_lsn, self._sealed or self.appended, self.size_bytes):
            self._raw.commit()
            wal.note_committed(self.first_lsn + len(self.appended) - 1, changes, self.size_bytes)
        else:
            wal.note_unappended(rewrites=self.rewrites)
            self._raw.commit()
            writer.checkpointer.checkpoint()
            wal.check_file()
        self.stage = Stage.COMMITTED
        self._end()

    def abort(self) -> None:
        """Drop all changes. Do nothing if the transaction has ended."""
        try:
            self._take_back()
        finally:
            if self._raw is not None and not self._file.is_forked:
                self._raw.abort()
            self._end()

    def _end(self) -> None:
        """Release the writer lock. A second call does nothing."""
        file = self._file
        if self in file.active_transactions and not file.is_forked:
            file.writer_thread = 0
            writer_lock = file.locks.writer
            if writer_lock is not None and not file.closed:
                writer_lock.release(self.stage is Stage.COMMITTED)
            file.active_transactions.discard(self)
            self._handles = NO_HANDLES  # Drop the handles, because the committer may keep this object after a close.

    @property
    def may_be_committed(self) -> bool:
        """Whether `commit` was called, so that LMDB may have committed."""
        return self.stage is Stage.COMMITTING or self.stage is Stage.COMMITTED

    # --- writing ------------------------------------------------------------------------

    def put_log(self, lsn: int, record: bytes) -> None:
        """Append a record.

        Raises:
            StorageError: the LSN is not above the last one. Facts: lsn.
        """
        self.put(lsn, (record,), {})

    def put(  # noqa: C901 - it stays one frame, because each commit calls it
        self, lsn: int, records: Sequence[bytes], changes: Mapping[bytes, bytes | None]
    ) -> None:
        """Append records, and change the index.

        Args:
            lsn: the LSN of the first record.
            records: the records.
            changes: the new payload of each key, which is stored sealed. None removes the key.

        Raises:
            StorageError: the LSN is not above the last one. Facts: lsn.
        """
        if self._borrowed:
            self._take_back()
        put, mac = self._raw.put, self._handles.mac
        self.changes += len(records) + len(changes)
        if records and not self.appended:
            self.first_lsn = lsn
        for record in records:
            if armed:
                point("commit.before_put_log")
            stored = record if mac is None else mac.seal_record(lsn, record)
            self.size_bytes += len(stored)
            # The three flags are dupdata, overwrite and append. With append, LMDB stores nothing and returns False if
            # the key is out of order.
            if not put(encode_lsn(lsn), stored, True, True, True, self._log):
                message = f"record {lsn} was not appended: the log already ends at {self._last_key()}"
                raise StorageError(message, lsn=lsn)
            self.appended.append(record)
            if mac is not None:
                self._sealed.append(stored)
            lsn += 1
            if armed:
                point("commit.after_put_log")
        for key, payload in changes.items():
            if payload is None:
                self._raw.delete(key, b"", self._index)
                continue
            if armed:
                point("commit.before_put_index")
            checksum = xxh3_64_digest(key + payload) if mac is None else mac.row_mac(key, payload)
            put(key, payload + checksum, True, True, False, self._index)
            if armed:
                point("commit.after_put_index")

    def put_index(self, key: bytes, payload: bytes) -> None:
        """Seal `payload`, and store it under `key` in the index."""
        self.put(0, (), {key: payload})

    def put_meta(self, key: bytes, payload: bytes) -> None:
        """Seal `payload`, and store it under `key` in the table `meta`."""
        self.changes += 1
        self.rewrites = True
        mac = self._handles.mac
        value = seal(key, payload) if mac is None else mac.seal(key, payload)
        self._raw.put(key, value, True, True, False, self._handles.meta)

    def delete_index(self, key: bytes) -> None:
        """Remove `key` from the index if it exists."""
        self.put(0, (), {key: None})

    def replace_logs(self, records: dict[int, bytes]) -> None:
        """Replace records of the log.

        First remove all of them, because LMDB does not merge pages that become half empty when values shrink.

        Raises:
            StorageError: one of the records does not exist. Nothing was replaced. Facts: lsn.
        """
        from statelog.storage.file.page_order import packing_order

        if self._borrowed:
            self._take_back()
        mac = self._handles.mac
        if mac is not None:
            records = {lsn: mac.seal_record(lsn, record) for lsn, record in records.items()}
        keys = {lsn: encode_lsn(lsn) for lsn in sorted(records)}
        for lsn, key in keys.items():
            if self._raw.get(key, None, self._log) is None:
                message = f"record {lsn} was not replaced: it does not exist"
                raise StorageError(message, lsn=lsn)
        self.changes += 1
        self.rewrites = True
        self.size_bytes += sum(map(len, records.values()))
        for key in keys.values():
            self._raw.delete(key, b"", self._log)
        for lsn in packing_order(records):
            self._raw.put(keys[lsn], records[lsn], True, True, False, self._log)

    def write_header_again(self) -> None:
        """Write the header unchanged, because LMDB gives a transaction number only to commits with changes."""
        self.changes += 1
        self.rewrites = True
        meta = self._handles.meta
        self._raw.put(HEADER_KEY, bytes(self._raw.get(HEADER_KEY, None, meta)), True, True, False, meta)
