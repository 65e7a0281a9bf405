"""Shows threads, checkpoints, differences and values with rich. rich is imported only when a function is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from statelog.display.lines import checkpoint_line, diff_line, lazily, thread_line
from statelog.display.packed import unpacked
from statelog.display.parts import (
    CHANGES_MAX,
    DEPTH_MAX,
    DIFF_COLUMNS,
    diff_row,
    history_table,
    is_branch,
    leaf,
    members_of,
    size_of,
)
from statelog.errors import StatelogError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType
    from rich.tree import Tree

    from statelog.display.shapes import CheckpointShape, DiffShape, ThreadShape


def thread_table(thread: ThreadShape) -> RenderableType:
    """Return the last checkpoints as a table."""
    from rich.text import Text

    title = thread_line(thread)
    try:
        return _table(title, *history_table(thread))
    except StatelogError:  # The title shows the error.
        return Text(title)


def checkpoint_tree(checkpoint: CheckpointShape) -> RenderableType:
    """Return the checkpoint's state as a tree."""
    title = checkpoint_line(checkpoint)
    try:
        return value_tree(checkpoint.state, title)
    except StatelogError:  # The title shows the error.
        return value_tree({}, title)


def diff_table(diff: DiffShape) -> RenderableType:
    """Return a table of changes with old and new values."""
    from rich.text import Text

    title = diff_line(diff)
    try:
        rows = [diff_row(change) for change in diff.changes[:CHANGES_MAX]]
        more = len(diff.changes) - CHANGES_MAX
        return _table(title, DIFF_COLUMNS, [*rows, (f"… {more:,} more", "", "")] if more > 0 else rows)
    except StatelogError:  # The title shows the error.
        return Text(title)


def value_tree(value: Any, title: str = "") -> RenderableType:
    """Return a list or dict as a tree."""
    from rich.text import Text
    from rich.tree import Tree

    kind = "dict" if isinstance(value, Mapping) else "list"
    try:
        tree = Tree(Text(title or f"{kind}, {size_of(value)}"))
        value = unpacked(lazily(value))
        if not is_branch(value):
            return Text(f"{title or kind}: {leaf(value)}")
        _grow(tree, value, 0)
    except StatelogError as error:  # The store is closed or damaged.
        return Text(f"{title or kind}, {type(error).__name__}")
    return tree


def _grow(tree: Tree, value: Any, depth: int) -> None:
    from rich.text import Text

    shown = 0
    for name, member in members_of(value):
        shown += 1
        if not is_branch(member):
            tree.add(Text.assemble((name, "cyan"), ": ", leaf(member)))
            continue
        branch = tree.add(Text.assemble((name, "cyan"), f"  {size_of(member)}"))
        if depth < DEPTH_MAX:
            _grow(branch, member, depth + 1)
    if len(value) > shown:
        tree.add(Text(f"… {len(value) - shown:,} more", "dim"))


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", title_style="")
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*map(Text, row))
    return table
