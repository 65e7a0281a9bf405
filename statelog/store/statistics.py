"""What a store holds, and what sharing structure between checkpoints has saved."""

from __future__ import annotations

import contextlib
import random
import struct
from array import array
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog import kernels
from statelog.errors import CorruptionError, ExpiredError
from statelog.format import cbor
from statelog.format.record import DIGEST_SIZE_BYTES, FLAG_REDACTED, TYPE_AT, TYPE_THREAD
from statelog.log.view import missing
from statelog.tree.node import CHUNK, LEAF, REF_ROOT, REF_SIZE_BYTES, ROOT
from statelog.tree.tree import STRIDE, STRINGS
from statelog.tree.value import container_head

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from statelog.log.engine import Engine
    from statelog.log.events import CheckpointEvent
    from statelog.log.view import ThreadRow, View
    from statelog.storage.file.statistics import TableStatistics
    from statelog.tree.node import Node

RECORDS_READ_MAX = 65_536
"""Records looked at one by one, about 5 us each: of a longer log, an even sample."""

STATES_MEASURED_MAX = 255
"""States whose size is taken; 2**n - 1, so that halving again and again reaches them all."""

NODES_VISITED_MAX = 200_000
"""Nodes looked at for that, at most (and one whole state at least): about a second."""

THREADS_LISTED_MAX = 1000
"""Threads told one by one, those with most bytes; more, nobody reads."""

_RECORDS_PER_TRANSACTION = 512
_PAGE_KEY = struct.Struct(">xQ")
_PAGE_ENTRY = struct.Struct(">Q8x")
_PAGE_HEAD_SIZE_BYTES = 8
_PROGRESS_STEPS = 1000
_TABLE_SHORT = 64


