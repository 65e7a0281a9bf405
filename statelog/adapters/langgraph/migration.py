"""All threads of one saver copied into another: checkpoints, pending writes and metadata, then compared.

A copy that was cut off is made again and goes on: what is there is compared and passed over, and what is missing
of it is added. Nothing that is there is ever overwritten with something else.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from statelog.adapters.langgraph.ancestors import contributions, put_stand_in
from statelog.adapters.langgraph.endpoints import Place
from statelog.adapters.langgraph.untouched import Opaque, UntouchedSerializer
from statelog.errors import ConflictError, CorruptionError, FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointTuple, PendingWrite

    from statelog.adapters.langgraph.endpoints import Endpoint

_SERIALIZER = UntouchedSerializer()


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """What was moved.

    Attributes:
        source: its name.
        target: its name.
        threads: in the source.
        checkpoints: in the source, of all namespaces; each was compared with what the target gives back.
        writes: pending writes of those.
        copied: checkpoints written by this run; the others were there.
        others: checkpoints of these threads that only the target has: the threads have gone on there.

    """

    source: str
    target: str
    threads: int
    checkpoints: int
    writes: int
    copied: int
    others: int


def migrate(
    source: Endpoint, target: Endpoint, *, progress: Callable[[int, int], None] | None = None
) -> MigrationReport:
    """Copy every thread, then read all of it back and compare.

    Args:
        source: only read.
        target: threads it has of other ids stay as they are.
        progress: called with steps done, and in all.

    Returns:
        What there was and what was done.

    Raises:
        ConflictError: the target has one of the checkpoints with other content, or lost a race. Facts: thread,
            checkpoint.
        FormatError: a checkpoint is pickled or encrypted as a whole. Facts: thread, checkpoint.
        CorruptionError: what was read back is not what was written. Facts: thread, checkpoint, fields.
        ThreadDeletedError: the thread was deleted in the target: it does not come back.

    """
    parents = dict(source.places())
    steps = itertools.count(1)

    def advance() -> None:
        if progress is not None:
            progress(next(steps), 2 * len(parents))

    copied = _copy(source, target, parents, advance)
    target.flush()
    writes, others = _compare(source, target, parents, advance)
    return MigrationReport(
        source=source.name,
        target=target.name,
        threads=len({place.thread_id for place in parents}),
        checkpoints=len(parents),
        writes=writes,
        copied=copied,
        others=others,
    )


# --- copying ----------------------------------------------------------------------


def _parents_first(parents: dict[Place, str | None]) -> Iterator[Place]:
    """Yield thread by thread and namespace by namespace, by id, but never a child before its parent."""
    done = set()
    for place in sorted(parents, key=lambda place: (place.thread_id, place.namespace, place.checkpoint_id)):
        chain = []
        here: Place | None = place
        while here in parents and here not in done:  # a loop of parents ends where it began
            done.add(here)
            chain.append(here)
            parent_id = parents[here]
            here = Place(here.thread_id, here.namespace, parent_id) if parent_id else None
        yield from reversed(chain)


def _copy(source: Endpoint, target: Endpoint, parents: dict[Place, str | None], advance: Callable[[], None]) -> int:
    copied = 0
    last: CheckpointTuple | None = None
    for place in _parents_first(parents):
        found = _read(source, place)
        parent_id = parents[place]
        hidden = _hidden_parent(place, parents)
        if hidden and target.saver.get_tuple(hidden.config()) is None:
            put_stand_in(source, target, found, hidden.config())
        there = target.saver.get_tuple(place.config())
        different = _differences(found, _without_inherited(target, there)) if there else None
        has_all = there is not None and _is_part(found, there)
        if different is None:
            versions = _new_versions(found, _parent_of(place, parent_id, last, source))
            target.saver.put(_parent_config(place, parent_id), found.checkpoint, found.metadata, versions)
            copied += 1
        elif different - {"pending_writes"} or not (has_all or (there and _is_part(there, found))):
            raise _conflict(place, target)
        if found.pending_writes and not has_all:  # none are there, or copying was cut off
            _copy_writes(source, target, place, found.pending_writes)
        last = found
        advance()
    return copied


def _read(endpoint: Endpoint, place: Place) -> CheckpointTuple:
    found = endpoint.saver.get_tuple(place.config())
    if found is None:
        message = f"checkpoint {place.checkpoint_id} of thread {place.thread_id!r} went away from {endpoint.name}"
        raise ConflictError(message, thread=place.thread_id, checkpoint=place.checkpoint_id)
    if isinstance(found.checkpoint, Opaque):
        message = (
            f"checkpoint {place.checkpoint_id} of thread {place.thread_id!r} is of type {found.checkpoint.type!r}"
            " as a whole: it cannot be read without the serialiser that wrote it"
        )
        raise FormatError(message, thread=place.thread_id, checkpoint=place.checkpoint_id)
    return _without_inherited(endpoint, found)


def _without_inherited(endpoint: Endpoint, found: CheckpointTuple) -> CheckpointTuple:
    """Return a tuple without snapshots of a ``DeltaChannel`` that an ancestor made.

    A graph hands a snapshot over once. Savers that keep values by version show it for as long as the channel does not
    change, those that keep each checkpoint whole do not.
    """
    values, versions = found.checkpoint["channel_values"], found.checkpoint["channel_versions"]
    snapshots = {name for name, value in values.items() if isinstance(value, _DeltaSnapshot)}
    parent = endpoint.saver.get_tuple(found.parent_config) if snapshots and found.parent_config else None
    if parent is None:
        return found
    before = parent.checkpoint["channel_versions"]
    own = {name: values[name] for name in values if name not in snapshots or before.get(name) != versions.get(name)}
    return found._replace(checkpoint={**found.checkpoint, "channel_values": own})


def _hidden_parent(place: Place, parents: dict[Place, str | None]) -> Place | None:
    """Return the parent if the source does not show it."""
    parent_id = parents[place]
    parent = Place(place.thread_id, place.namespace, parent_id) if parent_id else None
    return None if parent in parents else parent


def _parent_of(
    place: Place, parent_id: str | None, last: CheckpointTuple | None, source: Endpoint
) -> Checkpoint | None:
    """Return the parent, which most often is what was read last; None if there is none, or none any more."""
    if not parent_id:
        return None
    parent = Place(place.thread_id, place.namespace, parent_id)
    found = last if last and Place.of(last.config) == parent else source.saver.get_tuple(parent.config())
    return found.checkpoint if found else None


def _parent_config(place: Place, parent_id: str | None) -> RunnableConfig:
    config: RunnableConfig = {"configurable": {"thread_id": place.thread_id, "checkpoint_ns": place.namespace}}
    if parent_id:
        config["configurable"]["checkpoint_id"] = parent_id
    return config


def _new_versions(found: CheckpointTuple, parent: Checkpoint | None) -> ChannelVersions:
    """Return the versions that a graph would have passed: of channels that are not as in the parent."""
    checkpoint = found.checkpoint
    inherited: Mapping[str, Any] = parent["channel_versions"] if parent else {}
    had = parent["channel_values"] if parent else {}
    return {
        name: version
        for name, version in checkpoint["channel_versions"].items()
        if inherited.get(name) != version or (name in checkpoint["channel_values"] and name not in had)
    }


def _is_part(one: CheckpointTuple, other: CheckpointTuple) -> bool:
    """Whether the pending writes of one are among those of the other, in the same order."""
    others = iter(_writes(other))
    return all(write in others for write in _writes(one))


def _copy_writes(source: Endpoint, target: Endpoint, place: Place, writes: list[PendingWrite]) -> None:
    """Put the writes of each task; channels with a fixed number apart, so that others keep theirs.

    A task's path orders its writes among the others'. Where the source does not tell it, numbers keep the order.
    """
    paths = source.task_paths(place)
    grouped = itertools.groupby(writes, key=lambda write: (write[0], write[1] in WRITES_IDX_MAP))
    numbers: dict[str, int] = {}
    for (task_id, _), group in grouped:
        path = paths.get(task_id)
        if path is None:
            path = f"{numbers.setdefault(task_id, len(numbers)):08d}"
        target.saver.put_writes(place.config(), [(channel, value) for _, channel, value in group], task_id, path)


def _conflict(place: Place, target: Endpoint) -> ConflictError:
    message = (
        f"{target.name} has a checkpoint {place.checkpoint_id} of thread {place.thread_id!r} with other content:"
        " nothing of it was changed"
    )
    return ConflictError(message, thread=place.thread_id, checkpoint=place.checkpoint_id)


# --- comparing --------------------------------------------------------------------


def _compare(
    source: Endpoint, target: Endpoint, parents: dict[Place, str | None], advance: Callable[[], None]
) -> tuple[int, int]:
    """Read every checkpoint back; return pending writes compared, and checkpoints that only the target has."""
    threads = {place.thread_id for place in parents}
    known = parents.keys() | {_hidden_parent(place, parents) for place in parents}
    others = sum(place.thread_id in threads and place not in known for place, _ in target.places())
    writes = 0
    for place in parents:
        found, there = _read(source, place), target.saver.get_tuple(place.config())
        different = _differences(found, _without_inherited(target, there)) if there else {"checkpoint"}
        if there and "pending_writes" in different and _is_part(found, there):  # it has gone on
            different -= {"pending_writes"}
        if _hidden_parent(place, parents) and there and contributions(source, found) != contributions(target, there):
            different = different | {"ancestors"}
        if different:
            raise _not_as_written(place, target, sorted(different))
        writes += len(found.pending_writes or ())
        advance()
    return writes, others


def _not_as_written(place: Place, target: Endpoint, fields: list[str]) -> CorruptionError:
    message = (
        f"{target.name} gives back another {', '.join(fields)} of checkpoint {place.checkpoint_id}"
        f" of thread {place.thread_id!r} than was written"
    )
    return CorruptionError(message, thread=place.thread_id, checkpoint=place.checkpoint_id, fields=fields)


def _differences(found: CheckpointTuple, there: CheckpointTuple) -> set[str]:
    """Return the fields in which two tuples differ."""
    ours, theirs = _fields(found), _fields(there)
    return {name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)}


def _fields(found: CheckpointTuple) -> dict[str, Any]:
    checkpoint: dict[str, Any] = {**found.checkpoint}
    parent = found.parent_config
    return {
        **{name: value for name, value in checkpoint.items() if value},  # some savers drop what is empty
        "channel_values": {
            name: _SERIALIZER.dumps_typed(value) for name, value in checkpoint["channel_values"].items()
        },
        "metadata": found.metadata,
        "parent": parent["configurable"]["checkpoint_id"] if parent else None,
        "pending_writes": _writes(found),
    }


def _writes(found: CheckpointTuple) -> list[tuple[str, str, Any]]:
    return [
        (task_id, channel, _SERIALIZER.dumps_typed(value)) for task_id, channel, value in found.pending_writes or ()
    ]
