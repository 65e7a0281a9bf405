"""Measures the sizes and counts of a store, and how much shared structure saves."""

from __future__ import annotations

import contextlib
import random
import struct
from array import array
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog import kernels
from statelog.errors import ExpiredError
from statelog.format.seal import RECORD_MAC_SIZE_BYTES
from statelog.log.care.sweep import sweepable_sizes
from statelog.log.view import missing
from statelog.storage.file.page_order import PackedPages
from statelog.store.state_sizes import StateSizer, read_head

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from statelog.log.engine import Engine
    from statelog.log.view import ThreadRow, View
    from statelog.storage.statistics import ReaderStatistics, StoreFileStatistics, TableStatistics

RECORDS_READ_MAX = 65_536
"""The maximum number of records that are read, about 5 us each. For a longer log, an even sample is read."""

STATES_MEASURED_MAX = 255
"""The maximum number of measured states. It is 2**n - 1, so that repeated halving reaches them all."""

NODES_VISITED_MAX = 200_000
"""The maximum number of nodes that are read to measure states, in about a second. One state is always measured."""

HEADS_MEASURED_MAX = 4095
"""The maximum number of branches whose shared bytes are measured: 2**n - 1. This may read `NODES_VISITED_MAX` more
nodes.
"""

SWEPT_RECORDS_MAX = 65_536
"""The maximum number of records to read for `unreached_size_bytes`, about 30 us each.

If more would be needed, none is read.
"""

INDEX_ENTRIES_READ_MAX = 1_000_000
"""The maximum number of index entries that are measured, about 0.3 us each."""

THREADS_LISTED_MAX = 1000
"""The maximum number of listed threads. The threads with the most bytes are listed."""

_RECORDS_PER_TRANSACTION = 512
_PAGE_KEY = struct.Struct(">xQ")
_PAGE_ENTRY = struct.Struct(">Q8x")
_PAGE_HEAD_SIZE_BYTES = 8
_PROGRESS_STEPS = 1000
_LSN_SIZE_BYTES = 8
_OWN_PAGES = 3
"""LMDB's own pages: two meta pages, and the page with the names of the tables."""


