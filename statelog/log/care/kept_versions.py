"""Selects the versions of a thread that a policy keeps."""

from __future__ import annotations

import time
from dataclasses import dataclass
from heapq import merge
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.format import keys
from statelog.log.care.needs import needed_by
from statelog.log.care.serves import UNMET_US, find_served, served_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from statelog.log.events import CheckpointEvent
    from statelog.log.view import BranchRow, View


@dataclass(frozen=True, slots=True)
class Policy:
    """A retention policy: rules for each branch. A version expires when no rule keeps it.

    Attributes:
        keep_last: how many of the last versions to keep on each branch.
        max_age_s: versions younger than this are kept. A stored policy has whole seconds, rounded
            up.
        keep_tags: whether to keep tagged versions. Heads, and versions at which branches begin, are always kept. A
            branch that serves a version (`care.serves`) is an exception: it expires as a whole with that version.
        only: LSNs of the versions that may expire; all others are kept. It is never stored in a
            policy record.
    """

    keep_last: int | None = None
    max_age_s: float | None = None
    keep_tags: bool = True
    only: frozenset[int] | None = None

    def to_fields(self) -> dict[str, Any]:
        """Return the fields of a policy record."""
        max_age_s = None if self.max_age_s is None else ceil(self.max_age_s)
        return {"keep_last": self.keep_last, "max_age_s": max_age_s, "keep_tags": self.keep_tags}


EVERYTHING = Policy(max_age_s=1 << 40)
"""A policy that keeps all existing versions."""


class Version(NamedTuple):
    """The location of a version."""

    branch: int
    version: int
    lsn: int


class _Servant(NamedTuple):
    """A branch that serves a version."""

    row: BranchRow
    served: CheckpointEvent | None
    """The served version, or None if it does not exist."""


