"""Shows threads, checkpoints, differences and values in notebooks, as escaped HTML of bounded size."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
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
    from collections.abc import Callable, Iterable, Sequence

    from statelog.display.shapes import CheckpointShape, DiffShape, ThreadShape

_LEFT = ' style="text-align:left"'


def thread_html(thread: ThreadShape) -> str:
    """Return the state of the head as a tree, and the last checkpoints as a table."""

    def body() -> str:
        head = thread.head
        return "" if head is None else _tree("state", lazily(head.state), 0) + _table(*history_table(thread))

    return _titled(thread_line(thread), body)


def checkpoint_html(checkpoint: CheckpointShape) -> str:
    """Return the checkpoint's state as a tree."""
    return _titled(checkpoint_line(checkpoint), lambda: _tree("state", lazily(checkpoint.state), 0))


def diff_html(diff: DiffShape) -> str:
    """Return a table of changes with old and new values."""

    def body() -> str:
        more = len(diff.changes) - CHANGES_MAX
        table = _table(DIFF_COLUMNS, map(diff_row, diff.changes[:CHANGES_MAX]))
        return f"{table}<p>… {more:,} more</p>" if more > 0 else table

    return _titled(diff_line(diff), body)


def value_html(value: Any) -> str:
    """Return a list or dict as a tree."""
    try:
        return f"<div>{_tree(_kind(value), unpacked(lazily(value)), 0)}</div>"
    except StatelogError as error:
        return f"<div><code>{_kind(value)}, {type(error).__name__}</code></div>"


def _kind(value: object) -> str:
    return "dict" if isinstance(value, Mapping) else "list"


def _titled(title: str, body: Callable[[], str]) -> str:
    try:
        return f"<div><code>{escape(title)}</code>{body()}</div>"
    except StatelogError:  # The title shows the error.
        return f"<div><code>{escape(title)}</code></div>"


def _tree(name: str, value: Any, depth: int) -> str:
    if not is_branch(value):
        return f"<div>{escape(name)}: <code>{escape(leaf(value))}</code></div>"
    summary = f"<summary>{escape(name)} <small>{size_of(value)}</small></summary>"
    if depth == DEPTH_MAX:
        return f"<div>{escape(name)} <small>{size_of(value)}</small></div>"
    shown = [_tree(each, member, depth + 1) for each, member in members_of(value)]
    members, left = "".join(shown), len(value) - len(shown)
    more = f"<div>… {left:,} more</div>" if left else ""
    is_open = " open" if depth == 0 else ""
    return f'<details{is_open} style="margin-left:1em">{summary}{members}{more}</details>'


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th{_LEFT}>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td{_LEFT}>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
