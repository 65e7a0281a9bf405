"""Commits pending writes: the writes of tasks, before the checkpoint that these writes lead to."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from langgraph.checkpoint.base import WRITES_IDX_MAP

from statelog.adapters.kit import items
from statelog.adapters.kit.lineage import Follows
from statelog.adapters.kit.shared_items import Similar, are_looked_for
from statelog.adapters.langgraph.saver.arguments import pair_of, several
from statelog.adapters.langgraph.saver.bundles import (
    EncodedWrites,
    encode_alone,
    encode_bundles,
    encode_writes,
    join_bundles,
)
from statelog.adapters.langgraph.values.names import (
    WRITES_BRANCH,
    awaited_name,
    caller_of,
    checkpoint_name,
    checkpoint_prefix,
    group_name,
    line_name,
    similar_lines,
    time_us_of,
    write_name,
)
from statelog.errors import LimitError, ThreadDeletedError, UsageError
from statelog.format import cbor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from statelog import Checkpoint
    from statelog.adapters.kit.items import PreparedWrite
    from statelog.adapters.kit.lineage import Lineage
    from statelog.adapters.langgraph.saver.puts import Bases
    from statelog.adapters.langgraph.values.codec import ValueCodec
    from statelog.adapters.langgraph.values.names import CheckpointName
    from statelog.log.batch import Batch, Head

_new = tuple.__new__
"""Creates a named tuple without calling its `__new__` in Python."""


class Pending(NamedTuple):
    """The writes of a task."""

    prefix: str
    """The `writes_prefix` of the checkpoint."""
    together: EncodedWrites | None
    """All writes except `others`. If two writes have the same number, the first is kept."""
    others: Sequence[PreparedWrite]
    """Errors, interrupts and resumes. A later one replaces an earlier one. They must be on the disk at once, because
    there may be no later checkpoint."""
    place: CheckpointName
    """The checkpoint that the writes follow."""
    follows: Follows
    similar: Similar | None
    """The branches that may already store most items of a long list, because a node has passed the list on."""


_others = attrgetter("others")


class _Aside(TypedDict):
    """Arguments of `Lineage.aside`."""

    writes: Callable[[int, Sequence[str]], Sequence[PreparedWrite]]
    followed: Sequence[Checkpoint]
    quoted: Sequence[Checkpoint]
    similar: Similar | None
    follows: Sequence[Follows]


def pending(
    codec: ValueCodec,
    place: CheckpointName,
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str,
    called: str,
) -> Pending:
    """Return the writes of a task in the form in which they are committed.

    Args:
        codec: the codec of the writes.
        place: the place of the checkpoint that the writes follow.
        writes: pairs of a channel and a value.
        task_id: the id of the task.
        task_path: the path of the task.
        called: the namespace of the called graph if the writes are its result, else an empty string.

    Raises:
        ValueTypeError: the serialiser refuses a value; the message names the channel.
        UsageError: an argument is not a str.
    """
    if not (type(task_id) is type(task_path) is str):
        _refuse_others(("task_id", task_id), ("task_path", task_path))
    prefix = checkpoint_prefix(place.namespace, place.id)
    what = f"task {task_id!r} of thread {place.thread_id!r}"
    together, made = [], []
    for number, write in enumerate(writes if type(writes) is list else several("writes", writes)):
        is_pair = type(write) is tuple and len(write) == 2 and type(write[0]) is str
        channel, value = write if is_pair else pair_of(write)
        index = WRITES_IDX_MAP.get(channel, number)
        if index < 0:
            alone = encode_writes(codec, task_id, task_path, [(index, channel, value)], what=what)
            made.append(items.put(write_name(prefix, task_id, index), encode_alone(alone)))
        else:
            together.append((index, channel, value))
    encoded = encode_writes(codec, task_id, task_path, together, what=what) if together else None
    similar = None
    if encoded is not None and encoded.behind and are_looked_for(encoded.behind):
        lines = similar_lines(place.namespace) + [line_name(called)] * bool(called)
        similar = _new(Similar, (lines, len(encoded.behind)))
    return _new(Pending, (prefix, encoded, made, place, follows(place, place), similar))


REFUSED = (UsageError, LimitError, ThreadDeletedError)
"""Errors that a write itself causes, whether it is committed alone or with others."""


def follows(asked: CheckpointName, made: CheckpointName, parents: Any = None) -> Follows:
    """Return what a write follows: a checkpoint or, if it follows none, the creation time in the new id.

    The first checkpoint of a subgraph follows the checkpoint that called it, named by the `parents` in its metadata.
    """
    caller = None if asked.id else caller_of(made.namespace, parents)
    if caller is not None:
        asked = asked._replace(namespace=caller[0], id=caller[1])
    if not asked.id:
        return _new(Follows, (time_us_of(made.id), None))
    return _new(Follows, (time_us_of(asked.id), checkpoint_name(asked.namespace, asked.id)))


def _refuse_others(*given: tuple[str, Any]) -> None:
    for argument, text in given:
        if not isinstance(text, str):
            message = f"{argument} of a write must be a str, not {text!r}"
            raise UsageError(message, argument=argument, value=text)


def _all_similar(parts: Sequence[Similar]) -> Similar:
    lines = {line for part in parts for line in part.lines}
    return Similar(sorted(lines), max(part.length for part in parts))


def commit_pending(lineage: Lineage, bases: Bases, parts: Sequence[Pending]) -> None:
    """Commit the writes of some tasks."""
    is_flushed = any(map(_others, parts))
    made = lineage.commit_aside(WRITES_BRANCH, **_aside(bases, parts), is_flushed=is_flushed)
    for part in parts:
        bases.note_written(lineage.id, part.prefix, made)


def with_checkpoint(lineage: Lineage, bases: Bases, parts: Sequence[Pending], made: str) -> Callable[[Batch], Head]:
    """Return a function that commits the writes of some tasks before the checkpoint with the store id `made`."""
    return lineage.aside(WRITES_BRANCH, **_aside(bases, parts, made))


def _aside(bases: Bases, parts: Sequence[Pending], made: str | None = None) -> _Aside:
    tasks: dict[str, list[EncodedWrites]] = {}
    prefixes = {part.follows.id: part.prefix for part in parts}
    for part in parts:
        if part.together is not None:
            tasks.setdefault(part.prefix, []).append(part.together)
    bundles = {prefix: encode_bundles(those) for prefix, those in tasks.items()}
    others = [write for part in parts for write in part.others]
    # LangGraph may have put the checkpoint while its writes were encoded: so look for it only now.
    known = [base for part in parts if (base := bases.get(part.place)) is not None]

    def writes(time_us: int, missing: Sequence[str]) -> Sequence[PreparedWrite]:
        groups = [
            items.put_once_made(group_name(prefix, time_us), item, join_bundles) for prefix, item in bundles.items()
        ]
        awaited = [prefixes[name] for name in missing if name != made]
        return [*[items.put(awaited_name(prefix), cbor.encode(time_us)) for prefix in awaited], *groups, *others]

    return {
        "writes": writes,
        "followed": [base.checkpoint for base in known if base.checkpoint is not None],
        "quoted": [start.made for base in known if (start := base.start) is not None],
        "follows": [part.follows for part in parts],
        "similar": _all_similar(similar) if (similar := [part.similar for part in parts if part.similar]) else None,
    }
