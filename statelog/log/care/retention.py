"""Retention: expires old versions, redacts their events, and vacuums nodes that no version reaches.

Retention works in transactions of bounded size, while other threads commit. It expires each version that the policy
does not keep: the entry leaves the index, the record is redacted, and its nodes are removed unless a kept version
reaches them. The nodes of kept versions are marked in advance, without a lock. The transaction then marks the nodes of
later commits, so that no node of a version is removed (invariant V1), even after an interruption. Redacted records that
still have nodes (key `r`) are examined again at the end.

Versions expire from the newest to the oldest. A version refers only to older versions and needs only older ones, so an
interruption leaves no version without them. A redacted record may have nodes that an earlier marking kept and that are
unreachable now. These nodes refer to earlier nodes. So immediate retention also vacuums such records in order, and a
policy keeps all nodes of earlier versions until it marks everything again (T5).

A policy that is applied during commits marks the kept nodes once, and later only new ones. A node
that becomes unreachable stays marked until the next complete marking, which is rare.

This module keeps nodes that another thread borrows, and the nodes below them. It also keeps all nodes that a copy of
the thread may reach (V2). `sweep.py` removes them.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from statelog import kernels
from statelog.errors import ExpiredError, StorageError, StoreFullError
from statelog.format import keys
from statelog.format.record import FLAG_REDACTED
from statelog.log.batch import LogEnd, read_log_end
from statelog.log.care.kept_versions import EVERYTHING, Keeps, Policy, Version, let_go
from statelog.log.care.mark import Marks
from statelog.log.care.policies import POLICY_STEP_VERSIONS
from statelog.log.care.vacuum import (
    RECORDS_PER_TRANSACTION_MAX,
    RetentionReport,
    Rewritable,
    fits_transaction,
    redact_released,
    rewrite,
    write_in_portions,
)
from statelog.log.index import TO_BE_ERASED, redacted_records
from statelog.log.kinds.table import decode_event, kind_of, others_of
from statelog.log.view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from statelog.log.care.vacuum import Alive
    from statelog.log.engine import Engine
    from statelog.log.kinds.kind import NodeRef
    from statelog.storage.write_transaction import WriteTransaction

T = TypeVar("T")

SWEEP_VERSIONS_MIN = 512
"""The minimum number of versions between two complete markings of a policy."""

MARKS_MAX = 500_000
"""The maximum number of marked nodes that one process remembers, at 90 bytes each. A single thread may have more."""

_MARK_TRIES_MAX = 5
_POLICY_TRANSACTIONS_MAX = 16
"""The maximum number of transactions of a policy after one commit. Later commits expire the remaining versions."""


class _AllBelow(NamedTuple):
    """The nodes to keep: marked nodes, and every node below an LSN.

    A copy of the thread may reach such a node (V2), or an unreachable node that still exists may
    refer to it (T5).
    """

    marks: Alive
    below_lsn: int

    def is_alive(self, lsn: int, number: int) -> bool:
        return lsn < self.below_lsn or self.marks.is_alive(lsn, number)


class _Seen(NamedTuple):
    """What the last marking has seen: the last LSN, and the branches and pinned versions of the thread at that time."""

    lsn: int = 0
    branches: int = 0
    going: frozenset[int] = frozenset()
    pins: frozenset[int] = frozenset()


class Collector:
    """Collects the garbage of one thread.

    It marks the nodes that are reached by the versions that a policy keeps, and vacuums all other nodes.
    """

    def __init__(self, engine: Engine, thread: int, policy: Policy, pinned: Collection[int] = ()) -> None:
        self._engine = engine
        self._thread = thread
        self.policy = policy
        self._pinned = pinned
        self._marks = Marks(engine.read_node)
        self._seen = self._seen_within = _Seen()
        """The committed marks, and those within a transaction.

        They are separate because a failed transaction runs again, perhaps with different LSNs.
        """
        self._late_lsn: int | None = None
        """The LSN after which all versions are kept, because the expiring versions were chosen at that point.

        None until they are chosen.
        """
        self._rewritten: set[int] = set()
        self._rewritten_within: frozenset[int] = frozenset()
        """The LSNs of the records in which the current transaction has kept marked nodes."""
        self._own_pages: dict[bytes, bytes] = {}
        """Index pages whose redacted records are all among the records that these marks have rewritten.

        A long chat has many such pages, which do not have to be read again.
        """
        self._keeps_made: tuple[LogEnd, Policy, Keeps] | None = None
        """The last result of `_keeps`, with its log end and policy."""

    @property
    def marked(self) -> int:
        """The number of marked nodes."""
        return len(self._marks)

    def start(self) -> None:
        """Mark the kept nodes, without a lock."""
        for attempt in range(_MARK_TRIES_MAX):
            with self._engine.read() as view:
                refs = list(self._new_roots(view))
            try:
                self._marks.mark(refs)
            except ExpiredError:  # Another process has expired a version since the roots were read.
                if attempt == _MARK_TRIES_MAX - 1:
                    raise
                self._marks = Marks(self._engine.read_node)
            else:
                self._seen = self._seen_within
                return

    def _keeps(self, view: View) -> Keeps:
        """Decide which versions the policy keeps now.

        The result depends only on the commits and the time. It is computed again only after a commit, so without
        commits, a kept version stays kept.
        """
        end = read_log_end(view.transaction)
        made = self._keeps_made
        if made is None or made[0] != end or made[1] is not self.policy:
            made = self._keeps_made = (end, self.policy, Keeps(view, self._thread, self.policy, self._pinned))
        return made[2]

    def _new_roots(self, view: View) -> Iterator[NodeRef]:
        """Yield the roots to mark since the last marking: roots of new versions, and of versions that are kept now."""
        keeps = self._keeps(view)
        seen, last_lsn = self._seen, view.transaction.last_lsn()
        self._seen_within = _Seen(last_lsn, keeps.number, keeps.going, frozenset(keeps.pins))
        yield from _borrowed_nodes(view, self._thread)
        if seen.lsn == last_lsn:
            return
        # A version that was about to expire may be kept now, with versions of the parent branch. If so, examine all
        # versions.
        is_as_before = keeps.number == seen.branches and seen.going <= keeps.going
        after = seen.lsn if is_as_before else 0
        for row in keeps.branches:
            for version, entry in view.entries_after(self._thread, row.number, after):
                is_late = self._late_lsn is not None and entry.lsn > self._late_lsn
                if is_late or keeps(Version(row.number, version, entry.lsn), entry.time_us):
                    yield from _roots(view, entry.lsn)
        for lsn in keeps.pins - seen.pins:
            # A tag remains after its version has expired, so a pinned record may be redacted.
            if not view.record(lsn).flags & FLAG_REDACTED:
                yield from _roots(view, lsn)
        for lsn in others_of(view, self._thread, seen.lsn):
            yield from _roots(view, lsn)

    def _care(self, work: Callable[[WriteTransaction], T]) -> T:
        """Run `work`, which calls `catch_up`, in a transaction. After the commit, adopt the marks made there."""
        result = self._engine.care(work)
        self._settle()
        return result

    def _settle(self) -> None:
        self._seen = self._seen_within
        self._rewritten |= self._rewritten_within

    def catch_up(self, transaction: WriteTransaction, lsns: Iterable[int]) -> _AllBelow:
        """Mark new nodes under the lock (V1).

        Return the nodes to keep in the records `lsns`, which the caller rewrites from the last to the first.
        """
        view = View(transaction)
        marks = self._marks.read_by(self._engine.reader_in(transaction))
        marks.mark(self._new_roots(view))
        self._rewritten_within = frozenset(lsns)
        return _AllBelow(self._marks, max(view.lent_below(self._thread), self._held_by_others(view)))

    def expire(self) -> bool:
        """Expire versions and vacuum their records, the newest first (T5).

        Returns:
            True if no version is left that the policy does not keep.
        """

        def work(transaction: WriteTransaction) -> bool:
            view = View(transaction)
            if not view.is_alive(self._thread):
                return True
            gone, is_done = _expirable(transaction, self._thread, self._keeps(view))
            marks = self.catch_up(transaction, [version.lsn for version in gone])
            _expire(transaction, self._thread, gone, marks)
            return is_done

        return any(self._care(work) for _transaction in range(_POLICY_TRANSACTIONS_MAX))

    def _held_by_others(self, view: View) -> int:
        """Return the LSN of the last redacted record whose nodes were kept by marks other than these, or 0.

        If these marks do not keep one of its nodes, the nodes below that node must not be removed first (T5).
        """
        prefix = keys.encode_thread_prefix(b"r", self._thread)
        for key, payload in view.transaction.scan_index(prefix, reverse=True):
            if self._own_pages.get(key) == payload:
                continue
            states = keys.decode_redacted_page(key, payload)
            held = {lsn for lsn, state in states.items() if state != TO_BE_ERASED} - self._rewritten
            if not held:
                self._own_pages[key] = payload
            elif others := held - self._rewritten_within:
                return max(others)
        return 0

    def expire_all(self) -> RetentionReport:
        """Expire every version that the policy does not keep, and vacuum its record, the newest first (T5).

        Redacted records between these versions are vacuumed in the same order, because their nodes may refer to nodes
        that are removed now.

        Each transaction frees as much as it can, because a full store needs the space. Rewriting
        all records with nodes first would take more than the reserve.

        A version committed after the marking began is kept, even if the policy no longer keeps it
        (V1).
        """
        self._late_lsn = late_lsn = self._seen.lsn
        with self._engine.read() as view:
            let_go_now = let_go(view, self._thread, self._keeps(view))
            gone = {version.lsn: version for version in let_go_now if version.lsn <= late_lsn}
            held = {lsn for lsn, state in redacted_records(view, self._thread).items() if state != TO_BE_ERASED}
        lowest = min(gone, default=late_lsn)
        lsns = sorted(gone.keys() | {lsn for lsn in held if lsn > lowest}, reverse=True)
        report = RetentionReport()
        at = 0
        while at < len(lsns):
            begin = at

            def work(transaction: WriteTransaction, begin: int = begin) -> tuple[int, RetentionReport]:
                view = View(transaction)
                if not view.is_alive(self._thread):
                    return len(lsns), RetentionReport()
                some = lsns[begin : begin + RECORDS_PER_TRANSACTION_MAX]
                some = list(fits_transaction(transaction, some, transaction.rewrite_size_bytes_max))
                marks = self.catch_up(transaction, some)
                still = list(self._still_to_go(view, [gone[lsn] for lsn in some if lsn in gone]))
                redacted = [lsn for lsn in some if lsn not in gone]
                return begin + len(some), _expire(transaction, self._thread, still, marks, redacted)

            at, step = self._care(work)
            report.add(step)
        return report

    def _still_to_go(self, view: View, versions: Sequence[Version]) -> Iterator[Version]:
        """Yield the versions that may still expire, because nobody has expired, tagged or forked them since."""
        keeps = self._keeps(view)
        for version in versions:
            entry = view.entry(self._thread, version.branch, version.version)
            if entry is not None and entry.lsn == version.lsn and not keeps(version, entry.time_us):
                yield version

    def sweep(self) -> RetentionReport:
        """Vacuum all redacted records. Call this only if the policy keeps all existing versions.

        This starts at the end of the log, because refs lead to earlier records. So an interruption may leave nodes
        without parents, but no parent without its child nodes (T5).
        """
        with self._engine.read() as view:
            states = redacted_records(view, self._thread)
        records = [Rewritable(lsn, self._thread) for lsn in reversed(states) if states[lsn] != TO_BE_ERASED]

        def write(transaction: WriteTransaction, some: Sequence[Rewritable]) -> RetentionReport:
            if not View(transaction).is_alive(self._thread):
                return RetentionReport()
            return rewrite(transaction, some, self.catch_up(transaction, [record.lsn for record in some]))

        report = RetentionReport()
        for _count, step in write_in_portions(self._engine, records, write):
            self._settle()
            report.add(step)
        return report


def retain_thread(engine: Engine, thread: int, policy: Policy, pinned: Collection[int] = ()) -> RetentionReport:
    """Apply a policy to a thread at once. `pinned` contains the LSNs of additional checkpoints to keep."""
    report = RetentionReport(threads=1)
    report.add(_expire_all(engine, thread, policy, pinned))
    if _run_sweepers(engine, thread, at_once=True) and policy.only is None:
        report.add(_expire_all(engine, thread, policy, pinned))
    _collector, swept = sweep_thread(engine, thread)
    report.add(swept)
    return report


def _expire_all(engine: Engine, thread: int, policy: Policy, pinned: Collection[int]) -> RetentionReport:
    collector = Collector(engine, thread, policy, pinned)
    collector.start()
    return collector.expire_all()


def _run_sweepers(engine: Engine, thread: int, *, at_once: bool) -> bool:
    """Run the adapters' clean-up functions for a thread. Return True if one of them has committed."""
    if not engine.sweepers:
        return False
    with engine.read() as view:
        row = view.find_thread(thread)
    if row is None:
        return False
    committed = [sweep(row.id, at_once=at_once) for sweep in engine.sweepers.values()]
    return any(committed)


