"""Sweep: removes the nodes that no version of any thread reaches, over the whole store.

The retention of one thread keeps all nodes that other threads have borrowed (V2), because it does not know whether
those threads still need the nodes. A sweep examines all threads. A node of a redacted record stays if the record of
some version leads to it. Refs lead to earlier records, or stay within their record. So one pass from the last record to
the first meets all refs to a record before the record itself, and needs two bits for each node.

A record with nodes that other threads reach loses its owner (thread 0), so that only a sweep examines it again. If the
node that another thread borrowed has itself been removed, the owner's retention no longer knows that it must keep the
nodes below it. The same is true of nodes below a record without an owner. If such nodes are in redacted records, these
records lose their owners in the same sweep. The sweep also stages a copy reference (loan) of the owner to thread 0, so
that the owner keeps all nodes of its records so far until the next sweep (V2). It does so even if all of these records
lose their owner: a copy of the log that imported some of them before the sweep does not learn of their new owner.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import groupby, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, overload

from statelog import kernels
from statelog.errors import CorruptionError
from statelog.format import keys
from statelog.format.purge_key import read_purged_lsn
from statelog.format.record import ENVELOPE_SIZE_BYTES, FLAG_REDACTED, TYPE_AT, TYPE_MASK, decode_record, redact_record
from statelog.log.care.loans import ANYONE, lent_to_anyone_below
from statelog.log.care.vacuum import (
    NOBODY,
    RetentionReport,
    Rewritable,
    append_events,
    redact_released,
    rewrite,
    shared_nodes,
    write_in_portions,
)
from statelog.log.events import LoanEvent
from statelog.log.index import TO_BE_ERASED, is_borrowed
from statelog.log.kinds.table import KINDS, decode_event, kind_of, others_of, owner_of
from statelog.log.view import View
from statelog.storage.mapped_pages import MappedPages
from statelog.tree.check import check_node
from statelog.tree.node import CHUNK, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from statelog.log.engine import Engine
    from statelog.log.kinds.kind import NodeRef
    from statelog.log.transaction import IndexedLog
    from statelog.storage.read_transaction import ReadTransaction
    from statelog.storage.write_transaction import WriteTransaction

_RECORDS_PER_READ = 256
"""The number of records that one read transaction reads. The transaction must be short, because it keeps pages from
reuse.
"""

_REACHED, _FOREIGN = 1, 2
"""The two bits of a node: a version reaches it, and a version of another thread reaches it."""


def sweep_store(engine: Engine, *, progress: Callable[[int, int], None] | None = None) -> RetentionReport:
    """Vacuum all redacted records in bounded transactions, while other threads commit.

    This takes up to 40 bytes of memory for each redacted record with nodes, and 2 bits for each of the nodes. Versions
    that are read take 8 bytes each, and a few hundred bytes for each of their threads and branches.

    Args:
        engine: the store.
        progress: called with (records read, records to read).

    Raises:
        CorruptionError: a record cannot be read. No node was removed.
    """
    report = RetentionReport()
    with engine.read() as view:
        owners = [owner for owner in _releasing(view) if owner == NOBODY or view.is_alive(owner)]
    for owner in owners:
        report.add(redact_released(engine, owner))
    sweep = _Sweep(engine)
    if sweep.is_needed or sweep.lenders:
        sweep.scan(progress)

        def write(transaction: WriteTransaction, some: Sequence[Rewritable]) -> RetentionReport:
            sweep.catch_up(transaction)
            sweep.lend(transaction, some)
            return rewrite(transaction, some, sweep)

        records = sweep.to_rewrite()
        for _count, step in write_in_portions(engine, records, write):
            report.add(step)
        if sweep.lenders and not records:
            engine.care(lambda transaction: sweep.lend(transaction, ()))
    return report


def sweepable_sizes(engine: Engine, records_max: int) -> dict[int, int] | None:
    """Return the number of bytes that `sweep_store` would remove from each record, by LSN. Change nothing.

    Args:
        engine: the store.
        records_max: the maximum number of records to read. If more are needed, return None.

    Raises:
        CorruptionError: a record cannot be read.
    """
    sweep = _Sweep(engine)
    if sweep.visits > records_max:
        return None
    sweep.scan(None)
    found: dict[int, int] = {}
    records = sweep.to_rewrite()
    for start in range(0, len(records), _RECORDS_PER_READ):
        with engine.read() as view:
            for lsn, thread, _heir in records[start : start + _RECORDS_PER_READ]:
                data = view.transaction.get_log(lsn)
                if data is None:
                    continue
                old = bytes(data)
                field = KINDS[old[TYPE_AT] & TYPE_MASK].borrowed_field
                alive = [number for number in kernels.record_rows(old) if sweep.is_alive(lsn, number)]
                found[lsn] = len(old) - len(redact_record(old, lsn, thread, alive=alive, borrowed_field=field))
    return found


class _Sweep:
    """One sweep: the redacted records with nodes up to the LSN `_seen`, and a mark for each reached node."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._mapped = MappedPages(engine.store_file.lmdb_file)
        self._lsns = array("Q")
        self._threads = array("Q")
        self._starts = array("Q")
        """The index of each record's first pair of bits: node n of record i has the pair `starts[i] + n`."""
        with engine.store_file.read() as transaction:
            view = View(transaction)
            self._seen = transaction.last_lsn()
            held = _held(view)
            threads = {thread for thread, _lsns in held}
            pairs = 0
            for lsn, thread in heapq.merge(*(zip(lsns, repeat(thread)) for thread, lsns in held)):
                self._lsns.append(lsn)
                self._threads.append(thread)
                self._starts.append(pairs)
                pairs += _node_count(transaction, lsn)
                self._mapped.read(ENVELOPE_SIZE_BYTES)
            self._starts.append(pairs)
            is_lent = NOBODY in threads or any(
                view.lent_below(thread) or next(transaction.scan_index(keys.encode_borrowed_prefix(thread)), None)
                for thread in threads
            )
            # If these threads have lent no nodes, visit only their own records, because no others lead to them.
            self._visited = range(1, self._seen + 1) if is_lent else _records_of(view, threads, self._lsns)
            self.lenders = _lenders_of_equal_nodes(transaction)
            """Owners that have to lend their nodes to anyone, and the greatest LSN of their records with such nodes.

            The scan adds the owners of nodes below records without an owner.
            """
        self._bits = bytearray(pairs // 4 + 1)

    @property
    def is_needed(self) -> bool:
        """Whether there is a redacted record with nodes."""
        return len(self._lsns) > 0

    @property
    def visits(self) -> int:
        """The number of records to read."""
        return len(self._visited)

    def is_alive(self, lsn: int, number: int) -> bool:
        """Return True if a node is reached, or is not in one of the redacted records."""
        index = self._find(lsn)
        return index is None or bool(self._get(index, number))

    def scan(self, progress: Callable[[int, int], None] | None) -> None:
        """Visit all records that may lead to the redacted ones, from the last to the first."""
        whole = len(self._visited)
        for end in range(whole, 0, -_RECORDS_PER_READ):
            start = max(end - _RECORDS_PER_READ, 0)
            with self._engine.read() as view:
                for lsn in reversed(self._visited[start:end]):
                    self._visit(view.transaction, lsn)
            if progress is not None:
                progress(whole - start, whole)

    def catch_up(self, transaction: WriteTransaction) -> None:
        """Visit the records committed since the scan, and all redacted records that they lead to (V1)."""
        last = transaction.last_lsn()
        for lsn in range(self._seen + 1, last + 1):
            pending = self._visit(transaction, lsn)
            while pending:
                pending += self._visit(transaction, pending.pop())
        self._seen = last

    def lend(self, transaction: WriteTransaction, some: Sequence[Rewritable]) -> None:
        """Stage loans to thread 0 for the owners whose later retention would not know which nodes to keep (V2).

        These are `lenders`, and the owners of the records `some` that lose a borrowed node which leads out of its
        record.
        """
        view = View(transaction)
        needed = dict(self.lenders)
        owners = {thread for _lsn, thread, _heir in some} - {NOBODY}
        lending = {each for each in owners if any(transaction.scan_index(keys.encode_borrowed_prefix(each)))}
        for lsn, thread, _heir in some:
            data = transaction.get_log(lsn) if thread in lending else None
            if data is not None and self._loses_borrowed_path(transaction, lsn, bytes(data)):
                needed[thread] = max(needed.get(thread, 0), lsn)
        lenders = [owner for owner, lsn in needed.items() if lent_to_anyone_below(view, owner) <= lsn]
        append_events(transaction, [LoanEvent(ANYONE, owner, []) for owner in sorted(lenders)])

    def _loses_borrowed_path(self, transaction: IndexedLog, lsn: int, data: bytes) -> bool:
        """Return True if a record loses a node that another thread borrowed, and has a node that leads out of it."""
        rows = kernels.record_rows(data)
        gone = {number for number in rows if not self.is_alive(lsn, number)}
        if not any(is_borrowed(transaction, digest, lsn, number) for number, digest in shared_nodes(data, rows, gone)):
            return False
        return any(
            child_lsn != lsn
            for type_, _digest, at, content_size, total_size in rows.values()
            if type_ in (ROOT, CHUNK)
            for _type, _child, child_lsn, _number in check_node(type_, data[at : at + total_size], content_size, lsn)
        )

    def to_rewrite(self) -> Sequence[Rewritable]:
        """Return the records that lose nodes or their owner, the last record first."""
        found = array("q")
        for start in range(0, len(self._lsns), _RECORDS_PER_READ):
            with self._engine.read() as view:
                for index in range(start, min(start + _RECORDS_PER_READ, len(self._lsns))):
                    lsn, thread = self._lsns[index], self._threads[index]
                    data = view.transaction.get_log(lsn)
                    if data is None:
                        continue
                    self._mapped.read(len(data))
                    bits = [self._get(index, number) for number, row in enumerate(kernels.record_nodes(data)) if row[0]]
                    if thread != NOBODY and self._is_foreign(index):
                        found.append(~index)
                    elif not all(bits):
                        found.append(index)
        found.reverse()
        return _Rewritables(self._lsns, self._threads, found)

    # --- following --------------------------------------------------------------

    def _visit(self, transaction: IndexedLog, lsn: int) -> list[int]:
        """Mark the nodes that a record leads to. Return the other redacted records with a newly marked node."""
        data = transaction.get_log(lsn)
        if data is None:
            return []
        self._mapped.read(len(data))
        index = self._find(lsn)
        record = decode_record(data, lsn)
        kind = kind_of(record)
        roots: Iterable[NodeRef] = ()
        if record.flags & FLAG_REDACTED:
            thread = record.redacted().thread
        elif kind.root_field is None:
            return []
        else:
            event = decode_event(record)
            thread, roots = kind.owner(event, lsn), kind.roots(event)
        marked = [at for _type, _digest, at, number in roots if self._mark(at, number, thread, is_foreign=False)]
        rows = kernels.record_nodes(data)
        # All nodes of a record without an owner stay until a sweep, and so must the nodes below them (T5).
        is_foreign = index is not None and self._is_foreign(index)
        below: set[int] = set()
        pending = [number for number in range(len(rows)) if index is None or self._get(index, number)]
        while pending:
            number = pending.pop()
            type_, _digest, at, content_size, total_size = rows[number]
            if type_ not in (ROOT, CHUNK):
                continue
            node = bytes(data[at : at + total_size])
            for _type, _child_digest, child_lsn, child_number in check_node(type_, node, content_size, lsn):
                below.add(child_lsn)
                if self._mark(child_lsn, child_number, thread, is_foreign=is_foreign):
                    if child_lsn == lsn:
                        pending.append(child_number)
                    else:
                        marked.append(child_lsn)
        self._note_lenders(transaction, below - {lsn} if is_foreign else ())
        return marked

    def _is_foreign(self, index: int) -> bool:
        """Return True if a record has no owner, or loses it in this sweep."""
        nodes = range(self._starts[index + 1] - self._starts[index])
        return self._threads[index] == NOBODY or any(self._get(index, number) & _FOREIGN for number in nodes)

    def _note_lenders(self, transaction: IndexedLog, lsns: Iterable[int]) -> None:
        """Add the owners of records to `lenders`."""
        for lsn in lsns:
            index = self._find(lsn)
            data = transaction.get_log(lsn) if index is None else None
            if index is not None:
                owner = self._threads[index]
            elif data is not None:
                self._mapped.read(len(data))
                record = decode_record(data, lsn)
                owner = (
                    record.redacted().thread if record.flags & FLAG_REDACTED else owner_of(decode_event(record), lsn)
                )
            else:
                continue
            if owner != NOBODY:
                self.lenders[owner] = max(self.lenders.get(owner, 0), lsn)

    def _mark(self, lsn: int, number: int, thread: int, *, is_foreign: bool) -> bool:
        """Mark a node as reached from a record of `thread`. Return True if the mark is new."""
        index = self._find(lsn)
        if index is None:
            return False
        pair = self._starts[index] + number
        if pair >= self._starts[index + 1]:
            message = f"record {lsn} has no node {number}, but a node refers to it"
            raise CorruptionError(message, lsn=lsn, node=number)
        before = self._get(index, number)
        after = before | _REACHED | (_FOREIGN if is_foreign or self._threads[index] != thread else 0)
        self._bits[pair >> 2] |= after << 2 * (pair & 3)
        return after != before

    def _get(self, index: int, number: int) -> int:
        pair = self._starts[index] + number
        return self._bits[pair >> 2] >> 2 * (pair & 3) & 3

    def _find(self, lsn: int) -> int | None:
        index = bisect_left(self._lsns, lsn)
        return index if index < len(self._lsns) and self._lsns[index] == lsn else None


class _Rewritables(Sequence[Rewritable]):
    """Some records of a sweep, stored as their indices.

    For a record that loses its owner, the bitwise complement of the index is stored.
    """

    def __init__(self, lsns: array[int], threads: array[int], indices: array[int]) -> None:
        self._lsns = lsns
        self._threads = threads
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, at: int) -> Rewritable: ...
    @overload
    def __getitem__(self, at: slice) -> list[Rewritable]: ...
    def __getitem__(self, at: int | slice) -> Rewritable | list[Rewritable]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        index = self._indices[at]
        heir = None if index >= 0 else NOBODY
        index = index if index >= 0 else ~index
        return Rewritable(self._lsns[index], self._threads[index], heir)


