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
    """How far a write transaction got."""

    NEW = 0
    BEGUN = 1
    COMMITTING = 2
    """LMDB's commit was called: only its return, or a look at the store, tells whether it happened."""
    COMMITTED = 3
    """It is in the store, as durable as the mode says."""


class WriteTransaction(TableWriter):
    """The one write transaction of the store: reads see its own writes.

    Only `commit.Committer` begins and ends one.
    """

    _environment: JournaledFile

    # What each begins with stands here, once: one is made for every commit.
    _raw: Any = None
    _leaf = NO_PAGE
    callbacks: tuple[Callable[[], None], ...] = ()
    """Called once this has committed, before the next write transaction of this process begins: not after a commit of
    unknown outcome. None may raise."""
    wakes = 0
    """Masks of whom it concerns: see `Wake.notify`."""
    calls: tuple[Callable[[Wake], object], ...] = ()
    """Called once this has committed, without the writer lock. What they raise is lost."""
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
        """Take the writer lock between processes, and begin.

        The caller holds `Environment.write_lock`, and has checked for a fork.

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
                environment.locks.note_repaired()  # not before: LMDB's own lock has had a dead owner, too
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
        """Begin on the file that a compaction has put in the place of the one that is locked."""
        environment = self._environment
        while environment.has_moved:
            environment.locks.release_writer()
            environment.active_transactions.discard(self)
            environment.follow()
            environment.pass_gate(self)
            environment.locks.acquire_writer(environment.lock_timeout_s)
        if environment.moved[0] == MOVED:  # who was about to was killed, or its disk refused
            try:
                write_word(environment.locks.descriptor, 0)
            except OSError as error:
                raise translate_os(error, path=environment.path) from error

    def _end(self) -> None:
        """Release the writer lock; harmless when repeated."""
        environment = self._environment
        if self in environment.active_transactions and not environment.is_forked:
            environment.writer_thread = 0
            writer = environment.locks.writer
            if writer is not None and not environment.closed:
                writer.release(self.stage is Stage.COMMITTED)
            environment.active_transactions.discard(self)
            self._handles = NO_HANDLES  # the committer may keep this one longer than the file is in use

    def commit(self) -> None:
        """Commit, and return when it is as durable as the store's mode says. On failure, `abort` follows."""
        environment = self._environment
        if environment.is_forked:  # a work that forked goes on in the child, too
            raise environment.forked_error()
        if self._borrowed:
            self._take_back()
        if self.changes:
            environment.background_flusher.commit_made(self)
        self.stage = Stage.COMMITTING
        environment.checkpointer.commit(self, self._raw)
        self.stage = Stage.COMMITTED
        self._end()
        callbacks, self.callbacks = self.callbacks, ()  # what they hold may lead back here: none becomes garbage
        for callback in callbacks:
            callback()

    def is_commit(self, number: int | None) -> bool:
        """Whether it is the store's commit of that number."""
        return self.stage is Stage.COMMITTED and self.changes > 0 and self.number == number

    @property
    def may_be_committed(self) -> bool:
        """Whether LMDB's commit was called."""
        return self.stage is Stage.COMMITTING or self.stage is Stage.COMMITTED

    def abort(self) -> None:
        """Drop every change; harmless after the transaction has ended."""
        try:
            self._take_back()
        finally:
            if self._raw is not None and not self._environment.is_forked:
                self._raw.abort()
            self._end()


@contextmanager
def alone(environment: JournaledFile) -> Iterator[None]:
    """Let nobody else write. The caller holds `write_lock`, and no transaction."""
    transaction = WriteTransaction(environment)
    try:
        transaction.begin()
        yield
    finally:
        try:
            transaction.abort()
        except BaseException:  # an interrupt, as it began
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
