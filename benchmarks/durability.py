"""Compares commits with a flush, and without one, with commits of SQLite that have the same guarantee."""

from __future__ import annotations

import itertools
import operator
import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from benchmarks import sqlite_peer
from benchmarks.committers import joined, measure_sixteen
from benchmarks.corpus import Corpus
from benchmarks.measure import Samples, interleave
from benchmarks.result import Result, at_most
from benchmarks.stores import BenchStore, opened
from benchmarks.workload import Bench, BenchWorkload
from statelog.storage.wal.wal_format import encode_group

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.measure import Operation

_MESSAGE_BYTES = 2000
_FLUSHED_MAX = {"an int": 1.0, "2 KB": 1.15}
"""For each kind of write, the maximum time of a durable commit relative to SQLite."""

_PROCESSOR_US_MAX = {"an int": 60.0, "2 KB": 80.0}
"""For each kind of write, the maximum processor time of a commit without a flush."""

_P99_MAX = 3.0
_COMMITS_PER_REPEAT = 100
_COMMITS_PER_ROUND = 2000
"""The number of commits in a round with `interval`, which is enough for some checkpoints of each side."""

_PREALLOCATED_BYTES = 8 * 1024 * 1024
_OURS, _RAW, _THEIRS = "commit", "pwrite + fdatasync", f"{sqlite_peer.NAME} {sqlite_peer.FULL}"


def _measure(bench: Bench) -> Result:
    return Result.joined(
        [
            _measure_commit(bench),
            measure_sixteen(bench, target=6.0),
            _measure_interval(bench),
        ]
    )


# --- a flush --------------------------------------------------------------------


