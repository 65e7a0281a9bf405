"""Pending writes: what tasks have written before the checkpoint it leads to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from langgraph.checkpoint.base import WRITES_IDX_MAP

from statelog import items
from statelog.adapters.langgraph.bundles import encode_bundle, join_bundles
from statelog.adapters.langgraph.names import WRITES_BRANCH, write_name, writes_prefix
from statelog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from statelog import Checkpoint
    from statelog.adapters.langgraph.names import Place
    from statelog.adapters.langgraph.values import Codec
    from statelog.items import Write
    from statelog.lineage import Lineage


class Pending(NamedTuple):
    """The writes of a task."""

    writes: Sequence[Write]
    is_flushed: bool
    """Whether they are to be on the disk at once: no checkpoint may come after an error or an interrupt."""
    followed: Checkpoint | None
    """The checkpoint they are put to, if it is remembered."""


def pending(
    codec: Codec,
    place: Place,
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str,
    followed: Checkpoint | None,
) -> Pending:
    """Return what is to be committed of a task's writes.

    Raises:
        ValueTypeError: the serialiser refuses a value; the message names the channel.
        UsageError: what is a text is none.

    """
    for argument, text in (("task_id", task_id), ("task_path", task_path), *(("channel", name) for name, _ in writes)):
        if not isinstance(text, str):
            message = f"{argument} of a write is a text, not {text!r}"
            raise UsageError(message, argument=argument, value=text)
    prefix = writes_prefix(place)
    what = f"task {task_id!r}"
    together, made = [], []
    for number, (channel, value) in enumerate(writes):
        index = WRITES_IDX_MAP.get(channel, number)
        if index < 0:
            item = encode_bundle(codec, task_id, task_path, [(index, channel, value)], what=what)
            made.append(items.put(write_name(prefix, task_id, index), item))
        else:
            together.append((index, channel, value))
    is_flushed = bool(made)
    if together:
        item = encode_bundle(codec, task_id, task_path, together, what=what)
        made.append(items.put_once(write_name(prefix, task_id, 0), item, join_bundles))
    return Pending(made, is_flushed, followed)


def commit_pending(lineage: Lineage, parts: Sequence[Pending]) -> None:
    """Commit the writes of some tasks."""
    lineage.commit_aside(
        WRITES_BRANCH,
        [write for part in parts for write in part.writes],
        followed=[part.followed for part in parts if part.followed is not None],
        is_flushed=any(part.is_flushed for part in parts),
    )