def apply_policy(engine: Engine, thread: int, version: int) -> None:
    """Apply a thread's policy after the commit of a version, if the thread has one and it is due.

    From time to time, everything is marked again, and redacted records with nodes are examined again. The number of
    versions between two such sweeps is about the number of these records, so the average cost is one or two records per
    commit. When a sweep is due depends only on the version and the file, so processes may start and end at any time.
    """
    if (version + 1) % POLICY_STEP_VERSIONS:
        return
    with engine.read() as view:
        fields = view.thread(thread).policy if view.is_alive(thread) else {}
        is_due = bool(fields) and not (version + 1) % SWEEP_VERSIONS_MIN
        is_due = is_due and not (version + 1) % _sweep_period(len(redacted_records(view, thread)))
    collector = engine.collectors.pop(thread, None)
    if not fields:
        return
    policy = Policy(**fields)
    if collector is None or collector.policy != policy:
        collector = Collector(engine, thread, policy)
        collector.start()
    is_done = collector.expire()
    if is_done and is_due:
        collector, _report = sweep_thread(engine, thread)
        collector.policy = policy
    engine.collectors[thread] = collector
    _forget_longest_unused(engine.collectors)
    _run_sweepers(engine, thread, at_once=False)


def sweep_thread(engine: Engine, thread: int) -> tuple[Collector, RetentionReport]:
    """Mark the kept nodes of a thread, and vacuum its redacted records."""
    report = redact_released(engine, thread)
    collector = Collector(engine, thread, EVERYTHING)
    collector.start()
    report.add(collector.sweep())
    return collector, report


