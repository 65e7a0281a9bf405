"""What waits for LMDB (`deferred`), and the transaction of a commit that is to."""

from __future__ import annotations

from heapq import merge
from operator import itemgetter
from typing import TYPE_CHECKING, NoReturn

from statelog.format.seal import seal, unseal
from statelog.kernels.marks import WaitingMarks
from statelog.storage.commit.transaction import Stage, WriteTransaction
from statelog.storage.file.reading import ReadTransaction

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from statelog.storage.commit.deferred import Deferred
    from statelog.storage.environment import Environment


class NotDeferrableError(Exception):
    """A commit needs a transaction of LMDB's: nothing was done. It never reaches a caller."""


class _NotBegun:
    """Stands where LMDB's transaction would be."""

    def __getattr__(self, name: str) -> NoReturn:
        raise NotDeferrableError


_NOT_BEGUN = _NotBegun()


class DeferredTransaction(WriteTransaction):
    """Commits that are to wait: what waits counts as committed. It takes nothing away."""

    _raw = _NOT_BEGUN
    reader: ReadTransaction | None = None
    """A look at what does not wait, where one was needed."""
    stage = Stage.BEGUN
    waiting: Waiting
    """What waited when it began; by now LMDB may have it."""

    def __init__(self, environment: Environment, deferred: Deferred) -> None:
        self._environment = environment  # and no call of super(), as there
        self._borrowed = []
        self.appended = []
        self.is_flushed = environment.is_flushed_at_commit
        self._deferred = deferred
        self.rows: dict[bytes, bytes] = {}
        """What it puts into the index: sealed, by key."""

    def _snapshot_id(self) -> int:
        return self._deferred.number

    def mapped(self) -> tuple[int, int, int]:
        """Return where LMDB's map lies, and which commit is read in it; see `ReadTransaction.mapped`."""
        environment = self._environment
        return environment.map_address, environment.handles.page_size_bytes, self._deferred.number

    def _last_of_lmdb(self) -> ReadTransaction:
        """Return a look at what does not wait."""
        reader = self.reader
        if reader is None:
            reader = ReadTransaction(self._environment)
            reader.begin_ungated()
            self.reader = reader  # not before: `abort` ends it
        return reader

    def get_log(self, lsn: int) -> memoryview | None:
        """Return a record: of this transaction, one that waits, or one of LMDB's."""
        if self.appended and lsn >= self.first_lsn:
            return _nth(self.appended, lsn - self.first_lsn)
        waiting = self.waiting
        if waiting.records and lsn >= waiting.first_lsn:
            return _nth(waiting.records, lsn - waiting.first_lsn)
        return self._last_of_lmdb().get_log(lsn)

    def get_index(self, key: bytes) -> bytes | None:
        """Return the payload under `key`; see `ReadTransaction.get_index`."""
        value = self.rows.get(key) or self.waiting.rows.get(key)
        return self._last_of_lmdb().get_index(key) if value is None else unseal(key, value)

    def scan_index(self, prefix: bytes, *, start: bytes = b"", reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys that begin with `prefix`, with their payloads; see `ReadTransaction.scan_index`."""
        rows = {**self.waiting.rows, **self.rows}
        keys = [
            key for key in rows if key.startswith(prefix) and (not start or (key <= start if reverse else key >= start))
        ]
        ours = ((key, unseal(key, rows[key])) for key in sorted(keys, reverse=reverse))
        lmdbs = self._last_of_lmdb().scan_index(prefix, start=start, reverse=reverse)
        last = None
        for key, payload in merge(ours, lmdbs, key=itemgetter(0), reverse=reverse):  # of equal keys, ours come first
            if key != last:
                yield key, payload
            last = key

    def put(self, lsn: int, records: Sequence[bytes], changes: Mapping[bytes, bytes | None]) -> None:
        """Append records, and put into the index; see `WriteTransaction.put`."""
        rows = {}
        for key, payload in changes.items():
            if payload is None:
                raise NotDeferrableError
            rows[key] = seal(key, payload)
        self._append(lsn, records)
        self.rows.update(rows)
        self.changes += len(rows)

    def put_checkpoint(self, lsn: int, log_key: bytes, record: bytes, rows: Mapping[bytes, bytes]) -> None:  # noqa: ARG002
        """Append a record, and put into the index what is sealed already."""
        if self.appended:
            self._append(lsn, (record,))
        else:  # nearly always
            self.first_lsn = lsn
            self.appended.append(record)
            self.changes += 1
            self.size_bytes = len(record)
        self.rows.update(rows)
        self.changes += len(rows)

    def _append(self, lsn: int, records: Sequence[bytes]) -> None:
        if not self.appended:
            self.first_lsn = lsn
        elif lsn != self.first_lsn + len(self.appended):
            raise NotDeferrableError
        self.appended += records
        self.changes += len(records)
        self.size_bytes += sum(map(len, records))

    def end_reading(self) -> None:
        """Let go of what does not wait."""
        reader, self.reader = self.reader, None
        if reader is not None:
            reader.__exit__(None, None, None)

    def abort(self) -> None:
        """Drop the changes, and let go of everything; harmless after the transaction has ended."""
        deferred, environment = self._deferred, self._environment
        if self.stage is not Stage.COMMITTED:
            self.number = 0  # nothing follows it
        if deferred.transaction is self:
            deferred.transaction = None
        if not environment.is_forked:
            self.end_reading()
            if self in environment.active_transactions:
                environment.writer_thread = 0
                environment.active_transactions.discard(self)


def _nth(records: list[bytes], index: int) -> memoryview | None:
    return memoryview(records[index]) if index < len(records) else None


class Waiting(WaitingMarks):
    """What waits for one transaction of LMDB's."""

    def __init__(self) -> None:
        self.first_lsn = 0
        self.records: list[bytes] = []
        """From `first_lsn` on, in order."""
        self.rows: dict[bytes, bytes] = {}
        """Of the index, by key, as the last transaction left them: sealed."""
        self.size_bytes = self.count = 0
        """What the records take of LMDB's file; transactions. Bounds: what is interrupted may count twice."""
        self.last: DeferredTransaction | None = None
        """None: nothing waits."""
