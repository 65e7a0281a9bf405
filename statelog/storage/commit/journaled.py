"""An open store file with its WAL, and the gate that every transaction passes.

LMDB cannot change its map while a transaction is open, must not be used across `fork`, and refuses everything after a
failed write of a meta page. In these cases, the gate is shut: no transaction may begin.
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
    ReadOnlyError,
    StatelogError,
    StorageError,
    StoreLockedError,
    UsageError,
)
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
from statelog.storage.wal.reader_slots import ReaderSlots
from statelog.storage.wal.shared_state import UNKNOWN, flushed_to
from statelog.storage.wal.wal import Wal

if TYPE_CHECKING:
    from pathlib import Path

    from statelog.storage.file.orphaned_transactions import Ending
    from statelog.storage.options import Options

_DRAIN_TIMEOUT_S = 5.0
"""How long a shut gate waits for transactions to end. Reads are short by contract."""

_FORK_TIMEOUT_S = 0.25
"""How long a fork waits for transactions to end. It is enough for some commits, and no user notices it."""

_BEGIN_ATTEMPTS = 3
_PAGE_SIZE_BYTES = 4096


class JournaledFile(OpenFile):
    """An open store file, as commits know it.

    Attributes:
        disk_reserve: how far commits may fill the file, and the blocks behind.
        wal: the write-ahead log.
        checkpointer: makes snapshots of the file durable, and pins them.
        reader_slots: the slots of LMDB's reader table.
        wake: notifies waiters of commits, in all processes.
        background_flusher: the thread that flushes commits later, and makes a checkpoint when the store is idle.
        header: the fields of the header. FORMAT.md section 2.
    """

    def __init__(self, path: Path, descriptor: int, options: Options) -> None:
        super().__init__(path, descriptor, options)
        self.is_flushed_at_commit = options.durability == "commit"
        self.inode = (0, 0)
        """Device and inode, the key of the registry."""
        self.closed = False
        self.is_name_durable = False
        """Whether the directory was flushed since the file has its name. Nothing is written before (C4): a creation or
        a compaction may have been killed before its flush."""
        self.replayed = 0
        """The number of records that the opening has replayed from the WAL."""
        self.references = 0
        self.is_shared = False
        """This file is a replica of a shared log. Its records are durable there: no power failure can undo them."""
        self._is_at_rest = False
        self.gate = threading.RLock()
        """Held by a thread that shuts the gate. A thread that needs both locks takes `write_lock` first."""
        self.writer_thread = 0
        """The identity of the thread that has a write transaction open; 0: none has."""
        self.header: dict[str, Any] = {}
        self.disk_reserve = DiskReserve(self)
        self.wal = Wal(self)
        self.checkpointer = Checkpointer(self, self.wal, self.disk_reserve)
        self.reader_slots = ReaderSlots(self, self.checkpointer.may_check_readers)
        self.wake = Wake(self, self.flushed_lsn)
        self.background_flusher = BackgroundFlusher(self, self.wal, self.checkpointer, self.wake)

    def read(self) -> ReadTransaction:
        """Return a read transaction for a `with` statement. It must be short, and must not run code of users."""
        return ReadTransaction(self)

    def flushed_lsn(self) -> int:
        """Return the LSN of the last flushed record of any process. No power failure can undo it."""
        with self.read() as transaction:
            last = transaction.last_lsn()
        if self.is_shared:
            return last
        if not (self.read_only or self.background_flusher.has_thread) and self.write_lock.acquire(blocking=False):
            try:
                self.background_flusher.start()  # Otherwise nobody might flush the commits of a killed process.
            finally:
                self.write_lock.release()
        flushed = flushed_to(self.path) if self.wal.shared_state is None else self.wal.shared_state.flushed_to()
        if flushed == UNKNOWN:  # No process writes. The store was closed, or its writers were killed.
            with self.read():  # No compaction can replace the file meanwhile.
                descriptor = self.locks.descriptor
                if (session := read_dirty_flag(descriptor)) is not None:
                    flushed = read_extent(descriptor, session).lsn
        return min(last, flushed)

    def reopen(self) -> None:
        """Close LMDB's environment and open it again, which is the only cure after a failed write of a meta page.

        Raises:
            StorageError, CorruptionError, ...: as for `open`. The next transaction tries again.
        """
        with self.gate:
            self.check_open()
            self.shut_gate()
            self._release_pins()
            if self.handles is not None:
                self.handles.close()
            self.handles = None  # type: ignore[assignment]  # The gate is shut until it is set.
            self.open_handles()

    def check_writable(self) -> None:
        """Raise ReadOnlyError if the store is open read-only."""
        if self.read_only:
            message = f"{self.path} is open read-only"
            raise ReadOnlyError(message, path=str(self.path))

    def refuse_interrupter(self, what: str) -> None:
        """Raise UsageError if the calling thread holds a lock of the store: a signal handler has interrupted it."""
        if is_owned(self.write_lock, self.gate, self.wal.flushing):
            message = f"{what} from within a commit, or by what interrupts who has the store alone, or flushes it"
            raise UsageError(message, path=str(self.path))

    def is_writing(self) -> bool:
        """Return True if the calling thread has a write transaction open."""
        return self.writer_thread == threading.get_ident()

    def pass_gate(self, transaction: Ending) -> None:
        """Wait at the gate, as declared in `OpenFile`."""
        active = self.active_transactions
        while True:
            active.discard(transaction)
            if self.is_shut and is_owned(self.gate):  # It would wait for itself.
                raise UsageError(f"{self.path} cannot be used by what interrupts who shuts it", path=str(self.path))
            with self.gate:
                self.check_open()
                if self.handles is None:
                    self.open_handles()
            active.add(transaction)
            if not self.is_shut:
                return

    def begin_again(self, transaction: Ending, error: lmdb.Error, *, write: bool = False) -> lmdb.Transaction:
        """Begin LMDB's transaction again, as declared in `OpenFile`."""
        for _ in range(_BEGIN_ATTEMPTS):
            self.active_transactions.discard(transaction)
            if isinstance(error, lmdb.MapResizedError):
                self.set_map_size(0)  # Take the size of the process that has extended the file.
            elif isinstance(error, lmdb.ReadersFullError):
                with contextlib.suppress(StoreLockedError):
                    self.reader_slots.release_dead()
            elif isinstance(error, lmdb.PanicError):
                self.reopen()
            elif error_code(error) != 0:  # 0: a reopening has closed the handles, and the gate waits for it.
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
        """Open LMDB's environment, and open the gate. The caller holds `gate`."""
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
        """Move the end of the map, as declared in `OpenFile`.

        LMDB ends every transaction, also the pin, so the next writer makes a checkpoint (J2).
        """
        with self.gate:
            self.check_open()
            self.shut_gate()
            if self.handles is None:
                return
            try:
                self._release_pins()
                self.handles.map_address = 0
                self.handles.raw.set_mapsize(size_bytes // _PAGE_SIZE_BYTES * _PAGE_SIZE_BYTES)
            finally:
                self.is_shut = False

    def check_open(self) -> None:
        """Raise ClosedError if the store is closed, or StoreReplacedError if its file was lost."""
        if self.closed and self.locks.file.is_lost:
            raise replaced_error(self.path)
        if self.closed:
            message = f"{self.path} is closed"
            raise ClosedError(message, path=str(self.path))

    def shut_gate(self, timeout_s: float | None = None) -> None:
        """Let no transaction begin, and wait until none is open. The caller holds `gate`.

        Raises:
            UsageError: a transaction stays open.
        """
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

    def _release_pins(self, timeout_s: float | None = None) -> None:
        """Release the pins, because LMDB is about to end every read transaction.

        Raises:
            StoreLockedError: another process writes all the time allowed.
        """
        if self.checkpointer.pins:
            with self.locks.writing(self.lock_timeout_s if timeout_s is None else timeout_s):
                self.checkpointer.release_pins()

    # --- closing, and forks --------------------------------------------------------------

    def shut(self) -> None:
        """Close the store. The registry calls this with the last reference, and again after a refusal or an interrupt.

        Raises:
            UsageError: a transaction is still open. Nothing was closed.
            StoreLockedError: another process writes all the time, and needs a pin of this one. Nothing was closed.
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
        """Leave the session of the WAL. Remove the WAL if no other process has the store open."""
        if self.read_only or self.handles is None:
            self.closed = True
            return
        if self.has_moved:  # No process will use this file again.
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
            is_gone = self.locks.file.is_lost or self.has_moved  # Then the sidecar files are those of another file.
            self.forget_mapped()
            if not (self.read_only or is_gone) and self.locks.try_exclusive():
                remove_wake_file(self.path)
        if self.handles is not None:
            self.handles.close()
        if descriptor >= 0:  # Right after LMDB: an opening expects that each user has LMDB open.
            self.locks.descriptor = -1
            os.close(descriptor)

    def rest_for_fork(self) -> None:
        """Before a fork, shut the gate if the open transactions end soon."""
        is_writer = self.write_lock.acquire(timeout=_FORK_TIMEOUT_S)
        self.gate.acquire()
        self._is_at_rest = False
        if not is_writer:
            return
        try:
            with contextlib.suppress(StatelogError):
                self.shut_gate(0 if self.is_writing() else _FORK_TIMEOUT_S)
                self._release_pins(
                    _FORK_TIMEOUT_S
                )  # Otherwise the child, closing its copy, would free the parent's slot.
                self._is_at_rest = True
        finally:
            self.write_lock.release()

    def go_on_after_fork(self) -> None:
        """After a fork, open the gate in the parent."""
        self.is_shut = self.handles is None
        self.gate.release()

    def abandon_after_fork(self) -> bool:
        """After a fork, close in the child what it shares with the parent. Return False if LMDB has to stay open.

        Locks belong to the open file, and would outlive the parent. If no transaction was open, closing LMDB's
        environment does no harm, and the child may open the file again. If one was, closing it would free the parent's
        reader slots, even in the garbage collector at exit. So the environment is kept for ever.
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