@dataclass(frozen=True, slots=True)
class ThreadStatistics:
    """One thread. `checkpoints` are those on all its branches, shared ones once."""

    id: str
    branches: int
    checkpoints: int
    records: int
    records_size_bytes: int


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
    what is told of snapshots, from the states of `states_measured` checkpoints.

    Attributes:
        map_size_bytes: the quota with which the file is open here.
        pages_used: with `pages_free`, all pages the file ever had. Free ones are reused first.
        readers: transactions that read at this moment, of any process.
        threads: the `THREADS_LISTED_MAX` with most bytes, largest first.
        policies: for threads to come, in the order they were set: the last one that fits counts.
        records_size_bytes: envelopes, bodies and nodes of all records, without page overhead.
        records_read: how many records that was taken from.
        nodes: pieces of values stored, each once.
        snapshots_size_bytes: what the states of all checkpoints would take, each stored
            whole, in the same encoding (CBOR) and without anything around it.
        states_measured: how many states that was taken from.

    """

    file_size_bytes: int
    map_size_bytes: int
    page_size_bytes: int
    pages_used: int
    pages_free: int
    tables: dict[str, TableStatistics]
    readers: int
    last_lsn: int
    thread_count: int
    branch_count: int
    checkpoint_count: int
    threads: tuple[ThreadStatistics, ...]
    policies: tuple[StoredPolicy, ...]
    records_size_bytes: int
    records_read: int
    nodes: int
    snapshots_size_bytes: int
    states_measured: int

    @property
    def records_are_estimated(self) -> bool:
        """Whether what is told of records was scaled up from a sample."""
        return self.records_read < self.last_lsn

    @property
    def snapshots_are_estimated(self) -> bool:
        """Whether `snapshots_size_bytes` was scaled up from a sample."""
        return self.states_measured < self.checkpoint_count

    @property
    def dedup_ratio(self) -> float:
        """Bytes of one snapshot per checkpoint over bytes of records: how much sharing saves; 0 if empty."""
        return self.snapshots_size_bytes / self.records_size_bytes if self.records_size_bytes else 0.0


def collect(engine: Engine, *, progress: Callable[[int, int], None] | None = None) -> StoreStatistics:
    """Return the statistics of a store.

    Cost: O(threads + checkpoints / 32) to read the index, plus at most `RECORDS_READ_MAX`
    heads of records and `NODES_VISITED_MAX` nodes (more only if a single state has more).

    Args:
        engine: of the open store.
        progress: called with (steps done, steps in all).

    Raises:
        CorruptionError: what had to be read is damaged. Checksums of records are not: see `verify`.

    """
    tick = _Ticks(progress)
    environment = engine.environment.statistics()
    with engine.read() as view:
        rows = list(view.threads())
        policies = tuple(_stored_policy(*row) for row in view.policies())
        checkpoints = _read_checkpoints(view)
        last_lsn = view.transaction.last_lsn()
    tick.to(1, 10)
    records = _read_records(engine, last_lsn, tick)
    snapshots_size_bytes, states = _measure_states(engine, checkpoints.lsns, tick)
    threads = sorted(_threads(rows, checkpoints.by_thread, records), key=lambda each: -each.records_size_bytes)
    return StoreStatistics(
        file_size_bytes=environment.file_size_bytes,
        map_size_bytes=environment.map_size_bytes,
        page_size_bytes=environment.page_size_bytes,
        pages_used=environment.pages_used,
        pages_free=environment.pages_free,
        tables=environment.tables,
        readers=environment.readers,
        last_lsn=last_lsn,
        thread_count=len(rows),
        branch_count=sum(row.branch_count for row in rows),
        checkpoint_count=len(checkpoints.lsns),
        threads=tuple(threads[:THREADS_LISTED_MAX]),
        policies=policies,
        records_size_bytes=round(records.sizes_bytes.total() * records.scale),
        records_read=records.counts.total(),
        nodes=round(records.nodes * records.scale),
        snapshots_size_bytes=snapshots_size_bytes,
        states_measured=states,
    )


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


def _threads(rows: list[ThreadRow], checkpoints: Counter[int], records: _Records) -> Iterator[ThreadStatistics]:
    for row in rows:
        yield ThreadStatistics(
            id=row.id,
            branches=row.branch_count,
            checkpoints=checkpoints[row.lsn],
            records=round(records.counts[row.lsn] * records.scale),
            records_size_bytes=round(records.sizes_bytes[row.lsn] * records.scale),
        )


# --- records ----------------------------------------------------------------------


@dataclass(slots=True)
class _Records:
    """Sums over the records read, by thread; `scale` makes them those of the whole log."""

    counts: Counter[int]
    sizes_bytes: Counter[int]
    nodes: int = 0
    scale: float = 1.0


def _read_records(engine: Engine, last_lsn: int, tick: _Ticks) -> _Records:
    sample = _sample_lsns(last_lsn)
    records = _Records(Counter(), Counter())
    for at in range(0, len(sample), _RECORDS_PER_TRANSACTION):
        with engine.read() as view:
            for lsn in sample[at : at + _RECORDS_PER_TRANSACTION]:
                data = view.transaction.get_log(lsn)
                if data is None:
                    raise missing("record", lsn)
                thread, nodes = _read_head(data, lsn)
                records.counts[thread] += 1
                records.sizes_bytes[thread] += len(data)
                records.nodes += nodes
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


def _read_head(data: memoryview, lsn: int) -> tuple[int, int]:
    """Return (thread, node count) of a record, reading neither its checksum nor its nodes."""
    try:
        parts = kernels.record_open(data)
    except CorruptionError:
        message = f"record {lsn}: {len(data)} bytes are not such as its envelope says"
        raise CorruptionError(message, lsn=lsn) from None
    nodes = parts.node_count
    if data[TYPE_AT] == TYPE_THREAD:
        return lsn, nodes
    body = bytes(data[parts.body_at : parts.body_at + parts.body_size])
    _kind, first, ends = kernels.cbor_split(body)
    thread = cbor.decode(body[first : ends[0]]) if ends else None
    if not isinstance(thread, int):
        message = f"record {lsn}: its body names no thread"
        raise CorruptionError(message, lsn=lsn)
    return thread, nodes


# --- states -----------------------------------------------------------------------


def _measure_states(engine: Engine, lsns: array[int], tick: _Ticks) -> tuple[int, int]:
    """Return (bytes of one snapshot per checkpoint, states measured for it)."""
    sizer = _StateSizer(engine)
    order = _sample_checkpoints(len(lsns))
    sizes: list[int] = []
    for index in order:
        if sizes and sizer.visited > NODES_VISITED_MAX:
            break
        with engine.read() as view:
            is_gone = view.record(lsns[index]).flags & FLAG_REDACTED  # retention went on meanwhile
            event = None if is_gone else view.checkpoint(lsns[index])
        with contextlib.suppress(ExpiredError):
            if event is not None:
                sizes.append(sizer.measure(event))
        tick.to(5 + 5 * len(sizes) / len(order), 10)
    tick.to(1, 1)
    return (round(sum(sizes) * len(lsns) / len(sizes)), len(sizes)) if sizes else (0, 0)


def _sample_checkpoints(total: int) -> list[int]:
    """Return which of `total` to measure: the middle, the middles of both halves, and so on.

    So any first part of the list is spread evenly, wherever the measuring has to stop.
    """
    order: dict[int, None] = {}
    parts = 1
    while parts <= STATES_MEASURED_MAX:
        order.update(dict.fromkeys(total * (2 * part + 1) // (2 * parts) for part in range(parts if total else 0)))
        parts *= 2
    if total <= STATES_MEASURED_MAX:
        order.update(dict.fromkeys(range(total)))
    return list(order)


class _Part(NamedTuple):
    """A root or chunk to be measured."""

    type: int
    digest: bytes
    lsn: int
    number: int


class _StateSizer:
    """Sizes of values, as one CBOR item each, from the nodes that make them up.

    A node that several states share is measured once: after the first state, each costs
    what it does not share with those before. Leaves are not read, only their size is.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._sizes: dict[tuple[int, int], int] = {}
        self._tables: dict[int, list[int]] = {}
        self._tables_size = 0
        self.visited = 0

    def measure(self, event: CheckpointEvent) -> int:
        """Return the size of a checkpoint's state."""
        root = _Part(ROOT, event.root_digest, event.root_lsn, event.root_node)
        # Children first, without recursion: the depth of a value is its writer's choice.
        open_parts: list[tuple[_Part, int, list[_Part]] | None] = []
        pending: list[_Part | None] = [root]
        while pending:
            part = pending.pop()
            if part is None:  # all children of the part opened last are measured
                opened = open_parts.pop()
                assert opened is not None
                closed, own, children = opened
                size = own + sum(self._sizes[child.lsn, child.number] for child in children)
                self._sizes[closed.lsn, closed.number] = size
            elif (part.lsn, part.number) not in self._sizes:
                own, children = self._open(part)
                open_parts.append((part, own, children))
                pending.append(None)
                pending.extend(children)
        return self._sizes[root.lsn, root.number]

    def _open(self, part: _Part) -> tuple[int, list[_Part]]:
        """Return (bytes that stand in a node or in leaves under it, its chunks and roots)."""
        self.visited += 1
        node = self._engine.read_node(part.type, part.digest, part.lsn, part.number)
        if part.type == CHUNK:
            kind, level = node.data[:2]
            return self._open_entries(node, kind, level=level, is_root=False)
        head = kernels.root_read(*node)
        if head.kind in STRINGS:
            return len(cbor.head(2, head.count)) + head.count, []
        own, children = self._open_entries(node, head.kind, level=0, is_root=True)
        for _covered, digest, lsn, number in head.levels:
            if digest is not None:
                children.append(_Part(CHUNK, digest, lsn, number))
        return own + len(container_head(head.kind, head.count)), children

    def _open_entries(self, node: Node, kind: int, *, level: int, is_root: bool) -> tuple[int, list[_Part]]:
        table = kernels.entries_table(*node, is_root=is_root, kind=kind)
        entries = [table[at : at + STRIDE] for at in range(0, len(table), STRIDE)]
        if level:
            return 0, [
                _Part(CHUNK, node.data[at : at + DIGEST_SIZE_BYTES], lsn, number)
                for _at, at, _end, _covered, lsn, number in entries
            ]
        own = entries[-1][2] - entries[0][0] if entries else 0
        if kind == kernels.KIND_KEYED:
            own -= 2 * len(entries)  # fingerprints
        refs = [(node.data[at : at + REF_SIZE_BYTES], lsn, number) for _at, at, _end, _c, lsn, number in entries if lsn]
        roots = [_Part(ROOT, ref[1:], lsn, number) for ref, lsn, number in refs if ref[:1] == REF_ROOT]
        leaves = [(lsn, number) for ref, lsn, number in refs if ref[:1] != REF_ROOT]
        return own - REF_SIZE_BYTES * len(refs) + self._leaf_sizes(leaves), roots

    def _leaf_sizes(self, leaves: list[tuple[int, int]]) -> int:
        if not leaves:
            return 0
        self.visited += len(leaves)
        size = 0
        with self._engine.read() as view:
            for lsn, number in leaves:
                size += self._leaf_size(view, lsn, number)
        return size

    def _leaf_size(self, view: View, lsn: int, number: int) -> int:
        sizes = self._tables.get(lsn)
        if sizes is None:
            record = view.transaction.get_log(lsn)
            if record is None:
                raise missing("record", lsn)
            if number < _TABLE_SHORT:
                type_, _digest, _at, size, _total = kernels.record_node(record, number)
                return _checked_leaf_size(size if type_ == LEAF else 0, lsn, number)
            # To get a record, the binding touches every page of it: of a long one, take all sizes at once.
            if self._tables_size > NODES_VISITED_MAX:
                self._tables, self._tables_size = {}, 0
            sizes = [size if type_ == LEAF else 0 for type_, _d, _at, size, _total in kernels.record_nodes(record)]
            self._tables[lsn] = sizes
            self._tables_size += len(sizes)
        return _checked_leaf_size(sizes[number] if number < len(sizes) else 0, lsn, number)


def _checked_leaf_size(size: int, lsn: int, number: int) -> int:
    if not size:
        message = f"record {lsn}: node {number} is no leaf, but is referred to as one"
        raise CorruptionError(message, lsn=lsn, node=number)
    return size
