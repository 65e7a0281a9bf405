"""Compares setting entries, and updates by eight OS threads at once, with SQLite."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks import sqlite_peer
from benchmarks.board import table
from benchmarks.board.large_boards import key_of, value_of
from benchmarks.committers import joined, run_at_once
from benchmarks.measure import Samples, interleave
from benchmarks.result import Result, at_least, at_most, exactly
from benchmarks.stores import opened
from statelog import reducers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.measure import Operation
    from benchmarks.workload import Bench
    from statelog.storage.options import Durability

_OURS, _THEIRS = "statelog", sqlite_peer.NAME
_KEYS = 1000
"""The number of keys that are set in turn, repeatedly."""

_SETS_PER_REPEAT = 100
_SETS_PER_ROUND = 2000
_SET_MAX = {"commit": 1.1, "interval": 3.0}

_THREADS = 8
_UPDATES_PER_THREAD = 50
_UPDATE_MIN = 3.0
_TOTAL = "total"


def measure_set(bench: Bench) -> Result:
    """Measure `set`, alternating with an upsert of SQLite, with and without a flush."""
    return Result.joined([_measure_set(bench, "commit"), _measure_set(bench, "interval")])


def _measure_set(bench: Bench, durability: Durability) -> Result:
    synchronous = sqlite_peer.FULL if durability == "commit" else sqlite_peer.NORMAL
    numbers = {name: itertools.cycle(range(_KEYS)) for name in (_OURS, _THEIRS)}
    with ExitStack() as stack:
        store = stack.enter_context(opened(bench.directory / f"set, {durability}.state", durability=durability))
        path = bench.directory / f"set, {durability}.sqlite"
        peer = stack.enter_context(table.connected(path, synchronous=synchronous))
        board = store.board(agent="bench")

        def set_ours() -> None:
            number = next(numbers[_OURS])
            board.set(key_of(number), value_of(number))

        def set_theirs() -> None:
            number = next(numbers[_THEIRS])
            peer.set(key_of(number), value_of(number))

        operations = {f"{_OURS}, set": set_ours, f"{_THEIRS} {synchronous}, upsert": set_theirs}
        if durability == "commit":
            samples = interleave(operations, count=bench.repeats * bench.size(_SETS_PER_REPEAT, at_least=10))
            ours, theirs = (taken.side(f"{name}, {durability}") for name, taken in samples.items())
        else:
            rounds = _in_rounds(operations, bench.repeats, bench.size(_SETS_PER_ROUND, at_least=50))
            ours, theirs = (joined(f"{name}, {durability}", taken) for name, taken in rounds.items())
    ratio = ours.p50_us / theirs.p50_us
    check = at_most(f"set, {durability}: median, relative to {_THEIRS}'s upsert", ratio, _SET_MAX[durability])
    return Result(checks=(check,), sides=(ours, theirs))


def _in_rounds(operations: Mapping[str, Operation], repeats: int, count: int) -> dict[str, list[Samples]]:
    """Run each operation many times in a row, so that each side pays for its own deferred flushes."""
    rounds: dict[str, list[Samples]] = {name: [] for name in operations}
    for operation in operations.values():
        operation()
    for _ in range(repeats):
        for name, operation in operations.items():
            rounds[name].append(Samples())
            rounds[name][-1].take(operation, count)
    return rounds


def measure_update(bench: Bench) -> Result:
    """Measure a counter to which eight OS threads add. The sum must be exact."""
    times = bench.size(_UPDATES_PER_THREAD, at_least=5)
    rounds: dict[str, list[Samples]] = {_OURS: [], _THEIRS: []}
    with ExitStack() as stack:
        store = stack.enter_context(opened(bench.directory / "update.state"))
        path = bench.directory / "update.sqlite"
        peers = [stack.enter_context(table.connected(path)) for _ in range(_THREADS)]
        peers[0].begin_counting(_TOTAL)
        board = store.board(agent="bench")

        def count(peer: table.SqliteBoard) -> Operation:
            return lambda: peer.count(_TOTAL)

        sides: dict[str, list[Operation]] = {
            _OURS: [lambda: board.update(_TOTAL, reducers.add, 1)] * _THREADS,
            _THEIRS: [count(peer) for peer in peers],
        }
        for _ in range(bench.repeats):
            for name, operations in sides.items():
                rounds[name].append(run_at_once(operations, times))
        entry = board.get(_TOTAL)
        found = {_OURS: 0 if entry is None else entry.value, _THEIRS: peers[0].counted(_TOTAL)}
    ours, theirs = (joined(f"{name}, {_THREADS} threads add 1 to one number", taken) for name, taken in rounds.items())
    what = f"update(key, add, 1) by {_THREADS} threads"
    return Result(
        checks=(
            at_least(
                f"{what}: updates a second, relative to {_THEIRS}'s n=n+1",
                ours.per_second / theirs.per_second,
                _UPDATE_MIN,
            ),
            *(exactly(f"{what}: total of {name}", total, ours.operations, "updates") for name, total in found.items()),
        ),
        sides=(ours, theirs),
        notes=(f"{what}: {times} times each, {bench.repeats} times; {_THEIRS}: a connection each",),
    )
