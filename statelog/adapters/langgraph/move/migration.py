"""Copies all threads of one saver into another, with checkpoints, pending writes and metadata, and compares them.

An interrupted copy can be run again: it compares what the target has and adds what is missing. It never overwrites
content that differs. An error in one thread is reported at the end, and the other threads are copied.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from statelog.adapters.langgraph.move.ancestors import contributions, put_stand_in
from statelog.adapters.langgraph.move.checked import check_kinds, check_names, find, read, taken
from statelog.adapters.langgraph.move.endpoints import CheckpointKey
from statelog.adapters.langgraph.move.moved_writes import copy_writes, digests, is_begun, is_part
from statelog.adapters.langgraph.move.redacted_saver import RedactedSaver
from statelog.adapters.langgraph.move.untouched import UntouchedSerializer
from statelog.errors import (
    AccessError,
    ClosedError,
    ConflictError,
    CorruptionError,
    ForkedError,
    ReadOnlyError,
    StatelogError,
    StorageError,
    StoreFullError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointTuple

    from statelog.adapters.langgraph.move.endpoints import Endpoint

_SERIALIZER = UntouchedSerializer()

_OF_ALL_THREADS = (StorageError, StoreFullError, AccessError, ClosedError, ForkedError, ReadOnlyError)
"""Errors that would also occur for every other thread, so they end the move."""


@dataclass(frozen=True, slots=True)
class LeftOutThread:
    """A thread that was not copied, or only in part.

    Attributes:
        thread: the id of the thread.
        error: the reason: the target refuses a name, the source is damaged, or the target has different content or has
            deleted the thread.
        checkpoints: the number of the thread's checkpoints in the source.
        there: how many of these checkpoints the target has. They are copied up to the error, parents first. If the
            comparison failed, only the checkpoints found equal before the failure count.
    """

    thread: str
    error: StatelogError
    checkpoints: int
    there: int


@dataclass(frozen=True, slots=True)
class Lost:
    """A checkpoint whose metadata the source has lost, in whole or in part.

    Attributes:
        thread: the id of the checkpoint's thread.
        checkpoint: the id of the checkpoint.
        what: which metadata is missing.
    """

    thread: str
    checkpoint: str
    what: str


@dataclass(frozen=True, slots=True)
class ThreadMoveReport:
    """The result of a move. The threads in `left_out` are not counted in any number.

    Attributes:
        source: the name of the source.
        target: the name of the target.
        threads: the number of threads in the source.
        checkpoints: the number of checkpoints of these threads, in all namespaces. Each checkpoint was compared with
            its copy in the target.
        writes: the number of pending writes of these threads.
        copied: the number of checkpoints that this run has written. The target already had the others.
        others: the number of checkpoints that only the target has, because the threads were continued there.
        left_out: the threads that were not moved, or were moved only in part.
        lost: the checkpoints whose metadata the source has lost. They were copied without metadata.
        redacted: the threads in which the guard of the target has redacted secrets. All other data is as in the source.
    """

    source: str
    target: str
    threads: int
    checkpoints: int
    writes: int
    copied: int
    others: int
    left_out: tuple[LeftOutThread, ...] = ()
    lost: tuple[Lost, ...] = ()
    redacted: tuple[str, ...] = ()


@dataclass(slots=True)
class _MovedThread:
    """A thread while it is copied."""

    id: str
    parents: dict[CheckpointKey, str | None]
    order: dict[CheckpointKey, CheckpointKey | None]
    written: dict[CheckpointKey, list[bytes]] = field(default_factory=dict)
    """The `digests` of the pending writes of each copied checkpoint."""
    hidden: set[CheckpointKey] = field(default_factory=set)
    """Checkpoints that were pruned in the target and are hidden there. They are not copied."""
    lost: list[Lost] = field(default_factory=list)
    there: int = 0
    copied: int = 0
    writes: int = 0
    error: StatelogError | None = None

    @contextmanager
    def kept_apart(self) -> Iterator[None]:
        """Catch an error of the block that concerns only this thread, and remember it for the report."""
        try:
            yield
        except _OF_ALL_THREADS:
            raise
        except StatelogError as error:
            # Drop the frames, which refer to the data that was read.
            self.error = type(error)(error.message, **error.facts)


class _Progress:
    """Counts the steps of a move: two for each checkpoint, which is copied and then compared."""

    def __init__(self, checkpoints: int, progress: Callable[[int, int], None] | None) -> None:
        self._whole = 2 * checkpoints
        self._progress = progress
        self._done = 0

    def advance(self) -> None:
        self.reach(self._done + 1)

    def reach(self, done: int) -> None:
        if done != self._done and self._progress is not None:
            self._progress(done, self._whole)
        self._done = done


def migrate(
    source: Endpoint, target: Endpoint, *, progress: Callable[[int, int], None] | None = None
) -> ThreadMoveReport:
    """Copy every thread, and then read it back and compare it.

    A thread with an error is copied up to the error. The report has the thread and the error, which is one of:
    UsageError, LimitError: the target refuses the name or size of a thread, checkpoint or value.
    CorruptionError: a row of the source is damaged, or the target returns data that differs from what was written
    (facts: fields).
    FormatError: a checkpoint is pickled or encrypted as a whole; or one value is, and the target stores all values as
    one; or the target refuses a value.
    ConflictError: the target has one of the checkpoints with different content, or the source changed during the move.
    ThreadDeletedError: the thread was deleted in the target, and is not restored.
    Facts: thread, and if known namespace and checkpoint.

    Args:
        source: the endpoint to read from.
        target: the endpoint to write to. Its other threads stay as they are.
        progress: called with the number of steps done and the number of all steps.

    Returns:
        What was moved, and the threads that were left out.

    Raises:
        StorageError: a disk, database or operating system reported an error. AccessError, StoreFullError: as for any
            write.
    """
    guard = target.guard()
    redacted = None if guard is None else RedactedSaver(source.saver, guard)
    if redacted is not None:
        source = replace(source, saver=cast("Any", redacted))
    threads = _threads(source)
    steps = _Progress(sum(len(thread.parents) for thread in threads), progress)
    done = 0
    for work in (_copy, _compare):
        for thread in threads:
            if thread.error is None:
                with thread.kept_apart():
                    work(source, target, thread, steps.advance)
            done += len(thread.parents)
            steps.reach(done)
        target.flush()
    if any(thread.copied for thread in threads):
        target.tidy()
    whole = [thread for thread in threads if thread.error is None]
    return ThreadMoveReport(
        source=source.name,
        target=target.name,
        threads=len(whole),
        checkpoints=sum(len(thread.parents) for thread in whole),
        writes=sum(thread.writes for thread in whole),
        copied=sum(thread.copied for thread in whole),
        others=_count_others(target, whole),
        left_out=tuple(
            LeftOutThread(thread.id, thread.error, len(thread.parents), thread.there)
            for thread in threads
            if thread.error
        ),
        lost=tuple(lost for thread in threads for lost in thread.lost),
        redacted=() if redacted is None else tuple(each.id for each in whole if each.id in redacted.threads),
    )


def _threads(source: Endpoint) -> list[_MovedThread]:
    found: dict[Any, _MovedThread] = {}
    for place, parent_id in source.places():
        thread = found.setdefault(place.thread_id, _MovedThread(place.thread_id, {}, {}))
        thread.parents[place] = parent_id
    return sorted(found.values(), key=lambda thread: str(thread.id))  # A damaged id may not be a str.


# --- copying ----------------------------------------------------------------------


def _in_order(parents: dict[CheckpointKey, str | None]) -> dict[CheckpointKey, CheckpointKey | None]:
    """Return every place with its parent, sorted by namespace and id, except that each parent precedes its children.

    The parent is None if it does not come before the place, as in a cycle of parents.
    """
    order: dict[CheckpointKey, CheckpointKey | None] = {}
    for place in sorted(parents, key=lambda place: (place.namespace, place.checkpoint_id)):
        chain: dict[CheckpointKey, None] = {}
        here: CheckpointKey | None = place
        while here in parents and here not in order and here not in chain:
            chain[here] = None
            here = _parent(here, parents)
        for each in reversed(chain):
            parent = _parent(each, parents)
            order[each] = parent if parent in order else None
    return order


def _parent(place: CheckpointKey, parents: dict[CheckpointKey, str | None]) -> CheckpointKey | None:
    parent_id = parents[place]
    return CheckpointKey(place.thread_id, place.namespace, parent_id) if parent_id else None


def _copy(source: Endpoint, target: Endpoint, thread: _MovedThread, advance: Callable[[], None]) -> None:
    for place, parent_id in thread.parents.items():
        check_names(source, place, parent_id)
        source.check_versions(place)
    thread.order = _in_order(thread.parents)
    last: CheckpointTuple | None = None
    for place, before in thread.order.items():
        last = _copy_one(source, target, thread, place, before, last)
        thread.there += 1
        advance()


def _copy_one(
    source: Endpoint,
    target: Endpoint,
    thread: _MovedThread,
    place: CheckpointKey,
    before: CheckpointKey | None,
    last: CheckpointTuple | None,
) -> CheckpointTuple:
    """Copy the parts of a checkpoint that the target lacks, and return the source's checkpoint."""
    found = read(source, place, before)
    if what := source.lost(found):
        thread.lost.append(Lost(place.thread_id, place.checkpoint_id, what))
    check_kinds(target, place, found.checkpoint["channel_values"])
    if target.hides(place):
        thread.hidden.add(place)
        return found
    hidden = _hidden_parent(place, thread.parents)
    if hidden and target.saver.get_tuple(hidden.config()) is None and not target.hides(hidden):
        put_stand_in(source, target, found, hidden)
    there = find(target, place, before)
    writes = digests(found)
    has_all = is_part(writes, digests(there))
    if there is None:
        versions = _new_versions(found, _checkpoint_of(before, last, source))
        with taken(target, place):
            target.saver.put(_parent_config(place, thread.parents[place]), found.checkpoint, found.metadata, versions)
        thread.copied += 1
    elif _differences(found, there) or not (has_all or is_begun(there, found)):
        raise _conflict(place, target)
    if not has_all:  # The target lacks some writes: the copy is new or was interrupted, or the source has new writes.
        copy_writes(source, target, place, found, there)
    thread.written[place] = writes
    return found


