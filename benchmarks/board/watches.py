"""Measures the time until another process sees an entry, the cost of waiting, and the cost of other watchers."""

from __future__ import annotations

import itertools
import os
import time
from typing import TYPE_CHECKING

from benchmarks.board.watcher import WatchJob
from benchmarks.children import ask, started
from benchmarks.committers import joined
from benchmarks.measure import Samples
from benchmarks.result import Result, at_least, at_most
from benchmarks.stores import opened

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.children import ChildProcess
    from benchmarks.workload import Bench
    from statelog.storage.options import Durability
    from statelog.store.store import Store

_WATCHER = "benchmarks.board.watcher"
_EVENTS_PER_REPEAT = 100
_PAUSE_S = 0.005
"""The time between two events, in which the watcher falls asleep again."""

_BEFORE_S = 0.2
"""How long to wait until the watchers sleep, in seconds."""

_P50_MAX, _P99_MAX_MS, _IDLE_MAX = 6.0, 5.0, 0.5
_IDLE_S, _IDLE_S_MIN = 4.0, 0.3

_PROCESSES, _THREADS = 10, 10
_BESIDE_MIN = 0.8
_DURATION_S, _DURATION_S_MIN = 2.0, 0.05
_ROUNDS_MAX = 3


# --- an event -------------------------------------------------------------------


def measure_events(bench: Bench) -> Result:
    """Measure how fast a watching process sees events, compared with bytes in a pipe, and what it costs when idle."""
    count = bench.repeats * bench.size(_EVENTS_PER_REPEAT, at_least=5)
    path = bench.directory / "watched.state"
    with opened(path) as store, started(_WATCHER, 2) as (watcher, reader):
        piped = _told_of_pipe(reader, count)
        told = _told(store, path, watcher, count)
        idle = _idle(bench, path, watcher)
    sides = told.side("statelog, return of set -> event in another process"), piped.side("os.pipe, write -> read there")
    return Result(
        checks=(
            at_most(
                "return of set -> event: p50, relative to an os.pipe wake", sides[0].p50_us / sides[1].p50_us, _P50_MAX
            ),
            at_most("return of set -> event: p99", sides[0].p99_us / 1000, _P99_MAX_MS, "ms"),
            at_most("share of a core that a watcher without events uses", idle * 100, _IDLE_MAX, "%"),
        ),
        sides=sides,
        notes=(f"events: {count:,}, {_PAUSE_S * 1000:g} ms between them; both sleep meanwhile",),
    )


def _told_of_pipe(reader: ChildProcess, count: int) -> Samples:
    ask([reader], WatchJob("pipe", count=count).line())
    samples = _unmeasured()
    for _ in range(count):
        time.sleep(_PAUSE_S)
        began_ns = time.monotonic_ns()
        os.write(reader.ear, b".")
        samples.durations_ns.append(int(reader.hear()) - began_ns)
    reader.hear()
    return samples


def _told(store: Store, path: Path, watcher: ChildProcess, count: int) -> Samples:
    ask([watcher], WatchJob("tell", str(path), "watched/*", count=count).line())
    time.sleep(_BEFORE_S)
    board, samples = store.board(agent="bench"), _unmeasured()
    for number in range(count):
        time.sleep(_PAUSE_S)
        board.set("watched/key", number)
        returned_ns = time.monotonic_ns()
        # The difference may be negative, because the watcher may hear of the entry before `set` returns.
        samples.durations_ns.append(max(int(watcher.hear()) - returned_ns, 1))
    watcher.hear()
    return samples


def _idle(bench: Bench, path: Path, watcher: ChildProcess) -> float:
    duration_s = max(_IDLE_S * min(bench.scale, 1.0), _IDLE_S_MIN)
    ask([watcher], WatchJob("idle", str(path), "watched/*", duration_s=duration_s).line())
    share = float(watcher.hear())
    watcher.hear()
    return share


# --- a writer -------------------------------------------------------------------


def measure_watched(bench: Bench) -> Result:
    """Measure a writer alone, and while other processes watch other keys."""
    return Result.joined([_measure_watched(bench, "commit"), _measure_watched(bench, "interval")])


def _measure_watched(bench: Bench, durability: Durability) -> Result:
    alone, beside = list[Samples](), list[Samples]()
    processes = bench.size(_PROCESSES, at_least=2)
    path = bench.directory / f"written, {durability}.state"
    numbers = itertools.count()
    with opened(path, durability=durability) as store:
        board = store.board(agent="bench")

        def write() -> Samples:
            samples, ends_s = Samples(), time.monotonic() + _duration_s(bench)
            while not samples.durations_ns or time.monotonic() < ends_s:
                samples.take(lambda: board.set("written/key", next(numbers)), 10)
            return samples

        board.set("written/key", -1)
        for _ in range(min(bench.repeats, _ROUNDS_MAX)):
            alone.append(write())
            with started(_WATCHER, processes) as watchers:
                for number, watcher in enumerate(watchers):
                    watcher.say(WatchJob("beside", str(path), f"other/{number}/{{thread}}/**", count=_THREADS).line())
                for watcher in watchers:
                    watcher.hear()
                time.sleep(_BEFORE_S)
                beside.append(write())
    what = f"{processes} processes, {processes * _THREADS} watchers of other keys"
    sides = joined(f"statelog, {durability}, set with no other process", alone), joined(f"with {what}", beside)
    ratio = sides[1].per_second / sides[0].per_second
    check = at_least(f"{what}, {durability}: sets a second, relative to no other process", ratio, _BESIDE_MIN)
    return Result(checks=(check,), sides=sides)


def _duration_s(bench: Bench) -> float:
    return max(_DURATION_S * min(bench.scale, 1.0), _DURATION_S_MIN)


def _unmeasured() -> Samples:
    """Return samples for work in two processes, whose written bytes are unknown."""
    return Samples(handed_bytes=None, dirtied_bytes=None)
