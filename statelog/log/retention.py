"""Let old versions go: redact their events, and vacuum nodes that no kept version reaches.

In transactions of bounded size, while others keep committing, each version that a policy does not
keep is *expired*: its entry leaves the index, its record is redacted, and those of the record's
nodes go that no kept version reaches. What kept versions reach is *marked* beforehand, outside
any lock; in the transaction the marks are brought up to date with what was committed since, so
that nothing a kept version refers to is taken (invariant V1).

A node may still have been reached when its record was vacuumed and not be any more: records that
keep nodes are listed (key `r`) and looked at again by `sweep`.

Nodes that another thread borrows, and what is below them, are kept here (V2).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog import kernels
from statelog.errors import ExpiredError, StorageError, StoreFullError
from statelog.format import keys
from statelog.format.record import FLAG_VACUUMED, decode_record, redact_record
from statelog.log.index import enter_redacted, redacted_records, redacted_state
from statelog.log.mark import Marks
from statelog.log.pages import without_versions
from statelog.log.view import View
from statelog.tree.node import ROOT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from statelog.log.engine import Engine
    from statelog.log.mark import NodeRef
    from statelog.storage.transactions import WriteTransaction

RECORDS_PER_TRANSACTION_MAX = 64
"""Rewriting so many records holds the writer lock for one or two milliseconds."""

POLICY_STEP_VERSIONS = 64
"""A policy is applied at every so manieth version: up to so many more than it says may be there."""

SWEEP_RECORDS_MIN = 512
"""A policy sweeps anew after at least so many records, and as many as then held nodes: so the cost of
marking and sweeping, which is that of what is kept, is spread over as many commits."""

_MARK_TRIES_MAX = 5


@dataclass(frozen=True, slots=True)
class Policy:
    """What to keep of each branch: a version goes when no rule keeps it.

    Attributes:
        keep_last: so many of the last versions of each branch.
        max_age_s: versions younger than this.
        keep_tags: also tagged ones. Heads and the versions branches leave at are always kept.

    """

    keep_last: int | None = None
    max_age_s: int | None = None
    keep_tags: bool = True

    def to_fields(self) -> dict[str, Any]:
        """Return what a policy record says."""
        return {"keep_last": self.keep_last, "max_age_s": self.max_age_s, "keep_tags": self.keep_tags}


@dataclass(slots=True)
class RetentionReport:
    """What retention did."""

    threads: int = 0
    expired_versions: int = 0
    vacuumed_nodes: int = 0
    freed_bytes: int = 0
    pending_records: int = 0
    """Records of deleted threads that could not be erased: `retain`, or deleting again, goes on with them."""

    def add(self, other: RetentionReport) -> None:
        """Add up."""
        self.threads += other.threads
        self.expired_versions += other.expired_versions
        self.vacuumed_nodes += other.vacuumed_nodes
        self.freed_bytes += other.freed_bytes
        self.pending_records += other.pending_records


class _Version(NamedTuple):
    branch: int
    version: int
    lsn: int


class Collector:
    """The nodes of one thread that are to be kept, as of LSN `seen`, and work to do with them."""

    def __init__(self, engine: Engine, thread: int) -> None:
        self._engine = engine
        self._thread = thread
        self._marks = Marks(engine.read_node)
        self._seen = 0
        self.rewritten = 0
        """Records rewritten since the marks were made."""
        self.sweep_at = SWEEP_RECORDS_MIN

    def start(self, policy: Policy, pinned: Collection[int] = ()) -> None:
        """Mark what the policy keeps, outside any lock."""
        for attempt in range(_MARK_TRIES_MAX):
            with self._engine.read() as view:
                self._seen = view.transaction.last_lsn()
                refs = list(self._kept_roots(view, policy, pinned, after=0))
            try:
                self._marks.mark(refs)
            except ExpiredError:  # another process expired one of them in between
                if attempt == _MARK_TRIES_MAX - 1:
                    raise
                self._marks = Marks(self._engine.read_node)
            else:
                return

    def _kept_roots(self, view: View, policy: Policy, pinned: Collection[int], *, after: int) -> Iterator[NodeRef]:
        keeps = _Keeps(view, self._thread, policy, pinned)
        for row in keeps.branches:
            for version, entry in view.entries_after(self._thread, row.number, after):
                if keeps(_Version(row.number, version, entry.lsn), entry.time_us):
                    event = view.checkpoint(entry.lsn)
                    yield ROOT, event.root_digest, event.root_lsn, event.root_node
        yield from borrowed_nodes(view, self._thread)

    def _catch_up(self, transaction: WriteTransaction, policy: Policy, pinned: Collection[int]) -> None:
        """Mark what was committed since, and is kept (V1)."""
        view = View(transaction)
        marks = Marks(self._engine.reader_in(transaction), self._marks.by_record)
        marks.mark(list(self._kept_roots(view, policy, pinned, after=self._seen)))
        self._seen = transaction.last_lsn()

    def expire(self, policy: Policy, pinned: Collection[int] = (), *, steps_max: int | None = None) -> RetentionReport:
        """Expire what the policy does not keep, one transaction a step."""
        report = RetentionReport()
        steps = 0
        while steps_max is None or steps < steps_max:
            step = self._engine.write_raw(lambda transaction: self._expire_some(transaction, policy, pinned))
            report.add(step)
            self.rewritten += step.expired_versions
            steps += 1
            if step.expired_versions < RECORDS_PER_TRANSACTION_MAX:
                break
        return report

    def _expire_some(self, transaction: WriteTransaction, policy: Policy, pinned: Collection[int]) -> RetentionReport:
        view = View(transaction)
        if not view.is_alive(self._thread):
            return RetentionReport()
        self._catch_up(transaction, policy, pinned)
        gone = list(_expirable(view, self._thread, policy, pinned, RECORDS_PER_TRANSACTION_MAX))
        by_page: dict[bytes, set[int]] = {}
        report = RetentionReport(expired_versions=len(gone))
        for each in gone:
            key = keys.encode_page_key(self._thread, each.branch, each.version)
            by_page.setdefault(key, set()).add(each.version)
            event = view.checkpoint(each.lsn)
            if event.id is not None:
                transaction.delete_index(keys.encode_checkpoint_id_key(self._thread, event.id))
        report.add(rewrite(transaction, [each.lsn for each in gone], self._thread, self._marks))
        for key, versions in by_page.items():
            payload = transaction.get_index(key)
            left = b"" if payload is None else without_versions(payload, versions)
            if left:
                transaction.put_index(key, left)
            else:
                transaction.delete_index(key)
        return report

    def sweep(self, policy: Policy) -> RetentionReport:
        """Look again at redacted records that keep nodes. Start anew before, for marks that are not stale."""
        with self._engine.read() as view:
            lsns = list(redacted_records(view, self._thread))
        report = RetentionReport()
        for at in range(0, len(lsns), RECORDS_PER_TRANSACTION_MAX):
            page = lsns[at : at + RECORDS_PER_TRANSACTION_MAX]

            def work(transaction: WriteTransaction, page: list[int] = page) -> RetentionReport:
                self._catch_up(transaction, policy, ())
                return rewrite(transaction, page, self._thread, self._marks)

            report.add(self._engine.write_raw(work))
        self.rewritten = 0
        self.sweep_at = max(SWEEP_RECORDS_MIN, len(lsns))
        return report


_EVERYTHING = Policy(max_age_s=1 << 40)


def retain_thread(engine: Engine, thread: int, policy: Policy, pinned: Collection[int] = ()) -> RetentionReport:
    """Apply a policy to a thread at once; `pinned` are LSNs of checkpoints to keep besides."""
    collector = Collector(engine, thread)
    collector.start(policy, pinned)
    report = RetentionReport(threads=1)
    report.add(collector.expire(policy, pinned))
    # Everything that is left is kept now, also what was committed meanwhile.
    report.add(collector.sweep(_EVERYTHING))
    return report


def apply_policy(engine: Engine, thread: int, version: int) -> None:
    """Apply a thread's policy after the commit of a version, if it has one and the turn has come."""
    if version % POLICY_STEP_VERSIONS != POLICY_STEP_VERSIONS - 1:
        return
    with engine.read() as view:
        fields = view.thread(thread).policy if view.is_alive(thread) else {}
    if not fields:
        engine.collectors.pop(thread, None)
        return
    policy = Policy(**fields)
    collector = engine.collectors.get(thread)
    is_fresh = collector is None or collector.rewritten >= collector.sweep_at
    if collector is None or is_fresh:
        sweeps = collector is not None
        collector = Collector(engine, thread)
        collector.start(policy)
        engine.collectors[thread] = collector
        collector.expire(policy, steps_max=2)
        if sweeps:
            collector.sweep(_EVERYTHING)
    else:
        collector.expire(policy, steps_max=2)