def _sweep_period(held: int) -> int:
    """Return the number of versions between two sweeps.

    It is a power of two, so that longer periods are multiples of shorter ones.
    """
    return max(SWEEP_VERSIONS_MIN, (1 << held.bit_length()) >> 1)


def _forget_longest_unused(collectors: dict[int, Collector]) -> None:
    """Drop the least recently used collectors to limit memory.

    A dropped collector marks everything again when it is next due.
    """
    marked = sum(collector.marked for collector in collectors.values())
    while marked > MARKS_MAX and len(collectors) > 1:
        marked -= collectors.pop(next(iter(collectors))).marked


def _roots(view: View, lsn: int) -> Iterator[NodeRef]:
    record = view.record(lsn)
    return kind_of(record).roots(decode_event(record))


def _expirable(transaction: WriteTransaction, thread: int, keeps: Keeps) -> tuple[list[Version], bool]:
    """Return the versions that one transaction may expire, and True if no others remain."""
    some = list(islice(let_go(View(transaction), thread, keeps), RECORDS_PER_TRANSACTION_MAX + 1))
    lsns = [version.lsn for version in some]
    count = sum(1 for _lsn in fits_transaction(transaction, lsns, transaction.rewrite_size_bytes_max))
    return some[:count], count == len(some)


def _expire(
    transaction: WriteTransaction, thread: int, gone: list[Version], marks: Alive, redacted: Sequence[int] = ()
) -> RetentionReport:
    """Expire the versions `gone`. Erase unmarked nodes from their records, and from the records `redacted`."""
    lsns = [*(each.lsn for each in gone), *redacted]
    report = rewrite(transaction, [Rewritable(lsn, thread) for lsn in lsns], marks)
    report.expired_versions = len(gone)
    return report