def _lenders_of_equal_nodes(transaction: ReadTransaction) -> dict[int, int]:
    """Return the owners of nodes that equal a later node and are not shown as borrowed, with the greatest LSN of each.

    A purge may make a borrowed node equal to a later one, which the index then shows as borrowed in its place. Earlier
    builds did not lend such nodes to the threads that had borrowed them (V2). Ignore nodes that no purge has rewritten.
    """
    purged_lsn = read_purged_lsn(transaction)
    lenders: dict[int, int] = {}
    for _key, payload in transaction.scan_index(b"O") if purged_lsn else ():
        place = keys.decode_place(payload)
        if place.lsn <= purged_lsn and place.thread != NOBODY and not place.is_borrowed:
            lenders[place.thread] = max(lenders.get(place.thread, 0), place.lsn)
    return lenders


def _held(view: View) -> list[tuple[int, array[int]]]:
    """Return each thread with the LSNs of its redacted records that have nodes, ascending."""
    return [
        (thread, array("Q", map(itemgetter(1), found))) for thread, found in groupby(_each_held(view), itemgetter(0))
    ]


def _each_held(view: View) -> Iterator[tuple[int, int]]:
    return ((thread, lsn) for thread, lsn, state in _listed(view) if state != TO_BE_ERASED)


def _releasing(view: View) -> set[int]:
    return {thread for thread, _lsn, state in _listed(view) if state == TO_BE_ERASED}


def _listed(view: View) -> Iterator[tuple[int, int, int]]:
    """Yield thread, LSN and state of the records under key `r`."""
    for key, payload in view.transaction.scan_index(b"r"):
        thread = keys.decode_redacted_thread(key)
        yield from ((thread, lsn, state) for lsn, state in keys.decode_redacted_page(key, payload).items())


def _records_of(view: View, threads: Iterable[int], held: Iterable[int]) -> array[int]:
    """Return the LSNs of some threads' records that have roots, and of the redacted records `held`, ascending."""
    runs = [array("Q", held)]
    for thread in threads:
        runs.append(array("Q", others_of(view, thread)))
        branches = [row.number for row in view.branches(thread)]
        runs += [array("Q", (entry.lsn for _version, entry in view.entries(thread, branch))) for branch in branches]
    return array("Q", heapq.merge(*runs))


def _node_count(transaction: ReadTransaction, lsn: int) -> int:
    data = transaction.get_log(lsn)
    if data is None:
        return 0
    count = kernels.record_open(data).node_count
    transaction.give_back(data)  # Without this, all records would stay lent until the last one is counted.
    return count
