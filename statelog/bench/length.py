"""Whether an append costs the same at a long list as at a short one."""

from __future__ import annotations

import operator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from statelog import reducers
from statelog.bench.corpus import Corpus
from statelog.bench.measure import interleave
from statelog.bench.result import Result, at_most
from statelog.bench.stores import opened
from statelog.bench.workload import Bench, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog.bench.measure import Operation

_SHORT = 100
_LONG = 100_000
_MESSAGE_BYTES = 120
_COMMITS_PER_ROUND = 60


@contextmanager
def _append_sides(bench: Bench, reducer: object, name: str) -> Iterator[dict[str, Operation]]:
    """Yield appends to a short and to a long list of one store, each a durable commit."""
    corpus = Corpus()
    sides: dict[str, Operation] = {}
    with opened(bench.directory / f"{name}.state") as store:
        for count in (_SHORT, bench.size(_LONG, at_least=2000)):
            thread = store.thread(f"{count} items", schema={"messages": reducer})
            thread.commit({"messages": corpus.messages(count, _MESSAGE_BYTES)})
            fresh = corpus.endless(_MESSAGE_BYTES, start=count)
            sides[f"{count:,} items"] = lambda thread=thread, fresh=fresh: (  # type: ignore[misc]  # bound, not passed
                thread.commit({"messages": [next(fresh)]})
            )
        yield sides


def _measure(bench: Bench, reducer: object, name: str) -> Result:
    with _append_sides(bench, reducer, name) as operations:
        samples = interleave(operations, rounds=bench.repeats, per_round=_COMMITS_PER_ROUND)
    short, long = samples.values()
    return Result(
        name=name,
        durability="commit",
        checks=(
            at_most("median commit, long list of short", long.p50_us / short.p50_us, 1.5),
            at_most("median time on the processor, the same", long.processor_p50_us / short.processor_p50_us, 1.5),
        ),
        sides=tuple(taken.side(f"append at {side}") for side, taken in samples.items()),
    )


def _workload(name: str, title: str, reducer: object) -> Workload:
    return Workload(
        name,
        title,
        measure=partial(_measure, reducer=reducer, name=name),
        operations=partial(_append_sides, reducer=reducer, name=name),
    )


ADD = _workload("append-to-long-list", "Append to a list (add) of 100,000 items, of 100", operator.add)
UPSERT = _workload("append-to-long-upsert", "Append to a list (upsert) of 100,000 items, of 100", reducers.upsert("id"))
