"""What a store holds, and what sharing structure between checkpoints has saved."""

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
from statelog.storage.file.packing import PackedPages
from statelog.store.state_sizes import StateSizer, read_head

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from statelog.log.engine import Engine
    from statelog.log.view import ThreadRow, View
    from statelog.storage.statistics import ReaderStatistics, StoreFileStatistics, TableStatistics

RECORDS_READ_MAX = 65_536
"""Records looked at one by one, about 5 us each: of a longer log, an even sample."""

STATES_MEASURED_MAX = 255
"""States whose size is taken; 2**n - 1, so that halving again and again reaches them all."""

NODES_VISITED_MAX = 200_000
"""Nodes looked at for that, at most (and one whole state at least): about a second."""

HEADS_MEASURED_MAX = 4095
"""Branches of which is told what their heads share; 2**n - 1, and as many nodes again."""

SWEPT_RECORDS_MAX = 65_536
"""Records looked at for what a compaction would take out of them, about 30 us each: if it takes more, none is."""

INDEX_ENTRIES_READ_MAX = 1_000_000
"""Entries of the index whose sizes are taken, about 0.3 us each."""

THREADS_LISTED_MAX = 1000
"""Threads told one by one, those with most bytes; more, nobody reads."""

_RECORDS_PER_TRANSACTION = 512
_PAGE_KEY = struct.Struct(">xQ")
_PAGE_ENTRY = struct.Struct(">Q8x")
_PAGE_HEAD_SIZE_BYTES = 8
_PROGRESS_STEPS = 1000
_LSN_SIZE_BYTES = 8
_OWN_PAGES = 3
"""Of LMDB's: two meta pages, and the one that names the tables."""


@dataclass(frozen=True, slots=True)
class ThreadStatistics:
    """One thread.

    Attributes:
        checkpoints: those on all its branches that have not expired, shared ones once.
        records: all its records, those of expired versions too, which keep their place in the log.
        records_size_bytes: of these, with the nodes in them: also those that only other threads still lead to.
        lent_size_bytes: of the state at the head of some branch of another thread, what stands in records of this one;
            of the branch that has most. So much at least stays in the file if this thread is deleted.
    """

    id: str
    branches: int
    checkpoints: int
    records: int
    records_size_bytes: int
    lent_size_bytes: int


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """A retention policy for threads to come.

    Attributes:
        pattern: of their ids; None if it is for one thread.
        id_digest: then, hex: that of its id, which is not stored before the thread is there.
        policy: as `ThreadInfo.policy`; empty: none, whatever patterns set before say.
    """

    pattern: str | None
    id_digest: str | None
    policy: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """A store's sizes and counts.

    Pages, tables, threads, branches and checkpoints are exact. What is told of records is
    exact for logs of up to `RECORDS_READ_MAX` records, else scaled up from an even sample;
    what is told of snapshots, from the states of `states_measured` checkpoints, and what is told of sharing, from
    those at the heads of `heads_measured` branches.

    Attributes:
        map_size_bytes: the quota with which the file is open here.
        pages_used: with `pages_free`, all pages the file ever had. Free ones are reused first.
        readers: transactions that read at this moment, of any process, but for this call's own. Another process that
            has written counts as one until it has rested for a second.
        readers_by_process: whose they are, the oldest first. While one reads, no page freed since it began is used
            again. Who reads in the file of before a compaction is not among them.
        threads: the `THREADS_LISTED_MAX` with most bytes, largest first.
        policies: for threads to come, in the order they were set: the last one that fits counts.
        records_size_bytes: envelopes, bodies and nodes of all records, without page overhead.
        records_read: how many records that was taken from.
        unowned_size_bytes: of these, what belongs to no thread that is there: what deleted threads left, which others
            may lead to, and what is said of the store as a whole.
        unreached_size_bytes: of these, what no version leads to and only a compaction takes; None if the store has too
            many records that would have to be looked at for it.
        nodes: pieces of values stored, each once.
        snapshots_size_bytes: what the states of all checkpoints would take, each stored
            whole, in the same encoding (CBOR) and without anything around it.
        states_measured: how many states that was taken from.
        shared_size_bytes: of the states at the heads of all branches, in the same encoding, what stands in records of
            another branch or thread: what would have to be stored besides if each branch stood alone. Of what a deleted
            thread left, and others share, one of these counts as its owner.
        heads_measured: how many branches that was taken from.
        compacted_size_bytes: what the file would be after `Store.compact`, estimated: the sizes of records and index
            entries, without what is `unreached_size_bytes`, put into pages as LMDB fills them. The commits after a
            compaction lengthen the file again by a reserve (a quarter of a small store, 1/128 of a large one).
        wakes_reach: False if one who waits here has seen a commit of a process whose wake-ups do not reach it. Then it
            looks at the log, at intervals.
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
        """Whether what is told of records was scaled up from a sample."""
        return self.records_read < self.last_lsn

    @property
    def snapshots_are_estimated(self) -> bool:
        """Whether `snapshots_size_bytes` was scaled up from a sample."""
        return self.states_measured < self.checkpoint_count

    @property
    def sharing_is_estimated(self) -> bool:
        """Whether `shared_size_bytes` was scaled up from a sample."""
        return self.heads_measured < self.branch_count

    @property
    def reclaimable_size_bytes(self) -> int:
        """What a compaction would give back, estimated; more where `unreached_size_bytes` is not known."""
        return max(self.file_size_bytes - self.compacted_size_bytes, 0)

    @property
    def dedup_ratio(self) -> float:
        """Bytes of one snapshot per checkpoint over bytes of records: how much sharing saves; 0 if empty."""
        return self.snapshots_size_bytes / self.records_size_bytes if self.records_size_bytes else 0.0


def collect(engine: Engine, *, progress: Callable[[int, int], None] | None = None) -> StoreStatistics:
    """Return the statistics of a store.

    Cost: O(threads + checkpoints / 32) to read the index, plus the sizes of `INDEX_ENTRIES_READ_MAX` entries, at most
    `RECORDS_READ_MAX` heads of records, `SWEPT_RECORDS_MAX` whole ones, and twice `NODES_VISITED_MAX` nodes (more only
    if a single state has more).

    Args:
        engine: of the open store.
        progress: called with (steps done, steps in all).

    Raises:
        CorruptionError: what had to be read is damaged. Most checksums are not looked at: see `verify`.
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
    """Progress over parts that each have a share of the whole."""

    def __init__(self, progress: Callable[[int, int], None] | None) -> None:
        self._progress = progress

    def to(self, done: float, whole: float) -> None:
        if self._progress is not None:
            self._progress(int(_PROGRESS_STEPS * done / whole), _PROGRESS_STEPS)


