"""Imports a log. Each record is checked, and keeps its LSN in the store.

The store must be empty, or its log must be the beginning of the exported log. In the second case, the import continues
where the store's log ends. Two logs are equal up to a record if their chain digests agree at that record, because a
chain digest covers all earlier records. The stream may have several consecutive exports. Each must begin where the
previous one ended, or earlier.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from statelog.errors import ConflictError, CorruptionError, FormatError
from statelog.format.record import (
    FLAG_CONTINUES,
    FLAG_VACUUMED,
    FLAGS_AT,
    NO_DIGEST,
    Record,
    Redacted,
    decode_record,
    record_chain_digest,
)
from statelog.log.batch import LogEnd, read_log_end
from statelog.log.care.retention import erase_records
from statelog.log.care.vacuum import redact_removed
from statelog.log.kinds.table import deleted_by, removed_by, version_in
from statelog.log.reader import read_with_digest
from statelog.portable.bodies import read_event
from statelog.portable.events import TIME_US_MAX, check_event
from statelog.portable.frames import LOG, RECORD
from statelog.portable.node_checks import Checked, RecordChecker, damage_at
from statelog.portable.nodes import NodeHeader, read_rows
from statelog.portable.overlay import Overlay
from statelog.portable.reports import ImportReport
from statelog.storage.mapped_pages import MappedPages
from statelog.storage.notify.wake import EVERYBODY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from statelog.log.engine import Engine
    from statelog.log.events import CheckpointEvent, Event
    from statelog.log.transaction import IndexedLog
    from statelog.portable.frames import Frame, FrameReader
    from statelog.storage.write_transaction import WriteTransaction

BATCH_SIZE_BYTES = 4 * 1024 * 1024
BATCH_RECORDS = 512
"""The size in bytes or in records at which the import ends a transaction. Records that an event removes also count.