# --- what a policy keeps ------------------------------------------------------------


class _Keeps:
    """Whether a policy keeps a version of a thread."""

    def __init__(self, view: View, thread: int, policy: Policy, pinned: Collection[int]) -> None:
        self.branches = list(view.branches(thread))
        self._lsns = set(pinned)
        self._ranges: dict[int, list[tuple[int, int]]] = {row.number: [] for row in self.branches}
        self._is_young = policy.max_age_s is not None
        self._oldest_us = time.time_ns() // 1000 - (policy.max_age_s or 0) * 1_000_000
        for row in self.branches:
            head = view.head_version(thread, row.number)
            self._add(view, thread, row.number, head, 1)
            if row.parent is not None:
                self._add(view, thread, row.parent, row.base_version, 1)
            self._add(view, thread, row.number, head, policy.keep_last or 0)
        if policy.keep_tags:
            for _key, payload in view.transaction.scan_index(keys.encode_tag_prefix(thread)):
                self._lsns.add(keys.decode_lsn(payload))

    def _add(self, view: View, thread: int, branch: int, high: int, count: int) -> None:
        """Keep the last versions up to `high` as a branch sees them, each on the branch it was committed on."""
        low = max(high - count + 1, 0)
        while high >= low:
            owner = view.owner(thread, branch, high)
            first = view.branch(thread, owner).base_version + 1 if owner else 0
            self._ranges[owner].append((max(low, first), high))
            high = first - 1

    def __call__(self, version: _Version, time_us: int) -> bool:
        return (
            version.lsn in self._lsns
            or (self._is_young and time_us >= self._oldest_us)
            or any(low <= version.version <= high for low, high in self._ranges[version.branch])
        )


