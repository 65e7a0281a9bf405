"""Vacuum: rewrites records without their events and without unreachable nodes, in transactions of bounded size."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

from statelog import kernels
from statelog.format.record import (
    FLAG_REDACTED,
    FLAG_VACUUMED,
    FLAGS_AT,
    TYPE_AT,
    TYPE_MASK,
    decode_record,
    encode_record,
    redact_record,
)
from statelog.log.batch import read_log_end
from statelog.log.index import (
    TO_BE_ERASED,
    enter_redacted,
    forget_shared,
    give_shared,
    redacted_records,
    redacted_state,
)
from statelog.log.kinds.removals import removals_of
from statelog.log.kinds.table import KINDS, apply_event, decode_event, kind_of_event, owner_of
from statelog.log.times import now_us
from statelog.log.view import View
from statelog.storage.mapped_pages import MappedPages
from statelog.tree.node import is_shared_widely

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from statelog.log.engine import Engine
    from statelog.log.events import LoanEvent, RemovalEvent
    from statelog.log.transaction import IndexedLog
    from statelog.storage.write_transaction import WriteTransaction

NOBODY = 0
"""The owner number of records that belong to no thread."""

RECORDS_PER_TRANSACTION_MAX = 64
"""The maximum number of records that one transaction rewrites. Rewriting small records then holds the writer lock for
one or two milliseconds.
"""

_TOUCHED_SIZE_BYTES = 128 * 1024
"""The bytes of the map that rewriting a record touches: pages of the record, its neighbours and the index."""

_GAP_SIZE_BYTES_MAX = 16 * 1024
"""The size below which the unchanged records between two rewritten records are also rewritten."""


class Rewritable(NamedTuple):
    """A record to rewrite: its LSN, its owner, and its new owner if the owner changes."""

    lsn: int
    thread: int
    heir: int | None = None


@dataclass(slots=True)
class RetentionReport:
    """The numbers of versions, nodes and bytes that retention or a deletion has removed."""

    threads: int = 0
    expired_versions: int = 0
    """The number of removed versions, including versions of a deleted thread."""
    vacuumed_nodes: int = 0
    freed_bytes: int = 0
    pending_records: int = 0
    """The number of records of deleted threads that could not be erased. `Store.prune`, or deleting the thread again,
    erases them.
    """

    def add(self, other: RetentionReport) -> None:
        """Add another report to this one."""
        self.threads += other.threads
        self.expired_versions += other.expired_versions
        self.vacuumed_nodes += other.vacuumed_nodes
        self.freed_bytes += other.freed_bytes
        self.pending_records += other.pending_records


class Alive(Protocol):
    """Decides which nodes are kept."""

    def is_alive(self, lsn: int, number: int, /) -> bool:
        """Return True if a node is to be kept."""


class EveryNode:
    """An `Alive` that keeps all nodes."""

    def is_alive(self, _lsn: int, _number: int) -> bool:
        """Return True for every node."""
        return True


class _Direct:
    """Writes index changes directly into a transaction, without a batch."""

    def __init__(self, transaction: WriteTransaction) -> None:
        self.view = View(transaction)
        self.get_index = transaction.get_index
        self.put_index = transaction.put_index
        self.delete_index = transaction.delete_index


def fits_transaction(transaction: IndexedLog, lsns: Iterable[int], size_bytes_max: int) -> Iterator[int]:
    """Yield the first LSN, and the following LSNs that the same transaction may rewrite.

    Args:
        transaction: reads the records.
        lsns: LSNs of the records in the order of rewriting.
        size_bytes_max: limit on the sum of the records' current sizes; see `DiskReserve.rewrite_size_bytes_max`.
    """
    size_bytes = 0
    for count, lsn in enumerate(lsns):
        if count == RECORDS_PER_TRANSACTION_MAX or size_bytes >= size_bytes_max:
            return
        size_bytes += len(transaction.get_log(lsn) or b"")
        yield lsn


def write_in_portions(
    engine: Engine,
    records: Sequence[Rewritable],
    write: Callable[[WriteTransaction, Sequence[Rewritable]], RetentionReport],
) -> Iterator[tuple[int, RetentionReport]]:
    """Rewrite records in order, in transactions as large as allowed. Yield each one's record count and report."""
    at = 0
    mapped = MappedPages(engine.store_file.lmdb_file)
    while at < len(records):

        def work(transaction: WriteTransaction, at: int = at) -> tuple[int, RetentionReport]:
            lsns = (record.lsn for record in records[at : at + RECORDS_PER_TRANSACTION_MAX])
            count = sum(1 for _lsn in fits_transaction(transaction, lsns, transaction.rewrite_size_bytes_max))
            return count, write(transaction, records[at : at + count])

        count, report = engine.care(work)
        mapped.read(count * _TOUCHED_SIZE_BYTES)
        at += count
        yield count, report


def redact_released(engine: Engine, owner: int) -> RetentionReport:
    """Redact the released records of an owner in the order of the log. Their nodes stay until a sweep."""
    with engine.read() as view:
        states = redacted_records(view, owner)
    records = [Rewritable(lsn, owner) for lsn, state in states.items() if state == TO_BE_ERASED]
    report = RetentionReport()
    for _count, step in write_in_portions(engine, records, lambda within, some: rewrite(within, some, EveryNode())):
        report.add(step)
    return report


