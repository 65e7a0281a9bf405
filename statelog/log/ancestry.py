"""Ancestors of checkpoints, by the jump pointers of a skew-binary list (Myers 1983): O(log n) steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from statelog.log.events import NONE_U32

if TYPE_CHECKING:
    from statelog.kernels import VersionEntry
    from statelog.log.view import View


class Place(NamedTuple):
    """A checkpoint by the branch it was committed on and its version there."""

    branch: int
    version: int


def _entry(view: View, thread: int, place: Place) -> VersionEntry:
    return view.require_entry(thread, place.branch, place.version)


def ancestor_at_depth(view: View, thread: int, place: Place, depth: int) -> Place:
    """Return the ancestor of a checkpoint that has `depth` ancestors itself (at most its own depth)."""
    entry = _entry(view, thread, place)
    while entry.depth > depth:
        if entry.jump_branch != NONE_U32 and entry.jump_depth >= depth:
            place = Place(entry.jump_branch, entry.jump_version)
        else:
            place = Place(entry.parent_branch, entry.parent_version)
        entry = _entry(view, thread, place)
    return place


def depth_of(view: View, thread: int, place: Place) -> int:
    """Return how many ancestors a checkpoint has."""
    return _entry(view, thread, place).depth


def common_ancestor(view: View, thread: int, a: Place, b: Place) -> Place | None:
    """Return the last checkpoint that both come from (or are), None if there is none."""
    depth = min(depth_of(view, thread, a), depth_of(view, thread, b))
    a = ancestor_at_depth(view, thread, a, depth)
    b = ancestor_at_depth(view, thread, b, depth)
    while a != b:
        left, right = _entry(view, thread, a), _entry(view, thread, b)
        if NONE_U32 in (left.parent_branch, right.parent_branch):
            return None
        # Of equal depth, both jump equally far: to different places, so past nothing they share.
        jumps = (Place(left.jump_branch, left.jump_version), Place(right.jump_branch, right.jump_version))
        if left.jump_branch != NONE_U32 and jumps[0] != jumps[1]:
            a, b = jumps
        else:
            a = Place(left.parent_branch, left.parent_version)
            b = Place(right.parent_branch, right.parent_version)
    return a
