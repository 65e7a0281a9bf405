"""Compares durable commits of sixteen OS threads at once with SQLite."""

from __future__ import annotations

import operator
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from benchmarks import sqlite_peer
from benchmarks.corpus import Corpus
from benchmarks.measure import BytesWritten, Samples, median
from benchmarks.result import Result, Side, at_least
from benchmarks.stores import opened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.measure import Operation
    from benchmarks.workload import Bench

_MESSAGE_BYTES = 300
_THREADS = 16
_COMMITS_PER_THREAD = 50


def run_at_once(operations: Sequence[Operation], commits: int) -> Samples:
    """Run every operation `commits` times in its own OS thread. All threads begin together."""
    shares = [Samples() for _ in operations]
    barrier = threading.Barrier(len(operations) + 1)
    errors: list[BaseException] = []

    def work(operation: Operation, share: Samples) -> None:
        barrier.wait()
        try:
            for _ in range(commits):
                share.time(operation)
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread that waits
            errors.append(error)

    threads = [threading.Thread(target=work, args=each) for each in zip(operations, shares, strict=True)]
    for thread in threads:
        thread.start()
    whole = Samples()
    before = BytesWritten.now()
    barrier.wait()
    began_ns = time.perf_counter_ns()
    for thread in threads:
        thread.join()
    whole.elapsed_ns = time.perf_counter_ns() - began_ns
    whole.add_written(before)
    if errors:
        raise errors[0]
    for share in shares:
        whole.durations_ns += share.durations_ns
        whole.processor_ns += share.processor_ns
    return whole


def joined(name: str, rounds: Sequence[Samples]) -> Side:
    """Return a summary of all rounds of a side, with the median of their rates."""
    whole = Samples()
    for taken in rounds:
        whole.durations_ns += taken.durations_ns
        whole.processor_ns += taken.processor_ns
        for field in ("handed_bytes", "dirtied_bytes"):
            more, total = getattr(taken, field), getattr(whole, field)
            setattr(whole, field, None if more is None or total is None else total + more)
    rate = median(taken.per_second for taken in rounds)
    whole.elapsed_ns = int(len(whole.durations_ns) * 1e9 / rate)
    return whole.side(name)


@contextmanager
def _sixteen(bench: Bench) -> Iterator[dict[str, list[Operation]]]:
    """Yield the sixteen operations of each side, one for each OS thread."""
    ahead = 3 * bench.repeats * bench.size(_COMMITS_PER_THREAD, at_least=5)
    messages = [Corpus(seed).endless(_MESSAGE_BYTES, ahead=ahead) for seed in range(_THREADS)]
    with ExitStack() as stack:
        store = stack.enter_context(opened(bench.directory / "sixteen.state"))
        threads = [store.thread(f"agent {number}", schema={"messages": operator.add}) for number in range(_THREADS)]
        peers = [
            stack.enter_context(sqlite_peer.connected(bench.directory / "sixteen.sqlite", f"agent {number}"))
            for number in range(_THREADS)
        ]

        def append(number: int) -> Operation:
            return lambda: threads[number].commit({"messages": [next(messages[number])]})

        def append_to_peer(number: int) -> Operation:
            return lambda: peers[number].append(next(messages[number]))

        yield {
            "statelog": [append(number) for number in range(_THREADS)],
            sqlite_peer.NAME: [append_to_peer(number) for number in range(_THREADS)],
        }


def measure_sixteen(bench: Bench, *, target: float) -> Result:
    """Measure the commits of sixteen OS threads. `target` is the required rate relative to SQLite."""
    rounds: dict[str, list[Samples]] = {}
    commits = bench.size(_COMMITS_PER_THREAD, at_least=5)
    with _sixteen(bench) as sides:
        for operations in sides.values():
            run_at_once(operations, 1)
        for _ in range(bench.repeats):
            for name, operations in sides.items():
                rounds.setdefault(name, []).append(run_at_once(operations, commits))
    sides_found = tuple(joined(name, taken) for name, taken in rounds.items())
    ours, theirs = sides_found
    return Result(
        checks=(
            at_least(
                f"{_THREADS} threads: commits a second, relative to {sqlite_peer.NAME}'s",
                ours.per_second / theirs.per_second,
                target,
            ),
        ),
        sides=sides_found,
        notes=(
            (
                f"{_THREADS} threads, {commits} commits each, {bench.repeats} times; each appends to a list of its own;"
                f" {sqlite_peer.NAME}: a connection per thread, busy_timeout {sqlite_peer.BUSY_TIMEOUT_S:g} s"
            ),
        ),
    )
