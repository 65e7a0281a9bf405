"""Plan the stand-ins for lost records, so that found records have the threads and branches they need."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from statelog.format.record import Redacted, decode_record
from statelog.log.events import MAIN, CheckpointEvent, ForkEvent, LoanEvent, ThreadEvent
from statelog.log.kinds.table import kind_of, owner_of
from statelog.portable.bodies import read_event
from statelog.portable.remains import Remains, read_remains

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.portable.pages import PageFile
    from statelog.portable.record_search import FoundRecord, RecordFinder


@dataclass(slots=True)
class SalvagePlan:
    """The plan of a salvage: the lost records, and their stand-ins.

    Attributes:
        last: the last LSN of the damaged log.
        lost: LSNs of records that were not found.
        remains: facts about lost records from the index.
        stand_ins: the events of stand-ins by LSN. They begin threads and branches, and restore copy references.
        names_made_up: new names of threads and branches whose name is lost.
    """

    last: int
    lost: set[int] = field(default_factory=set)
    remains: Remains = field(default_factory=Remains)
    stand_ins: dict[int, ThreadEvent | ForkEvent | LoanEvent] = field(default_factory=dict)
    names_made_up: list[str] = field(default_factory=list)
    _branch_names: dict[tuple[int, int], str] = field(default_factory=dict)

    def branch_name(self, thread: int, number: int) -> str | None:
        """Return the name of a branch, if it is known."""
        if not number:
            return MAIN
        row = self.remains.branches.get((thread, number))
        return self._branch_names.get((thread, number)) or (None if row is None else row.name)

    def name_branch(self, thread: int, number: int, name: str) -> None:
        """Set the name of a branch."""
        self._branch_names[(thread, number)] = name


class _Needs:
    """The threads and branches that the found events need, and known facts about their beginnings."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.first_on_branch: dict[tuple[int, int], CheckpointEvent] = {}
        self.forked: dict[tuple[int, int], str] = {}
        """Names of branches whose beginning was found."""
        self.lent: set[int] = set()
        """Copied threads for which a copy reference was found."""
        self.borrowing: dict[int, int] = {}
        """Copied threads for which no copy reference was found.

        Maps each thread to the LSN of an earlier record, from another thread, whose root the thread uses.
        """


def make_plan(
    pages: PageFile,
    finder: RecordFinder,
    chosen: dict[int, FoundRecord],
    last: int,
    progress: Callable[[int, int], None] | None,
) -> SalvagePlan:
    """Make the plan of a salvage from the records that were chosen."""
    plan = SalvagePlan(last, {lsn for lsn in range(1, last + 1) if lsn not in chosen})
    needs = _read_needs(finder, chosen, plan)
    if plan.lost:
        plan.remains = read_remains(pages, finder.mac, plan.lost, progress)
        _plan_threads(plan, needs)
        _plan_branches(plan, needs)
        _plan_loans(plan, needs, finder, chosen)
    return plan


def _read_needs(finder: RecordFinder, chosen: dict[int, FoundRecord], plan: SalvagePlan) -> _Needs:
    needs = _Needs()
    if not plan.lost:
        return needs
    for lsn in sorted(chosen):
        record = decode_record(finder.read(chosen[lsn]), lsn)
        event = read_event(record)
        if isinstance(event, Redacted):
            continue
        if type(event) in _NOTES:
            _NOTES[type(event)](needs, event)
        owner = owner_of(event, lsn)
        if owner not in (0, lsn) and not kind_of(record).outlives:
            needs.threads.add(owner)
    for (thread, branch), name in needs.forked.items():
        plan.name_branch(thread, branch, name)
    needs.borrowing = {thread: lsn for thread, lsn in needs.borrowing.items() if thread not in needs.lent}
    return needs


def _note_checkpoint(needs: _Needs, event: CheckpointEvent) -> None:
    if event.root_lsn < event.thread:
        needs.borrowing.setdefault(event.thread, event.root_lsn)
    if event.branch:
        needs.first_on_branch.setdefault((event.thread, event.branch), event)


