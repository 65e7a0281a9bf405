"""The result of a workload: its sides, and the checks of its targets."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

AT_MOST = "<="
AT_LEAST = ">="
EXACTLY = "=="


@dataclass(frozen=True, slots=True)
class Side:
    """One of the compared sides. Times are in microseconds per operation."""

    name: str
    operations: int
    p50_us: float
    p99_us: float
    processor_p50_us: float | None
    """The median processor time of the calling thread, which excludes flushes and waiting."""
    per_second: float
    written_bytes: float | None
    """The bytes in write calls, per operation; None if the system does not count them."""
    written_pages: float | None
    """`written_bytes` in memory pages."""
    dirtied_bytes: float | None
    """The bytes of page cache that became dirty, per operation. Linux counts whole folios, up to 1 MB for a page."""
    file_size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class TargetCheck:
    """One target, and the measured value."""

    what: str
    value: float
    relation: str
    target: float
    unit: str = "x"

    @property
    def is_met(self) -> bool:
        """Whether the measured value is within the target."""
        if self.relation == EXACTLY:
            return self.value == self.target
        return self.value <= self.target if self.relation == AT_MOST else self.value >= self.target

    @property
    def is_wrong(self) -> bool:
        """Whether the work was done incorrectly, at any speed. This fails the run."""
        return self.relation == EXACTLY and not self.is_met


@dataclass(frozen=True, slots=True)
class Result:
    """The results of one run of a workload."""

    checks: tuple[TargetCheck, ...]
    sides: tuple[Side, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def joined(cls, parts: Sequence[Result]) -> Result:
        """Return the results of several parts as one."""
        return cls(
            checks=tuple(check for part in parts for check in part.checks),
            sides=tuple(side for part in parts for side in part.sides),
            notes=tuple(note for part in parts for note in part.notes),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values for JSON."""
        found = asdict(self)
        for check, fields in zip(self.checks, found["checks"], strict=True):
            fields["met"] = check.is_met
        return found


def at_most(what: str, value: float, target: float, unit: str = "x") -> TargetCheck:
    """Return a check that passes if `value` is at most `target`."""
    return TargetCheck(what, value, AT_MOST, target, unit)


def at_least(what: str, value: float, target: float, unit: str = "x") -> TargetCheck:
    """Return a check that passes if `value` is at least `target`."""
    return TargetCheck(what, value, AT_LEAST, target, unit)


def exactly(what: str, value: float, target: float, unit: str) -> TargetCheck:
    """Return a check of a count, which passes only if `value` equals `target`."""
    return TargetCheck(what, value, EXACTLY, target, unit)
