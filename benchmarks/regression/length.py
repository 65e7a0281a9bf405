"""Measures whether an append to a long list costs as little as an append to a short list."""

from __future__ import annotations

import operator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from benchmarks.corpus import Corpus
from benchmarks.measure import interleave
from benchmarks.regression.compared import Compared
from benchmarks.result import Result, at_most
from benchmarks.stores import opened
from statelog import reducers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measure import Operation
    from benchmarks.workload import Bench
    from statelog.store.thread import Thread

_SHORT = 100
_LONG = 100_000
_MESSAGE_BYTES = 120
_MESSAGES_PER_COMMIT = 1000
_COMMITS_PER_REPEAT = 60
_SIDES = ("short", "long")


@contextmanager
def _append_sides(bench: Bench, reducer: object) -> Iterator[dict[str, Operation]]:
    """Yield an append to a short list and one to a long list in the same store. Each is a durable commit."""
    with opened(bench.directory / "lists.state") as store:
        threads = [store.thread(side, schema={"messages": reducer}) for side in _SIDES]
        yield {
            side: _append(thread, count)
            for side, thread, count in zip(_SIDES, threads, (_SHORT, _long(bench)), strict=True)
        }


def _append(thread: Thread, count: int) -> Operation:
    """Fill a list with commits of up to 1,000 messages. Return an operation that appends one message."""
    messages = Corpus().endless(_MESSAGE_BYTES)
    for start in range(0, count, _MESSAGES_PER_COMMIT):
        thread.commit({"messages": list(islice(messages, min(_MESSAGES_PER_COMMIT, count - start)))})
    return lambda: thread.commit({"messages": [next(messages)]})


def _long(bench: Bench) -> int:
    return bench.size(_LONG, at_least=2000)


def _measure(bench: Bench, reducer: object) -> Result:
    with _append_sides(bench, reducer) as operations:
        samples = interleave(operations, count=bench.repeats * _COMMITS_PER_REPEAT)
    short, long = samples["short"], samples["long"]
    return Result(
        checks=(
            at_most("median commit, long list relative to short one", long.p50_us / short.p50_us, 1.5),
            at_most(
                "median processor time, long list relative to short one",
                long.processor_p50_us / short.processor_p50_us,
                1.5,
            ),
        ),
        sides=(short.side(f"append at {_SHORT} items"), long.side(f"append at {_long(bench):,} items")),
    )


def _workload(name: str, title: str, reducer: object) -> Compared:
    return Compared(
        name,
        title,
        "commit",
        measure=partial(_measure, reducer=reducer),
        sides=_SIDES,
        operations=partial(_append_sides, reducer=reducer),
    )


ADD = _workload("append-to-long-list", "Append to a list (add) of 100,000 items, compared with 100 items", operator.add)
UPSERT = _workload(
    "append-to-long-upsert",
    "Append to a list (upsert) of 100,000 items, compared with 100 items",
    reducers.upsert("id"),
)
