"""Dicts and sets as prolly trees sorted by key: look-ups, and merges of a sorted batch of puts and deletes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog import kernels
from statelog.tree.builder import Builder
from statelog.tree.node import Node, ValueSlot, Workspace
from statelog.tree.splice import Edit, splice
from statelog.tree.tree import MAPS, Tree
from statelog.tree.value import (
    add_root,
    container_head,
    container_kind,
    encode_slot,
    is_tree,
    open_root,
    read_item,
    settle,
    split,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_DENSE = 8
"""A batch with more than one change for every 8 entries rewrites the whole tree, because finding each entry is slower.

"""

Batch = list[tuple[bytes, ValueSlot | None]]
"""The changes to merge: (key or element item, slot or None to delete), strictly ascending by item."""


def empty_root(kind: int) -> Node:
    """Return the root of an empty tree."""
    content = bytes((kind, 0, 0, 0))
    return Node(content, len(content), 0)


def find_in_root(workspace: Workspace, node: Node, key_item: bytes) -> ValueSlot | None:
    """Return the slot of a dict's key, searching the root's own entries first."""
    _index, found, slot_at, end, lsn, number, _passed = kernels.find_key(
        *node, is_root=True, kind=kernels.KIND_DICT, key_item=key_item
    )
    if found:
        return ValueSlot(node.data[slot_at:end], lsn, number)
    return Tree(workspace, node).find(key_item)[1]


def get(tree: Tree, key_item: bytes) -> ValueSlot | None:
    """Return the slot of a key, or None."""
    return tree.find(key_item)[1]


def holds_prefix(tree: Tree, prefix: bytes) -> bool:
    """Return True if a set has an element whose encoding begins with `prefix`."""
    position, found = tree.find(prefix)
    if found is not None:
        return True
    for run in tree.runs(position, min(position + 1, tree.count)):
        return tree.slot(run.node, run.table, run.start).data.startswith(prefix)
    return False


def merge_batch(workspace: Workspace, node: Node, batch: Batch, *, kind: int) -> Node:
    """Return the root of a dict or set after applying a batch."""
    is_set = kind != kernels.KIND_DICT
    entries = b"".join(
        [
            item + (kernels.BATCH_DELETE if slot is None else kernels.BATCH_PUT if is_set else slot.data)
            for item, slot in batch
        ]
    )
    locators = b"".join([slot.locators for _item, slot in batch if slot is not None]) if not is_set else b""
    merged = kernels.tail_merge(*node, entries, locators, len(batch))
    if merged is not None:
        return Node(merged[0], merged[1], 0)
    tree = Tree(workspace, node)
    if len(batch) * _DENSE > tree.count:
        return _merge_all(tree, batch)
    edits: list[Edit] = []
    for item, slot in batch:
        position, found = tree.find(item)
        if slot is None:
            if found is not None:
                edits.append(Edit(position, position + 1, b"", b"", 0))
            continue
        data = item if is_set else item + slot.data
        edit = Edit(position, position + (found is not None), data, b"" if is_set else slot.locators, 1)
        # Join changes of neighbouring entries into one edit.
        if edits and found is None and edits[-1].start == edits[-1].stop == position:
            last = edits.pop()
            edit = Edit(position, position, last.entries + data, last.locators + edit.locators, last.added + 1)
        edits.append(edit)
    return splice(tree, edits)


def _merge_all(tree: Tree, batch: Batch) -> Node:
    is_set = tree.kind != kernels.KIND_DICT
    merged: dict[bytes, ValueSlot] = {}
    for run in tree.runs(0, tree.count):
        for index in range(run.start, run.stop):
            key = tree.slot(run.node, run.table, index).data if is_set else tree.key(run.node, run.table, index)
            merged[key] = tree.slot(run.node, run.table, index)
    for item, slot in batch:
        if slot is None:
            merged.pop(item, None)
        else:
            merged[item] = slot
    builder = Builder(tree.workspace, tree.kind)
    pairs = sorted(merged.items())
    builder.push(
        0,
        b"".join([key if is_set else key + slot.data for key, slot in pairs]),
        b"" if is_set else b"".join([slot.locators for _key, slot in pairs]),
        len(pairs),
    )
    return builder.finish()


def merge(workspace: Workspace, slot: ValueSlot, batch: Batch, *, top: bool = True) -> ValueSlot:
    """Return the slot of a dict or set value after applying a batch."""
    if not batch:
        return slot
    if is_tree(slot):
        tree = open_root(workspace, slot)
        merged = merge_batch(workspace, tree.node, batch, kind=tree.kind)
        return settle(workspace, merged, top=top) if _may_be_small(tree, merged, batch) else add_root(workspace, merged)
    item = read_item(workspace, slot)
    kind = container_kind(item)
    assert kind in MAPS
    children = split(item)
    step = 2 if kind == kernels.KIND_DICT else 1
    old = {children[at]: children[at + step - 1] for at in range(0, len(children), step)}
    for key, member in batch:
        if member is None:
            old.pop(key, None)
        else:
            old[key] = read_item(workspace, member)
            workspace.has_garbage = workspace.has_garbage or member.is_ref
    pairs = sorted(old.items())
    joined = b"".join([key + member if step > 1 else key for key, member in pairs])
    return encode_slot(workspace, container_head(kind, len(pairs)) + joined, top=top)


def _may_be_small(tree: Tree, merged: Node, batch: Batch) -> bool:
    """Return False if the batch only added entries, because the value then cannot have become too small for a tree."""
    return kernels.root_read(*merged).count != tree.count + len(batch)


def update(slot: ValueSlot, workspace: Workspace, items: Sequence[tuple[bytes, bytes]]) -> ValueSlot:
    """Return the slot of a dict after putting (key item, value item) pairs, in any order."""
    latest = dict(items)
    batch: Batch = [(key, encode_slot(workspace, latest[key])) for key in sorted(latest)]
    return merge(workspace, slot, batch)