def _note_fork(needs: _Needs, event: ForkEvent) -> None:
    needs.forked[event.thread, event.branch] = event.name


def _note_loan(needs: _Needs, event: LoanEvent) -> None:
    needs.lent.add(event.thread)


_NOTES: dict[type, Callable[[_Needs, Any], None]] = {
    CheckpointEvent: _note_checkpoint,
    ForkEvent: _note_fork,
    LoanEvent: _note_loan,
}
"""For each type of event, the function that notes the facts from which branches and copy references are repaired."""


def _plan_threads(plan: SalvagePlan, needs: _Needs) -> None:
    for lsn in sorted(needs.threads & plan.lost):
        row = plan.remains.threads.get(lsn)
        if row is None:
            name = f"salvaged-{lsn}"
            plan.names_made_up.append(name)
            plan.stand_ins[lsn] = ThreadEvent(name, {})
        else:
            # Assume that the thread was re-created, because that is always valid.
            plan.stand_ins[lsn] = ThreadEvent(row.id, row.specs, is_anew=True)


def _plan_branches(plan: SalvagePlan, needs: _Needs) -> None:
    """Plan a fork event for every branch without one, if the index has the branch or a checkpoint on it was found."""
    wanted = {place: event.lsn for place, event in needs.first_on_branch.items()}
    for (thread, number), row in plan.remains.branches.items():
        if number and row.lsn in plan.lost and row.parent is not None and thread in needs.threads:
            wanted.setdefault((thread, number), plan.last + 1)
    free = sorted(plan.lost - plan.stand_ins.keys())
    for thread, number in sorted(wanted.keys() - needs.forked.keys()):
        known = plan.remains.branches.get((thread, number))
        if known is not None and known.lsn in plan.lost and known.parent is not None:
            plan.stand_ins[known.lsn] = ForkEvent(thread, number, known.name, known.parent, known.base_version)
            continue
        event = needs.first_on_branch.get((thread, number))
        place = bisect_left(free, wanted[(thread, number)])
        while place > 0 and free[place - 1] in plan.stand_ins:
            place -= 1
        if event is None or place == 0 or free[place - 1] <= thread:
            continue
        name = f"salvaged-{number}"
        plan.names_made_up.append(f"{thread}/{name}")
        plan.name_branch(thread, number, name)
        plan.stand_ins[free[place - 1]] = _made_up(thread, number, name, event)


def _plan_loans(plan: SalvagePlan, needs: _Needs, finder: RecordFinder, chosen: dict[int, FoundRecord]) -> None:
    """Plan the lost copy references: those in the index, and those that the versions of copied threads need."""
    for lsn, (thread, lender) in plan.remains.loans.items():
        plan.stand_ins.setdefault(lsn, LoanEvent(thread, lender, []))
    known = {event.thread for event in plan.stand_ins.values() if type(event) is LoanEvent}
    for thread, root_lsn in needs.borrowing.items():
        if thread in known or root_lsn not in chosen:
            continue
        event = read_event(decode_record(finder.read(chosen[root_lsn]), root_lsn))
        lender = owner_of(event, root_lsn)
        free = (lsn for lsn in sorted(plan.lost) if lsn > thread and lsn not in plan.stand_ins)
        lsn = next(free, 0)
        if lsn and lender:
            plan.stand_ins[lsn] = LoanEvent(thread, lender, [])


def _made_up(thread: int, number: int, name: str, first: CheckpointEvent) -> ForkEvent:
    """Return a fork event for a branch: at the parent of its first checkpoint, or else at a version that is a guess."""
    if first.parent_branch is not None and first.parent_version is not None and first.parent_branch < number:
        return ForkEvent(thread, number, name, first.parent_branch, first.parent_version)
    return ForkEvent(thread, number, name, 0, max(first.version - 1, 0))
