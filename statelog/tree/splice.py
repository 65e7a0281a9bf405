"""Edits a tree at any positions. Only the edited paths are rewritten; the rest is shared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.tree.builder import Builder
from statelog.tree.patch import Edit, patch

if TYPE_CHECKING:
    from statelog.tree.node import Node
    from statelog.tree.tree import Tree

__all__ = ["Edit", "splice"]


def splice(tree: Tree, edits: list[Edit]) -> Node:
    """Return the root of `tree` after the edits.

    Args:
        tree: a tree of entries, not a string. It does not change.
        edits: the edits, ascending and without overlap. Positions refer to the tree before any edit.
    """
    if len(edits) == 1:
        patched = patch(tree, edits[0])
        if patched is not None:
            return patched
    builder = Builder(tree.workspace, tree.kind, tree.head.key)
    at = 0
    for edit in edits:
        tree.feed(builder, at, edit.start)
        builder.push(0, edit.entries, edit.locators, edit.added)
        at = edit.stop
    tree.feed(builder, at, tree.count)
    return builder.finish()
