"""The one write transaction of a store."""

from __future__ import annotations

from enum import Enum
from threading import get_ident
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import lmdb

from statelog.errors import StorageError
from statelog.format.header import HEADER_KEY
from statelog.format.seal import seal
from statelog.storage.faults import armed, point
from statelog.storage.file.packing import packing_order
from statelog.storage.file.reading import NO_PAGE, ReadTransaction, encode_lsn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from statelog.storage.environment import Environment

_NO_CHANGES: Mapping[bytes, bytes | None] = MappingProxyType({})


class Stage(Enum):
    """How far a write transaction got."""

    NEW = 0
    BEGUN = 1
    COMMITTING = 2
    """LMDB's commit was called: only its return, or a look at the store, tells whether it happened."""
    COMMITTED = 3
    """It is in the store, as durable as the mode says."""


_BEGUN, _COMMITTING, COMMITTED = Stage.BEGUN, Stage.COMMITTING, Stage.COMMITTED
"""By name: looking a member up in its class costs more than all the rest of a step in a transaction's life."""


class WriteTransaction(ReadTransaction):
    """The one write transaction of the store: reads see its own writes.

    Only `commit.Committer` begins and ends one.

    Attributes:
        changes: how often it wrote.
        size_bytes: size of the records it wrote.
        number: its id, once it has begun.
        first_lsn: of the records appended.
    """

    _may_own_pages = True

    # What each begins with stands here, once: one is made for every commit.
    _raw: Any = None
    _leaf = NO_PAGE
    callbacks: tuple[Callable[[], None], ...] = ()
    """Called once this has committed, before the next write transaction of this process begins: not after a commit of
    unknown outcome. None may raise."""
    stage = Stage.NEW
    changes = first_lsn = size_bytes = number = 0
    tail = b""
    """What the log says of the last record that is appended, in a few bytes, for `last_tail` of whoever writes next."""
    is_steady = False
    """Whether it is flushed where it lies: the journal holds records that are appended, and no other changes."""

    def __init__(self, environment: Environment) -> None:  # and no call of super(), which takes as long as all of it
        self._environment = environment
        self._borrowed = []
        self.appended: list[bytes] = []
        """The records put, one after another: they go into the journal."""
        self.is_flushed: bool = environment.is_flushed_at_commit
        """Whether it is durable when `commit` returns."""

    def _snapshot_id(self) -> int:
        return 0 if self.changes else self.number - 1  # pages it has taken are free in what it began with

    @property
    def rewrite_size_bytes_max(self) -> int:
        """How much it should rewrite; see `Headroom.rewrite_size_bytes_max`."""
        return self._environment.headroom.rewrite_size_bytes_max

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
            environment.locks.acquire_writer(environment.lock_timeout_s)
            try:
                environment.steady.prepare()
                handles = environment.handles
                self._raw = raw = handles.begin(None, None, True, True)
            except lmdb.Error as error:
                self._raw = raw = environment.begin_write_again(self, error)
                handles = environment.handles
            environment.writer_thread = get_ident()
            environment.locks.note_repaired()  # not before: LMDB's own lock has had a dead owner, too
        except BaseException:
            environment.active_transactions.add(self)  # `begin_write_again` may have taken it out
            self._end()
            raise
        self.number = raw.id()
        self._log = handles.log
        self._index = handles.index
        self.stage = _BEGUN

    def _end(self) -> None:
        """Release the writer lock; harmless when repeated."""
        environment = self._environment
        if self in environment.active_transactions and not environment.is_forked:
            environment.writer_thread = 0
            if not environment.closed:
                environment.locks.release_writer(self.stage is COMMITTED and not self.is_flushed)
            environment.active_transactions.discard(self)

    def commit(self) -> None:
        """Commit, and return when it is as durable as the store's mode says. On failure, `abort` follows."""
        environment = self._environment
        if environment.is_forked:  # a work that forked goes on in the child, too
            raise environment.forked_error()
        if self._borrowed:
            self._take_back()
        self.stage = _COMMITTING
        environment.steady.commit(self, self._raw)
        self.stage = COMMITTED
        self._end()
        callbacks, self.callbacks = self.callbacks, ()  # what they hold may lead back here: none becomes garbage
        for callback in callbacks:
            callback()

    def last_tail(self, lsn: int) -> bytes:
        """Return the `tail` of the commit that this one goes on from, if its last record is this one; or nothing."""
        control = self._environment.steady.control
        return b"" if control is None or self.changes else control.tail(lsn)

    def follows(self, last: WriteTransaction) -> bool:
        """Whether nothing was changed, by any process, between another transaction of this process and here.

        LMDB numbers transactions without gaps, but for those that change nothing: the next one has their number again.
        """
        if self.changes:
            return False
        if last.changes:
            return last.number + 1 == self.number and last.stage is COMMITTED
        return last.number == self.number

    def is_commit(self, number: int | None) -> bool:
        """Whether it is the store's commit of that number."""
        return self.stage is COMMITTED and self.changes > 0 and self.number == number

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

    def put_log(self, lsn: int, record: bytes) -> None:
        """Append a record.

        Raises:
            StorageError: the LSN is not above the last one. Facts: lsn.
        """
        self.put(lsn, (record,), _NO_CHANGES)

    def put(  # noqa: C901 - all in one frame: every commit comes through here once
        self, lsn: int, records: Sequence[bytes], changes: Mapping[bytes, bytes | None]
    ) -> None:
        """Append records, and change the index.

        Args:
            lsn: of the first record.
            records: any number.
            changes: payloads by key, to be stored sealed; None removes what is there.

        Raises:
            StorageError: the LSN is not above the last one. Facts: lsn.
        """
        if self._borrowed:
            self._take_back()
        put = self._raw.put
        self.changes += len(records) + len(changes)
        if records and not self.appended:
            self.first_lsn = lsn
        for record in records:
            if armed:
                point("commit.before_put_log")
            self.size_bytes += len(record)
            # dupdata, overwrite, append: LMDB answers False, and stores nothing, where the key is out of order
            if not put(encode_lsn(lsn), record, True, True, True, self._log):
                message = f"record {lsn} was not appended: the log already ends at {self._last_key()}"
                raise StorageError(message, lsn=lsn)
            self.appended.append(record)
            lsn += 1
            if armed:
                point("commit.after_put_log")
        for key, payload in changes.items():
            if payload is None:
                self._raw.delete(key, b"", self._index)
                continue
            if armed:
                point("commit.before_put_index")
            put(key, seal(key, payload), True, True, False, self._index)
            if armed:
                point("commit.after_put_index")

    def replace_log(self, lsn: int, record: bytes) -> None:
        """Put another record in the place of one that is there.

        Raises:
            StorageError: there is no record with that LSN. Facts: lsn.
        """
        self.replace_logs({lsn: record})

    def replace_logs(self, records: dict[int, bytes]) -> None:
        """Put other records in the places of some that are there.

        All are taken out first: LMDB never joins pages that were half emptied by smaller values.

        Args:
            records: by LSN.

        Raises:
            StorageError: there is no record with one of these LSNs; nothing was replaced. Facts: lsn.
        """
        if self._borrowed:
            self._take_back()
        keys = {lsn: encode_lsn(lsn) for lsn in sorted(records)}
        for lsn, key in keys.items():
            if self._raw.get(key, None, self._log) is None:
                message = f"record {lsn} was not replaced: there is none"
                raise StorageError(message, lsn=lsn)
        self.changes += 1
        self.is_steady = True
        self.size_bytes += sum(map(len, records.values()))
        for key in keys.values():
            self._raw.delete(key, b"", self._log)
        for lsn in packing_order(records):
            self._raw.put(keys[lsn], records[lsn], True, True, False, self._log)

    def put_index(self, key: bytes, payload: bytes) -> None:
        """Store `payload` under `key`, sealed."""
        self.put(0, (), {key: payload})

    def write_header_again(self) -> None:
        """Write the header as it is: a transaction that changes nothing, and counts."""
        self.changes += 1
        self.is_steady = True
        meta = self._environment.handles.meta
        self._raw.put(HEADER_KEY, bytes(self._raw.get(HEADER_KEY, None, meta)), True, True, False, meta)

    def delete_index(self, key: bytes) -> None:
        """Remove `key`, if it is there."""
        self.put(0, (), {key: None})
