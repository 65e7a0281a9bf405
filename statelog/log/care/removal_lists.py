"""Finds redacted records that no removal event lists, and completes logs that an older release created (R2).

A removal event comes after the records that it lists. So one pass over the log notes each redacted record, and drops it
again when a removal event lists it. The records left at the end were redacted without appending a removal event, which
no process that has the store open does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.format.record import FLAG_NAMED, FLAG_REDACTED, FLAGS_AT, TYPE_AT, TYPE_MASK, TYPE_REMOVAL, decode_record
from statelog.log.care.vacuum import append_events
from statelog.log.kinds.removals import MARK, removals_of
from statelog.log.kinds.table import decode_event, is_mark, losing_records, removed_by
from statelog.log.view import View
from statelog.storage.mapped_pages import MappedPages

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from statelog.format.record import Record
    from statelog.log.engine import Engine
    from statelog.log.events import Event
    from statelog.storage.read_transaction import ReadTransaction
    from statelog.storage.write_transaction import WriteTransaction


class Names:
    """The redacted records of a pass over the log that no removal event has listed so far, as one bit per record.

    Attributes:
        is_complete: whether the log states that it names every redacted record.
    """

    def __init__(self) -> None:
        self.is_complete = False
        self._unnamed = bytearray()

    def see(self, record: Record, event: Event | None) -> None:
        """Take the next record of the log into account. `event` is None if the record was redacted."""
        if record.flags & FLAG_NAMED or (event is not None and is_mark(event)):
            self.is_complete = True
        if event is not None:
            self._drop(removed_by(event))
        elif record.redacted().had_event:
            self.add(record.lsn)

    def add(self, lsn: int) -> None:
        """Add a record to those that no removal event lists."""
        at = lsn >> 3
        if at >= len(self._unnamed):
            self._unnamed.extend(bytes(at + 1 - len(self._unnamed)))
        self._unnamed[at] |= 1 << (lsn & 7)

    def unnamed(self) -> Iterator[int]:
        """Yield the LSNs of the records that no removal event lists."""
        for at, bits in enumerate(self._unnamed):
            if bits:
                yield from (at << 3 | bit for bit in range(8) if bits & 1 << bit)

    def _drop(self, lsns: Iterable[int]) -> None:
        for lsn in lsns:
            if lsn >> 3 < len(self._unnamed):
                self._unnamed[lsn >> 3] &= ~(1 << (lsn & 7))


def mark_older(engine: Engine) -> None:
    """Complete a log that an older release created: list every redacted record, and append the mark (`MARK`).

    The list has the records that were redacted so far, and the released records of deleted threads. Do nothing to a
    log that is complete.
    """
    names = Names()
    with engine.store_file.read() as transaction:
        for record, event in _records(transaction, MappedPages(engine.store_file.lmdb_file)):
            names.see(record, event)
            if names.is_complete:
                return

    def work(transaction: WriteTransaction) -> None:
        view = View(transaction)
        for thread in view.deleted_threads():
            for lsn in losing_records(view, thread):
                names.add(lsn)
        append_events(transaction, [*removals_of(names.unnamed()), MARK])

    engine.care(work)


def name_again(engine: Engine, lsns: Container[int] | None = None) -> None:
    """Append removal events for redacted records whose removal events were lost. Do nothing to a log without the mark.

    If `lsns` is given, examine only these records.
    """
    names = Names()
    with engine.store_file.read() as transaction:
        for record, event in _records(transaction, MappedPages(engine.store_file.lmdb_file)):
            names.see(record, event)
    unnamed = [lsn for lsn in names.unnamed() if lsns is None or lsn in lsns]
    if names.is_complete and unnamed:
        engine.care(lambda transaction: append_events(transaction, removals_of(unnamed)))


def _records(transaction: ReadTransaction, pages: MappedPages) -> Iterator[tuple[Record, Event | None]]:
    """Yield the first record, the redacted records and the removal records, each with its event or None."""
    for lsn in range(1, transaction.last_lsn() + 1):
        data = transaction.get_log(lsn)
        if data is None:
            continue
        pages.read(len(data))
        if lsn == 1 or data[FLAGS_AT] & FLAG_REDACTED or data[TYPE_AT] & TYPE_MASK == TYPE_REMOVAL:
            record = decode_record(data, lsn)
            yield record, None if record.flags & FLAG_REDACTED else decode_event(record)
        transaction.give_back(data)
