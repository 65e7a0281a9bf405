"""Times operations in turns, and counts the bytes that they write.

The sides of a comparison take turns in changing order, so other load of the machine affects all sides alike. Results
are medians, not means, because one flush in a hundred takes ten times as long.
"""

from __future__ import annotations

import gc
import math
import mmap
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.result import Side

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Operation = Callable[[], object]
    """One operation of a side. Each call repeats the operation."""

_IO = Path("/proc/self/io")


class BytesWritten(NamedTuple):
    """The bytes that this process has written since it began. None if the system does not count them."""

    handed_bytes: int | None
    dirtied_bytes: int | None

    @classmethod
    def now(cls) -> BytesWritten:
        """Read the counters of Linux. Other systems have none."""
        with suppress(OSError, ValueError, KeyError):
            lines = _IO.read_text(encoding="ascii").splitlines()
            counts = {name: int(count) for name, _, count in (line.partition(":") for line in lines)}
            return cls(counts["wchar"], counts["write_bytes"])
        return cls(None, None)


@dataclass(slots=True)
class Samples:
    """The times of one side's operations, and the bytes that the process wrote during them."""

    durations_ns: list[int] = field(default_factory=list)
    processor_ns: list[int] = field(default_factory=list)
    elapsed_ns: int = 0
    """The time from the first to the last operation if they overlapped; 0 if they did not."""
    handed_bytes: int | None = 0
    dirtied_bytes: int | None = 0

    def take(self, operation: Operation, count: int) -> None:
        """Run an operation `count` times."""
        before = BytesWritten.now()
        for _ in range(count):
            self.time(operation)
        self.add_written(before)

    def time(self, operation: Operation) -> None:
        """Run an operation once."""
        began_ns = time.perf_counter_ns()
        processor_began_ns = time.thread_time_ns()
        operation()
        processor_ns = time.thread_time_ns() - processor_began_ns
        self.durations_ns.append(time.perf_counter_ns() - began_ns)
        self.processor_ns.append(processor_ns)

    def add_written(self, before: BytesWritten) -> None:
        """Add the bytes that were written since `before`."""
        now = BytesWritten.now()
        self.handed_bytes = _sum(self.handed_bytes, now.handed_bytes, before.handed_bytes)
        self.dirtied_bytes = _sum(self.dirtied_bytes, now.dirtied_bytes, before.dirtied_bytes)

    @property
    def p50_us(self) -> float:
        """The median time."""
        return percentile(self.durations_ns, 50) / 1000

    @property
    def processor_p50_us(self) -> float:
        """The median time on a processor."""
        return percentile(self.processor_ns, 50) / 1000

    @property
    def per_second(self) -> float:
        """The number of operations in a second."""
        return len(self.durations_ns) * 1e9 / max(self.elapsed_ns or sum(self.durations_ns), 1)

    def side(self, name: str, *, file_size_bytes: int | None = None) -> Side:
        """Return a summary of these samples."""
        count = len(self.durations_ns)
        written = None if self.handed_bytes is None else self.handed_bytes / count
        return Side(
            name=name,
            operations=count,
            p50_us=self.p50_us,
            p99_us=percentile(self.durations_ns, 99) / 1000,
            processor_p50_us=self.processor_p50_us if self.processor_ns else None,
            per_second=self.per_second,
            written_bytes=written,
            written_pages=None if written is None else written / mmap.PAGESIZE,
            dirtied_bytes=None if self.dirtied_bytes is None else self.dirtied_bytes / count,
            file_size_bytes=file_size_bytes,
        )


_TURN_OPERATIONS = 8
"""The number of operations in a turn. It is small, so that a disk that is slow for 0.1 s is slow for all sides."""


def interleave(operations: Mapping[str, Operation], *, count: int) -> dict[str, Samples]:
    """Run every operation once to warm up. Then run them in turns, and reverse their order after each round.

    Args:
        operations: the operations, keyed by the name of the side.
        count: the number of runs of each, which is rounded up to whole turns.
    """
    samples = {name: Samples() for name in operations}
    for operation in operations.values():
        operation()
    gc.collect()
    order = list(operations)
    for _ in range(math.ceil(count / _TURN_OPERATIONS)):
        for name in order:
            samples[name].take(operations[name], min(_TURN_OPERATIONS, count))
        order.reverse()
    return samples


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that `percent` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]


def median(values: Iterable[float]) -> float:
    """Return the lower median."""
    return percentile(list(values), 50)


def _sum(total: int | None, now: int | None, before: int | None) -> int | None:
    return None if total is None or now is None or before is None else total + now - before
