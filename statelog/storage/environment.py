"""The open store file: one LMDB environment per file and process.

LMDB must not open a file twice in one process: closing either drops the locks of both. The registry sees to that;
here a store is opened, and recovered if it was not closed.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statelog.errors import AccessError, StoreLockedError, StoreReplacedError, UsageError
from statelog.storage import registry
from statelog.storage.commit.commit import Committer
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


def _let_go(raw: lmdb.Environment, lock_file: LockFile | None, descriptor: int) -> None:
    """Close a file that has a successor, after its last transaction."""
    raw.close()
    if lock_file is not None:
        lock_file.close()
    os.close(descriptor)


class Environment(JournaledFile):
    """An open store file, written to through its `committer`. Get one by `open`; `close` it once for each `open`."""

    def __init__(self, path: Path, descriptor: int, options: Options, replay: Replay) -> None:
        """Use `open`: it keeps one environment per file."""
        super().__init__(path, descriptor, options)
        self._replay = replay
        try:
            with self.gate:
                self._enter()
        except BaseException:
            self.forget_mapped()
            raise
        self.committer = Committer(self)

    def _enter(self) -> None:
        """Take part in the use of the file that `locks` has open; recover it first if need be. Holds under `gate`."""
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
        """As declared."""
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
        """Open the file that has this one's name now, and let go of this one when its last transaction has ended.

        Nothing happens if the name has gone on to the next file meanwhile.
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
                return  # the next compaction was quicker
            raise
        registry.note_inode(self)
        if former_handles is None:  # it could not be opened again
            os.close(former.descriptor)
        else:
            raw, lock_file = former_handles.raw, former_handles.lock_file
            weakref.finalize(former_handles, _let_go, raw, lock_file, former.descriptor)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, create: bool = True, replay: Replay = put_records, **options: Any
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
        """Have a store that was not closed recovered before it is opened read-only."""
        try:
            cls.open(path, create=False, replay=replay, **options._replace(read_only=False)._asdict()).close()
        except AccessError as error:
            message = f"{path} was not closed: who may write to it must open it once before it can be read"
            raise AccessError(message, path=str(path)) from error

    def last_transaction_id(self) -> int:
        """Return the id of the last commit, of whichever process."""
        with self.read() as transaction:
            return transaction.id

    def statistics(self) -> EnvironmentStatistics:
        """Return sizes, pages per table, free pages and readers, all of one moment."""
        return collect_statistics(self, self.checkpointer.pins.numbers)

    def checkpoint(self) -> None:
        """Make all commits durable in the data file. Raises as `transaction.checkpoint`."""
        checkpoint(self)

    def flush_journal(self) -> None:
        """Make durable what was committed without a flush, by whomever, and tell the data file.

        Raises:
            StorageError: the disk refuses. StoreLockedError: another process wrote all the time allowed. Facts: path.
            UsageError: called by what has interrupted the store where it holds a lock.
        """
        self.refuse_interrupter("a flush cannot be made")
        if self.wal.is_dirty and not self.wal.is_open:
            with self.write_lock, alone(self):  # opens the journal
                pass
        self.wal.flush()
        self.wal.note_flushed()

    def fence_off(self, error: FencedError) -> None:
        """Let nobody commit any more, whoever has the file, or opens it; this process raises `error` then.

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
        """Give back one `open`; the last one closes the file.

        Raises:
            UsageError: a read transaction is still open after some seconds.
        """
        registry.release(self)