def _hidden_parent(place: CheckpointKey, parents: dict[CheckpointKey, str | None]) -> CheckpointKey | None:
    """Return the parent of a checkpoint if the source hides it, or None."""
    parent = _parent(place, parents)
    return None if parent in parents else parent


def _checkpoint_of(place: CheckpointKey | None, last: CheckpointTuple | None, source: Endpoint) -> Checkpoint | None:
    """Return the checkpoint at a place, or None without a place. Usually it is `last`, so nothing is read."""
    if place is None:
        return None
    return (last if last and CheckpointKey.of(last.config) == place else read(source, place, None)).checkpoint


def _parent_config(place: CheckpointKey, parent_id: str | None) -> RunnableConfig:
    config: RunnableConfig = {"configurable": {"thread_id": place.thread_id, "checkpoint_ns": place.namespace}}
    if parent_id:
        config["configurable"]["checkpoint_id"] = parent_id
    return config


def _new_versions(found: CheckpointTuple, parent: Checkpoint | None) -> ChannelVersions:
    """Return the `new_versions` that a graph would have passed to `put`: the channels that differ from the parent.

    Values are also compared, because a saver that stores checkpoints whole may have two values for one version: a node
    changed the value in place, or the next step changed it before it was serialised.
    """
    checkpoint = found.checkpoint
    inherited: Mapping[str, Any] = parent["channel_versions"] if parent else {}
    had = parent["channel_values"] if parent else {}
    return {
        name: version
        for name, version in checkpoint["channel_versions"].items()
        if inherited.get(name) != version or not _is_inherited(name, checkpoint["channel_values"], had)
    }