@dataclass(frozen=True, slots=True)
class ThreadStatistics:
    """The statistics of one thread.

    Attributes:
        checkpoints: the number of unexpired checkpoints on all branches. Shared checkpoints count once.
        records: the number of its records, including records of expired versions, which keep their place in the log.
        records_size_bytes: the size of these records with their nodes, including nodes that only other threads use.
        lent_size_bytes: the maximum number of bytes in records of this thread that the state of another thread's head
            uses. At least these bytes stay in the file if this thread is deleted.
    """

    id: str
    branches: int
    checkpoints: int
    records: int
    records_size_bytes: int
    lent_size_bytes: int


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """A retention policy for future threads.

    Attributes:
        pattern: the pattern of their ids, or None if the policy is for one thread.
        id_digest: for a policy of one thread, the hex digest of the thread's id, because the id is not stored before
            the thread begins; otherwise None.
        policy: a policy as in `ThreadInfo.policy`. An empty one means no policy, regardless of earlier patterns.
    """

    pattern: str | None
    id_digest: str | None
    policy: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """A store's sizes and counts.

    Pages, tables, threads, branches and checkpoints are exact. The figures of records are exact for logs of up to
    `RECORDS_READ_MAX` records. For longer logs, they are estimated from an even sample. The figures of snapshots are
    estimated from `states_measured` checkpoints, and the figures of sharing from the heads of `heads_measured`
    branches.

    Attributes:
        map_size_bytes: the quota with which the file is open here.
        pages_used: the number of used pages. With `pages_free`, these are all pages. Free ones are reused first.
        readers: the number of open read transactions of all processes, except this call's transaction. Another process
            that has written counts as a reader until it has been idle for a second.
        readers_by_process: the readers by process, the oldest first. While a reader is open, no page that was freed
            since it began is reused. Readers of the file before a compaction are not listed.
        threads: the `THREADS_LISTED_MAX` threads with most bytes, the largest first.
        policies: the policies for future threads, in the order in which they were set. The last match applies.
        records_size_bytes: the size of all records with envelopes, bodies and nodes, without page overhead.
        records_read: the number of records from which this was computed.
        unowned_size_bytes: the part of `records_size_bytes` that belongs to no existing thread: remains of deleted
            threads, which other threads may use, and records of the store as a whole.
        unreached_size_bytes: the part of `records_size_bytes` that no version uses, and only a compaction removes; None
            if this would take too many reads.
        nodes: the number of stored pieces of values.
        snapshots_size_bytes: the size of the states of all checkpoints if each were stored as a whole in the same
            encoding (CBOR), without overhead.
        states_measured: the number of states from which this was computed.
        shared_size_bytes: the bytes of the heads' states in records of another branch or thread, in the same encoding.
            They would be stored again if no branch shared values. The remains of a deleted thread that others use count
            as owned by one of them.
        heads_measured: the number of branches from which this was computed.
        compacted_size_bytes: the estimated size of the file after `Store.compact`: the sizes of records and index
            entries in full pages, without `unreached_size_bytes`. Later commits extend the file by a reserve (a quarter
            of a small store, 1/128 of a large one).
        wakes_reach: False if a waiter here has seen a commit of a process whose wake-ups do not reach it. Then waiters
            look at the log at intervals.
    """

    file_size_bytes: int
    map_size_bytes: int
    page_size_bytes: int
    pages_used: int
    pages_free: int
    tables: dict[str, TableStatistics]
    readers: int
    readers_by_process: tuple[ReaderStatistics, ...]
    last_lsn: int
    thread_count: int
    branch_count: int
    checkpoint_count: int
    threads: tuple[ThreadStatistics, ...]
    policies: tuple[StoredPolicy, ...]
    records_size_bytes: int
    records_read: int
    unowned_size_bytes: int
    unreached_size_bytes: int | None
    nodes: int
    snapshots_size_bytes: int
    states_measured: int
    shared_size_bytes: int
    heads_measured: int
    compacted_size_bytes: int
    wakes_reach: bool

    @property
    def records_are_estimated(self) -> bool:
        """Whether the figures of records are estimated from a sample."""
        return self.records_read < self.last_lsn

    @property
    def snapshots_are_estimated(self) -> bool:
        """Whether `snapshots_size_bytes` is estimated from a sample."""
        return self.states_measured < self.checkpoint_count

    @property
    def sharing_is_estimated(self) -> bool:
        """Whether `shared_size_bytes` is estimated from a sample."""
        return self.heads_measured < self.branch_count

    @property
    def reclaimable_size_bytes(self) -> int:
        """The estimated bytes that a compaction frees. If `unreached_size_bytes` is None, it may free more."""
        return max(self.file_size_bytes - self.compacted_size_bytes, 0)

    @property
    def dedup_ratio(self) -> float:
        """The ratio of `snapshots_size_bytes` to the size of records, which shows the savings; 0 in an empty store."""
        return self.snapshots_size_bytes / self.records_size_bytes if self.records_size_bytes else 0.0


def collect(engine: Engine, *, progress: Callable[[int, int], None] | None = None) -> StoreStatistics:
    """Return the statistics of a store.

    Cost: O(threads + checkpoints / 32) to read the index, plus the sizes of `INDEX_ENTRIES_READ_MAX` entries, at most
    `RECORDS_READ_MAX` heads of records, `SWEPT_RECORDS_MAX` whole ones, and twice `NODES_VISITED_MAX` nodes (more only
    if a single state has more).

    Args:
        engine: the engine of the open store.
        progress: called with (steps done, total steps).

    Raises:
        CorruptionError: a part that was read is damaged. Most checksums are not checked: see `verify`.
    """
    tick = _Ticks(progress)
    file = engine.store_file.statistics()
    with engine.read() as view:
        rows = list(view.threads())
        policies = stored_policies(view)
        checkpoints = _read_checkpoints(view)
        last_lsn = view.transaction.last_lsn()
    tick.to(1, 10)
    unreached = sweepable_sizes(engine, SWEPT_RECORDS_MAX)
    records = _read_records(engine, last_lsn, unreached or {}, file.page_size_bytes, tick)
    sizer = StateSizer(engine.read_node, engine.read)
    sharing = _measure_sharing(engine, sizer, rows, tick)
    snapshots_size_bytes, states = _measure_states(engine, sizer, checkpoints.lsns, tick)
    threads = sorted(_threads(rows, checkpoints.by_thread, records, sharing), key=lambda each: -each.records_size_bytes)
    tick.to(1, 1)
    return StoreStatistics(
        file_size_bytes=file.file_size_bytes,
        map_size_bytes=file.map_size_bytes,
        page_size_bytes=file.page_size_bytes,
        pages_used=file.pages_used,
        pages_free=file.pages_free,
        tables=file.tables,
        readers=file.readers,
        readers_by_process=file.readers_by_process,
        last_lsn=last_lsn,
        thread_count=len(rows),
        branch_count=sum(row.branch_count for row in rows),
        checkpoint_count=len(checkpoints.lsns),
        threads=tuple(threads[:THREADS_LISTED_MAX]),
        policies=policies,
        records_size_bytes=round(records.sizes_bytes.total() * records.scale),
        records_read=records.counts.total(),
        unowned_size_bytes=round(
            (records.sizes_bytes.total() - sum(records.sizes_bytes[row.lsn] for row in rows)) * records.scale
        ),
        unreached_size_bytes=None if unreached is None else sum(unreached.values()),
        nodes=round(records.nodes * records.scale),
        snapshots_size_bytes=snapshots_size_bytes,
        states_measured=states,
        shared_size_bytes=sharing.size_bytes,
        heads_measured=sharing.heads,
        compacted_size_bytes=_compacted_size(engine, file, records.packed),
        wakes_reach=not engine.store_file.wake.slot_file.unreached,
    )