def _borrowed_nodes(view: View, thread: int) -> Iterator[NodeRef]:
    """Yield the widely shared nodes of a thread to which other threads refer, or have referred (V2)."""
    transaction = view.transaction
    for key, _payload in transaction.scan_index(keys.encode_borrowed_prefix(thread)):
        digest, at = keys.decode_borrowed_key(key)
        if at is None:
            payload = transaction.get_index(keys.encode_digest_key(digest))
            if payload is None:
                continue
            place = keys.decode_place(payload)
            at = place.lsn, place.node
        record = transaction.get_log(at[0])
        if record is not None:
            yield kernels.record_node(record, at[1])[0], digest, *at


# --- deleted threads ----------------------------------------------------------------


def erase_records(engine: Engine, thread: int) -> RetentionReport:
    """Redact the remaining records of a deleted thread, and remove their nodes except borrowed ones.

    If the process is killed or the disk is full, a later call completes the work. On a shared log, the records are
    erased only after one host has the log alone and calls this again.
    """
    report = RetentionReport(threads=1)
    with engine.read() as view:
        # Start from the end, so that an interruption leaves the thread's first record, which names the thread's type.
        records = [Rewritable(lsn, thread) for lsn in reversed(redacted_records(view, thread))]
    if engine.is_shared:
        report.pending_records = len(records)
        return report

    def write(transaction: WriteTransaction, some: Sequence[Rewritable]) -> RetentionReport:
        view = View(transaction)
        marks = Marks(engine.reader_in(transaction))
        marks.mark(_borrowed_nodes(view, thread))
        return rewrite(transaction, some, _AllBelow(marks, view.lent_below(thread)))

    left = len(records)
    try:
        for count, step in write_in_portions(engine, records, write):
            report.add(step)
            left -= count
    except (StorageError, StoreFullError):
        report.pending_records = left
    return report
