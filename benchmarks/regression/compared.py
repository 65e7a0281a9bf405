"""Workloads whose sides can be run one operation at a time, as pytest-benchmark runs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.workload import BenchWorkload

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from benchmarks.measure import Operation
    from benchmarks.workload import Bench


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared(BenchWorkload):
    """A workload whose sides can be run one by one."""

    sides: tuple[str, ...]
    """The names of the compared sides."""
    operations: Callable[[Bench], AbstractContextManager[dict[str, Operation]]]
    """Prepares the sides, and yields the operation of each side by name."""
