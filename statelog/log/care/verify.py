"""Verifies a store. Each problem cites the number of an invariant in DESIGN.md."""

from __future__ import annotations

import contextlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from statelog import kernels
from statelog.errors import CorruptionError, ForgeryError, FormatError, RollbackError, StatelogError
from statelog.format.record import FLAG_REDACTED, NO_DIGEST, Record, decode_record, record_chain_digest
from statelog.kernels.verify import RecordVerifier
from statelog.log.anchors import ExpectedHistory
from statelog.log.care.rebuild import DerivedIndex
from statelog.log.care.removal_lists import Names
from statelog.log.index import TO_BE_ERASED, node_facts, redacted_records
from statelog.log.kinds.table import apply_record, decode_event, kind_of, owner_of, removed_by
from statelog.log.view import View
from statelog.storage.mapped_pages import MappedPages
from statelog.storage.page_walk import check_pages
from statelog.tree.check import check_node
from statelog.tree.node import node_digest

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from statelog.kernels.verify import RecordFacts
    from statelog.log.engine import Engine
    from statelog.log.index import NodeFacts
    from statelog.storage.read_transaction import ReadTransaction

    Batch = list[tuple[int, memoryview]]
    Progress = Callable[[int, int], None]

PROBLEMS_MAX = 1000
_BATCH_SIZE_BYTES = 512 * 1024
"""The size of the records that the kernel checks in one call. This takes a millisecond."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A violated invariant: its number, the record (0 if unknown), a message, and the node if it is known."""

    invariant: str
    lsn: int
    message: str
    node: int | None = None


@dataclass(slots=True)
class VerifyReport:
    """The result of a verification.

    Attributes:
        problems: the violations; empty for a sound store.
        records: the number of records.
        nodes: the number of nodes that were checked.
        bytes: the size of the records.
        removed_since_anchor: records up to the expected anchor that later records list as removed. Retention and
            deletion remove records in this way. In a store without a key, anybody who can write the file can do the
            same.
        unnamed: redacted records that no record lists, in a log that an older release created. Nothing shows who
            redacted these records. After a `compact`, every later redaction must be listed.
    """

    problems: list[Problem] = field(default_factory=list)
    records: int = 0
    nodes: int = 0
    bytes: int = 0
    removed_since_anchor: int = 0
    unnamed: int = 0

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return not self.problems

    def add(self, invariant: str, lsn: int, message: str, node: int | None = None) -> None:
        """Add a problem, unless there are `PROBLEMS_MAX` already."""
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(Problem(invariant, lsn, message, node))


