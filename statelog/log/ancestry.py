"""Finds ancestors of checkpoints in O(log n) steps.

The search uses the jump pointers of a skew-binary list (Myers 1983).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from statelog.errors import CorruptionError

if TYPE_CHECKING:
    from statelog.log.events import CheckpointEvent
    from statelog.log.view import View


class BranchVersion(NamedTuple):
    """The location of a checkpoint: its branch and its version."""

    branch: int
    version: int


def _event(view: View, thread: int, place: BranchVersion) -> CheckpointEvent | None:
    """Return the checkpoint at a location, or None if it has expired."""
    found = view.checkpoint_of(thread, place.branch, place.version)
    return None if found is None else found[0]


def _ancestor_event(view: View, thread: int, below: CheckpointEvent, place: BranchVersion) -> CheckpointEvent | None:
    """Return the checkpoint that `below` names as its ancestor, or None if it has expired.

    Raises:
        CorruptionError: the ancestor's depth is not smaller than the depth of `below`, so a walk might not end.
    """
    event = _event(view, thread, place)
    if event is not None and event.depth >= below.depth:
        message = f"record {below.lsn} of depth {below.depth} has an ancestor of depth {event.depth}"
        raise CorruptionError(message, lsn=below.lsn)
    return event


def ancestor_at_depth(view: View, thread: int, place: BranchVersion, depth: int) -> BranchVersion | None:
    """Return the ancestor that has the given depth, which is at most the depth of the checkpoint at `place`.

    Return None if the ancestor, or every path to it, has expired.
    """
    event = _event(view, thread, place)
    while event is not None and event.depth > depth:
        jump, parent = _jump(event), _parent(event)
        found = None
        if jump is not None and event.jump_depth >= depth:
            found = _ancestor_event(view, thread, event, jump)
            place = jump
        if found is None and parent is not None:
            found = _ancestor_event(view, thread, event, parent)
            place = parent
        event = found
    return None if event is None else place


def _parent(event: CheckpointEvent) -> BranchVersion | None:
    if event.parent_branch is None or event.parent_version is None:
        return None
    return BranchVersion(event.parent_branch, event.parent_version)


def _jump(event: CheckpointEvent) -> BranchVersion | None:
    if event.jump_branch is None or event.jump_version is None:
        return None
    return BranchVersion(event.jump_branch, event.jump_version)


def common_ancestor(view: View, thread: int, left: CheckpointEvent, right: CheckpointEvent) -> BranchVersion | None:
    """Return the last common ancestor of two checkpoints, or None if they have none or it has expired.

    A checkpoint counts as its own ancestor.
    """
    depth = min(left.depth, right.depth)
    a = ancestor_at_depth(view, thread, BranchVersion(left.branch, left.version), depth)
    b = ancestor_at_depth(view, thread, BranchVersion(right.branch, right.version), depth)
    depth += 1
    while a is not None and b is not None and a != b:
        ours, theirs = _event(view, thread, a), _event(view, thread, b)
        if ours is None or theirs is None:
            return None
        if max(ours.depth, theirs.depth) >= depth:
            message = f"records {ours.lsn} and {theirs.lsn} are not deeper than their ancestors"
            raise CorruptionError(message, lsn=ours.lsn)
        depth = max(ours.depth, theirs.depth)
        # At equal depth, both checkpoints jump equally far. If the jumps lead to different checkpoints, they skip no
        # common ancestor.
        jumps = _jump(ours), _jump(theirs)
        if None not in jumps and ours.jump_depth == theirs.jump_depth and jumps[0] != jumps[1]:
            a, b = jumps
        else:
            a, b = _parent(ours), _parent(theirs)
    return a if a is not None and a == b else None
