"""Computes the differences between two trees.

Shared nodes are skipped by digest, so the cost is proportional to the size of the change.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple

from statelog.format.record import DIGEST_SIZE_BYTES
from statelog.tree.node import CHUNK, Node, ValueSlot
from statelog.tree.tree import MAPS, STRIDE, Tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ALIGNED_ITEMS_MAX = 2000
"""The maximum number of changed list items that are aligned.

If there are more changed items, they are paired by position, because alignment takes quadratic time.
"""

_REMEMBERED_MAX = 64


class SlotChange(NamedTuple):
    """A slot that differs between two trees. `old` or `new` is None if that tree lacks the slot."""

    old: ValueSlot | None
    new: ValueSlot | None


class _Path(NamedTuple):
    """The nodes that begin or end at a position, from the highest level down to the slot."""

    nodes: list[tuple[bytes, int]]
    key: bytes
    slot: ValueSlot


class _Cursor:
    """Reads a tree one position at a time, and caches parsed nodes for the next position."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._groups = list(tree.groups())
        self._tables: dict[int, tuple[Node, list[int]]] = {}
        self._children: dict[bytes, Node] = {}

    def _table(self, node: Node, level: int) -> list[int]:
        kept = self._tables.get(id(node))
        if kept is not None and kept[0] is node:
            return kept[1]
        table = self.tree.table(node, level)
        if len(self._tables) > _REMEMBERED_MAX:
            self._tables.clear()
        self._tables[id(node)] = (node, table)
        return table

    def look(self, position: int, *, ends: bool = False) -> _Path:
        """Return the slot at `position`, and the nodes that begin with this slot.

        With `ends`, return the nodes that end with this slot.
        """
        nodes: list[tuple[bytes, int]] = []
        for level, covered, node in self._groups:
            if position >= covered:
                position -= covered
                continue
            while level:
                table = self._table(node, level)
                index = 0
                while position >= table[index * STRIDE + 3]:
                    position -= table[index * STRIDE + 3]
                    index += 1
                size = table[index * STRIDE + 3]
                if position == (size - 1 if ends else 0):
                    at = table[index * STRIDE + 1]
                    nodes.append((node.data[at : at + DIGEST_SIZE_BYTES], size))
                else:
                    nodes.clear()
                node = self._child(node, table, index)
                level -= 1
            table = self._table(node, 0)
            is_map = self.tree.kind in MAPS
            slot = self.tree.slot(node, table, position)
            key = b"" if not is_map else self.tree.key(node, table, position) or slot.data
            return _Path(nodes, key, slot)
        raise IndexError(position)

    def _child(self, node: Node, table: list[int], index: int) -> Node:
        """Return a child node. Repeated calls return the same object, because `_tables` is keyed by its id."""
        _at, digest_at, _end, _covered, lsn, number = table[index * STRIDE : (index + 1) * STRIDE]
        digest = node.data[digest_at : digest_at + DIGEST_SIZE_BYTES]
        kept = self._children.get(digest)
        if kept is None:
            kept = self.tree.workspace.read(CHUNK, digest, lsn, number)
            if len(self._children) > _REMEMBERED_MAX:
                self._children.clear()
            self._children[digest] = kept
        return kept


def _shared(a: _Path, b: _Path) -> int:
    """Return the number of entries in the largest node on both paths, 1 if only the slots are equal, or 0."""
    theirs = dict(b.nodes)
    for digest, covered in a.nodes:
        if theirs.get(digest) == covered:
            return covered
    return 1 if a.slot.data == b.slot.data and a.key == b.key else 0


def diff_maps(old: Tree, new: Tree) -> Iterator[tuple[bytes, SlotChange]]:
    """Yield the (key item, change) of every key that differs, in ascending order."""
    a, b = _Cursor(old), _Cursor(new)
    at = bt = 0
    while at < old.count and bt < new.count:
        left, right = a.look(at), b.look(bt)
        shared = _shared(left, right)
        if shared:
            at += shared
            bt += shared
        elif left.key == right.key:
            yield left.key, SlotChange(left.slot, right.slot)
            at += 1
            bt += 1
        elif left.key < right.key:
            yield left.key, SlotChange(left.slot, None)
            at += 1
        else:
            yield right.key, SlotChange(None, right.slot)
            bt += 1
    for position in range(at, old.count):
        left = a.look(position)
        yield left.key, SlotChange(left.slot, None)
    for position in range(bt, new.count):
        right = b.look(position)
        yield right.key, SlotChange(None, right.slot)


def diff_lists(old: Tree, new: Tree) -> Iterator[tuple[int, int, SlotChange]]:
    """Yield the (old position, new position, change) of items that differ, in order.

    The common beginning and end are skipped by digest; the items between them are aligned.
    """
    a, b = _Cursor(old), _Cursor(new)
    start = 0
    limit = min(old.count, new.count)
    while start < limit:
        shared = _shared(a.look(start), b.look(start))
        if not shared:
            break
        start += shared
    end = 0
    while end < limit - start:
        left = a.look(old.count - 1 - end, ends=True)
        right = b.look(new.count - 1 - end, ends=True)
        shared = _shared(left, right)
        if shared > limit - start - end:
            shared = 1 if left.slot.data == right.slot.data else 0
        if not shared:
            break
        end += shared
    yield from _diff_middle(old, new, start, old.count - end, new.count - end)


def _diff_middle(
    old: Tree, new: Tree, start: int, old_stop: int, new_stop: int
) -> Iterator[tuple[int, int, SlotChange]]:
    a, b = old.slots(start, old_stop), new.slots(start, new_stop)
    at_old = at_new = 0
    for i, j in align([slot.data for slot in a], [slot.data for slot in b]):
        at_old, at_new = at_old if i is None else i, at_new if j is None else j
        change = SlotChange(None if i is None else a[i], None if j is None else b[j])
        yield start + at_old, start + at_new, change


def align(a: Sequence[bytes], b: Sequence[bytes]) -> Iterator[tuple[int | None, int | None]]:
    """Yield the (position in a, position in b) of items that differ, in order.

    The position is None on the side that lacks the item.
    """
    blocks: Sequence[tuple[str, int, int, int, int]]
    if max(len(a), len(b)) > ALIGNED_ITEMS_MAX:
        blocks = [("replace", 0, len(a), 0, len(b))]
    else:
        blocks = SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    for what, i, i_stop, j, j_stop in blocks:
        if what == "equal":
            continue
        for offset in range(max(i_stop - i, j_stop - j)):
            before = i + offset if i + offset < i_stop else None
            after = j + offset if j + offset < j_stop else None
            if before is None or after is None or a[before] != b[after]:
                yield before, after
