"""Edit a tree at any positions: its path is written anew, the rest is shared."""

from __future__ import annotations

from typing import NamedTuple

from statelog.tree.builder import Builder
from statelog.tree.node import Node
from statelog.tree.tree import Tree


class Edit(NamedTuple):
    """Replace entries [start, stop) by `count` new ones."""

    start: int
    stop: int
    entries: bytes
    locators: bytes
    count: int


def splice(tree: Tree, edits: list[Edit]) -> Node:
    """Return the root of `tree` with the edits made.

    Args:
        tree: stays as it is.
        edits: ascending, not overlapping; positions are those before any edit.

    """
    builder = Builder(tree.workspace, tree.kind, tree.head.key)
    at = 0
    for edit in edits:
        tree.feed(builder, at, edit.start)
        builder.push(0, edit.entries, edit.locators, edit.count)
        at = edit.stop
    tree.feed(builder, at, tree.count)
    return builder.finish()
