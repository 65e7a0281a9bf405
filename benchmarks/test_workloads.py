"""Runs all workloads, also those of `statelog bench`, under pytest-benchmark, to compare two versions of statelog.

Here, the sides of a comparison run one after the other, and do not take turns. For ratios between sides and for the
targets, use `python -m benchmarks` and `statelog bench`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks import WORKLOADS as SHIPPED
from benchmarks.regression.compared import Compared
from benchmarks.regression.workloads import WORKLOADS as OWN
from benchmarks.workload import Bench

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

    from benchmarks.measure import Operation

_ROUNDS = 100
WORKLOADS = {**SHIPPED, **OWN}
_SIDES = [
    (workload.name, side)
    for workload in WORKLOADS.values()
    if isinstance(workload, Compared)
    for side in workload.sides
]
_WHOLE = [workload.name for workload in WORKLOADS.values() if not isinstance(workload, Compared)]


@pytest.mark.parametrize(("name", "side"), _SIDES)
def test_operation(
    benchmark: BenchmarkFixture, operations: Callable[[str], dict[str, Operation]], name: str, side: str
) -> None:
    """Time one side of a workload, one operation at a time."""
    benchmark.group = f"{name} ({WORKLOADS[name].durability})"
    benchmark.extra_info["durability"] = WORKLOADS[name].durability
    benchmark.pedantic(operations(name)[side], rounds=_ROUNDS, warmup_rounds=3)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("name", _WHOLE)
def test_whole(benchmark: BenchmarkFixture, scale: float, tmp_path: Path, name: str) -> None:
    """Run a workload whose operations cannot be run one by one. The report includes its results."""
    if reason := WORKLOADS[name].skip_reason():
        pytest.skip(reason)
    benchmark.group = "whole workloads"
    bench = Bench(tmp_path, scale, repeats=3)
    result = benchmark.pedantic(WORKLOADS[name].measure, args=(bench,), rounds=1)  # type: ignore[no-untyped-call]
    benchmark.extra_info.update(durability=WORKLOADS[name].durability, **result.to_dict())
