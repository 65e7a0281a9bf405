"""The open store file: one LMDB environment per file and process.

LMDB must not open a file twice in one process (closing either drops the locks of
both), must not be used across `fork`, cannot change its map while a transaction
lives, and refuses everything after a failed write of a meta page. All that is
dealt with here, so that callers see transactions and exceptions.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmdb

from statelog.errors import (
    AccessError,
    ClosedError,
    ForkedError,
    ReadOnlyError,
    StatelogError,
    StorageError,
    StoreLockedError,
    UsageError,
)
from statelog.storage import registry
from statelog.storage.commit.commit import Committer
from statelog.storage.commit.keeper import Keeper
from statelog.storage.commit.transaction import WriteTransaction
from statelog.storage.file.abandoned import end_abandoned
from statelog.storage.file.failures import error_code, translate_lmdb
from statelog.storage.file.flushing import make_name_durable
from statelog.storage.file.headroom import Headroom
from statelog.storage.file.locks import FileLocks, is_owned
from statelog.storage.file.opening import open_handles
from statelog.storage.file.reading import ReadTransaction
from statelog.storage.file.statistics import collect_statistics
from statelog.storage.journal.checkpointing import Steady
from statelog.storage.journal.control import flushed_to
from statelog.storage.journal.recovery import (
    UnrecoveredError,
    check_before_recovery,
    put_records,
    recover,
    waits_for_recovery,
)
from statelog.storage.options import Options, check_path
from statelog.storage.wake import Wake, remove_wake_file

if TYPE_CHECKING:
    from statelog.storage.file.handles import Handles
    from statelog.storage.file.statistics import EnvironmentStatistics
    from statelog.storage.journal.recovery import Replay

_DRAIN_TIMEOUT_S = 5.0  # reads are short by contract; one that outlives this is held by whoever waits for it
_FORK_TIMEOUT_S = 0.25  # how long a fork waits for transactions to end: some commits, and no person notices
_CHECK_TIMEOUT_S = 0.1  # how long a look for dead readers waits for others' commits: there will be another
_BEGIN_ATTEMPTS = 3


class Environment:
    """An open store file. Get one by `open`; call `close` once for each `open`.

    Attributes:
        path: real path of the data file.
        store_id: 16 bytes, from the header.
        header: the header's fields. FORMAT.md section 2.
        write_lock: held by the thread that writes, from before it begins until its
            transaction is over and accounted for.
        committer: through which all writing goes.
        headroom: what commits may fill, and what is kept back.
        wake: tells other processes of commits, and waits for theirs.
    """

    def __init__(self, path: Path, descriptor: int, options: Options, replay: Replay) -> None:
        """Use `open`: it keeps one environment per file."""
        self.path = path
        self.options = options
        self.read_only = options.read_only
        self.max_size_bytes = options.max_size_bytes
        self.lock_timeout_s = options.lock_timeout_s
        self.interval_s = options.interval_ms / 1000
        """The least of all openings: each is promised its own."""
        self.is_flushed_at_commit = options.durability == "commit"
        self.process_id = os.getpid()
        self.inode = (0, 0)
        """Device and inode, by which the registry knows the file."""
        self.locks = FileLocks(descriptor, path)
        self.active_transactions: set[ReadTransaction] = set()
        self.is_shut = True
        """Nobody may begin: the environment is being reopened or resized, or is closed."""
        self.closed = False
        self.is_name_durable = False
        """Whether the directory was flushed since the file took its name. Its creation or compaction may have
        been killed, or have failed, just before: nothing is written before."""
        self.replayed = 0
        """Records put back from the journal when this was opened."""
        self.references = 0
        self.is_forked = False
        """This is the copy that a child has of its parent's environment."""
        self._is_at_rest = False
        self.map_address = 0
        """Where LMDB's map lies; 0 until somebody looks, since it moves."""
        self.handles: Handles = None  # type: ignore[assignment]  # set before the gate opens
        self.write_lock = threading.RLock()
        self.headroom = Headroom(self)
        self.steady = Steady(self)
        self.keeper = Keeper(self)
        self.gate = threading.RLock()
        """Held by who shuts the gate; taken after `write_lock`."""
        self.writer_thread = 0
        """Identity of the thread that is inside a write transaction; 0: none is."""
        self.header: dict[str, Any] = {}
        self.store_id = b""
        with self.gate, self.locks.opening(options.lock_timeout_s, read_only=options.read_only):
            if not options.read_only:
                check_before_recovery(path, descriptor)
                self.steady.open_control(is_first=not self.locks.is_open_for_writing())
            try:
                recover(self, replay)
            except BaseException:
                self.steady.close_control(is_last=not self.locks.is_open_for_writing())
                raise
        self.committer = Committer(self)
        self.wake = Wake(self)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        create: bool = True,
        replay: Replay = put_records,
        **options: Any,
    ) -> Environment:
        """Open the store at `path`, or share it with whoever in this process has it open.

        Args:
            path: of the data file; symbolic links are followed.
            create: make a new store where there is none.
            replay: puts records of a journal back, if the store was not closed. By default it puts them and nothing
                else: the index is the log's.
            options: those of `Options`. Of several openings in one process, the shortest interval and the first one's
                time-out count.

        Raises:
            UsageError: options that cannot be, or differ from those of the open store.
            StoreNotFoundError: no file, and not to be created; or no directory. Facts: path.
            FormatError: not a store, or a newer one. Facts: path.
            CorruptionError: a damaged store. Facts: path.
            AccessError: no permission. Facts: path.
            StoreLockedError: another process holds it. Facts: path, timeout_s.
            StorageError: whatever else the operating system refuses. Facts: path.
        """
        given = Options(**options).check()
        check_path(path)

        def make(real: Path, descriptor: int) -> Environment:
            while True:
                if given.read_only and waits_for_recovery(real, descriptor):
                    cls._recover_first(real, given, replay)
                with contextlib.suppress(UnrecoveredError):  # whoever was about to do it is gone
                    return cls(real, descriptor, given, replay)

        may_write = not given.read_only
        environment = registry.acquire(Path(path), make, writable=may_write, create=create and may_write)
        if (open_with := environment.options.shared) != given.shared:
            registry.release(environment)
            message = (
                f"{environment.path} is open in this process with (read_only, durability, max_size_bytes) = "
                f"{open_with[:3]}; it cannot be opened with {given.shared[:3]} besides"
            )
            raise UsageError(message, path=str(environment.path), open_with=open_with[:3], given=given.shared[:3])
        environment.interval_s = min(environment.interval_s, given.interval_ms / 1000)
        return environment

    @classmethod
    def _recover_first(cls, path: Path, options: Options, replay: Replay) -> None:
        """Have a store that was not closed recovered before it is opened read-only."""
        try:
            cls.open(path, create=False, replay=replay, **options._replace(read_only=False)._asdict()).close()
        except AccessError as error:
            message = f"{path} was not closed: who may write to it must open it once before it can be read"
            raise AccessError(message, path=str(path)) from error

    def read(self) -> ReadTransaction:
        """Return a read transaction for a `with` statement; short, never held across user code."""
        return ReadTransaction(self)

    def last_transaction_id(self) -> int:
        """Return the id of the last commit, of whichever process."""
        if os.getpid() != self.process_id:
            raise self.forked_error()
        if time.monotonic() < self.locks.file.look_at_s:  # else a read looks whether the file is there still
            with contextlib.suppress(lmdb.Error, AttributeError):
                number: int = self.handles.raw.info()["last_txnid"]
                return number
        with self.read() as transaction:
            return transaction.id

    def flushed_lsn(self) -> int:
        """Return the last record that is on the disk, of whichever process: no loss of power takes it back."""
        with self.read() as transaction:
            last = transaction.last_lsn()
        return min(last, flushed_to(self.path) if self.steady.control is None else self.steady.control.flushed_to())

    def statistics(self) -> EnvironmentStatistics:
        """Return sizes, pages per table, free pages and readers, all of one moment."""
        return collect_statistics(self)

    def check_readers(self) -> int:
        """Free the reader slots of dead processes, whose snapshots pin pages; return how many.

        Raises:
            StoreLockedError: another process writes, so that a pin may be needed by the time it is freed.
        """
        with self.write_lock, self.locks.writing(min(self.lock_timeout_s, _CHECK_TIMEOUT_S)):
            if not self.steady.may_check_readers():
                return 0
            cleared: int = self.handles.raw.reader_check()
            return cleared

    def make_steady(self) -> None:
        """Flush all that was committed where it lies, whatever the durability: the journal is empty then.

        Raises:
            StorageError: it cannot be done. Facts: path.
            StoreLockedError: another process wrote all the time allowed. Facts: path, timeout_s.
        """
        with self.write_lock:
            transaction = WriteTransaction(self)
            try:
                transaction.begin()
                if self.steady.is_unsteady:
                    self.steady.advance()
            except lmdb.Error as error:
                raise self.translate(error) from error
            finally:
                transaction.abort()

    def flush_journal(self) -> None:
        """Make durable what was committed without a flush, and tell the data file. Raises StorageError. Facts: path."""
        self.steady.flush()
        self.steady.note_flushed()

    def close(self) -> None:
        """Give back one `open`; the last one closes the file.

        Raises:
            UsageError: a read transaction is still open after some seconds.
        """
        registry.release(self)

    def reopen(self) -> None:
        """Close and open LMDB's environment anew: the only cure for a poisoned one.

        Raises:
            StorageError, CorruptionError, ...: as for `open`. The next transaction tries again.
        """
        with self.gate:
            self._check_open()
            self._shut_gate(_DRAIN_TIMEOUT_S)
            self._let_go_of_pins()
            if self.handles is not None:
                self.handles.raw.close()
            self.handles = None  # type: ignore[assignment]  # gated until it is set again
            self.open_handles()

    # --- for transactions -----------------------------------------------------

    def check_writable(self) -> None:
        """Raise ReadOnlyError if this may never write."""
        if self.read_only:
            message = f"{self.path} is open read-only"
            raise ReadOnlyError(message, path=str(self.path))

    def is_writing(self) -> bool:
        """Tell whether the calling thread is inside a write transaction."""
        return self.writer_thread == threading.get_ident()

    def begin_read_again(self, transaction: ReadTransaction, error: lmdb.Error) -> lmdb.Transaction:
        """Begin LMDB's read transaction after a first try failed with `error`."""
        return self._begin_again(transaction, error, write=False)

    def begin_write_again(self, transaction: WriteTransaction, error: lmdb.Error) -> lmdb.Transaction:
        """Begin LMDB's write transaction after a first try failed with `error`."""
        return self._begin_again(transaction, error, write=True)

    def pass_gate(self, transaction: ReadTransaction) -> None:
        """Wait until transactions may begin, and enter `transaction` among the active ones.

        Raises:
            ClosedError: the store is closed. UsageError: this thread was interrupted where it lets nobody in.
            StorageError: an earlier `reopen` failed, and so does the new try; or LMDB refuses commits that wait for it.
        """
        active = self.active_transactions
        while True:
            active.discard(transaction)
            if self.is_shut and is_owned(self.gate):  # it would wait for what it has interrupted
                raise UsageError(f"{self.path} cannot be used by what interrupts who shuts it", path=str(self.path))
            with self.gate:
                self._check_open()
                if self.handles is None:
                    self.open_handles()
            active.add(transaction)
            if not self.is_shut:
                return

    def translate(self, error: lmdb.Error) -> StatelogError:
        """Return statelog's exception for LMDB's."""
        return translate_lmdb(error, path=self.path, max_size_bytes=self.max_size_bytes)

    def forked_error(self) -> ForkedError:
        """Return the error of a child that uses its parent's store."""
        message = f"{self.path} was opened before this process was forked: open it again in the child"
        return ForkedError(message, path=str(self.path))

    # --- inside ---------------------------------------------------------------

    def shut(self) -> None:
        """Close for good; the registry calls it with the last reference."""
        if not self.write_lock.acquire(timeout=_DRAIN_TIMEOUT_S):
            raise UsageError(f"{self.path}: a transaction is still open", path=str(self.path))
        try:
            self._shut()
        finally:
            self.write_lock.release()

    def _shut(self) -> None:
        with self.gate:
            self._shut_gate(_DRAIN_TIMEOUT_S)
            self.closed = True
            self.keeper.stop()
            if self.handles is not None:
                self._leave()
                self.handles.raw.close()
            self.wake.close()
            if not self.read_only and self.locks.try_exclusive():
                remove_wake_file(self.store_id)
            os.close(self.locks.descriptor)

    def _leave(self) -> None:
        """Remove the journal, if nobody else writes; else what was committed stays in it."""
        if self.read_only:
            return
        with self.locks.closing() as is_alone:
            if is_alone:
                with contextlib.suppress(OSError, lmdb.Error, StatelogError):
                    self.steady.retire()
            self.steady.leave()
            self.steady.close_control(is_last=is_alone)

    def rest_for_fork(self) -> None:
        """Before a fork: let nobody begin, and nobody be inside, if that can be had soon."""
        is_writer = self.write_lock.acquire(timeout=_FORK_TIMEOUT_S)
        self.gate.acquire()
        self._is_at_rest = False
        if not is_writer:
            return
        try:
            with contextlib.suppress(StatelogError):
                self._shut_gate(0 if self.is_writing() else _FORK_TIMEOUT_S)
                self._let_go_of_pins(_FORK_TIMEOUT_S)  # else the child, closing its copy, would free the parent's slot
                self._is_at_rest = True
        finally:
            self.write_lock.release()

    def go_on_after_fork(self) -> None:
        """After a fork, in the parent: all as before."""
        self._set_shut(is_shut=self.handles is None)
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
        os.close(self.locks.descriptor)
        self.gate.release()
        self.steady.leave_after_fork()
        if self._is_at_rest:
            if self.handles is not None:
                self.handles.raw.close()
            return True
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        return False

    def set_map_size(self, size_bytes: int) -> None:
        """Let LMDB's map end there, or where what is in use does, if that is later.

        Raises:
            ClosedError: as named.
            UsageError: a transaction of this process stays open.
        """
        page_size_bytes = 4096
        self._remap(size_bytes // page_size_bytes * page_size_bytes)

    def _remap(self, size_bytes: int) -> None:
        """Have LMDB map anew, which ends every transaction, the pin's too: the next writer advances (J2)."""
        with self.gate:
            self._check_open()
            self._shut_gate(_DRAIN_TIMEOUT_S)
            if self.handles is None:
                return
            try:
                self._let_go_of_pins()
                self.map_address = 0
                self.handles.raw.set_mapsize(size_bytes)
            finally:
                self._set_shut(is_shut=False)

    def _let_go_of_pins(self, timeout_s: float | None = None) -> None:
        """Hold no pin, before LMDB ends every read transaction. Raises StoreLockedError: another process writes."""
        if self.steady.pins:
            with self.locks.writing(self.lock_timeout_s if timeout_s is None else timeout_s):
                self.steady.let_go()

    def _check_open(self) -> None:
        if self.closed:
            message = f"{self.path} is closed"
            raise ClosedError(message, path=str(self.path))

    def _set_shut(self, *, is_shut: bool) -> None:
        """Shut the gate, or open it. Holds under `gate`."""
        self.is_shut = is_shut

    def _shut_gate(self, timeout_s: float) -> None:
        """Let nobody begin, and wait until nobody is inside. Holds under `gate`."""
        self._set_shut(is_shut=True)
        end_abandoned(self.active_transactions)
        deadline = time.monotonic() + timeout_s
        while self.active_transactions:
            if time.monotonic() >= deadline:
                self._set_shut(is_shut=self.handles is None)
                raise UsageError(f"{self.path}: a transaction is still open", path=str(self.path))
            time.sleep(0.0001)

    def _begin_again(self, transaction: ReadTransaction, error: lmdb.Error, *, write: bool) -> lmdb.Transaction:
        """Cure what keeps a transaction from beginning, where there is a cure."""
        for _ in range(_BEGIN_ATTEMPTS):
            self.active_transactions.discard(transaction)
            if isinstance(error, lmdb.MapResizedError):
                self._remap(0)  # as the process has it that made the file grow beyond ours
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
                    self.steady.prepare()
                return self.handles.begin(None, None, write, True)
            except lmdb.Error as again:
                error = again
        self.active_transactions.discard(transaction)
        raise self.translate(error) from error

    def open_handles(self) -> None:
        """Open LMDB's environment, and the gate. Holds under `gate`."""
        if not self.read_only:
            from statelog.storage.file.compaction import finish_leftovers

            if not self.is_name_durable:
                make_name_durable(self.path)
                self.is_name_durable = True
            finish_leftovers(self.path)
        self.map_address = 0
        self.handles, self.header = open_handles(
            self.locks,
            self.path,
            read_only=self.read_only,
            max_size_bytes=self.headroom.commit_size_bytes_max,
            lock_timeout_s=self.lock_timeout_s,
        )
        store_id: bytes = self.header["store_id"]
        if self.store_id not in {b"", store_id}:
            self.handles.raw.close()
            self.handles = None  # type: ignore[assignment]  # gated
            message = f"{self.path} is another store than the one that was opened"
            raise StorageError(message, path=str(self.path))
        self.store_id = store_id
        self.steady.look_for_pins()
        self._set_shut(is_shut=False)
