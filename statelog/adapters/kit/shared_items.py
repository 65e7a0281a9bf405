"""Finds items that are already stored, so that a commit can reference them instead of storing them again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from statelog import kernels
from statelog.adapters.kit import items
from statelog.format.record import ROW
from statelog.store.checkpoint import event_of
from statelog.store.targets import head_at
from statelog.store.views import MapView
from statelog.tree.node import LEAF, ROOT
from statelog.tree.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from statelog.log.batch import Batch, Head
    from statelog.log.events import CheckpointEvent
    from statelog.store.checkpoint import Checkpoint


class Twins(NamedTuple):
    """Places where items of a commit may already be stored: lists of a branch's head and of earlier checkpoints."""

    branch: str
    ranges: Sequence[tuple[str, str]]
    """Ranges of the branch's channels, in descending order."""
    held: Sequence[tuple[Checkpoint, str]] = ()
    """Checkpoints that may still exist, each with one of its channels."""
    last: Checkpoint | None = None
    """If this checkpoint is the branch's head, its record has all items of `ranges`."""
    is_before: bool = False
    """Whether an earlier part of the same commit writes all of these items."""
    records: Sequence[Checkpoint] = ()
    """Further checkpoints whose records may have the items, if they still exist."""


_LOOKED_FOR_SIZE_BYTES_MIN = 1024


def are_looked_for(encoded: Sequence[bytes]) -> bool:
    """Return True if the items are large enough to be worth a search for stored copies."""
    return sum(map(len, encoded)) >= _LOOKED_FOR_SIZE_BYTES_MIN


class Similar(NamedTuple):
    """Branches whose heads may share nodes with lists that a commit writes whole."""

    lines: Sequence[str]
    """Names of branches. Missing branches are ignored."""
    length: int
    """The length of the longest written list. Lists more than twice as long are not searched."""


def similar_nodes(batch: Batch, thread: int, similar: Similar, *branches: int) -> list[tuple[bytes, int, int]]:
    """Return (digest, LSN, number) of the nodes of lists at the heads of `similar.lines` and of `branches`."""
    numbers = {*branches, *(batch.view.branch_number(thread, line) for line in similar.lines)}
    found: dict[bytes, tuple[int, int]] = {}
    for number in numbers:
        head = None if number is None else batch.head(thread, number)
        if head is not None:
            for tree in items.lists(state_of(batch, head), 2 * similar.length):
                items.add_nodes(tree, found)
    return [(digest, *place) for digest, place in found.items()]


def leaves(batch: Batch, thread: int, twins: Twins) -> list[tuple[bytes, int, int]]:
    """Return (digest, LSN, number) of each leaf in the places that `twins` lists."""
    found: list[tuple[bytes, int, int]] = []
    for checkpoint in twins.records:
        found += leaves_of(batch, checkpoint)
    event = None if twins.last is None else event_of(twins.last)
    if event is not None and _is_head(batch, event):
        return found + leaves_at(batch, event.lsn)
    number = batch.view.branch_number(thread, twins.branch) if twins.ranges else None
    head = None if number is None else batch.head(thread, number)
    if head is not None:
        state = state_of(batch, head)
        between = partial(items.keys_between, state) if len(twins.ranges) == 1 else items.Ranges(state).between
        for first, last in twins.ranges:
            for stored in between(first, last).values():
                found += items.leaves(stored)
    for checkpoint, channel in twins.held:
        holder = head_at(batch.view, thread, checkpoint.lsn)
        value = None if holder is None else items.get(state_of(batch, holder), channel)
        found += () if value is None else items.leaves(value)
    return found


def staged_leaves(batch: Batch) -> list[tuple[bytes, int, int]]:
    """Return (digest, LSN, number) of the leaves in the last staged record."""
    lsn = batch.last_lsn()
    rows = enumerate(ROW.iter_unpack(batch.staged[-1].nodes.rows))
    return [(digest, lsn, number) for number, (type_, digest, _content, _end) in rows if type_ == LEAF]


def _is_head(batch: Batch, event: CheckpointEvent) -> bool:
    """Return True if a checkpoint is cached as the head of its branch."""
    head = batch.memory.heads.get((event.thread, event.branch))
    return head is not None and head.event.lsn == event.lsn


def leaves_of(batch: Batch, checkpoint: Checkpoint) -> list[tuple[bytes, int, int]]:
    """Return (digest, LSN, number) of the leaves in a checkpoint's record, or [] if it has expired."""
    event = event_of(checkpoint)
    is_there = _is_head(batch, event) or (
        batch.view.is_alive(event.thread) and head_at(batch.view, event.thread, event.lsn) is not None
    )
    return leaves_at(batch, event.lsn) if is_there else []


def leaves_at(batch: Batch, lsn: int) -> list[tuple[bytes, int, int]]:
    """Return (digest, LSN, number) of the leaves in a record."""
    record = batch.get_log(lsn)
    rows = {} if record is None else kernels.record_rows(record)
    return [(row[1], lsn, number) for number, row in rows.items() if row[0] == LEAF]


def state_of(batch: Batch, head: Head) -> MapView:
    """Return the state of a checkpoint in the view of a commit."""
    event = head.event
    workspace = batch.reader()
    return MapView(Tree(workspace, workspace.read(ROOT, event.root_digest, event.root_lsn, event.root_node)))


def of_successors(batch: Batch, followed: Sequence[Checkpoint]) -> list[tuple[bytes, int, int]]:
    """Return (digest, LSN, number) of the leaves stored by the direct successors of checkpoints."""
    found: list[tuple[bytes, int, int]] = []
    for parent in followed:
        of = event_of(parent)
        head = batch.memory.heads.get((of.thread, of.branch))
        event = None if head is None else head.event
        if event is not None and event.version > of.version + 1:
            next_one = batch.view.checkpoint_of(of.thread, of.branch, of.version + 1)
            event = None if next_one is None else next_one[0]
        if event is not None and (event.parent_branch, event.parent_version) == (of.branch, of.version):
            found += leaves_at(batch, event.lsn)
    return found