def stored_policies(view: View) -> tuple[StoredPolicy, ...]:
    """Return the retention policies for future threads, in the order in which they were set."""
    return tuple(_stored_policy(*row) for row in view.policies())


def _stored_policy(pattern: str | bytes, policy: dict[str, Any]) -> StoredPolicy:
    if isinstance(pattern, bytes):
        return StoredPolicy(None, pattern.hex(), policy)
    return StoredPolicy(pattern, None, policy)


class _Ticks:
    """Reports progress across several parts of the work, each of which has a share of the whole."""

    def __init__(self, progress: Callable[[int, int], None] | None) -> None:
        self._progress = progress

    def to(self, done: float, whole: float) -> None:
        if self._progress is not None:
            self._progress(int(_PROGRESS_STEPS * done / whole), _PROGRESS_STEPS)


# --- checkpoints ------------------------------------------------------------------


class _Checkpoints(NamedTuple):
    """All checkpoints: their number in each thread, and their LSNs in order, by branch."""

    by_thread: Counter[int]
    lsns: array[int]


def _read_checkpoints(view: View) -> _Checkpoints:
    """Read the checkpoints from the version pages (FORMAT.md section 6)."""
    by_thread: Counter[int] = Counter()
    lsns = array("Q")
    for key, payload in view.transaction.scan_index(b"v"):
        kernels.page_range(payload)  # This call checks the sizes.
        found = [
            lsn for (lsn,) in _PAGE_ENTRY.iter_unpack(payload[_PAGE_HEAD_SIZE_BYTES:]) if lsn
        ]  # An LSN of 0 means expired.
        by_thread[_PAGE_KEY.unpack_from(key)[0]] += len(found)
        lsns.extend(found)
    return _Checkpoints(by_thread, lsns)


def _threads(
    rows: list[ThreadRow], checkpoints: Counter[int], records: _Records, sharing: _Sharing
) -> Iterator[ThreadStatistics]:
    for row in rows:
        yield ThreadStatistics(
            id=row.id,
            branches=row.branch_count,
            checkpoints=checkpoints[row.lsn],
            records=round(records.counts[row.lsn] * records.scale),
            records_size_bytes=round(records.sizes_bytes[row.lsn] * records.scale),
            lent_size_bytes=sharing.lent_sizes_bytes.get(row.lsn, 0),
        )


# --- records ----------------------------------------------------------------------


@dataclass(slots=True)
class _Records:
    """Sums over the sampled records, by thread. `scale` converts a sum to an estimate for the whole log."""

    counts: Counter[int]
    sizes_bytes: Counter[int]
    packed: PackedPages
    nodes: int = 0
    scale: float = 1.0


def _read_records(
    engine: Engine, last_lsn: int, unreached: dict[int, int], page_size_bytes: int, tick: _Ticks
) -> _Records:
    sample = _sample_lsns(last_lsn)
    mac_size_bytes = 0 if engine.store_file.lmdb_file.key is None else RECORD_MAC_SIZE_BYTES
    records = _Records(Counter(), Counter(), PackedPages(page_size_bytes))
    for at in range(0, len(sample), _RECORDS_PER_TRANSACTION):
        with engine.read() as view:
            for lsn in sample[at : at + _RECORDS_PER_TRANSACTION]:
                data = view.transaction.get_log(lsn)
                if data is None:
                    raise missing("record", lsn)
                thread, _branch, nodes = read_head(data, lsn)
                records.counts[thread] += 1
                records.sizes_bytes[thread] += len(data)
                records.nodes += nodes
                records.packed.add(_LSN_SIZE_BYTES, len(data) + mac_size_bytes - unreached.get(lsn, 0))
        tick.to(1 + 4 * (at + _RECORDS_PER_TRANSACTION) / (len(sample) + _RECORDS_PER_TRANSACTION), 10)
    records.scale = last_lsn / len(sample) if sample else 1.0
    return records


