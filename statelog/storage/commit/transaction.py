"""The one write transaction of a store."""

from __future__ import annotations

from contextlib import contextmanager
from enum import Enum
from threading import get_ident
from typing import TYPE_CHECKING, Any

import lmdb

from statelog.storage.file.failures import translate_os
from statelog.storage.file.moved import MOVED, write_word
from statelog.storage.file.opened import NO_HANDLES
from statelog.storage.file.reading import NO_PAGE
from statelog.storage.file.writing import TableWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from statelog.storage.commit.journaled import JournaledFile
    from statelog.storage.notify.wake import Wake


class Stage(Enum):
    """The stage of a write transaction."""

    NEW = 0
    BEGUN = 1
    COMMITTING = 2
    """LMDB's commit was called. Only its return, or a look at the store, shows whether it succeeded."""
    COMMITTED = 3
    """The commit is in the store and in the WAL."""


class WriteTransaction(TableWriter):
    """The only write transaction of the store. Its reads see its own writes.

    Only `log.commit`, `alone` and recovery begin and end one.
    """

    _environment: JournaledFile

    # Class attributes are the initial values, because each commit makes an instance.
    _raw: Any = None
    _leaf = NO_PAGE
    wakes = 0
    """The masks of the waiters that the commit concerns: see `Wake.notify`."""
    calls: tuple[Callable[[Wake], object], ...] = ()
    """Called after the commit, without the writer lock. Exceptions are ignored."""
    stage = Stage.NEW

    def __init__(self, environment: JournaledFile) -> None:  # and no call of super(), which takes as long as all of it
        self._environment = environment
        self._borrowed = []
        self.appended = []
        self.is_flushed = environment.is_flushed_at_commit

    @property
    def rewrite_size_bytes_max(self) -> int:
        """The size of the records that this may rewrite: see `DiskReserve.rewrite_size_bytes_max`."""
        return self._environment.disk_reserve.rewrite_size_bytes_max

    def begin(self) -> None:
        """Acquire the writer lock between processes, and begin.

        The caller holds `write_lock`, and has checked for a fork.

        Raises:
            ClosedError, ReadOnlyError: as named.
            StoreLockedError: another process wrote all the time allowed. Facts: path, timeout_s.
        """
        environment = self._environment
        if environment.read_only:
            environment.check_writable()
        environment.active_transactions.add(self)
        try:
            if environment.is_shut:
                environment.pass_gate(self)
            writer = environment.locks.writer
            if writer is not None:
                writer.acquire(environment.lock_timeout_s)
            if environment.moved[0] == MOVED:
                self._follow()
            try:
                environment.checkpointer.prepare()
                handles = environment.handles
                self._raw = raw = handles.begin(None, None, True, True)
            except lmdb.Error as error:
                self._raw = raw = environment.begin_again(self, error, write=True)
                handles = environment.handles
            environment.writer_thread = get_ident()
            if writer is not None and writer.needs_repair:
                environment.locks.note_repaired()  # Only now, because LMDB's own lock had a dead owner, too.
        except BaseException:
            environment.active_transactions.add(self)  # `begin_again` may have taken it out
            self._end()
            raise
        self.number = raw.id()
        self._handles = handles
        self._log = handles.log
        self._index = handles.index
        self.stage = Stage.BEGUN

    def _follow(self) -> None:
        """Go on with the file by which a compaction has replaced the locked one."""
        environment = self._environment
        while environment.has_moved:
            environment.locks.release_writer()
            environment.active_transactions.discard(self)
            environment.follow()
            environment.pass_gate(self)
            environment.locks.acquire_writer(environment.lock_timeout_s)
        if environment.moved[0] == MOVED:  # The compaction was killed, or the disk refused its rename.
            try:
                write_word(environment.locks.descriptor, 0)
            except OSError as error:
                raise translate_os(error, path=environment.path) from error

    def _end(self) -> None:
        """Release the writer lock. A second call does nothing."""
        environment = self._environment
        if self in environment.active_transactions and not environment.is_forked:
            environment.writer_thread = 0
            writer = environment.locks.writer
            if writer is not None and not environment.closed:
                writer.release(self.stage is Stage.COMMITTED)
            environment.active_transactions.discard(self)
            self._handles = NO_HANDLES  # The committer keeps this object, perhaps longer than the file.

    def commit(self) -> None:
        """Commit. `Wal.flush` makes the commit durable. After a failure, the caller calls `abort`."""
        environment = self._environment
        if environment.is_forked:  # A work that forks goes on in the child, too.
            raise environment.forked_error()
        if self._borrowed:
            self._take_back()
        if self.changes:
            environment.background_flusher.commit_made(self)
        self.stage = Stage.COMMITTING
        environment.checkpointer.commit(self, self._raw)
        self.stage = Stage.COMMITTED
        self._end()

    def is_commit(self, number: int | None) -> bool:
        """Return True if this is the commit with LMDB's transaction number `number`."""
        return self.stage is Stage.COMMITTED and self.changes > 0 and self.number == number

    @property
    def may_be_committed(self) -> bool:
        """Whether LMDB's commit was called."""
        return self.stage is Stage.COMMITTING or self.stage is Stage.COMMITTED

    def abort(self) -> None:
        """Drop every change. After the transaction has ended, do nothing."""
        try:
            self._take_back()
        finally:
            if self._raw is not None and not self._environment.is_forked:
                self._raw.abort()
            self._end()


@contextmanager
def alone(environment: JournaledFile) -> Iterator[None]:
    """Hold the writer lock while the `with` block runs. The caller holds `write_lock`, and has no transaction open."""
    transaction = WriteTransaction(environment)
    try:
        transaction.begin()
        yield
    finally:
        try:
            transaction.abort()
        except BaseException:  # An interrupt came as the abort began.
            transaction.abort()
            raise


def checkpoint(environment: JournaledFile) -> None:
    """Make all commits durable in the data file, whatever `durability` is. Afterwards the WAL has none of them.

    Raises:
        StorageError: it cannot be done. Facts: path.
        StoreLockedError: another process wrote all the time allowed. Facts: path, timeout_s.
    """
    try:
        with environment.write_lock, alone(environment):
            if environment.checkpointer.needs_checkpoint:
                environment.checkpointer.checkpoint()
    except lmdb.Error as error:
        raise environment.translate(error) from error
