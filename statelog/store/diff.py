"""Computes the differences between two checkpoints."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from statelog import kernels
from statelog.display.lines import diff_line, written
from statelog.display.notebook import diff_html
from statelog.display.terminal import diff_table
from statelog.errors import UsageError
from statelog.format import cbor
from statelog.store.checked_views import CheckedState
from statelog.store.views import EMPTY_STATE, MapView
from statelog.tree.diff import SlotChange, align, diff_lists, diff_maps
from statelog.tree.mapping import empty_root
from statelog.tree.tree import LISTS, Tree
from statelog.tree.value import is_tree, open_root, read_item

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog.store.checkpoint import Checkpoint
    from statelog.tree.node import ValueSlot


@dataclass(frozen=True, slots=True)
class Change:
    """One difference.

    Attributes:
        path: the channel, then dict keys and list positions down to the value. An added item has its
            position in the new list, any other item its position in the old list.
        kind: "added", "removed" or "changed".
        old: the value before (None if added).
        new: the value after (None if removed).
    """

    path: tuple[str | int, ...]
    kind: str
    old: Any
    new: Any

    def __repr__(self) -> str:
        old, new = written(self.old, sys.maxsize), written(self.new, sys.maxsize)
        return f"Change(path={self.path!r}, kind={self.kind!r}, old={old}, new={new})"


class Diff:
    """The changes from one state to another, in path order.

    The changes are computed on first access. Parts with equal digests are skipped, so the cost depends on the changes.
    If both sides have a list, or both have a dict, the items are compared. Any other difference is one change.
    """

    def __init__(self, old: MapView, new: MapView) -> None:
        self._old = old
        self._new = new
        self._changes: tuple[Change, ...] | None = None

    @property
    def changes(self) -> tuple[Change, ...]:
        """All changes."""
        if self._changes is None:
            changes = _compare_states(self._old, self._new)
            if isinstance(self._old, CheckedState) or isinstance(self._new, CheckedState):
                changes = (
                    replace(each, old=_seen(self._old, each.path, each.old), new=_seen(self._new, each.path, each.new))
                    for each in changes
                )
            self._changes = tuple(changes)
        return self._changes

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __repr__(self) -> str:
        return cbor.decoded_loosely(diff_line, self)

    def __rich_repr__(self) -> Iterator[tuple[str, Any]]:
        yield "changes", list(self.changes)

    def __rich__(self) -> object:
        return cbor.decoded_loosely(diff_table, self)

    def _repr_html_(self) -> str:
        return cbor.decoded_loosely(diff_html, self)


def diff(a: Checkpoint | None, b: Checkpoint | None) -> Diff:
    """Return the changes from checkpoint `a` to `b`. None means the empty state.

    Raises:
        UsageError: an argument is not a checkpoint.
    """
    return Diff(_state_of(a), _state_of(b))


def value_changes(old: Any, new: Any) -> Iterator[Change]:
    """Yield the changes from one plain value to another."""
    return _compare_values(old, new, ())


def _state_of(side: Any) -> MapView:
    if side is None:
        return EMPTY_STATE
    state = getattr(side, "state", None)
    if not isinstance(state, MapView):
        message = f"diff compares checkpoints, not {type(side).__name__}"
        raise UsageError(message)
    return state


def _seen(state: MapView, path: tuple[str | int, ...], value: Any) -> Any:
    """Apply the read checks to a value in `state`, and return what may be seen."""
    return state.part(str(path[0]), value) if value is not None and isinstance(state, CheckedState) else value


def _compare_states(old: MapView, new: MapView) -> Iterator[Change]:
    a, b = old.tree, new.tree
    workspace = (b or a).workspace if (b or a) is not None else None  # type: ignore[union-attr]  # one is there
    if workspace is None:
        return
    nothing = empty_root(kernels.KIND_DICT)
    yield from _compare_trees(a or Tree(workspace, nothing), b or Tree(workspace, nothing), ())


def _compare_trees(a: Tree, b: Tree, path: tuple[str | int, ...]) -> Iterator[Change]:
    if a.kind == kernels.KIND_DICT:
        for key, change in diff_maps(a, b):
            yield from _compare_slots(a, b, change, (*path, cbor.decode(key)))
        return
    for old_at, new_at, change in diff_lists(a, b):
        yield from _compare_slots(a, b, change, (*path, new_at if change.old is None else old_at))


def _compare_slots(a: Tree, b: Tree, change: SlotChange, path: tuple[str | int, ...]) -> Iterator[Change]:
    if change.old is not None and change.new is not None:
        old_tree, new_tree = _as_tree(a, change.old), _as_tree(b, change.new)
        if old_tree is not None and new_tree is not None and _is_like(old_tree, new_tree):
            yield from _compare_trees(old_tree, new_tree, path)
            return
    old = None if change.old is None else cbor.decode(read_item(a.workspace, change.old))
    new = None if change.new is None else cbor.decode(read_item(b.workspace, change.new))
    if change.old is None:
        yield Change(path, "added", None, new)
    elif change.new is None:
        yield Change(path, "removed", old, None)
    else:
        yield from _compare_values(old, new, path)


def _as_tree(parent: Tree, slot: ValueSlot) -> Tree | None:
    return open_root(parent.workspace, slot) if is_tree(slot) else None


def _is_like(a: Tree, b: Tree) -> bool:
    if a.kind == b.kind:
        return a.kind == kernels.KIND_DICT or a.kind in LISTS
    return a.kind in LISTS and b.kind in LISTS and a.head.key == b.head.key


def _compare_values(old: Any, new: Any, path: tuple[str | int, ...]) -> Iterator[Change]:
    """Compare two values, at least one of which is small."""
    if type(old) is dict and type(new) is dict:
        keys = old.keys() | new.keys()
        for key in sorted(keys, key=None if all(type(key) is str for key in keys) else cbor.encode):
            if key not in new:
                yield Change((*path, key), "removed", old[key], None)
            elif key not in old:
                yield Change((*path, key), "added", None, new[key])
            elif cbor.encode(old[key]) != cbor.encode(new[key]):
                yield from _compare_values(old[key], new[key], (*path, key))
    elif type(old) is list and type(new) is list:
        yield from _compare_lists(old, new, path)
    else:
        yield Change(path, "changed", old, new)


def _compare_lists(old: list[Any], new: list[Any], path: tuple[str | int, ...]) -> Iterator[Change]:
    a, b = [cbor.encode(item) for item in old], [cbor.encode(item) for item in new]
    for i, j in align(a, b):
        if i is None and j is not None:
            yield Change((*path, j), "added", None, new[j])
        elif j is None and i is not None:
            yield Change((*path, i), "removed", old[i], None)
        elif i is not None and j is not None:
            yield from _compare_values(old[i], new[j], (*path, i))
