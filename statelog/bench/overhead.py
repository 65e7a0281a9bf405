"""What a commit costs beyond the flush: its rate in `interval` mode, and its time on the processor."""

from __future__ import annotations

import itertools
import mmap
import operator
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from statelog import reducers
from statelog.bench import sqlite_peer
from statelog.bench.corpus import Corpus
from statelog.bench.measure import Samples, interleave
from statelog.bench.result import Result, at_least, at_most
from statelog.bench.stores import opened
from statelog.bench.workload import Bench, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from statelog.bench.measure import Operation

_COMMITS_PER_REPEAT = 200
_MESSAGE_BYTES = 300
_PROCESSOR_US_MAX = 60.0
_COMMITS_PER_SECOND_MIN = 3000

FDATASYNC = "fdatasync alone"
_APPEND = "append 300 B"

_flush = os.fdatasync if hasattr(os, "fdatasync") else os.fsync


@contextmanager
def _flushed_page(path: Path) -> Iterator[Operation]:
    """Yield the overwriting of one page and its flush: the least a durable write can cost."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    page = os.urandom(mmap.PAGESIZE)

    def operation() -> None:
        os.pwrite(descriptor, page, 0)
        _flush(descriptor)

    try:
        yield operation
    finally:
        os.close(descriptor)


@contextmanager
def _interval(bench: Bench) -> Iterator[dict[str, Operation]]:
    """Yield a commit of one small write in `interval` mode, and its peers."""
    numbers = itertools.count()
    with (
        opened(bench.directory / "interval.state", durability="interval") as store,
        _flushed_page(bench.directory / "page") as overwrite,
        sqlite_peer.connected(bench.directory / "interval.sqlite", synchronous=sqlite_peer.NORMAL) as peer,
    ):
        thread = store.thread("agent")
        yield {
            "statelog": lambda: thread.commit({"step": next(numbers)}),
            FDATASYNC: overwrite,
            sqlite_peer.NAME: lambda: peer.write("step", next(numbers)),
        }


def _measure_interval(bench: Bench) -> Result:
    with _interval(bench) as operations:
        samples = interleave(operations, count=bench.repeats * _COMMITS_PER_REPEAT)
    ours, alone = samples["statelog"], samples[FDATASYNC]
    return Result(
        checks=(at_least("commits a second", ours.per_second, _COMMITS_PER_SECOND_MIN, "/s"),),
        sides=tuple(taken.side(side) for side, taken in samples.items()),
        notes=(f"{FDATASYNC}, after overwriting a page, does {alone.per_second:,.0f} a second here",),
    )


# --- without the flush --------------------------------------------------------


@contextmanager
def _without_flush(bench: Bench) -> Iterator[dict[str, Operation]]:
    """Yield commits that leave their flush to the interval."""
    corpus = Corpus()
    numbers = itertools.count()
    count = bench.repeats * _COMMITS_PER_REPEAT
    messages = corpus.endless(_MESSAGE_BYTES, ahead=count + bench.size(20_000, at_least=1000))
    keyed = corpus.endless(_MESSAGE_BYTES, start=bench.size(10_000, at_least=500), ahead=count)
    with opened(bench.directory / "processor.state", durability="interval") as store:
        small = store.thread("small")
        growing = store.thread("growing", schema={"messages": operator.add})
        long = store.thread("long", schema={"messages": reducers.upsert("id")})
        long.commit({"messages": corpus.messages(bench.size(10_000, at_least=500), _MESSAGE_BYTES)})
        yield {
            "write an int": lambda: small.commit({"step": next(numbers)}),
            _APPEND: lambda: growing.commit({"messages": [next(messages)]}),
            "upsert 300 B into 10,000": lambda: long.commit({"messages": [next(keyed)]}),
        }


def _measure_processor(bench: Bench) -> Result:
    with _without_flush(bench) as operations:
        samples = interleave(operations, count=bench.repeats * _COMMITS_PER_REPEAT)
        first, last = _first_and_last(operations[_APPEND], bench.size(20_000, at_least=1000))
    checks = [
        at_most(f"median on the processor, {name}", taken.processor_p50_us, _PROCESSOR_US_MAX, "us")
        for name, taken in samples.items()
    ]
    checks.append(at_most("append, last tenth of first tenth", last.processor_p50_us / first.processor_p50_us, 1.3))
    sides = [taken.side(name) for name, taken in samples.items()]
    return Result(
        checks=tuple(checks),
        sides=(*sides, first.side(f"{_APPEND}, first tenth"), last.side(f"{_APPEND}, last tenth")),
    )


def _first_and_last(append: Operation, count: int) -> tuple[Samples, Samples]:
    """Append `count` times more, and return the first and the last tenth of it."""
    first, last = Samples(), Samples()
    first.take(append, count // 10)
    for _ in range(count - 2 * (count // 10)):
        append()
    last.take(append, count // 10)
    return first, last


INTERVAL = Workload(
    "interval-commit",
    "Commit of one small write, flushed once an interval",
    f"interval; {sqlite_peer.NAME}: WAL, synchronous={sqlite_peer.NORMAL}",
    _measure_interval,
    ("statelog", FDATASYNC, sqlite_peer.NAME),
    _interval,
)
PROCESSOR = Workload(
    "commit-without-flush",
    "Python and C time of a commit without the flush",
    "interval",
    _measure_processor,
    ("write an int", _APPEND, "upsert 300 B into 10,000"),
    _without_flush,
)
