"""Replace a few neighbouring entries where that moves no chunk boundary: one path is written.

It is what `splice` would come to, found without feeding the rest of the tree: where the
entries still close each chunk of the path at its end and nowhere before, T1 leaves all else
as it is. Where not, `patch` declines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from statelog import kernels
from statelog.format.record import varint
from statelog.tree.builder import add_open_level, assemble_root
from statelog.tree.node import CHUNK, read_varint
from statelog.tree.tree import STRINGS, Tree

if TYPE_CHECKING:
    from statelog.tree.node import Node


class Edit(NamedTuple):
    """Replace entries [start, stop) by `added` new ones."""

    start: int
    stop: int
    entries: bytes
    locators: bytes
    added: int


def patch(tree: Tree, edit: Edit) -> Node | None:
    """Return the root after one edit, None if a boundary may move."""
    if tree.kind in STRINGS or edit.stop == edit.start == tree.count:
        return None
    at = 0
    for place, (level, covered, node) in enumerate(tree.groups()):
        if edit.start < at + covered:
            if edit.stop > at + covered:
                return None
            return _patch_group(tree, place, level, node, edit._replace(start=edit.start - at, stop=edit.stop - at))
        at += covered
    return None


def _patch_group(tree: Tree, place: int, level: int, node: Node, edit: Edit) -> Node | None:
    """Make the edit below the open level (or in the tail) that holds it, positions relative to that."""
    head = tree.head
    spine = list(head.levels)
    if level == 0:
        replaced = _replaced(tree, node, edit)
        if kernels.boundaries(tree.kind, 0, *replaced):
            return None
        return assemble_root(tree.kind, head.key, spine, (replaced[2], replaced[0], replaced[1]))
    number = [index for index, entry in enumerate(spine) if entry[1] is not None][place]
    made = _patch_below(tree, level, node, edit)
    if made is None or kernels.boundaries(tree.kind, level, *made):
        return None
    entries, locators, count = made
    content = bytes((tree.kind, level)) + varint(count) + entries
    spine[number] = add_open_level(tree.workspace, tree.kind, content, locators)
    tail = kernels.entries_copy(*tree.node, is_root=True, kind=tree.kind, start=0, stop=head.tail_count)
    return assemble_root(tree.kind, head.key, spine, (head.tail_count, *tail))


def _patch_below(tree: Tree, level: int, node: Node, edit: Edit) -> tuple[bytes, bytes, int] | None:
    """Return the (entries, locators, count) of a chunk of `level` >= 1 after the edit below it."""
    index, offset, *_rest = kernels.find_position(*node, is_root=False, kind=tree.kind, position=edit.start)
    table = tree.table(node, level)
    covered = table[index * 6 + 3]
    stop = offset + edit.stop - edit.start
    if stop > covered:
        return None
    child = tree.child(node, table, index, level)
    inner = edit._replace(start=offset, stop=stop)
    made = _replaced(tree, child, inner) if level == 1 else _patch_below(tree, level - 1, child, inner)
    if made is None or not made[2]:
        return None
    entries, locators, count = made
    cuts = kernels.boundaries(tree.kind, level - 1, entries, locators, count)
    if cuts != [count, len(entries), len(locators)]:
        return None
    content = bytes((tree.kind, level - 1)) + varint(count) + entries
    data = content + locators
    digest, lsn, number = tree.workspace.add(CHUNK, data, len(content))
    entry = kernels.chunk_summary(data, len(content), tree.kind, digest)
    return _around(tree, node, is_root=False, start=index, stop=index + 1).join_with(
        entry, varint(lsn) + varint(number), 1
    )


def _replaced(tree: Tree, node: Node, edit: Edit) -> tuple[bytes, bytes, int]:
    """Return (entries, locators, count) of a level-0 chunk, or the tail, after the edit."""
    around = _around(tree, node, is_root=node is tree.node, start=edit.start, stop=edit.stop)
    return around.join_with(edit.entries, edit.locators, edit.added)


class _Around:
    """The entries of a node before and behind a gap."""

    __slots__ = ("after", "before", "count")

    def __init__(self, before: tuple[bytes, bytes], after: tuple[bytes, bytes], count: int) -> None:
        self.before = before
        self.after = after
        self.count = count

    def join_with(self, entries: bytes, locators: bytes, count: int) -> tuple[bytes, bytes, int]:
        """Fill the gap."""
        return (
            self.before[0] + entries + self.after[0],
            self.before[1] + locators + self.after[1],
            self.count + count,
        )


def _around(tree: Tree, node: Node, *, is_root: bool, start: int, stop: int) -> _Around:
    kind = tree.kind
    size = tree.head.tail_count if is_root else read_varint(node.data, 2)[0]
    before = kernels.entries_copy(*node, is_root=is_root, kind=kind, start=0, stop=start)
    after = kernels.entries_copy(*node, is_root=is_root, kind=kind, start=stop, stop=size)
    return _Around(before, after, size - (stop - start))
