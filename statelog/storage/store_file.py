"""The store file, which creates, opens and closes the parts of a store. It also handles compactions and forks.

A process must not open a file twice in LMDB, because closing one environment releases the locks of both. The registry
keeps one `StoreFile` for each file and process.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmdb

from statelog.errors import (
    AccessError,
    StatelogError,
    StoreKeyError,
    StoreLockedError,
    StoreReplacedError,
    UsageError,
)
from statelog.storage import registry
from statelog.storage.disk_reserve import DiskReserve
from statelog.storage.file.disk import flush_file
from statelog.storage.file.file_identity import purged_error
from statelog.storage.file.locks import FileLocks, is_same_file
from statelog.storage.file.moved import FENCED, map_word, write_word
from statelog.storage.file.sidecar_files import refuse_link
from statelog.storage.lmdb_file import NO_HANDLES, Hooks, LmdbFile
from statelog.storage.notify.slot_file import remove_wake_file, wake_path
from statelog.storage.notify.wake import Wake
from statelog.storage.options import Options, check_path
from statelog.storage.read_transaction import ReadTransaction
from statelog.storage.recovery import (
    UnrecoveredError,
    check_before_recovery,
    put_records,
    recover,
    waits_for_recovery,
)
from statelog.storage.replaced_files import finish_move
from statelog.storage.statistics import collect_statistics
from statelog.storage.wal.background_flusher import BackgroundFlusher
from statelog.storage.wal.checkpointer import Checkpointer
from statelog.storage.wal.dirty_flag import read_dirty_flag, read_extent
from statelog.storage.wal.reader_slots import ReaderSlots
from statelog.storage.wal.shared_state import UNKNOWN, flushed_to
from statelog.storage.wal.wal import Wal
from statelog.storage.write_transaction import StoreWriter

if TYPE_CHECKING:
    from statelog.errors import FencedError
    from statelog.storage.file.lock_file import LockFile
    from statelog.storage.recovery import Replay
    from statelog.storage.statistics import StoreFileStatistics

_FORK_TIMEOUT_S = 0.25
"""How long a fork waits for transactions to end: long enough for a few commits, but too short to be noticed."""


class StoreFile:
    """An open store file. Get it by `open`, and call `close` once for each `open`. Write through `log.commit`.

    Attributes:
        path: the real path of the data file.
        options: the options of the first opening in this process.
        lmdb_file: the data file, open in LMDB, with its locks and its gate.
        disk_reserve: limits how far commits may fill the file, and keeps allocated blocks after the limit.
        checkpointer: makes snapshots of the file durable, and pins them.
        background_flusher: the thread that flushes deferred commits, and makes a checkpoint when the store is idle.
        committer: commits for all OS threads of this process; None until `log.commit.committer_of` creates it.
        replayed: the number of records replayed from the WAL when the store was opened.
        inode: the device and inode numbers, which are a key of the registry.
        references: the number of openings that were not closed.
    """

    def __init__(self, path: Path, descriptor: int, options: Options, replay: Replay) -> None:
        """Create the parts of a store. Call `open` instead, which creates only one object for each file."""
        is_interval = options.durability == "interval"
        self.path = path
        self.options = options
        self.read_only = options.read_only
        self.inode = (0, 0)
        self.references = 0
        self._is_at_rest = False
        self.lmdb_file = file = LmdbFile(path, descriptor, options)
        self.disk_reserve = DiskReserve(file)
        self.wal = Wal(file, is_off=not options.flush)
        self.checkpointer = Checkpointer(file, self.wal, is_interval=is_interval)
        self.reader_slots = ReaderSlots(file, self.checkpointer.may_check_readers)
        self.wake = Wake(file, self.flushed_lsn)
        self.background_flusher = BackgroundFlusher(
            file, self.wal, self.checkpointer, self.wake, interval_s=options.interval_ms / 1000, flushes=is_interval
        )
        self.writer = StoreWriter(
            file,
            self.wal,
            self.checkpointer,
            self.disk_reserve,
            self.background_flusher,
            self.wake,
            is_flushed_at_commit=not is_interval,
        )
        file.connect(
            Hooks(
                follow=self.follow,
                release_pins=self.checkpointer.release_pins_within,
                release_dead_readers=self.reader_slots.release_dead,
                note_opened=self._note_opened,
                map_size_bytes=lambda: self.disk_reserve.commit_size_bytes_max,
            )
        )
        self._replay = replay
        self.replayed = 0
        try:
            with file.gate:
                self._enter()
        except BaseException:
            file.forget_mapped()
            raise
        self.committer: Any = None
        self.engines: weakref.WeakSet[Any] = weakref.WeakSet()
        """The engines of this process that use the store file. A purge ends all of them except its own."""

    # --- opening ------------------------------------------------------------------------

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, create: bool = True, replay: Replay = put_records, **options: Any
    ) -> StoreFile:
        """Open the store at `path`, or share the open store file of this process.

        Args:
            path: the path of the data file. Symbolic links are followed.
            create: create the store if there is none.
            replay: a function that writes records of the WAL into a store that was not closed. The default writes no
                index rows.
            options: the fields of `Options`. If a process opens a store several times, the shortest interval of all
                openings and the timeout of the first opening apply.

        Raises:
            UsageError: invalid options, or options that differ from the options of the open store.
            StoreNotFoundError: the directory does not exist, or `create` is False and the file does not exist. Facts:
                path.
            FormatError: the file is not a store, or its format is newer. Facts: path.
            CorruptionError: the store is damaged. Facts: path.
            AccessError: the user has no permission. Facts: path.
            StoreKeyError: the key is missing, or is not the store's key. Facts: path.
            StoreLockedError: another process holds a lock of the store until the timeout. Facts: path, timeout_s.
            StorageError: the operating system reports a different error. Facts: path.
        """
        given = Options(**options).check()
        check_path(path)

        def make(real: Path, descriptor: int) -> StoreFile:
            while True:
                if given.read_only and waits_for_recovery(real, descriptor):
                    cls._recover_first(real, given, replay)
                # If the process that was about to recover the store has ended, try again.
                with contextlib.suppress(UnrecoveredError):
                    return cls(real, descriptor, given, replay)

        may_write = not given.read_only
        opened = registry.acquire(Path(path), make, writable=may_write, create=create and may_write, key=given.key)
        assert isinstance(opened, cls)
        try:
            opened.lmdb_file.check_key(given.key)
        except BaseException:
            registry.release(opened)
            raise
        if (open_with := opened.options.shared) != given.shared:
            registry.release(opened)
            message = (
                f"{opened.path} is open in this process with (read_only, durability, max_size_bytes) = "
                f"{open_with[:3]}; it cannot be opened with {given.shared[:3]} as well"
            )
            raise UsageError(message, path=str(opened.path), open_with=open_with[:3], given=given.shared[:3])
        flusher = opened.background_flusher
        flusher.interval_s = min(flusher.interval_s, given.interval_ms / 1000)
        return opened

    @classmethod
    def _recover_first(cls, path: Path, options: Options, replay: Replay) -> None:
        """Open an unclosed store for writing, which recovers it, and close it again.

        Call this before the store is opened read-only.
        """
        try:
            cls.open(path, create=False, replay=replay, **options._replace(read_only=False)._asdict()).close()
        except StoreKeyError:
            raise
        except AccessError as error:
            message = f"{path} was not closed: a process that may write to it must open it once before it can be read"
            raise AccessError(message, path=str(path)) from error

    def _enter(self) -> None:
        """Open LMDB on the file that `locks` has open. If necessary, recover it first. The caller holds the gate."""
        locks, path = self.lmdb_file.locks, self.path
        with locks.opening(self.lmdb_file.lock_timeout_s, read_only=self.read_only):
            locks.file.check()
            refuse_link(path, wake_path(path))
            if not self.read_only:
                check_before_recovery(path, locks.descriptor)
                finish_move(path, locks.descriptor)
                self.wal.open_shared_state(is_first=not locks.is_open_for_writing())
            try:
                self.replayed += recover(self.writer, self._replay)
            except BaseException:
                self.wal.close_shared_state(is_last=not locks.is_open_for_writing())
                raise

    def _note_opened(self) -> None:
        self.disk_reserve.look_again()
        self.checkpointer.look_for_pins()

    # --- reading, flushing and fencing -----------------------------------------------------

    def read(self) -> ReadTransaction:
        """Return a read transaction for a `with` statement. The block must be short, and must not run users' code."""
        return ReadTransaction(self.lmdb_file)

    def last_transaction_id(self) -> int:
        """Return LMDB's number of the last commit of any process."""
        with self.read() as transaction:
            return transaction.id

    def statistics(self) -> StoreFileStatistics:
        """Return the file's sizes, page counts and readers, all as of one commit."""
        return collect_statistics(self.lmdb_file, self.checkpointer.pins.numbers)

    def flushed_lsn(self) -> int:
        """Return the LSN up to which the records of all processes are flushed. No power failure can undo them."""
        with self.read() as transaction:
            last = transaction.last_lsn()
        if self.writer.is_shared:
            return last
        file, flusher = self.lmdb_file, self.background_flusher
        if not (self.read_only or flusher.has_thread) and file.write_lock.acquire(blocking=False):
            try:
                flusher.start()  # Start the flusher, because nobody else might flush the commits of a killed process.
            finally:
                file.write_lock.release()
        flushed = flushed_to(self.path) if self.wal.shared_state is None else self.wal.flushed_to()
        if flushed == UNKNOWN:  # No process writes: the store was closed, or its writers were killed.
            with self.read():  # After a compaction, this open transaction keeps the old file's descriptor open.
                descriptor = file.locks.descriptor
                if (session := read_dirty_flag(descriptor)) is not None:
                    flushed = read_extent(descriptor, session).lsn
        return min(last, flushed)

    def flush_journal(self) -> None:
        """Make the unflushed commits of all processes durable.

        Raises:
            StorageError: the flush fails. Facts: path.
            StoreLockedError: another process wrote until the timeout. Facts: path, timeout_s.
            UsageError: the caller is a signal handler that has interrupted an operation of the store.
        """
        self.writer.refuse_interrupter("a flush cannot be made")
        if self.wal.is_dirty and not self.wal.is_open:
            with self.lmdb_file.write_lock, self.writer.alone():  # An empty write transaction opens the WAL.
                pass
        self.wal.flush()
        self.wal.note_flushed()

    def fence_off(self, error: FencedError) -> None:
        """Fence the file, so that no process may commit to it. Commits of this process raise `error`.

        Raises:
            ReadOnlyError, ClosedError, StoreLockedError, StorageError: the errors of a commit. Facts: path.
        """
        file = self.lmdb_file
        file.check_writable()
        self.writer.refuse_interrupter("a store cannot be fenced")
        with file.translating(), file.write_lock, self.writer.alone():
            write_word(file.locks.descriptor, FENCED)
            flush_file(file.locks.descriptor)
            file.fence = error

    # --- following a compaction --------------------------------------------------------------

    def follow(self) -> None:
        """Continue with the successor of a compacted file. Do nothing if the file was not compacted.

        Transactions that have already begun continue in the old file.

        Raises:
            ClosedError: the store is closed.
            StoreLockedError: until the timeout, other processes were opening the successor, or this process was
                committing. Facts: path, timeout_s.
            StoreReplacedError, StorageError, ...: the errors of an opening. The next use of the store tries again.
        """
        file = self.lmdb_file
        if file.is_purged:
            raise purged_error(self.path)
        if not file.has_moved or os.getpid() != file.process_id:
            return
        if not file.write_lock.acquire(timeout=file.lock_timeout_s):
            message = (
                f"{self.path} was compacted, but a commit of this process did not end within {file.lock_timeout_s:g} s"
            )
            raise StoreLockedError(message, path=str(self.path), timeout_s=file.lock_timeout_s)
        try:
            with file.gate:
                file.check_open()
                while file.has_moved:
                    self._open_successor()
        finally:
            file.write_lock.release()

    def _open_successor(self) -> None:
        """Open the file that the path names now. Close the old file after its last transaction has ended.

        Do nothing if another compaction replaces the new file while it is being opened.
        """
        file = self.lmdb_file
        descriptor = registry.open_data_file(self.path, writable=not self.read_only, create=False)
        former, former_moved, former_handles = file.locks, file.moved, file.handles
        try:
            with self.checkpointer.moving():
                file.locks, file.moved = FileLocks(descriptor, self.path), map_word(descriptor)
                file.handles = NO_HANDLES
                try:
                    self._enter()
                except BaseException:
                    file.locks, file.moved, file.handles = former, former_moved, former_handles
                    raise
        except BaseException as error:
            is_named = is_same_file(self.path, descriptor)
            os.close(descriptor)
            if isinstance(error, StoreReplacedError) and not is_named:
                return  # Another compaction has replaced the new file, so `follow` tries again.
            raise
        file.follows_purge = False
        registry.note_inode(self)
        if former_handles is None:  # LMDB is not open on the old file, because an earlier reopening failed.
            os.close(former.descriptor)
        else:
            raw, lock_file = former_handles.raw, former_handles.lock_file
            weakref.finalize(former_handles, _close_former, raw, lock_file, former.descriptor)

    # --- closing, and forks ------------------------------------------------------------------

    def close(self) -> None:
        """Undo one call of `open`. The last call of `close` closes the file.

        Raises:
            UsageError: a transaction does not end within some seconds. Nothing was closed.
        """
        registry.release(self)

    def shut(self) -> None:
        """Close the store. The registry calls this for the last reference, and again after an error or an interrupt.

        Raises:
            UsageError: a transaction is still open. Nothing was closed.
            StoreLockedError: another process writes until the timeout, and needs a pin of this process. Nothing was
                closed.
        """
        file = self.lmdb_file
        if not file.write_lock.acquire(timeout=file.drain_timeout_s):
            raise UsageError(f"{self.path}: a transaction is still open", path=str(self.path))
        try:
            with file.gate:
                if not file.closed:
                    file.shut_gate()
                    try:
                        self._leave()
                    finally:
                        file.is_shut = file.closed or file.handles is None
                self.background_flusher.stop()
                self._close_files()
        finally:
            file.write_lock.release()

    def _leave(self) -> None:
        """Leave the session of the WAL. Remove the WAL if no other process has the store open for writing."""
        file = self.lmdb_file
        if self.read_only or file.handles is None:
            file.closed = True
            return
        if file.has_moved:  # No process will use this file again, so its WAL needs no checkpoint.
            self.checkpointer.leave()
            file.closed = True
            self.wal.close_shared_state(is_last=False)
            return
        with file.locks.closing() as is_alone:
            if is_alone:
                with contextlib.suppress(OSError, lmdb.Error, StatelogError):
                    self.checkpointer.remove_wal()
            self.checkpointer.leave()
            file.closed = True
            self.wal.close_shared_state(is_last=is_alone)

    def _close_files(self) -> None:
        file = self.lmdb_file
        self.wake.close()
        if file.locks.descriptor >= 0:
            # In these cases, the sidecar files belong to a different data file, so do not remove them.
            is_gone = file.locks.file.is_lost or file.has_moved
            file.forget_mapped()
            if not (self.read_only or is_gone) and file.locks.try_exclusive():
                remove_wake_file(self.path)
        file.close()

    def rest_for_fork(self) -> None:
        """Prepare for a fork: shut the gate, unless open transactions do not end in time."""
        file = self.lmdb_file
        is_writer = file.write_lock.acquire(timeout=_FORK_TIMEOUT_S)
        file.gate.acquire()
        self._is_at_rest = False
        if not is_writer:
            return
        try:
            with contextlib.suppress(StatelogError):
                file.shut_gate(0 if file.is_writing() else _FORK_TIMEOUT_S)
                # Release the pins. Otherwise a child that closes its copy would free the slots of the parent's pins.
                self.checkpointer.release_pins_within(_FORK_TIMEOUT_S)
                self._is_at_rest = True
        finally:
            file.write_lock.release()

    def go_on_after_fork(self) -> None:
        """Open the gate in the parent after a fork."""
        self.lmdb_file.is_shut = self.lmdb_file.handles is None
        self.lmdb_file.gate.release()

    def abandon_after_fork(self) -> bool:
        """Close the child's copy after a fork. Return False if LMDB has to stay open.

        The child closes its descriptor: the locks belong to the open file, so the child's copy would keep them after
        the parent's death. If no transaction was open, closing LMDB's environment is harmless, and the child may open
        the file again. Otherwise, closing the environment would free the parent's reader slots, even if the garbage
        collector closed it at exit. In that case, the child keeps the environment forever.
        """
        file = self.lmdb_file
        file.is_forked = True
        file.locks.supported = False
        file.forget_mapped()
        os.close(file.locks.descriptor)
        file.gate.release()
        self.checkpointer.leave_after_fork()
        if self._is_at_rest:
            if file.handles is not None:
                file.handles.close()
            return True
        if file.handles is not None and file.handles.lock_file is not None:
            file.handles.lock_file.close()
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        return False


def _close_former(raw: lmdb.Environment, lock_file: LockFile | None, descriptor: int) -> None:
    """Close LMDB, the lock file and the descriptor of a file that has a successor. Its last transaction has ended."""
    raw.close()
    if lock_file is not None:
        lock_file.close()
    os.close(descriptor)