def redact_removed(transaction: WriteTransaction, lsns: Iterable[int]) -> None:
    """Redact the records of a removal event, except those that are already redacted in this copy. Keep their nodes."""
    view = View(transaction)
    records = []
    for lsn in lsns:
        record = view.record(lsn)
        if not record.flags & FLAG_REDACTED:
            records.append(Rewritable(lsn, owner_of(decode_event(record), lsn)))
    if records:
        rewrite(transaction, records, EveryNode(), are_named=True)


def rewrite(
    transaction: WriteTransaction, records: Iterable[Rewritable], marks: Alive, *, are_named: bool = False
) -> RetentionReport:
    """Redact records, erase their unmarked nodes, and update the index.

    Append a removal event that lists the records that now lose their event. The removal event removes the index entries
    of these records here and in every copy of the log (R2). The records of a deleted thread were listed when the thread
    was deleted.

    Args:
        transaction: the transaction in which the records are rewritten.
        records: the records.
        marks: decides which nodes are kept.
        are_named: True if an imported removal event already lists the records.
    """
    report = RetentionReport()
    index = _Direct(transaction)
    records = list(records)
    owners = {record.thread for record in records}
    deleted = {owner for owner in owners if owner != NOBODY and not index.view.is_alive(owner)}
    unnamed: list[int] = []
    rewritten: dict[int, bytes] = {}
    states: dict[int, dict[int, int | None]] = {}
    for lsn, thread, heir in records:
        data = transaction.get_log(lsn)
        if data is None:
            continue
        old = bytes(data)
        flags = old[FLAGS_AT]
        rows = kernels.record_rows(old)
        alive = {number for number in rows if marks.is_alive(lsn, number)}
        if len(alive) < len(rows) or heir is not None or not flags & FLAG_REDACTED:
            if thread not in deleted and _is_to_be_named(old, lsn, loses_nodes=len(alive) < len(rows)):
                unnamed.append(lsn)
            owner, field = thread if heir is None else heir, KINDS[old[TYPE_AT] & TYPE_MASK].borrowed_field
            new = rewritten[lsn] = redact_record(old, lsn, owner, alive=alive, rows=rows, borrowed_field=field)
            for number, digest in shared_nodes(old, rows, rows.keys() - alive):
                forget_shared(index, digest, lsn, number)
            report.vacuumed_nodes += len(rows) - len(alive)
            report.freed_bytes += len(old) - len(new)
            flags = new[FLAGS_AT]
        state = redacted_state(is_vacuumed=bool(flags & FLAG_VACUUMED), holds_nodes=bool(alive))
        states.setdefault(thread, {})[lsn] = state if heir is None else None
        if heir is not None:
            states.setdefault(heir, {})[lsn] = state
            for number, digest in shared_nodes(old, rows, alive):
                give_shared(index, digest, lsn, number, heir)
    if not are_named:
        append_events(transaction, removals_of(unnamed))
    transaction.replace_logs(rewritten | _between(transaction, sorted(rewritten)))
    for thread, changes in states.items():
        enter_redacted(index, thread, changes)
    return report


def append_events(transaction: WriteTransaction, events: Iterable[RemovalEvent | LoanEvent]) -> None:
    """Append events to the log, and apply them to the index."""
    index = _Direct(transaction)
    for event in events:
        end = read_log_end(transaction)
        kind, lsn = kind_of_event(event), end.lsn + 1
        data, _chain = encode_record(
            kind.type, lsn=lsn, time_us=now_us(), previous_chain=end.chain, body=kind.encode(event, lsn)
        )
        transaction.put_log(lsn, data)
        apply_event(index, event, lsn)


def _is_to_be_named(old: bytes, lsn: int, *, loses_nodes: bool) -> bool:
    """Return True if a removal event must list a rewritten record, because the rewrite removes other evidence.

    The evidence is the event or, in a record that never had one, the list of nodes: see `Redacted.had_event`.
    """
    flags = old[FLAGS_AT]
    if not flags & FLAG_REDACTED:
        return True
    return loses_nodes and not flags & FLAG_VACUUMED and not decode_record(old, lsn).redacted().had_event


def _between(transaction: WriteTransaction, lsns: list[int]) -> dict[int, bytes]:
    """Return the small records between the rewritten ones. If all are written back in order, they share pages."""
    found: dict[int, bytes] = {}
    for low, high in pairwise(lsns):
        gap: dict[int, bytes] = {}
        size_bytes = 0
        for lsn in range(low + 1, high):
            data = transaction.get_log(lsn)
            size_bytes += _GAP_SIZE_BYTES_MAX if data is None else len(data)
            if size_bytes >= _GAP_SIZE_BYTES_MAX:
                break
            gap[lsn] = bytes(data or b"")
        else:
            found |= gap
    return found


def shared_nodes(
    data: bytes, rows: Mapping[int, tuple[int, bytes, int, int, int]], numbers: Iterable[int]
) -> Iterator[tuple[int, bytes]]:
    """Yield the number and digest of each widely shared node among the given nodes of a record."""
    for number in sorted(numbers):
        type_, digest, at, content_size, _total_size = rows[number]
        if is_shared_widely(type_, content_size, data[at]):
            yield number, digest
