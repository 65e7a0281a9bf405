"""Compares fenced commits, which a store refuses after their lease has ended, with commits without a lease."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from benchmarks.measure import interleave
from benchmarks.result import Result, at_most
from benchmarks.stores import opened

if TYPE_CHECKING:
    from benchmarks.workload import Bench

_COMMITS_PER_REPEAT = 100
_FENCED_MAX = 1.3


def measure_fenced(bench: Bench) -> Result:
    """Measure durable commits to a thread with a lease as their fence, and to another thread without a fence."""
    numbers = itertools.count()
    with opened(bench.directory / "fenced.state") as store, store.board(agent="bench").lease("thread/42") as lease:
        fenced, unfenced = store.thread("42"), store.thread("43")
        samples = interleave(
            {
                "statelog, fenced commit": lambda: fenced.commit({"step": next(numbers)}, fence=lease),
                "statelog, commit": lambda: unfenced.commit({"step": next(numbers)}),
            },
            count=bench.repeats * bench.size(_COMMITS_PER_REPEAT, at_least=10),
        )
    ours, without = samples.values()
    return Result(
        checks=(
            at_most("fenced commit: median, relative to an unfenced one's", ours.p50_us / without.p50_us, _FENCED_MAX),
        ),
        sides=tuple(taken.side(name) for name, taken in samples.items()),
    )