class Keeps:
    """Selects the versions that a policy keeps, by its rules or because a kept version needs them.

    A branch that serves a version is kept only with that version. So the kept versions are determined in rounds: each
    round adds the branches that serve a version kept so far.
    """

    def __init__(self, view: View, thread: int, policy: Policy, pinned: Collection[int]) -> None:
        rows = list(view.branches(thread))
        self._heads = {row.number: last for row in rows if (last := view.last_entry(thread, row.number)) is not None}
        self.branches = [row for row in rows if row.number in self._heads]
        """The branches that have versions of their own. A long chat may leave thousands of tool-call branches without
        any version.
        """
        self.number = len(rows)
        """The number of branches, with or without versions."""
        self.pins = set(pinned)
        """The LSNs of versions that are kept regardless of number and age."""
        self.going: frozenset[int] = frozenset()
        """The branches that expire as a whole, together with the version that they serve."""
        self._view = view
        self._thread = thread
        self._policy = policy
        self._ranges: dict[int, set[tuple[int, int]]] = {row.number: set() for row in rows}
        self._tails: dict[int, int] = {}
        self._only = policy.only
        self._is_young = policy.max_age_s is not None
        self._now_us = time.time_ns() // 1000
        self._oldest_us = self._now_us - int((policy.max_age_s or 0) * 1_000_000)
        if policy.keep_tags:
            for _key, payload in view.transaction.scan_index(keys.encode_tag_prefix(thread)):
                self.pins.add(keys.decode_lsn(payload))
        self.pins.discard(0)
        servants = [] if policy == EVERYTHING else list(self._servants(rows))
        self.going = frozenset(servant.row.number for servant in servants)
        unused = {(row.parent, row.base_version): row for row in rows if row.number not in self._heads}
        self._add([*self.branches, *unused.values()])
        while kept := [servant for servant in servants if servant.served and self._keeps(servant.served)]:
            servants = [servant for servant in servants if servant not in kept]
            self.going = frozenset(servant.row.number for servant in servants)
            self._add(servant.row for servant in kept)

    # --- branches that serve a version ------------------------------------------------

    def _servants(self, rows: Iterable[BranchRow]) -> Iterator[_Servant]:
        """Yield the branches that expire unless a version that they serve is kept.

        A branch is kept if another branch begins at it, or one of its versions is pinned. So it expires as a whole or
        keeps its head, and no version number is reused while something may refer to it. The branch with the thread's
        last version is also kept, because later versions must have later times (L2).
        """
        view, thread = self._view, self._thread
        left = {row.parent for row in rows}
        heads = [(row, self._heads[row.number][1]) for row in self.branches]
        last_us = max((entry.time_us for _row, entry in heads), default=0)
        pins = [event for lsn in self.pins if (event := view.find_checkpoint(lsn)) is not None]
        # The caller may pin versions of many threads, so select the versions of this thread.
        pinned = {event.branch for event in pins if event.thread == thread}
        for row, entry in heads:
            if row.number in left or row.number in pinned or entry.time_us == last_us:
                continue
            id = served_id(view.checkpoint(entry.lsn))
            served = None if id is None else find_served(view, thread, id)
            if id is not None and (served is not None or entry.time_us < self._now_us - UNMET_US):
                yield _Servant(row, served)

    def _keeps(self, event: CheckpointEvent) -> bool:
        return self(Version(event.branch, event.version, event.lsn), event.time_us)

    # --- rules ------------------------------------------------------------------------

    def _add(self, rows: Iterable[BranchRow]) -> None:
        """Add the versions that the policy keeps on the branches `rows`, except on expiring branches."""
        view, thread, keep_last = self._view, self._thread, self._policy.keep_last or 1
        added = [row for row in rows if row.number not in self.going]
        for row in added:
            head = self._heads[row.number][0] if row.number in self._heads else view.head_version(thread, row.number)
            self._tails[row.number] = head - keep_last + 1
            self._add_last(row.number, head, keep_last)
            if row.parent is not None:
                base = view.entry(thread, row.parent, row.base_version)
                if base is not None:
                    self.pins.add(base.lsn)
        self._add_needed(added)

    def _add_needed(self, rows: Iterable[BranchRow]) -> None:
        """Pin the versions that kept versions need.

        In a run of consecutive kept versions, only the first one is examined: it needs every version outside the run
        that a later one needs.
        """
        view, thread = self._view, self._thread
        firsts = {(branch, low) for branch, ranges in self._ranges.items() for low, _high in ranges}
        if self._is_young:
            firsts |= {(row.number, self._first_young(view, row.number)) for row in rows}
        behind = set()  # Holds the places of kept versions whose predecessor expires.
        for lsn in self._only or ():
            event = view.find_checkpoint(lsn)
            # The version may be of a deleted thread that had the same id.
            if event is not None and event.thread == thread:
                behind.add((event.branch, event.version + 1))
        kept = {entry.lsn for place in firsts if (entry := view.entry(thread, *place)) is not None}
        kept |= {entry.lsn for place in behind if (entry := view.entry(thread, *place)) is not None} - (
            self._only or set()
        )
        needed = needed_by(view, kept | self.pins)
        self.pins.update(needed)

    def _add_last(self, branch: int, high: int, count: int) -> None:
        """Keep the last `count` versions up to `high` in a branch's history, each on the branch that committed it."""
        low = max(high - count + 1, 0)
        while high >= low:
            owner = self._view.owner(self._thread, branch, high)
            first = self._view.branch(self._thread, owner).base_version + 1 if owner else 0
            self._ranges[owner].add((max(low, first), high))
            high = first - 1

    def kept_from(self, view: View, branch: int) -> int:
        """Return the first version of a branch such that it and all later versions are kept, by number or by age."""
        if branch in self.going:
            return self._heads[branch][0] + 1
        return min(self._tails[branch], self._first_young(view, branch)) if self._is_young else self._tails[branch]

    def _first_young(self, view: View, branch: int) -> int:
        return view.version_at_time(self._thread, branch, self._oldest_us - 1) + 1

    def __call__(self, version: Version, time_us: int) -> bool:
        """Return True if a version is kept."""
        if version.branch in self.going:
            return version.lsn in self.pins
        return (
            version.lsn in self.pins
            or (self._only is not None and version.lsn not in self._only)
            or (self._is_young and time_us >= self._oldest_us)
            or any(low <= version.version <= high for low, high in self._ranges[version.branch])
        )


def let_go(view: View, thread: int, keeps: Keeps) -> Iterator[Version]:
    """Yield the versions of a thread that are not kept, the newest first.

    A version depends only on older versions: it refers to them, needs them or serves them. So an interruption never
    leaves a version without a version that it depends on.
    """

    def of_branch(branch: int) -> Iterator[Version]:
        for number, entry in view.entries_up_to(thread, branch, keeps.kept_from(view, branch) - 1):
            version = Version(branch, number, entry.lsn)
            if not keeps(version, entry.time_us):
                yield version

    yield from merge(*(of_branch(row.number) for row in keeps.branches), key=lambda version: -version.lsn)
