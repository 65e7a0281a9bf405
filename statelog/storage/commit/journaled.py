"""An open file with its journal: who may begin a transaction on it, and what is done where LMDB lets nobody begin.

LMDB cannot change its map while a transaction lives, must not be used across `fork`, and refuses everything after a
failed write of a meta page. All that is dealt with here, behind the gate that every transaction passes.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import lmdb

from statelog.errors import (
    ClosedError,
    LimitError,
    ReadOnlyError,
    StatelogError,
    StorageError,
    StoreLockedError,
    UsageError,
)
from statelog.limits import READER_SLOTS, READERS_MAX, SHORT_READS_MIN
from statelog.storage.file.creation import finish_leftovers, make_name_durable
from statelog.storage.file.disk_reserve import DiskReserve
from statelog.storage.file.failures import error_code
from statelog.storage.file.file_identity import replaced_error
from statelog.storage.file.locks import is_owned
from statelog.storage.file.opened import OpenFile
from statelog.storage.file.opening import open_handles
from statelog.storage.file.orphaned_transactions import end_orphaned
from statelog.storage.file.reading import ReadTransaction
from statelog.storage.notify.slot_file import remove_wake_file
from statelog.storage.notify.wake import Wake
from statelog.storage.wal.background_flusher import BackgroundFlusher
from statelog.storage.wal.checkpointer import Checkpointer
from statelog.storage.wal.dirty_flag import read_dirty_flag, read_extent
from statelog.storage.wal.shared_state import UNKNOWN, flushed_to
from statelog.storage.wal.wal import Wal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from statelog.storage.file.orphaned_transactions import Ending
    from statelog.storage.options import Options

_DRAIN_TIMEOUT_S = 5.0  # reads are short by contract; one that outlives this is held by whoever waits for it
_FORK_TIMEOUT_S = 0.25  # how long a fork waits for transactions to end: some commits, and no person notices
_CHECK_TIMEOUT_S = 0.1  # how long a look for dead readers waits for others' commits: there will be another
_BEGIN_ATTEMPTS = 3
_PAGE_SIZE_BYTES = 4096


class JournaledFile(OpenFile):
    """What an `Environment` is to those who commit.

    Attributes:
        disk_reserve: how far commits may fill the file, and the blocks behind.
        wal: the write-ahead log.
        checkpointer: makes snapshots of the file durable, and pins them.
        wake: tells other processes of commits, and waits for theirs.
        background_flusher: the thread that flushes commits later, and makes a checkpoint when the store is idle.
        header: the header's fields. FORMAT.md section 2.
    """

    def __init__(self, path: Path, descriptor: int, options: Options) -> None:
        super().__init__(path, descriptor, options)
        self.is_flushed_at_commit = options.durability == "commit"
        self.inode = (0, 0)
        """Device and inode, by which the registry knows the file."""
        self.closed = False
        self.is_name_durable = False
        """Whether the directory was flushed since the file took its name. Its creation or compaction may have
        been killed, or have failed, just before: nothing is written before."""
        self.replayed = 0
        """Records put back from the journal when this was opened."""
        self.references = 0
        self._snapshots: list[None] = []
        """One element for each open snapshot. It is a list because appending and popping are atomic between threads."""
        self.is_shared = False
        """It is a copy of a log that many hosts write: what it has no loss of power takes back."""
        self._is_at_rest = False
        self.gate = threading.RLock()
        """Held by who shuts the gate; taken after `write_lock`."""
        self.writer_thread = 0
        """Identity of the thread that is inside a write transaction; 0: none is."""
        self.header: dict[str, Any] = {}
        self.disk_reserve = DiskReserve(self)
        self.wal = Wal(self)
        self.checkpointer = Checkpointer(self, self.wal, self.disk_reserve)
        self.wake = Wake(self, self.flushed_lsn)
        self.background_flusher = BackgroundFlusher(self, self.wal, self.checkpointer, self.wake)

    def read(self) -> ReadTransaction:
        """Return a read transaction for a `with` statement; short, never held across user code."""
        return ReadTransaction(self)

    def flushed_lsn(self) -> int:
        """Return the last record that is on the disk, of whichever process: no loss of power takes it back."""
        with self.read() as transaction:
            last = transaction.last_lsn()
        if self.is_shared:
            return last
        if not (self.read_only or self.background_flusher.has_thread) and self.write_lock.acquire(blocking=False):
            try:
                self.background_flusher.start()  # what a process has left that was killed nobody else flushes
            finally:
                self.write_lock.release()
        flushed = flushed_to(self.path) if self.wal.shared_state is None else self.wal.shared_state.flushed_to()
        if flushed == UNKNOWN:  # who wrote was killed, and nobody has written since; or the store was closed
            with self.read():  # nobody takes the file away meanwhile, as a compaction does
                descriptor = self.locks.descriptor
                if (session := read_dirty_flag(descriptor)) is not None:
                    flushed = read_extent(descriptor, session).lsn
        return min(last, flushed)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Count a snapshot as open. The `with` block begins the transaction of the snapshot.

        Some slots are kept free, so that commits and short reads work even if the maximum number of snapshots is open.

        Raises:
            LimitError: the maximum number of snapshots is open, in this process or in all processes. Facts: path,
                limit, actual.
        """
        self._snapshots.append(None)
        try:
            if len(self._snapshots) > READERS_MAX or not self._has_free_slots():
                message = f"{self.path}: more than {READERS_MAX} snapshots at one time"
                raise LimitError(message, path=str(self.path), limit=READERS_MAX, actual=READERS_MAX + 1)
            yield
        finally:
            self._snapshots.pop()

    def _has_free_slots(self) -> bool:
        taken_max = READER_SLOTS - SHORT_READS_MIN
        if self._count_slots(taken_max) < taken_max:
            return True
        with contextlib.suppress(StoreLockedError):
            self.check_readers()
        return self._count_slots(taken_max) < taken_max

    def _count_slots(self, enough: int) -> int:
        """Return the number of taken reader slots. A result below `enough` may be too high."""
        with self.read() as transaction:
            raw = transaction.handles.raw
            most_ever: int = raw.info()["num_readers"]
            return most_ever if most_ever < enough else len(raw.readers().splitlines()) - 1  # without the heading

    def check_readers(self) -> int:
        """Free the reader slots of dead processes, whose snapshots pin pages; return how many.

        Raises:
            StoreLockedError: another process writes, so that a pin may be needed by the time it is freed.
        """
        with self.write_lock, self.locks.writing(min(self.lock_timeout_s, _CHECK_TIMEOUT_S)):
            if not self.checkpointer.may_check_readers():
                return 0
            return self.handles.check_readers()

    def reopen(self) -> None:
        """Close and open LMDB's environment anew: the only cure for a poisoned one.

        Raises:
            StorageError, CorruptionError, ...: as for `open`. The next transaction tries again.
        """
        with self.gate:
            self.check_open()
            self.shut_gate()
            self._let_go_of_pins()
            if self.handles is not None:
                self.handles.close()
            self.handles = None  # type: ignore[assignment]  # gated until it is set again
            self.open_handles()

    def check_writable(self) -> None:
        """Raise ReadOnlyError if this may never write."""
        if self.read_only:
            message = f"{self.path} is open read-only"
            raise ReadOnlyError(message, path=str(self.path))

    def refuse_interrupter(self, what: str) -> None:
        """Raise UsageError in a thread that has interrupted itself where it holds a lock of the store's."""
        if is_owned(self.write_lock, self.gate, self.wal.flushing):
            message = f"{what} from within a commit, or by what interrupts who has the store alone, or flushes it"
            raise UsageError(message, path=str(self.path))

    def is_writing(self) -> bool:
        """Tell whether the calling thread is inside a write transaction."""
        return self.writer_thread == threading.get_ident()

    def pass_gate(self, transaction: Ending) -> None:
        """As declared."""
        active = self.active_transactions
        while True:
            active.discard(transaction)
            if self.is_shut and is_owned(self.gate):  # it would wait for what it has interrupted
                raise UsageError(f"{self.path} cannot be used by what interrupts who shuts it", path=str(self.path))
            with self.gate:
                self.check_open()
                if self.handles is None:
                    self.open_handles()
            active.add(transaction)
            if not self.is_shut:
                return

    def begin_again(self, transaction: Ending, error: lmdb.Error, *, write: bool = False) -> lmdb.Transaction:
        """As declared."""
        for _ in range(_BEGIN_ATTEMPTS):
            self.active_transactions.discard(transaction)
            if isinstance(error, lmdb.MapResizedError):
                self.set_map_size(0)  # as the process has it that made the file grow beyond ours
            elif isinstance(error, lmdb.ReadersFullError):
                with contextlib.suppress(StoreLockedError):
                    self.check_readers()
            elif isinstance(error, lmdb.PanicError):
                self.reopen()
            elif error_code(error) != 0:  # 0: closed by a reopen in between; the gate tells
                raise self.translate(error) from error
            self.pass_gate(transaction)
            try:
                if write:
                    self.checkpointer.prepare()
                return self.handles.begin(None, None, True, True) if write else self.handles.begin_read(buffers=True)
            except lmdb.Error as again:
                error = again
        self.active_transactions.discard(transaction)
        raise self.translate(error) from error

    def open_handles(self) -> None:
        """Open LMDB's environment, and the gate. Holds under `gate`."""
        if not self.read_only:
            if not self.is_name_durable:
                make_name_durable(self.path)
                self.is_name_durable = True
            finish_leftovers(self.path)
        self.handles, self.header = open_handles(self, self.disk_reserve.commit_size_bytes_max)
        store_id: bytes = self.header["store_id"]
        if self.store_id not in {b"", store_id}:
            self.handles.close()
            self.handles = None  # type: ignore[assignment]  # gated
            message = f"{self.path} is another store than the one that was opened"
            raise StorageError(message, path=str(self.path))
        self.store_id = store_id
        self.disk_reserve.look_again()
        self.checkpointer.look_for_pins()
        self.is_shut = False

    def set_map_size(self, size_bytes: int) -> None:
        """As declared. LMDB ends every transaction, also the pin, so the next writer makes a checkpoint (J2)."""
        with self.gate:
            self.check_open()
            self.shut_gate()
            if self.handles is None:
                return
            try:
                self._let_go_of_pins()
                self.handles.map_address = 0
                self.handles.raw.set_mapsize(size_bytes // _PAGE_SIZE_BYTES * _PAGE_SIZE_BYTES)
            finally:
                self.is_shut = False

    def check_open(self) -> None:
        """Raise ClosedError if this is closed, StoreReplacedError if it was closed because its file is lost."""
        if self.closed and self.locks.file.is_lost:
            raise replaced_error(self.path)
        if self.closed:
            message = f"{self.path} is closed"
            raise ClosedError(message, path=str(self.path))

    def shut_gate(self, timeout_s: float | None = None) -> None:
        """Let nobody begin, and wait until nobody is inside. Holds under `gate`. Raises UsageError: somebody stays."""
        is_drained = False
        try:
            self.is_shut = True
            end_orphaned(self.active_transactions)
            deadline = time.monotonic() + (_DRAIN_TIMEOUT_S if timeout_s is None else timeout_s)
            while self.active_transactions and time.monotonic() < deadline:
                time.sleep(0.0001)
            is_drained = not self.active_transactions
        finally:
            if not is_drained:
                self.is_shut = self.handles is None
        if not is_drained:
            raise UsageError(f"{self.path}: a transaction is still open", path=str(self.path))

    def _let_go_of_pins(self, timeout_s: float | None = None) -> None:
        """Hold no pin, before LMDB ends every read transaction. Raises StoreLockedError: another process writes."""
        if self.checkpointer.pins:
            with self.locks.writing(self.lock_timeout_s if timeout_s is None else timeout_s):
                self.checkpointer.release_pins()

    # --- closing, and forks --------------------------------------------------------------

    def shut(self) -> None:
        """Close for good; the registry calls it with the last reference. Refused or interrupted, it is called again.

        Raises:
            UsageError: a transaction is still open, and nothing is closed.
            StoreLockedError: another process writes all the time, and needs a pin of this one; nothing is closed.
        """
        if not self.write_lock.acquire(timeout=_DRAIN_TIMEOUT_S):
            raise UsageError(f"{self.path}: a transaction is still open", path=str(self.path))
        try:
            with self.gate:
                if not self.closed:
                    self.shut_gate()
                    try:
                        self._leave()
                    finally:
                        self.is_shut = self.closed or self.handles is None
                self.background_flusher.stop()
                self._close_files()
        finally:
            self.write_lock.release()

    def _leave(self) -> None:
        """Remove the journal, if nobody else writes; else what was committed stays in it. Then all is closed."""
        if self.read_only or self.handles is None:
            self.closed = True
            return
        if self.has_moved:  # nobody goes on with it
            self.checkpointer.leave()
            self.closed = True
            self.wal.close_shared_state(is_last=False)
            return
        with self.locks.closing() as is_alone:
            if is_alone:
                with contextlib.suppress(OSError, lmdb.Error, StatelogError):
                    self.checkpointer.remove_wal()
            self.checkpointer.leave()
            self.closed = True
            self.wal.close_shared_state(is_last=is_alone)

    def _close_files(self) -> None:
        self.wake.close()
        descriptor = self.locks.descriptor
        if descriptor >= 0:
            is_gone = self.locks.file.is_lost or self.has_moved  # then what lies beside it is of another file
            self.forget_mapped()
            if not (self.read_only or is_gone) and self.locks.try_exclusive():
                remove_wake_file(self.path)
        if self.handles is not None:
            self.handles.close()
        if descriptor >= 0:  # right after LMDB: processes that open the store expect its users to have LMDB open
            self.locks.descriptor = -1
            os.close(descriptor)

    def rest_for_fork(self) -> None:
        """Before a fork: let nobody begin, and nobody be inside, if that can be had soon."""
        is_writer = self.write_lock.acquire(timeout=_FORK_TIMEOUT_S)
        self.gate.acquire()
        self._is_at_rest = False
        if not is_writer:
            return
        try:
            with contextlib.suppress(StatelogError):
                self.shut_gate(0 if self.is_writing() else _FORK_TIMEOUT_S)
                self._let_go_of_pins(_FORK_TIMEOUT_S)  # else the child, closing its copy, would free the parent's slot
                self._is_at_rest = True
        finally:
            self.write_lock.release()

    def go_on_after_fork(self) -> None:
        """After a fork, in the parent: all as before."""
        self.is_shut = self.handles is None
        self.gate.release()

    def abandon_after_fork(self) -> bool:
        """After a fork, in the child: let go of what is shared with the parent. False if LMDB had to be kept.

        Locks of ours belong to the open file, and would outlive the parent. LMDB's
        environment, closed at rest, harms nobody, and then the file may be opened anew. In the
        midst of transactions, to close it would free the parent's reader slots, even by the
        garbage collector at exit: so it is kept for ever.
        """
        self.is_forked = True
        self.locks.supported = False
        self.forget_mapped()
        os.close(self.locks.descriptor)
        self.gate.release()
        self.checkpointer.leave_after_fork()
        if self._is_at_rest:
            if self.handles is not None:
                self.handles.close()
            return True
        if self.handles is not None and self.handles.lock_file is not None:
            self.handles.lock_file.close()
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        return False