def _expirable(view: View, thread: int, policy: Policy, pinned: Collection[int], count_max: int) -> Iterator[_Version]:
    """Yield versions that a policy lets go, oldest first on each branch, at most `count_max`."""
    keeps = _Keeps(view, thread, policy, pinned)
    left = count_max
    for row in keeps.branches:
        for number, entry in view.entries(thread, row.number):
            version = _Version(row.number, number, entry.lsn)
            if not keeps(version, entry.time_us):
                yield version
                left -= 1
                if not left:
                    return


# --- rewriting records --------------------------------------------------------------


class _Direct:
    """An index writer straight into a transaction."""

    def __init__(self, transaction: WriteTransaction) -> None:
        self.view = View(transaction)
        self.get_index = transaction.get_index
        self.put_index = transaction.put_index
        self.delete_index = transaction.delete_index


def rewrite(transaction: WriteTransaction, lsns: Iterable[int], thread: int, marks: Marks) -> RetentionReport:
    """Redact records of a thread, and take the nodes that are not marked."""
    report = RetentionReport()
    rewritten: dict[int, bytes] = {}
    states: dict[int, int | None] = {}
    for lsn in lsns:
        data = transaction.get_log(lsn)
        if data is None:
            continue
        old = bytes(data)
        new = redact_record(old, lsn, thread, alive=marks.alive(lsn))
        before, after = kernels.record_nodes(old), kernels.record_nodes(new)
        left = {number for number, row in enumerate(after) if row[0]}
        gone = [(number, row[1]) for number, row in enumerate(before) if row[0] and number not in left]
        for number, digest in gone:
            key = keys.encode_digest_key(digest)
            payload = transaction.get_index(key)
            if payload is not None and keys.decode_place(payload)[:2] == (lsn, number):
                transaction.delete_index(key)
        if new != old:
            rewritten[lsn] = new
        is_vacuumed = bool(decode_record(new, lsn).flags & FLAG_VACUUMED)
        states[lsn] = redacted_state(is_vacuumed=is_vacuumed, holds_nodes=bool(left))
        report.vacuumed_nodes += len(gone)
        report.freed_bytes += len(old) - len(new)
    transaction.replace_logs(rewritten)
    enter_redacted(_Direct(transaction), thread, states)
    return report


def borrowed_nodes(view: View, thread: int) -> Iterator[NodeRef]:
    """Yield a thread's widely shared nodes that other threads refer to (V2)."""
    for key, _payload in view.transaction.scan_index(keys.encode_borrowed_prefix(thread)):
        digest = key[9:]
        payload = view.transaction.get_index(keys.encode_digest_key(digest))
        if payload is not None:
            place = keys.decode_place(payload)
            record = view.transaction.get_log(place.lsn)
            if record is not None:
                yield kernels.record_node(record, place.node)[0], digest, place.lsn, place.node


# --- deleted threads ----------------------------------------------------------------


def erase_records(engine: Engine, thread: int) -> RetentionReport:
    """Redact what is left of a deleted thread's records, and take their nodes but for borrowed ones.

    May be called again and again: what a kill or a full disk left over is done then.
    """
    report = RetentionReport(threads=1)
    with engine.read() as view:
        # From the end: what is cut short leaves a thread whose beginning says what it is.
        lsns = list(reversed(redacted_records(view, thread)))
    for at in range(0, len(lsns), RECORDS_PER_TRANSACTION_MAX):
        page = lsns[at : at + RECORDS_PER_TRANSACTION_MAX]

        def work(transaction: WriteTransaction, page: list[int] = page) -> RetentionReport:
            marks = Marks(engine.reader_in(transaction))
            marks.mark(list(borrowed_nodes(View(transaction), thread)))
            return rewrite(transaction, page, thread, marks)

        try:
            report.add(engine.write_raw(work))
        except (StorageError, StoreFullError):
            report.pending_records = len(lsns) - at
            break
    return report