class _Verifier:
    """One pass over the log in order, which checks each node in its record.

    The digest of a node proves its content. Each ref of the node must lead to a node with the named digest, in the same
    record or an earlier one. By induction, every state is complete.

    A kernel checks whole records. Only a record that it rejects is checked again node by node, to find the problems.
    """

    def __init__(self, transaction: ReadTransaction, *, deep: bool, anchor_lsn: int) -> None:
        self.report = VerifyReport()
        self._anchor_lsn = anchor_lsn
        self._names = Names()
        self._transaction = transaction
        self._kernel = RecordVerifier() if deep else None
        self._index: DerivedIndex | None = DerivedIndex(transaction)
        self.last_lsn = 0
        self._chain = NO_DIGEST
        """The chain digest so far. After damage it is unknown and empty, until a record stores the chain digest before
        it.
        """
        self._said_lsn = 1
        """The last LSN whose record stores the chain digest before it. The chain was checked up to this record."""
        self._times_us: dict[int, int] = {}
        """The time of the last version of each thread."""

    def check_nodes(self, batch: Batch) -> list[RecordFacts | None]:
        """Let the kernel check the nodes of a batch of records. Any OS thread may call this, one batch at a time."""
        if self._kernel is None:
            return [None] * len(batch)
        return self._kernel.check(batch)

    def visit(self, lsn: int, data: memoryview, found: RecordFacts | None) -> None:
        """Check one record, after `check_nodes`."""
        if lsn != self.last_lsn + 1:
            self.report.add("L1", self.last_lsn + 1, f"record {self.last_lsn + 1} is missing: the next record is {lsn}")
            self._index = None
            self._chain = b""
        self.last_lsn = lsn
        self.report.records += 1
        self.report.bytes += len(data)
        try:
            self._check(lsn, data, found)
        except StatelogError as error:
            self.report.add("R1", lsn, error.message)
            self._index = None
            self._chain = b""

    def _check(self, lsn: int, data: memoryview, found: RecordFacts | None) -> None:
        """Check a record. Report problems, but raise StatelogError if the record itself is damaged (R1)."""
        self._transaction.check_log(lsn)
        record = decode_record(data, lsn)
        facts: list[NodeFacts] | None = None
        if found is None:
            nodes = kernels.record_nodes(data)
            if self._kernel is not None:
                for number, row in enumerate(nodes):
                    self._check_node(record, data, number, row)
        else:
            self.report.nodes += found.node_count
            for ref in found.refs:
                self._check_ref(lsn, ref.parent, ref.type, ref.digest, ref.lsn, ref.node)
            if not found.shared_count and not record.flags & FLAG_REDACTED:
                facts = []
        self._check_chain(record)
        is_redacted = bool(record.flags & FLAG_REDACTED)
        if found is not None and not is_redacted:
            self._chain = found.chain_digest
        elif record.previous_chain or self._chain:
            self._chain = record_chain_digest(data, record, self._chain)
        self._apply(record, node_facts(data) if facts is None else facts)

    def _check_chain(self, record: Record) -> None:
        if record.previous_chain:
            if self._chain and record.previous_chain != self._chain:
                first, last = self._said_lsn, record.lsn - 1
                between = f" of records {first} to {last}" if first < last else ""
                self.report.add("L3", record.lsn, f"record {record.lsn} does not continue the chain{between}")
            self._said_lsn = record.lsn

    def _check_node(self, record: Record, data: memoryview, number: int, row: tuple[int, bytes, int, int, int]) -> None:
        type_, digest, at, content_size, total_size = row
        if not content_size:  # This node was removed. Only records with the flag for it may have removed nodes (T3).
            return
        self.report.nodes += 1
        node = bytes(data[at : at + total_size])
        try:
            if node_digest(type_, node[:content_size]) != digest:
                self.report.add("T3", record.lsn, f"node {number} does not match its digest", number)
                return
            for child_type, child_digest, lsn, child in check_node(type_, node, content_size, record.lsn):
                self._check_ref(record.lsn, number, child_type, child_digest, lsn, child)
        except StatelogError as error:
            self.report.add("T4", record.lsn, f"node {number}: {error.message}", number)

    def _check_ref(self, lsn: int, number: int, child_type: int, digest: bytes, child_lsn: int, child: int) -> None:
        """Check that a ref leads to a node in this record or an earlier one (T5)."""
        found = kernels.VACUUMED
        data = self._transaction.lend_log(child_lsn) if 0 < child_lsn <= lsn else None
        if data is not None:
            with contextlib.suppress(CorruptionError):
                found = kernels.record_node(data, child)
            if child_lsn != lsn:
                self._transaction.give_back(data)
        if found[1] != digest and not self._is_to_be_erased(lsn):
            message = (
                f"node {number} refers to node {child} of record {child_lsn}, which is missing or is a different node"
            )
            self.report.add("T5", lsn, message, number)
        elif found[1] == digest and found[0] != child_type:
            self.report.add("T5", lsn, f"node {number} refers to a node of type {found[0]}, not {child_type}", number)

    def _is_to_be_erased(self, lsn: int) -> bool:
        """Return True if a record was released, so nodes that it refers to may be missing.

        For example, a deleted copy of a thread loses its borrowed nodes when the source is deleted.
        """
        view = View(self._transaction)
        with contextlib.suppress(StatelogError):
            record = view.record(lsn)
            if not record.flags & FLAG_REDACTED:
                return redacted_records(view, owner_of(decode_event(record), lsn)).get(lsn) == TO_BE_ERASED
        return False

    def _apply(self, record: Record, facts: list[NodeFacts]) -> None:
        try:
            event = None if record.flags & FLAG_REDACTED else decode_event(record)
            kind = kind_of(record)
            self._names.see(record, event)
            if event is not None and record.lsn > self._anchor_lsn > 0:
                self.report.removed_since_anchor += sum(lsn <= self._anchor_lsn for lsn in removed_by(event))
            if event is not None and kind.is_version:
                thread = owner_of(event, record.lsn)
                if record.time_us <= self._times_us.get(thread, 0):
                    message = f"record {record.lsn} is not later than the previous version of thread {thread}"
                    self.report.add("L2", record.lsn, message)
                self._times_us[thread] = record.time_us
            for root in () if event is None else kind.roots(event):
                if self._kernel is None or not self._kernel.has_seen(*root):
                    self._check_ref(record.lsn, -1, *root)
            if self._index is not None:
                apply_record(self._index, record, event, facts)
        except StatelogError as error:
            self.report.add("L5", record.lsn, error.message)
            self._index = None

    def compare_index(self) -> None:
        """Compare the index with the index derived from the log (L4)."""
        if self._index is None:
            return
        expected = self._index.payloads
        for key in self._transaction.index_keys():
            wanted = expected.pop(key, None)
            try:
                held = self._transaction.get_index(key)
            except CorruptionError as error:
                self.report.add("L4", 0, f"index key {key.hex()}: {error.message}")
                continue
            if held != wanted:
                self.report.add("L4", 0, f"index key {key.hex()} differs from the log")
        for key in expected:
            self.report.add("L4", 0, f"index key {key.hex()} is missing")

    def check_names(self) -> None:
        """Report the redacted records that nothing in the log lists as removed (R2)."""
        if self._index is None:  # The log is damaged, and an unreadable record may list them.
            return
        for lsn in self._names.unnamed():
            if self._names.is_complete:
                self.report.add("R2", lsn, f"record {lsn} was redacted, and no record lists it as removed")
            else:
                self.report.unnamed += 1


