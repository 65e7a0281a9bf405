"""Replaces a few neighbouring entries without moving a chunk boundary, so that only one path is written.

The result equals `splice`'s result, without visiting the rest of the tree. By T1, nothing else changes if each edited
chunk still closes at its end and not before. Otherwise `patch` returns None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from statelog import kernels
from statelog.format.record import DIGEST_SIZE_BYTES, varint
from statelog.tree.builder import assemble_root
from statelog.tree.node import CHUNK, read_varint
from statelog.tree.tree import STRIDE, Tree

if TYPE_CHECKING:
    from statelog.tree.node import Node


class Edit(NamedTuple):
    """An edit that replaces the entries [start, stop) with `added` new entries."""

    start: int
    stop: int
    entries: bytes
    locators: bytes
    added: int


def patch(tree: Tree, edit: Edit) -> Node | None:
    """Return the root after one edit, or None if a boundary may move."""
    if edit.stop == edit.start == tree.count:
        end = tree.head.tail_count
        return _patch_tail(tree, tree.node, edit._replace(start=end, stop=end))
    at = 0
    for place, (level, covered, node) in enumerate(tree.groups()):
        if edit.start < at + covered:
            if edit.stop > at + covered:
                return None
            return _patch_group(tree, place, level, node, edit._replace(start=edit.start - at, stop=edit.stop - at))
        at += covered
    return None


def _patch_group(tree: Tree, place: int, level: int, node: Node, edit: Edit) -> Node | None:
    """Apply the edit to an open level or to the tail. Positions are relative to `node`."""
    head = tree.head
    spine = list(head.levels)
    if level == 0:
        return _patch_tail(tree, node, edit)
    number = [index for index, entry in enumerate(spine) if entry[1] is not None][place]
    changed = _patch_chunk(tree, level, node, edit, is_closed=False)
    if changed is None:
        return None
    data, content_size = changed
    table = kernels.entries_table(data, content_size, 0, is_root=False, kind=tree.kind)
    spine[number] = (sum(table[3::STRIDE]), *tree.workspace.add(CHUNK, data, content_size))
    tail = kernels.entries_copy(*tree.node, is_root=True, kind=tree.kind, start=0, stop=head.tail_count)
    return assemble_root(tree.kind, head.key, spine, (head.tail_count, *tail))


def _patch_chunk(tree: Tree, level: int, node: Node, edit: Edit, *, is_closed: bool) -> tuple[bytes, int] | None:
    """Return (data, content size) of a chunk after an edit inside it or below it."""
    if level:
        index, offset, digest_at, _end, lsn, number, _covered = kernels.find_position(
            *node, is_root=False, kind=tree.kind, position=edit.start
        )
        digest = node.data[digest_at : digest_at + DIGEST_SIZE_BYTES]
        child = tree.workspace.read(CHUNK, digest, lsn, number)
        inner = edit._replace(start=offset, stop=offset + edit.stop - edit.start)
        below = _patch_chunk(tree, level - 1, child, inner, is_closed=True)
        if below is None:
            return None
        digest, lsn, number = tree.workspace.add(CHUNK, *below)
        entry = kernels.chunk_summary(*below, tree.kind, digest)
        edit = Edit(index, index + 1, entry, varint(lsn) + varint(number), 1)
    elif edit.stop > read_varint(node.data, 2)[0]:
        return None
    return kernels.chunk_replace(
        *node,
        kind=tree.kind,
        start=edit.start,
        stop=edit.stop,
        entries=edit.entries,
        locators=edit.locators,
        added=edit.added,
        is_closed=is_closed,
    )


def _patch_tail(tree: Tree, node: Node, edit: Edit) -> Node | None:
    head = tree.head
    before = kernels.entries_copy(*node, is_root=True, kind=tree.kind, start=0, stop=edit.start)
    after = kernels.entries_copy(*node, is_root=True, kind=tree.kind, start=edit.stop, stop=head.tail_count)
    entries = before[0] + edit.entries + after[0]
    locators = before[1] + edit.locators + after[1]
    count = head.tail_count - (edit.stop - edit.start) + edit.added
    if kernels.boundaries(tree.kind, 0, entries, locators, count):
        return None
    return assemble_root(tree.kind, head.key, head.levels, (count, entries, locators))