@contextmanager
def _appended(path: Path, data: bytes) -> Iterator[Operation]:
    """Yield an operation that appends to a file of zeros, and flushes. An append to the WAL should cost the same."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    places = itertools.cycle(range(0, _PREALLOCATED_BYTES - len(data), len(data)))

    def operation() -> None:
        os.pwrite(descriptor, data, next(places))
        os.fdatasync(descriptor)

    try:
        os.pwrite(descriptor, bytes(_PREALLOCATED_BYTES), 0)
        os.fsync(descriptor)
        yield operation
    finally:
        os.close(descriptor)


def _journaled(store: BenchStore) -> bytes:
    """Return the bytes that the last commit wrote to the WAL."""
    with store.engine.read() as view:
        record = view.transaction.get_log(store.last_lsn)
        assert record is not None
        return encode_group(bytes(16), 1, store.last_lsn, [bytes(record)], flushed=0)


def _measure_commit(bench: Bench) -> Result:
    """Measure commits that are each flushed, and a transaction that commits to two threads."""
    parts = [_measure_write(bench, write, most) for write, most in _FLUSHED_MAX.items()]
    parts.append(_measure_transaction(bench))
    return Result.joined(parts)


def _measure_write(bench: Bench, write: str, most: float) -> Result:
    count = bench.repeats * _COMMITS_PER_REPEAT
    path = bench.directory / f"{write}.state"
    with ExitStack() as stack:
        store = stack.enter_context(opened(path))
        ours, theirs = _operations(stack, bench, store, write)
        ours()
        data = _journaled(store)
        append = stack.enter_context(_appended(bench.directory / "raw", data))
        sides = {_OURS: ours, _RAW: append, _THEIRS: theirs}
        samples = interleave({f"{name}, {write}": operation for name, operation in sides.items()}, count=count)
    left = [each.name for each in bench.directory.iterdir() if each.name.startswith(path.name)]
    found, raw, peer = samples.values()
    return Result(
        checks=(
            at_most(f"{write}: median commit, relative to {_THEIRS}'s", found.p50_us / peer.p50_us, most),
            at_most(
                f"{write}: p99, over several checkpoints, relative to {_RAW}'s",
                found.side("").p99_us / raw.side("").p99_us,
                _P99_MAX,
            ),
            at_most("files other than LMDB's lock file, once closed", len(left) - 1, 1, "files"),
        ),
        sides=tuple(taken.side(name) for name, taken in samples.items()),
        notes=(f"{_RAW}: the {len(data)} bytes that the journal gets of {write}, into a file of zeros",),
    )


def _measure_transaction(bench: Bench) -> Result:
    """Measure the commit of two checkpoints in one transaction."""
    numbers = itertools.count()
    with opened(bench.directory / "transaction.state") as store:
        one, other = store.thread("one"), store.thread("other")

        def commit_both() -> None:
            with store.transaction() as transaction:
                transaction.thread("one").commit({"step": next(numbers)})
                transaction.thread("other").commit({"step": next(numbers)})

        other.commit({"step": next(numbers)})
        sides = {_OURS: lambda: one.commit({"step": next(numbers)}), "transaction over two threads": commit_both}
        samples = interleave(sides, count=bench.repeats * _COMMITS_PER_REPEAT)
    commit, both = samples.values()
    return Result(
        checks=(
            at_most("transaction over two threads: median, relative to a commit's", both.p50_us / commit.p50_us, 2.0),
        ),
        sides=tuple(taken.side(name) for name, taken in samples.items()),
        notes=(),
    )


def _operations(stack: ExitStack, bench: Bench, store: BenchStore, write: str) -> tuple[Operation, Operation]:
    """Return a commit of one kind of write, and the commit of SQLite with the same guarantee."""
    synchronous = sqlite_peer.FULL if store.durability == "commit" else sqlite_peer.NORMAL
    name = f"{write}, {synchronous}.sqlite"
    peer = stack.enter_context(sqlite_peer.connected(bench.directory / name, synchronous=synchronous))
    if write == "an int":
        numbers = itertools.count()
        thread = store.thread("agent")
        return lambda: thread.commit({"step": next(numbers)}), lambda: peer.write("step", next(numbers))
    messages = Corpus().endless(_MESSAGE_BYTES, ahead=bench.repeats * _commits_per_round(bench))
    growing = store.thread("agent", schema={"messages": operator.add})
    return lambda: growing.commit({"messages": [next(messages)]}), lambda: peer.append(next(messages))


# --- none -----------------------------------------------------------------------


def _commits_per_round(bench: Bench) -> int:
    return bench.size(_COMMITS_PER_ROUND, at_least=50)


def _measure_interval(bench: Bench) -> Result:
    return Result.joined([_measure_unflushed(bench, write, most_us) for write, most_us in _PROCESSOR_US_MAX.items()])


def _measure_unflushed(bench: Bench, write: str, most_us: float) -> Result:
    count = _commits_per_round(bench)
    with ExitStack() as stack:
        store = stack.enter_context(opened(bench.directory / f"{write}, interval.state", durability="interval"))
        commit, commit_to_peer = _operations(stack, bench, store, write)
        operations = {"interval": commit, f"{sqlite_peer.NAME} {sqlite_peer.NORMAL}": commit_to_peer}
        rounds: dict[str, list[Samples]] = {f"{name}, {write}": [] for name in operations}
        for operation in operations.values():
            operation()
        for _ in range(bench.repeats):
            for taken, operation in zip(rounds.values(), operations.values(), strict=True):
                taken.append(Samples())
                taken[-1].take(operation, count)
    ours, theirs = (joined(name, taken) for name, taken in rounds.items())
    assert ours.processor_p50_us is not None
    return Result(
        checks=(at_most(f"interval, {write}: median on the processor", ours.processor_p50_us, most_us, "us"),),
        sides=(ours, theirs),
        notes=(f"interval, {write}: {bench.repeats} rounds of {count} commits; the rate is that of the median round",),
    )


DURABILITY = BenchWorkload(
    "durability",
    "Durable commits, compared with SQLite with the same guarantee",
    f"commit ({sqlite_peer.NAME}: WAL, synchronous={sqlite_peer.FULL}) and interval"
    f" ({sqlite_peer.NAME}: synchronous={sqlite_peer.NORMAL})",
    _measure,
)
