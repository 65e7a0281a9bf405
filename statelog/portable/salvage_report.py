"""The report of a salvage."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from statelog.log.kinds.table import owner_of, version_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from statelog.format.record import Redacted
    from statelog.log.events import Event
    from statelog.portable.record_search import FoundRecord
    from statelog.portable.salvage_plan import SalvagePlan

LOSSES_LISTED_MAX = 100_000
"""The maximum number of losses in a report's list. Further losses are only counted."""


class Loss(NamedTuple):
    """A loss: the known facts about an event that is not in the new store.

    `thread` is an LSN and `branch` is a number here. `SalvageReport` has their names instead.
    """

    lsn: int
    thread: int | None
    branch: int | None
    version: int | None
    id: str | None
    why: str

    @classmethod
    def of(cls, lsn: int, event: Event | Redacted, why: str) -> Loss:
        """Return the loss of an event for the reason `why`."""
        version = version_in(event)
        if version is not None:
            return cls(lsn, version.thread, version.branch, version.version, version.id, why)
        return cls(lsn, owner_of(event, lsn) or None, None, None, None, why)


@dataclass(frozen=True, slots=True)
class LostVersion:
    """A version, or another event, that is not in the new store.

    Attributes:
        lsn: LSN of its record.
        thread: id of its thread, if known.
        branch: name of its branch, if it is known to have been a checkpoint.
        version: its version, if it is known to have been a checkpoint.
        id: the id that the caller gave it, if its record was found.
        why: the part that is missing.
    """

    lsn: int
    thread: str | None
    branch: str | None
    version: int | None
    id: str | None
    why: str


@dataclass(slots=True)
class SalvageReport:
    """The contents of a damaged file that were saved and lost.

    Attributes:
        path: the damaged file.
        new_path: the new store.
        records: number of records in the damaged log, as far as known.
        recovered: number of records that were found.
        lost: ranges (first LSN, last LSN) of records that were not found.
        versions_lost: versions and other events that are not in the new store, whether their
            records were lost or found.
        losses: the number of all losses; the first `LOSSES_LISTED_MAX` are listed.
        names_made_up: new names of threads, or of branches as "thread/branch", whose names are
            lost.
        end_is_known: whether the file shows where its log ended. If not, later records may also be
            lost.
    """

    path: str
    new_path: str
    records: int
    recovered: int = 0
    lost: list[tuple[int, int]] = field(default_factory=list)
    versions_lost: list[LostVersion] = field(default_factory=list)
    losses: int = 0
    names_made_up: list[str] = field(default_factory=list)
    end_is_known: bool = True
    _losses: list[Loss] = field(default_factory=list, repr=False)
    _names: dict[int, str] = field(default_factory=dict, repr=False)

    @property
    def is_complete(self) -> bool:
        """Whether no loss is known; see `end_is_known`."""
        return not self.lost and not self.losses

    def add(self, losses: Iterable[Loss], names: Mapping[int, str]) -> None:
        """Record losses, and the names of threads, keyed by LSN."""
        self._losses += losses
        self._names.update(names)

    def finish(self, chosen: Mapping[int, FoundRecord], plan: SalvagePlan) -> None:
        """Add the names to the recorded losses, after all names are known."""
        self.recovered = len(chosen)
        self.lost = list(_ranges(plan.lost))
        noted = {loss.lsn for loss in self._losses}
        for lsn in sorted(plan.lost - noted):
            thread, branch, version = plan.remains.versions.get(lsn, (None, None, None))
            if thread is not None:
                self._losses.append(Loss(lsn, thread, branch, version, None, "its record is lost"))
        self._losses.sort()
        self.losses = len(self._losses)
        self.versions_lost = [self._named(loss, plan) for loss in self._losses[:LOSSES_LISTED_MAX]]
        self.names_made_up = sorted(plan.names_made_up)
        self._losses.clear()
        self._names.clear()

    def _named(self, loss: Loss, plan: SalvagePlan) -> LostVersion:
        thread = None if loss.thread is None else self._names.get(loss.thread)
        row = None if loss.thread is None else plan.remains.threads.get(loss.thread)
        if thread is None and row is not None:
            thread = row.id
        branch = None
        if loss.branch is not None and loss.thread is not None:
            branch = plan.branch_name(loss.thread, loss.branch)
        return LostVersion(loss.lsn, thread, branch, loss.version, loss.id, loss.why)


def _ranges(lsns: Iterable[int]) -> Iterable[tuple[int, int]]:
    for _offset, run in groupby(enumerate(sorted(lsns)), lambda pair: pair[1] - pair[0]):
        members = [lsn for _index, lsn in run]
        yield members[0], members[-1]