def _is_inherited(name: str, values: Mapping[str, Any], had: Mapping[str, Any]) -> bool:
    if name not in values:
        return True
    return name in had and _SERIALIZER.dumps_typed(values[name]) == _SERIALIZER.dumps_typed(had[name])


def _conflict(place: CheckpointKey, target: Endpoint) -> ConflictError:
    message = (
        f"{target.name} has a checkpoint {place.checkpoint_id} of thread {place.thread_id!r} with different content:"
        " it was left unchanged"
    )
    return ConflictError(message, thread=place.thread_id, checkpoint=place.checkpoint_id)


# --- comparing --------------------------------------------------------------------


def _compare(source: Endpoint, target: Endpoint, thread: _MovedThread, advance: Callable[[], None]) -> None:
    """Read back every checkpoint of a thread with its pending writes, and compare and count them.

    Only the copied pending writes are compared: since the copy, both sides may have received new writes.
    """
    thread.there = 0
    for place, before in thread.order.items():
        if place in thread.hidden:
            thread.there += 1
            advance()
            continue
        found, there = read(source, place, before), find(target, place, before)
        different = _differences(found, there) if there else {"checkpoint"}
        if not is_part(thread.written[place], digests(there)):
            different.add("pending_writes")
        hidden = _hidden_parent(place, thread.parents)
        if hidden and there and contributions(source, found) != contributions(target, there):
            different.add("ancestors")
        if different:
            raise _not_as_written(place, target, sorted(different))
        thread.there += 1
        thread.writes += len(thread.written[place])
        advance()


def _count_others(target: Endpoint, threads: list[_MovedThread]) -> int:
    """Return the number of checkpoints in these threads that only the target has."""
    ids = {thread.id for thread in threads}
    known = {place for thread in threads for place in thread.parents}
    known |= {
        hidden for thread in threads for place in thread.parents if (hidden := _hidden_parent(place, thread.parents))
    }
    return sum(place.thread_id in ids and place not in known for place, _ in target.places())


def _not_as_written(place: CheckpointKey, target: Endpoint, fields: list[str]) -> CorruptionError:
    message = (
        f"{target.name} returns a different {', '.join(fields)} of checkpoint {place.checkpoint_id}"
        f" of thread {place.thread_id!r} than was written"
    )
    return CorruptionError(message, thread=place.thread_id, checkpoint=place.checkpoint_id, fields=fields)


def _differences(found: CheckpointTuple, there: CheckpointTuple) -> set[str]:
    """Return the fields in which two tuples differ. Pending writes are not compared."""
    ours, theirs = _fields(found), _fields(there)
    return {name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)}


def _fields(found: CheckpointTuple) -> dict[str, Any]:
    checkpoint: dict[str, Any] = {**found.checkpoint}
    parent = found.parent_config
    return {
        **{name: value for name, value in checkpoint.items() if value},  # Some savers drop empty values.
        "channel_values": {
            name: _SERIALIZER.dumps_typed(value) for name, value in checkpoint["channel_values"].items()
        },
        "metadata": found.metadata,
        "parent": parent["configurable"]["checkpoint_id"] if parent else None,
    }
