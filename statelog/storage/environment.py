"""The open store file: it is opened, and recovered if it was not closed.

A process must not open a file twice in LMDB, because closing one environment releases the locks of both. The registry
keeps one `Environment` for each file and process.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statelog.errors import AccessError, StoreLockedError, StoreReplacedError, UsageError
from statelog.storage import registry
from statelog.storage.commit.journaled import JournaledFile
from statelog.storage.commit.transaction import alone, checkpoint
from statelog.storage.file.disk import flush_file
from statelog.storage.file.failures import translate_os
from statelog.storage.file.locks import FileLocks, is_same_file
from statelog.storage.file.moved import FENCED, map_word, write_word
from statelog.storage.file.opened import NO_HANDLES
from statelog.storage.file.sidecar_files import refuse_link
from statelog.storage.file.statistics import collect_statistics
from statelog.storage.moving import finish_move
from statelog.storage.notify.slot_file import wake_path
from statelog.storage.options import Options, check_path
from statelog.storage.recovery import (
    UnrecoveredError,
    check_before_recovery,
    put_records,
    recover,
    waits_for_recovery,
)

if TYPE_CHECKING:
    import lmdb

    from statelog.errors import FencedError
    from statelog.storage.file.lock_file import LockFile
    from statelog.storage.file.statistics import EnvironmentStatistics
    from statelog.storage.recovery import Replay


def _close_former(raw: lmdb.Environment, lock_file: LockFile | None, descriptor: int) -> None:
    """Close a file that has a successor, after its last transaction has ended."""
    raw.close()
    if lock_file is not None:
        lock_file.close()
    os.close(descriptor)


class Environment(JournaledFile):
    """An open store file. Get one by `open`, and call `close` once for each `open`. Write through `log.commit`."""

    def __init__(self, path: Path, descriptor: int, options: Options, replay: Replay) -> None:
        """Use `open` instead, which keeps one environment for each file."""
        super().__init__(path, descriptor, options)
        self._replay = replay
        try:
            with self.gate:
                self._enter()
        except BaseException:
            self.forget_mapped()
            raise
        self.committer: Any = None
        """Commits for all OS threads of this process: see `log.commit.committer_of`."""

    def _enter(self) -> None:
        """Use the file that `locks` has open, and recover it first if needed. The caller holds `gate`."""
        locks, path = self.locks, self.path
        with locks.opening(self.lock_timeout_s, read_only=self.read_only):
            locks.file.check()
            refuse_link(path, wake_path(path))
            if not self.read_only:
                check_before_recovery(path, locks.descriptor)
                finish_move(path, locks.descriptor)
                self.wal.open_shared_state(is_first=not locks.is_open_for_writing())
            try:
                recover(self, self._replay)
            except BaseException:
                self.wal.close_shared_state(is_last=not locks.is_open_for_writing())
                raise

    def follow(self) -> None:
        """Use the successor of the data file, as declared in `OpenFile`."""
        if not self.has_moved or os.getpid() != self.process_id:
            return
        if not self.write_lock.acquire(timeout=self.lock_timeout_s):
            message = (
                f"{self.path} was compacted, and a commit of this process has not ended: {self.lock_timeout_s:g} s"
            )
            raise StoreLockedError(message, path=str(self.path), timeout_s=self.lock_timeout_s)
        try:
            with self.gate:
                self.check_open()
                while self.has_moved:
                    self._open_successor()
        finally:
            self.write_lock.release()

    def _open_successor(self) -> None:
        """Open the file that has the name now, and close the former one after its last transaction has ended.

        Do nothing if another compaction has replaced that file meanwhile.
        """
        descriptor = registry.open_data_file(self.path, writable=not self.read_only, create=False)
        former, former_moved, former_handles = self.locks, self.moved, self.handles
        try:
            with self.checkpointer.moving():
                self.locks, self.moved = FileLocks(descriptor, self.path), map_word(descriptor)
                self.handles = NO_HANDLES
                try:
                    self._enter()
                except BaseException:
                    self.locks, self.moved, self.handles = former, former_moved, former_handles
                    raise
        except BaseException as error:
            is_named = is_same_file(self.path, descriptor)
            os.close(descriptor)
            if isinstance(error, StoreReplacedError) and not is_named:
                return  # Another compaction has replaced it.
            raise
        registry.note_inode(self)
        if former_handles is None:  # An earlier reopening of the former file has failed.
            os.close(former.descriptor)
        else:
            raw, lock_file = former_handles.raw, former_handles.lock_file
            weakref.finalize(former_handles, _close_former, raw, lock_file, former.descriptor)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, create: bool = True, replay: Replay = put_records, **options: Any
    ) -> Environment:
        """Open the store at `path`, or share the open environment of this process.

        Args:
            path: of the data file. Symbolic links are followed.
            create: create the store if there is none.
            replay: puts records of the WAL into a store that was not closed. The default puts no index rows.
            options: those of `Options`. If a process opens a store several times, the shortest interval and the
                time-out of the first opening count.

        Raises:
            UsageError: invalid options, or options that differ from those of the open store.
            StoreNotFoundError: there is no file, and `create` is False; or there is no directory. Facts: path.
            FormatError: the file is not a store, or its format is newer. Facts: path.
            CorruptionError: the store is damaged. Facts: path.
            AccessError: the user has no permission. Facts: path.
            StoreLockedError: another process holds the store. Facts: path, timeout_s.
            StorageError: the operating system refuses for another reason. Facts: path.
        """
        given = Options(**options).check()
        check_path(path)

        def make(real: Path, descriptor: int) -> Environment:
            while True:
                if given.read_only and waits_for_recovery(real, descriptor):
                    cls._recover_first(real, given, replay)
                with contextlib.suppress(
                    UnrecoveredError
                ):  # The process that was about to recover the store has ended.
                    return cls(real, descriptor, given, replay)

        may_write = not given.read_only
        environment = registry.acquire(Path(path), make, writable=may_write, create=create and may_write)
        assert isinstance(environment, cls)
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
        """Recover a store that was not closed, by opening it for writing, before it is opened read-only."""
        try:
            cls.open(path, create=False, replay=replay, **options._replace(read_only=False)._asdict()).close()
        except AccessError as error:
            message = f"{path} was not closed: who may write to it must open it once before it can be read"
            raise AccessError(message, path=str(path)) from error

    def last_transaction_id(self) -> int:
        """Return LMDB's number of the last commit of any process."""
        with self.read() as transaction:
            return transaction.id

    def statistics(self) -> EnvironmentStatistics:
        """Return sizes, pages of each table, free pages and readers, all of one moment."""
        return collect_statistics(self, self.checkpointer.pins.numbers)

    def checkpoint(self) -> None:
        """Make all commits durable in the data file. Raises as `transaction.checkpoint`."""
        checkpoint(self)

    def flush_journal(self) -> None:
        """Make all commits durable that any process has made without a flush.

        Raises:
            StorageError: the disk refuses. Facts: path.
            StoreLockedError: another process wrote all the time allowed. Facts: path, timeout_s.
            UsageError: a signal handler that has interrupted the store calls this.
        """
        self.refuse_interrupter("a flush cannot be made")
        if self.wal.is_dirty and not self.wal.is_open:
            with self.write_lock, alone(self):  # Opens the WAL.
                pass
        self.wal.flush()
        self.wal.note_flushed()

    def fence_off(self, error: FencedError) -> None:
        """Fence the file: no process may commit to it any more. Commits of this process raise `error`.

        Raises:
            ReadOnlyError, ClosedError, StoreLockedError, StorageError: as for a commit. Facts: path.
        """
        self.check_writable()
        self.refuse_interrupter("a store cannot be fenced")
        try:
            with self.write_lock, alone(self):
                write_word(self.locks.descriptor, FENCED)
                flush_file(self.locks.descriptor)
                self.fence = error
        except OSError as refused:
            raise translate_os(refused, path=self.path) from refused

    def close(self) -> None:
        """Release one `open`. The last release closes the file.

        Raises:
            UsageError: a transaction stays open for some seconds. Nothing was closed.
        """
        registry.release(self)
