"""Makes the contents of trees and tables for every output. Their size and the amount of data read are bounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from statelog.display.graphs import GRAPH_COLUMNS, graph_cells, is_graph, shown_names
from statelog.display.lines import printable, shorten, written
from statelog.display.packed import unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statelog.display.shapes import ChangeShape, CheckpointShape, ThreadShape

MEMBERS_MAX = 20
"""The maximum number of members shown for a list or dict."""

DEPTH_MAX = 5
CHECKPOINTS_MAX = 10
CHANGES_MAX = 100
HISTORY_COLUMNS = ("version", "time", "kind", "metadata", "channels written")
DIFF_COLUMNS = ("where", "what was", "what is")

_TEXT_CHARACTERS_MAX = 200


def is_branch(value: object) -> bool:
    """Return True if a value has members to show."""
    return isinstance(value, Mapping) or (isinstance(value, Sequence) and not isinstance(value, str | bytes))


def members_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of the first members."""
    if isinstance(value, Mapping):
        yield from ((label(key), unpacked(value[key])) for key in islice(shown_names(value), MEMBERS_MAX))
    else:
        yield from ((str(position), unpacked(item)) for position, item in enumerate(islice(value, MEMBERS_MAX)))


def label(key: object) -> str:
    """Return the name of a member."""
    return shorten(printable(str(key)), 80)


def size_of(value: Any) -> str:
    """Return the number of members as a string, such as `3 keys` or `1 item`."""
    noun = "key" if isinstance(value, Mapping) else "item"
    return f"{len(value):,} {noun}{'' if len(value) == 1 else 's'}"


def leaf(value: object) -> str:
    """Return a value on one line."""
    if isinstance(value, str | bytes):  # Cut the value before calling `repr`, because it may be megabytes long.
        more = len(value) - _TEXT_CHARACTERS_MAX
        shown = printable(repr(value[:_TEXT_CHARACTERS_MAX]))
        return f"{shown} … {more:,} more" if more > 0 else shown
    return shorten(printable(written(value, _TEXT_CHARACTERS_MAX)), _TEXT_CHARACTERS_MAX)


def history_table(thread: ThreadShape) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    """Return the columns and rows for a table that shows the last checkpoints."""
    head = thread.head
    checkpoints = list(thread.history(CHECKPOINTS_MAX))
    if head is None or not is_graph(head.state):
        return HISTORY_COLUMNS, [_row(checkpoint) for checkpoint in checkpoints]
    cells = [graph_cells(checkpoint, checkpoint.parent) for checkpoint in checkpoints]
    return ("version", "time", *GRAPH_COLUMNS), [
        (*_row(checkpoint)[:2], *(shorten(printable(cell), _TEXT_CHARACTERS_MAX) for cell in each))
        for checkpoint, each in zip(checkpoints, cells, strict=True)
    ]


def _row(checkpoint: CheckpointShape) -> tuple[str, ...]:
    metadata = ", ".join(f"{label(key)}={leaf(value)}" for key, value in checkpoint.metadata.items())
    return (
        str(checkpoint.version),
        f"{checkpoint.time:%Y-%m-%d %H:%M:%S.%f}Z",
        checkpoint.kind,
        shorten(metadata, _TEXT_CHARACTERS_MAX),
        shorten(printable(", ".join(checkpoint.channels_written)), _TEXT_CHARACTERS_MAX),
    )


def diff_row(change: ChangeShape) -> tuple[str, str, str]:
    """Return the path, the old value and the new value of a change. A missing value is empty."""
    where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in change.path).removeprefix(".")
    old = "" if change.kind == "added" else leaf(change.old)
    return label(where), old, "" if change.kind == "removed" else leaf(change.new)
