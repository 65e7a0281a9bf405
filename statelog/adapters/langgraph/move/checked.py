"""Reads checkpoints from a saver, and raises an error that names a damaged checkpoint.

Other programs write these databases, so rows may be truncated, edited or foreign. A saver does not check them: it
raises any error, or returns something that is not a checkpoint.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from langgraph.checkpoint.serde.types import _DeltaSnapshot

from statelog.adapters.langgraph.move.untouched import Opaque
from statelog.errors import ConflictError, CorruptionError, FormatError, StatelogError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from langgraph.checkpoint.base import CheckpointTuple

    from statelog.adapters.langgraph.move.endpoints import CheckpointKey, Endpoint

_UNDECODABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError)
"""Errors that savers and serialisers raise for bytes they did not write. Databases raise other errors."""


def check_names(endpoint: Endpoint, place: CheckpointKey, parent_id: str | None) -> None:
    """Check the names of a checkpoint and its parent.

    Raises:
        CorruptionError: a name is not a str, or is empty. Facts: path, thread, namespace, checkpoint.
    """
    for what, name in (
        ("thread_id", place.thread_id),
        ("checkpoint_ns", place.namespace),
        ("checkpoint_id", place.checkpoint_id),
        ("parent_checkpoint_id", parent_id or ""),
    ):
        if not isinstance(name, str):
            _refuse(endpoint, place, f"its {what} {name!r} is not a str")
    if not place.checkpoint_id:
        _refuse(endpoint, place, "it has no checkpoint_id")


def check_kinds(target: Endpoint, place: CheckpointKey, values: Mapping[str, Any]) -> None:
    """Check that the target can store the values of a checkpoint as unchanged bytes.

    Raises:
        FormatError: a value is pickled or encrypted, but the target stores all values as one msgpack value. Facts:
            thread, checkpoint, channel.
    """
    for channel, value in values.items() if target.KEEPS_WHOLE else ():
        if isinstance(value, Opaque):
            message = (
                f"channel {channel!r} of checkpoint {place.checkpoint_id} of thread {place.thread_id!r} is of type"
                f" {value.type!r}, which only the serialiser that wrote it can encode, and {target.name} stores all"
                " channels in one value: it cannot store this channel"
            )
            raise FormatError(message, thread=place.thread_id, checkpoint=place.checkpoint_id, channel=channel)


@contextmanager
def taken(target: Endpoint, place: CheckpointKey) -> Iterator[None]:
    """Convert errors that the target raises for a put in the `with` block.

    Raises:
        FormatError: the target cannot store a value. Facts: thread, checkpoint.
    """
    try:
        yield
    except StatelogError:
        raise
    except _UNDECODABLE as error:
        message = (
            f"{target.name} does not accept checkpoint {place.checkpoint_id} of thread {place.thread_id!r}:"
            f" {type(error).__name__}: {error}"
        )
        raise FormatError(message, thread=place.thread_id, checkpoint=place.checkpoint_id) from error


def find(endpoint: Endpoint, place: CheckpointKey, before: CheckpointKey | None) -> CheckpointTuple | None:
    """Return the checkpoint at a place, or None if it does not exist.

    Args:
        endpoint: the endpoint to read from.
        place: the place. Its names have been checked.
        before: the place of its parent, or None if the parent does not come before it.

    Raises:
        CorruptionError: the checkpoint, or a write to it, is damaged. Facts: path, thread, namespace, checkpoint.
        FormatError: the checkpoint is pickled or encrypted as a whole. Facts: thread, checkpoint.
    """
    found = _get(endpoint, place)
    return None if found is None else _without_inherited(endpoint, found, before)


def read(endpoint: Endpoint, place: CheckpointKey, before: CheckpointKey | None) -> CheckpointTuple:
    """Return a checkpoint that existed a moment ago.

    Raises:
        ConflictError: the checkpoint no longer exists. Facts: thread, checkpoint.
    """
    found = find(endpoint, place, before)
    if found is None:
        message = f"checkpoint {place.checkpoint_id} of thread {place.thread_id!r} disappeared from {endpoint.name}"
        raise ConflictError(message, thread=place.thread_id, checkpoint=place.checkpoint_id)
    return found


def _get(endpoint: Endpoint, place: CheckpointKey) -> CheckpointTuple | None:
    try:
        found = endpoint.saver.get_tuple(place.config())
    except StatelogError:
        raise
    except _UNDECODABLE as error:
        _refuse(endpoint, place, f"it, or a write to it, cannot be decoded ({type(error).__name__}: {error})")
    if found is None:
        return None
    if isinstance(found.checkpoint, Opaque):
        message = (
            f"checkpoint {place.checkpoint_id} of thread {place.thread_id!r} is of type {found.checkpoint.type!r}"
            " and stored as one value: it cannot be read without the serialiser that wrote it"
        )
        raise FormatError(message, thread=place.thread_id, checkpoint=place.checkpoint_id)
    wrong = _what_is_wrong(found, place)
    if wrong is not None:
        _refuse(endpoint, place, wrong)
    return found


def _what_is_wrong(found: CheckpointTuple, place: CheckpointKey) -> str | None:
    """Return the reason why `found` is not a checkpoint of a graph, or None if it is one."""
    checkpoint: Any = found.checkpoint
    if not isinstance(checkpoint, dict):
        return f"it must be a dict, but its type is {type(checkpoint).__name__}"
    if checkpoint.get("id") != place.checkpoint_id:
        return f"it states a different id, {checkpoint.get('id')!r}"
    for name in ("channel_values", "channel_versions", "versions_seen"):
        part = checkpoint.get(name)
        if not isinstance(part, dict) or not all(isinstance(key, str) for key in part):
            return f"its {name} must be a dict whose keys are str"
    if not all(isinstance(version, str | int | float) for version in checkpoint["channel_versions"].values()):
        return "its channel_versions must be numbers or strings"
    if not isinstance(found.metadata, dict):
        return f"its metadata must be a dict, but its type is {type(found.metadata).__name__}"
    for task_id, channel, _ in found.pending_writes or ():
        if not isinstance(task_id, str) or not isinstance(channel, str):
            return f"the task id and channel of a write must be str, not {task_id!r} and {channel!r}"
    return None


def _refuse(endpoint: Endpoint, place: CheckpointKey, why: str) -> NoReturn:
    namespace = f", namespace {place.namespace!r}" if place.namespace else ""
    which = f"checkpoint {place.checkpoint_id or repr('')} of thread {place.thread_id!r}{namespace}"
    message = f"{which} is damaged in {endpoint.name}: {why}"
    facts = {"thread": place.thread_id, "namespace": place.namespace, "checkpoint": place.checkpoint_id}
    raise CorruptionError(message, path=endpoint.name, **facts)


def _without_inherited(endpoint: Endpoint, found: CheckpointTuple, before: CheckpointKey | None) -> CheckpointTuple:
    """Return `found` without the ``DeltaChannel`` snapshots that belong to an ancestor.

    A graph passes a snapshot to its saver once. A saver that stores values by version also returns the snapshot with
    later checkpoints, until the channel changes. A saver that stores each checkpoint whole does not.
    """
    values, versions = found.checkpoint["channel_values"], found.checkpoint["channel_versions"]
    snapshots = {name for name, value in values.items() if isinstance(value, _DeltaSnapshot)}
    parent = _get(endpoint, before) if snapshots and before else None
    if parent is None:
        return found
    had = parent.checkpoint["channel_versions"]
    own = {name: values[name] for name in values if name not in snapshots or had.get(name) != versions.get(name)}
    return found._replace(checkpoint={**found.checkpoint, "channel_values": own})
