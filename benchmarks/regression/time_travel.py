"""Measures whether rollbacks and forks cost the same in a large thread as in a small one."""

from __future__ import annotations

import itertools
import operator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from benchmarks.corpus import Corpus
from benchmarks.measure import interleave
from benchmarks.regression.compared import Compared
from benchmarks.result import Result, at_most
from benchmarks.stores import opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.measure import Operation
    from benchmarks.workload import Bench
    from statelog.store.thread import Thread

_DOCUMENT_BYTES = 10_000
_DOCUMENTS_PER_COMMIT = 1000
_SMALL = (100, 1)
_BIG = (100_000, 10_000)
"""The number of versions, and the number of documents of 10 KB in the state."""
_PER_REPEAT = 40

_ROLLBACK_SIDES = ("small", "big", "smallest commit, small", "smallest commit", "big, warm")
_WARM_TARGETS = 10
"""The number of versions to roll back to in the warm case. Their records and pages stay in the processor's caches."""
_FORK_SIDES = ("small", "big")


def _build(path: Path, versions: int, documents: int) -> None:
    """Create a thread with many versions. After the first commits, every version has all documents and a step count."""
    corpus = Corpus()
    with opened(path, flush=False) as store:
        thread = store.thread("agent", schema={"documents": operator.add, "step": operator.add})
        for start in range(0, documents, _DOCUMENTS_PER_COMMIT):
            count = min(_DOCUMENTS_PER_COMMIT, documents - start)
            thread.commit({"documents": [corpus.text(_DOCUMENT_BYTES) for _ in range(count)]})
        for _ in range(thread.version + 1, versions):
            thread.commit({"step": 1})
    with opened(path) as store:
        store.thread("agent").commit({"step": 1})  # Flush what was written without flushes.


def _big(bench: Bench) -> tuple[int, int]:
    return bench.size(_BIG[0], at_least=1000), bench.size(_BIG[1], at_least=20)


def _named(versions: int, documents: int) -> str:
    return f"{versions:,} versions, {documents * _DOCUMENT_BYTES / 1e6:g} MB"


@contextmanager
def _threads(bench: Bench) -> Iterator[tuple[Thread, Thread]]:
    small_path, big_path = bench.directory / "small.state", bench.directory / "big.state"
    _build(small_path, *_SMALL)
    _build(big_path, *_big(bench))
    with opened(small_path) as small_store, opened(big_path) as big_store:
        yield small_store.thread("agent"), big_store.thread("agent")


@contextmanager
def _rollbacks(bench: Bench) -> Iterator[dict[str, Operation]]:
    with _threads(bench) as (small, big):
        count = bench.repeats * _PER_REPEAT
        commits = (lambda: small.commit({"step": 1}), lambda: big.commit({"step": 1}))
        operations = (
            _rollback(small, count),
            _rollback(big, count),
            *commits,
            _rollback(big, _WARM_TARGETS),
        )  # Each operation finds the caches filled by the other store.
        yield dict(zip(_ROLLBACK_SIDES, operations, strict=True))


def _rollback(thread: Thread, count: int) -> Operation:
    """Return an operation that rolls back to a different random version each time. Versions are chosen beforehand."""
    corpus = Corpus()
    versions = thread.version
    targets = itertools.cycle([corpus.below(versions) for _ in range(count)])
    return lambda: thread.rollback(next(targets))


@contextmanager
def _forks(bench: Bench) -> Iterator[dict[str, Operation]]:
    with _threads(bench) as (small, big):
        yield {"small": _fork(small), "big": _fork(big)}


def _fork(thread: Thread) -> Operation:
    corpus = Corpus()
    versions = thread.version
    names = itertools.count()
    return lambda: thread.fork(f"branch {next(names)}", at=corpus.below(versions))


def _measure_rollback(bench: Bench) -> Result:
    with _rollbacks(bench) as operations:
        samples = interleave(operations, count=bench.repeats * _PER_REPEAT)
    small, big, small_commit, smallest, warm = samples.values()
    return Result(
        checks=(
            at_most("median rollback, big store relative to small one", big.p50_us / small.p50_us, 1.3),
            at_most(
                "median rollback in the big store, relative to the smallest commit", big.p50_us / smallest.p50_us, 1.0
            ),
        ),
        sides=(
            small.side(f"rollback, {_named(*_SMALL)}"),
            big.side(f"rollback, {_named(*_big(bench))}"),
            small_commit.side(f"smallest commit, {_named(*_SMALL)}"),
            smallest.side(f"smallest commit, {_named(*_big(bench))}"),
            warm.side(f"rollback to one of {_WARM_TARGETS} versions, {_named(*_big(bench))}"),
        ),
    )


def _measure_fork(bench: Bench) -> Result:
    with _forks(bench) as operations:
        samples = interleave(operations, count=bench.repeats * _PER_REPEAT)
    small, big = samples.values()
    return Result(
        checks=(at_most("median fork, big store relative to small one", big.p50_us / small.p50_us, 1.3),),
        sides=(small.side(f"fork, {_named(*_SMALL)}"), big.side(f"fork, {_named(*_big(bench))}")),
    )


ROLLBACK = Compared(
    "rollback",
    "Roll back: 100,000 versions and 100 MB, compared with 100 and 10 KB",
    "commit",
    _measure_rollback,
    sides=_ROLLBACK_SIDES,
    operations=_rollbacks,
)
FORK = Compared(
    "fork",
    "Fork: 100,000 versions and 100 MB, compared with 100 and 10 KB",
    "commit",
    _measure_fork,
    sides=_FORK_SIDES,
    operations=_forks,
)