# --- checkpoints ------------------------------------------------------------------


class _Checkpoints(NamedTuple):
    """All checkpoints there are: how many each thread has, and the LSNs, branch by branch in order."""

    by_thread: Counter[int]
    lsns: array[int]


def _read_checkpoints(view: View) -> _Checkpoints:
    """Read them from the version pages (FORMAT.md section 6)."""
    by_thread: Counter[int] = Counter()
    lsns = array("Q")
    for key, payload in view.transaction.scan_index(b"v"):
        kernels.page_range(payload)  # its sizes fit
        found = [lsn for (lsn,) in _PAGE_ENTRY.iter_unpack(payload[_PAGE_HEAD_SIZE_BYTES:]) if lsn]  # 0: expired
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
    """Sums over the records read, by thread; `scale` makes them those of the whole log."""

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
    """Return all LSNs, or one by chance out of each of equal stretches: threads may write by turns."""
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
    """Return (bytes of one snapshot per checkpoint, states measured for it)."""
    order = _sample(len(lsns), STATES_MEASURED_MAX)
    visited_max = sizer.visited + NODES_VISITED_MAX
    sizes: list[int] = []
    for index in order:
        if sizes and sizer.visited > visited_max:
            break
        with engine.read() as view:
            event = view.find_checkpoint(lsns[index])  # retention went on meanwhile
        with contextlib.suppress(ExpiredError):
            if event is not None:
                sizes.append(sizer.measure(event).total())
        tick.to(6 + 4 * len(sizes) / len(order), 10)
    return (round(sum(sizes) * len(lsns) / len(sizes)), len(sizes)) if sizes else (0, 0)


class _Sharing(NamedTuple):
    """What heads have from other branches and threads; by thread, the most that a head of another has from it."""

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
    # Of what has no owner any more, one of those who have it is as good as the owner.
    shared -= sum(size for thread, size in sizer.distinct.items() if thread not in living)
    return _Sharing(max(round(shared * ends[-1] / heads), 0) if heads else 0, lent, heads)


def _sample(total: int, count_max: int) -> list[int]:
    """Return which of `total` to measure: the middle, the middles of both halves, and so on.

    So any first part of the list is spread evenly, wherever the measuring has to stop.
    """
    order: dict[int, None] = {}
    parts = 1
    while parts <= count_max:
        order.update(dict.fromkeys(total * (2 * part + 1) // (2 * parts) for part in range(parts if total else 0)))
        parts *= 2
    if total <= count_max:
        order.update(dict.fromkeys(range(total)))
    return list(order)