def verify(engine: Engine, *, deep: bool, expect: bytes | None, progress: Progress | None) -> VerifyReport:
    """Check every record, and with `deep` every node and every page of the file; see `Store.verify`."""
    expected = None if expect is None else ExpectedHistory(expect)
    verifier: _Verifier | None = None
    seen = -1
    try:
        while verifier is None:
            with engine.store_file.read() as transaction:
                pages = check_pages(engine.store_file.lmdb_file, transaction) if deep else []
                # Later commits have overwritten the snapshot's meta page, so try again with a new snapshot.
                if pages is None and transaction.id != seen:
                    seen = transaction.id
                    continue
                verifier = _Verifier(transaction, deep=deep, anchor_lsn=0 if expected is None else expected.lsn)
                if pages is None:
                    verifier.report.add("E1", 0, f"LMDB reads commit {seen}, but neither meta page is of this commit")
                for problem in pages or ():
                    verifier.report.add(problem.invariant, 0, problem.message)
                if pages is not None and not any(problem.is_in_the_way for problem in pages):
                    if expected is not None:
                        _check_history(verifier, expected, engine, transaction)
                    _visit_all(verifier, engine, transaction, progress)
    except (StatelogError, ValueError, OverflowError) as error:  # A damaged LMDB page ended the pass over the log.
        if verifier is None or _is_of_history(error):
            raise
        verifier.report.add("R1", verifier.last_lsn, str(error))
    assert verifier is not None
    return verifier.report


def _check_history(
    verifier: _Verifier, expected: ExpectedHistory, engine: Engine, transaction: ReadTransaction
) -> None:
    """Compare the log with an anchor, in the same transaction that checks the chain up to the anchor (L3)."""
    try:
        expected.check(engine, transaction)
    except (CorruptionError, FormatError) as error:
        if _is_of_history(error):
            raise
        verifier.report.add("R1", error.facts.get("lsn", 0), error.message)


def _is_of_history(error: Exception) -> bool:
    """Return True if an error means that the log lacks the anchor's history.

    Return False for a record with a wrong MAC, which `verify` reports as a damaged record.
    """
    return isinstance(error, RollbackError | ForgeryError) and "expected" in error.facts


def _visit_all(verifier: _Verifier, engine: Engine, transaction: ReadTransaction, progress: Progress | None) -> None:
    total = transaction.log_count()
    pages = MappedPages(engine.store_file.lmdb_file)
    count = 0
    with ThreadPoolExecutor(1) as pool:  # A second OS thread checks the next batch while this one visits records.
        ahead: deque[tuple[Batch, Future[list[RecordFacts | None]]]] = deque()
        for batch in chain(transaction.log_batches(_BATCH_SIZE_BYTES), [None]):
            if batch is not None:
                ahead.append((batch, pool.submit(verifier.check_nodes, batch)))
            while ahead and (batch is None or len(ahead) > 1):
                hashed, future = ahead.popleft()
                for (lsn, data), found in zip(hashed, future.result(), strict=True):
                    verifier.visit(lsn, data, found)
                    pages.read(len(data))
                count += len(hashed)
                if progress is not None:
                    progress(count, total)
    if count != total:
        verifier.report.add("L1", verifier.last_lsn, f"LMDB counts {total} records, but {count} were found")
    verifier.compare_index()
    verifier.check_names()
    if progress is not None:
        progress(total, total)