def _sample_lsns(last_lsn: int) -> range | list[int]:
    """Return all LSNs, or a random LSN from each of many equal ranges.

    A regular sample could always hit the same thread.
    """
    if last_lsn <= RECORDS_READ_MAX:
        return range(1, last_lsn + 1)
    chance = random.Random(last_lsn)  # noqa: S311 - a sample, no secret
    edges = [last_lsn * step // RECORDS_READ_MAX for step in range(RECORDS_READ_MAX + 1)]
    return [chance.randint(low + 1, high) for low, high in pairwise(edges)]


def _compacted_size(engine: Engine, file: StoreFileStatistics, log: PackedPages) -> int:
    tables, index = file.tables, PackedPages(file.page_size_bytes)
    with engine.store_file.read() as transaction:
        for key_size_bytes, value_size_bytes in transaction.index_sizes(INDEX_ENTRIES_READ_MAX):
            index.add(key_size_bytes, value_size_bytes)
    pages = log.count(tables["log"].entries) + index.count(tables["index"].entries)
    return file.page_size_bytes * (_OWN_PAGES + tables["meta"].pages + pages)


# --- states -----------------------------------------------------------------------


def _measure_states(engine: Engine, sizer: StateSizer, lsns: array[int], tick: _Ticks) -> tuple[int, int]:
    """Estimate the size of all checkpoints' states, each stored as a whole.

    Return the estimate and the number of measured states.
    """
    order = _sample(len(lsns), STATES_MEASURED_MAX)
    visited_max = sizer.visited + NODES_VISITED_MAX
    sizes: list[int] = []
    for index in order:
        if sizes and sizer.visited > visited_max:
            break
        with engine.read() as view:
            # Retention may have removed the version since its LSN was read.
            event = view.find_checkpoint(lsns[index])
        with contextlib.suppress(ExpiredError):
            if event is not None:
                sizes.append(sizer.measure(event).total())
        tick.to(6 + 4 * len(sizes) / len(order), 10)
    return (round(sum(sizes) * len(lsns) / len(sizes)), len(sizes)) if sizes else (0, 0)


class _Sharing(NamedTuple):
    """The bytes that heads share with other branches and threads.

    `lent_sizes_bytes` has, for each thread, the largest number of its bytes that the head of a different thread uses.
    """

    size_bytes: int
    lent_sizes_bytes: dict[int, int]
    heads: int


def _measure_sharing(engine: Engine, sizer: StateSizer, rows: list[ThreadRow], tick: _Ticks) -> _Sharing:
    ends = list(accumulate(row.branch_count for row in rows))
    order = _sample(ends[-1] if ends else 0, HEADS_MEASURED_MAX)
    living = {row.lsn for row in rows}
    shared = heads = 0
    lent: dict[int, int] = {}
    for index in order:
        if heads and sizer.visited > NODES_VISITED_MAX:
            break
        at = bisect_right(ends, index)
        thread, branch = rows[at].lsn, index - (ends[at] - rows[at].branch_count)
        with contextlib.suppress(ExpiredError):
            with engine.read() as view:
                head = view.head_checkpoint(thread, branch)
            sizes = sizer.measure(head[0]) if head is not None else {}
            shared += sum(size for writer, size in sizes.items() if not writer.is_of(thread, branch))
            others: Counter[int] = Counter()
            for writer, size in sizes.items():
                others[writer.thread] += size
            lent |= {each: max(size, lent.get(each, 0)) for each, size in others.items() if each != thread}
        heads += 1
        tick.to(5 + heads / len(order), 10)
    # If several threads use bytes without an owner, one of these threads counts as their owner.
    shared -= sum(size for thread, size in sizer.distinct.items() if thread not in living)
    return _Sharing(max(round(shared * ends[-1] / heads), 0) if heads else 0, lent, heads)


def _sample(total: int, count_max: int) -> list[int]:
    """Return the indices to measure of `total` items: the middle one, the middles of both halves, and so on.

    So the measured items are spread evenly, even if the measurement stops early.
    """
    order: dict[int, None] = {}
    parts = 1
    while parts <= count_max:
        order.update(dict.fromkeys(total * (2 * part + 1) // (2 * parts) for part in range(parts if total else 0)))
        parts *= 2
    if total <= count_max:
        order.update(dict.fromkeys(range(total)))
    return list(order)