If a transaction of the source has not ended yet, the import continues to its end, up to `BATCH_STRETCH` times the size.
"""

BATCH_STRETCH = 16
"""The maximum factor by which a transaction of the import is extended."""


_TOUCHED_SIZE_BYTES = 16_384
"""The estimated number of bytes that the check of a record reads from the store."""


class _Taken(NamedTuple):
    data: bytes
    record: Record
    event: Event | Redacted
    rows: dict[int, NodeHeader]
    chain: bytes
    offset: int


class LogImporter:
    """Imports a log into a store."""

    def __init__(
        self,
        engine: Engine,
        reader: FrameReader,
        progress: Callable[[int, int], None] | None,
        *,
        upto: int | None = None,
    ) -> None:
        self._engine = engine
        self._reader = reader
        self._progress = progress
        self._upto = upto
        with engine.read() as view:
            self._start = self._end = read_log_end(view.transaction)
        self._known_lsn, self._known_chain = self._start.lsn, self._start.chain
        """The LSN and chain digest of the last known record, which is in the store or was just read."""
        self._first = self._lsn = reader.header.since
        self._chain = reader.header.chain
        self._read = 0
        self._batch: list[_Taken] = []
        self._batch_size_bytes = self._batch_removed = 0
        self._deleted: list[int] = []
        """Threads whose deletion was imported. Their nodes are erased at the end of the export. If the import ends
        earlier, a compaction erases them.
        """
        self._is_within = False
        """Whether the last stored record is not the last one of its transaction in the source."""
        self._checked = Checked()
        self._mapped = MappedPages(engine.store_file.lmdb_file)
        self._added = 0

    def run(self) -> ImportReport:
        """Import all records, or all whole transactions up to the LSN `upto`.

        Raises:
            ConflictError: the store's log is not the beginning of the imported log, or a compaction of the store has
                erased nodes to which later records refer.
            CorruptionError, FormatError: the export is damaged, or its format is newer. Facts: offset, lsn (the last
                record that was imported). All earlier records are in the store.
        """
        following: FrameReader | None = self._reader
        is_cut = False
        try:
            while following is not None and not is_cut:
                self._begin(following)
                is_cut = self._take_all()
                if not is_cut:
                    self._check_trailer()
                    following = self._reader.following()
        except (CorruptionError, FormatError) as error:
            self._flush(whole_only=True)
            lsn = self._end.lsn
            held = f"the store has the records up to LSN {lsn}" if lsn else "the store is empty"
            message = f"{error.message}; {held}"
            raise type(error)(message, **{**error.facts, "lsn": self._end.lsn}) from error
        self._flush(whole_only=is_cut)
        # Erase nodes only now, because a loan of them may have followed the deletion (V2). With `upto`, the loan may be
        # left out. If the export ends within a transaction, the removal events of a deletion may be missing (R2).
        if not (is_cut or self._is_within):
            for thread in self._deleted:
                erase_records(self._engine, thread)
        return ImportReport(LOG, self._read, self._added, (), self._end.lsn, self._reader.offset)

    # --- where the import joins the log ---------------------------------------------

    def _begin(self, reader: FrameReader) -> None:
        """Start to read one of several consecutive exports."""
        self._reader, header = reader, reader.header
        if header.kind != LOG:
            self._reader.refuse(self._reader.offset, "an export of threads after an export of a log")
        if not header.since and header.chain != NO_DIGEST:
            self._reader.refuse(self._reader.offset, "it has no chain digest before its first record")
        known = self._known_lsn
        if header.since > known:
            message = (
                f"the export begins after LSN {header.since}, but the store ends at {known}:"
                f" import an export since {known} or earlier"
            )
            raise ConflictError(message, since=header.since, last_lsn=known)
        self._lsn, self._chain = header.since, header.chain
        self._check_joint(self._lsn, self._chain)

    def _check_joint(self, lsn: int, chain: bytes) -> None:
        """Check that the stored record `lsn` has the chain digest `chain`. Then all earlier records are also equal."""
        if not 0 < lsn <= self._known_lsn:
            return
        if lsn == self._known_lsn:
            held = self._known_chain
        else:
            if lsn > self._end.lsn:
                self._flush(whole_only=False)
            with self._engine.read() as view:
                held = read_with_digest(view, lsn)[1]
        if held != chain:
            message = (
                f"the store is not an earlier state of the exported store: they differ at LSN {lsn} or earlier,"
                " for example because one of them was purged. An export of threads can be imported into any store"
            )
            raise ConflictError(message, lsn=lsn)

    def _check_trailer(self) -> None:
        trailer = self._reader.trailer
        if trailer["last"] != self._lsn or trailer["chain"] != self._chain:
            self._reader.refuse(self._reader.offset, "its trailer does not match its records")
        self._check_joint(self._lsn, self._chain)

    # --- one record -----------------------------------------------------------------

    def _take_all(self) -> bool:
        """Process the records of one export. Return True if the record `upto` was reached."""
        while (frame := self._reader.read()) is not None:
            if self._upto is not None and self._lsn >= self._upto:
                return True
            self._take(frame)
        return False

    def _take(self, frame: Frame) -> None:
        """Check a record and its position in the chain, and add it to the batch for the next transaction."""
        if frame.kind != RECORD:
            self._reader.refuse(frame.offset, "a frame that does not belong in an export of a log")
        lsn = self._lsn + 1
        with damage_at(frame.offset):
            record = decode_record(frame.payload, lsn)
            event = read_event(record)
            rows = read_rows(frame.payload, record)
            chain = record_chain_digest(frame.payload, record, self._chain)
        if record.previous_chain not in (b"", self._chain):
            self._reader.refuse(frame.offset, f"record {lsn} does not continue the chain")
        if not 0 < record.time_us <= TIME_US_MAX:
            self._reader.refuse(frame.offset, f"the time of record {lsn} is not valid")
        self._lsn, self._chain = lsn, chain
        self._read += 1
        if lsn <= self._known_lsn:
            if lsn == self._known_lsn:
                self._check_joint(lsn, chain)
        else:
            self._known_lsn, self._known_chain = lsn, chain
            self._batch.append(_Taken(frame.payload, record, event, rows, chain, frame.offset))
            self._batch_size_bytes += len(frame.payload)
            self._batch_removed += len(removed_by(event))
            self._flush_if_full(record)
        if self._progress is not None and lsn % 256 == 0:
            last = max(self._reader.header.last, lsn)
            self._progress(lsn - self._first, last - self._first)

    # --- one transaction --------------------------------------------------------------

    def _flush_if_full(self, record: Record) -> None:
        count = len(self._batch) + self._batch_removed
        fill = max(self._batch_size_bytes / BATCH_SIZE_BYTES, count / BATCH_RECORDS)
        if fill >= BATCH_STRETCH or (fill >= 1 and not record.flags & FLAG_CONTINUES):
            self._flush(whole_only=False)

    def _flush(self, *, whole_only: bool) -> None:
        """Check the records in the batch against the store, and commit them.

        Args:
            whole_only: leave out the source's last transaction if its last record has not been read.
        """
        self._mapped.read(self._batch_size_bytes + len(self._batch) * _TOUCHED_SIZE_BYTES)
        batch, self._batch, self._batch_size_bytes, self._batch_removed = self._batch, [], 0, 0
        while whole_only and batch and batch[-1].record.flags & FLAG_CONTINUES:
            batch.pop()
        if not batch:
            return
        self._check_nodes(batch)

        def work(transaction: WriteTransaction) -> LogEnd:
            if read_log_end(transaction) != self._end:
                message = "another writer committed to the store during the import"
                raise ConflictError(message, lsn=self._end.lsn)
            self._engine.check_guarded(transaction)
            # The guard does not apply to a replica of a shared log, because the log already contains these records.
            overlay = Overlay(transaction, None if self._engine.is_shared else self._engine.guard)
            for checked in batch:
                self._stage(overlay, checked)
            overlay.flush(transaction)
            redact_removed(transaction, (lsn for each in batch for lsn in removed_by(each.event)))
            transaction.wakes = EVERYBODY
            last = batch[-1]
            return LogEnd(last.record.lsn, last.chain, last.record.time_us)

        self._end = self._engine.append(work)
        self._added += len(batch)
        self._deleted += [thread for each in batch if (thread := deleted_by(each.event)) is not None]
        self._is_within = bool(batch[-1].record.flags & FLAG_CONTINUES)

    def _stage(self, overlay: Overlay, checked: _Taken) -> None:
        with damage_at(checked.offset):
            if not isinstance(checked.event, Redacted):
                check_event(overlay.view, checked.event, checked.record.lsn, self._checked.checkpoints)
            if (version := version_in(checked.event)) is not None:
                _check_time(overlay, version)
            overlay.stage(checked.data, checked.record, checked.event, checked.rows)

    def _check_nodes(self, batch: list[_Taken]) -> None:
        """Check every node of the batch, and each ref against the store and earlier records."""
        staged = {checked.record.lsn: checked.data for checked in batch}
        with self._engine.read() as view:
            in_store = view.transaction.get_log

            def get_log(lsn: int) -> bytes | memoryview | None:
                data = staged.get(lsn)
                if data is None:
                    self._mapped.read(_TOUCHED_SIZE_BYTES)
                    return in_store(lsn)
                return data

            checker = RecordChecker(get_log, self._checked)
            for checked in batch:
                checker.begin(checked.record.lsn, checked.data)
                with self._erased_here(view.transaction), damage_at(checked.offset):
                    for number, row in checked.rows.items():
                        checker.check(number, row)
                    if not isinstance(checked.event, Redacted):
                        checker.check_roots(checked.event)

    @contextmanager
    def _erased_here(self, transaction: IndexedLog) -> Iterator[None]:
        """Convert an error about a ref to ConflictError if this store has erased the node that the ref names."""
        try:
            yield
        except CorruptionError as error:
            lsn = error.facts.get("refers_to", 0)
            held = transaction.get_log(lsn) if 0 < lsn <= self._start.lsn else None
            if held is None or not held[FLAGS_AT] & FLAG_VACUUMED:
                raise
            message = (
                f"record {error.facts['lsn']} refers to a part of record {lsn} that this store has erased:"
                " it was compacted since the last import; import the whole log into a new store"
            )
            raise ConflictError(message, lsn=error.facts["lsn"]) from error


def _check_time(overlay: Overlay, event: CheckpointEvent) -> None:
    """Raise CorruptionError if a version is not later than the thread's last version (L2)."""
    if event.time_us <= overlay.last_time_us(event.thread):
        message = f"the time of record {event.lsn} is not later than that of the thread's last version"
        raise CorruptionError(message, lsn=event.lsn)
