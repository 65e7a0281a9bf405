"""Checkpoints of workflows. Each workflow is stored as a thread, and each checkpoint as a version."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from agent_framework import WorkflowCheckpoint
from agent_framework._workflows._checkpoint_encoding import decode_checkpoint_value, encode_checkpoint_value
from agent_framework.exceptions import WorkflowCheckpointException

from statelog.adapters.kit.directory import Directory
from statelog.adapters.kit.parts import cut, join, put
from statelog.adapters.kit.thread_ids import map_key, thread_id
from statelog.aio.bridge import run
from statelog.errors import NotFoundError
from statelog.redaction import redacting_logger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from statelog import Checkpoint, Store
    from statelog.store.threads import Threads
    from statelog.store.transaction import Transaction

__all__ = ["StatelogCheckpointStorage"]

_log = redacting_logger(__name__)

_DIRECTORY = Directory(thread_id("agent-framework", "checkpoints"))
_WHOLE = frozenset({"pending_request_info_events", "metadata"})
"""Fields that are stored as one channel each, because their keys differ in every checkpoint."""


class StatelogCheckpointStorage:
    """A `CheckpointStorage` of Agent Framework. It keeps all checkpoints, and each stores only its changes.

    When `save` returns, the checkpoint is on the disk. It can be loaded, because `save` has checked its types.
    Any number of tasks may share one object, and many processes may use the file.

    Args:
        store: an open store.
        allowed_checkpoint_types: your own types in checkpoints, each as "module:qualified.name". Python's plain types
            and the framework's types are always allowed.
    """

    def __init__(self, store: Store, allowed_checkpoint_types: Iterable[str] = ()) -> None:
        self.store = store
        self._allowed = frozenset(allowed_checkpoint_types)

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Store a copy of a checkpoint and its index entry in one commit. Return its id.

        Raises:
            WorkflowCheckpointException: the checkpoint cannot be encoded or has a type that is not allowed, or an id
                or a name is not a text. Nothing was written.
        """
        channels = self._encoded(checkpoint)  # Encode it in the event loop, before another task can change it.
        index = partial(point, checkpoint.checkpoint_id, checkpoint.workflow_name, checkpoint.timestamp)
        await run(put, self.store, thread_of(checkpoint.workflow_name), channels, index)
        return checkpoint.checkpoint_id

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """Return a checkpoint.

        Raises:
            WorkflowCheckpointException: the checkpoint does not exist, or has a type that is not allowed.
        """
        return await run(self._load, checkpoint_id)

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        """Return a workflow's checkpoints in order of time. Log and leave out those that cannot be decoded."""
        return await run(self._load_all, workflow_name)

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        """Return the ids of a workflow's checkpoints in order of time. No state is read."""
        return await run(self._listed_ids, workflow_name)

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        """Return the checkpoint with the latest timestamp, or None. No other checkpoint is read."""
        return await run(self._latest, workflow_name)

    async def delete(self, checkpoint_id: str) -> bool:
        """Delete a checkpoint. Return whether it existed."""
        return await run(self._delete, checkpoint_id)

    # --- on another OS thread -------------------------------------------------------

    def _load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        shown = _DIRECTORY.get(self.store, checkpoint_id)
        if shown is None:
            raise _not_found(checkpoint_id)
        return self._load_shown(checkpoint_id, shown)

    def _load_shown(self, checkpoint_id: str, shown: list[str]) -> WorkflowCheckpoint:
        encoded = _read_shown(self.store, shown)
        if encoded is None:
            raise _not_found(checkpoint_id)
        return WorkflowCheckpoint.from_dict(decode_checkpoint_value(encoded, allowed_types=self._allowed))

    def _listed(self, workflow_name: str) -> list[tuple[str, list[str]]]:
        """Return the ids of a workflow's checkpoints with their index entries, in order of time."""
        every = _DIRECTORY.all(self.store).items()
        return sorted(((id, shown) for id, shown in every if shown[0] == workflow_name), key=lambda pair: pair[1][1])

    def _listed_ids(self, workflow_name: str) -> list[str]:
        return [id for id, shown in self._listed(workflow_name) if _read_version(self.store, shown) is not None]

    def _load_all(self, workflow_name: str) -> list[WorkflowCheckpoint]:
        found = []
        for id, shown in self._listed(workflow_name):
            try:
                found.append(self._load_shown(id, shown))
            except WorkflowCheckpointException as error:
                _log.warning("Checkpoint %s is left out: %s", id, error)
        return found

    def _latest(self, workflow_name: str) -> WorkflowCheckpoint | None:
        for _id, shown in sorted(
            self._listed(workflow_name), key=lambda pair: datetime.fromisoformat(pair[1][1]), reverse=True
        ):
            encoded = _read_shown(self.store, shown)
            if encoded is not None:  # It is None if retention has removed the checkpoint.
                return WorkflowCheckpoint.from_dict(decode_checkpoint_value(encoded, allowed_types=self._allowed))
        return None

    def _delete(self, checkpoint_id: str) -> bool:
        is_there = _DIRECTORY.get(self.store, checkpoint_id) is not None
        if is_there:
            _DIRECTORY.remove(self.store, checkpoint_id)
        return is_there

    def _encoded(self, checkpoint: WorkflowCheckpoint) -> dict[str, Any]:
        id = checkpoint.checkpoint_id
        if not isinstance(id, str) or not id or not isinstance(checkpoint.timestamp, str):
            message = f"A checkpoint's id and timestamp must be str, not {id!r} and {checkpoint.timestamp!r}"
            raise WorkflowCheckpointException(message)
        try:
            thread_of(checkpoint.workflow_name)
            map_key(id)
            encoded = encode_checkpoint_value(checkpoint.to_dict())
            decode_checkpoint_value(encoded, allowed_types=self._allowed)
            return channels_of(encoded)
        except WorkflowCheckpointException:
            raise
        except Exception as error:  # The pickling code of a type may raise any exception.
            message = f"Checkpoint {id} cannot be encoded: {error}"
            raise WorkflowCheckpointException(message) from error


def thread_of(workflow_name: str) -> str:
    """Return the id of a workflow's thread."""
    return thread_id("agent-framework", "workflow", workflow_name)


def channels_of(encoded: dict[str, Any]) -> dict[str, Any]:
    """Return the channels of an encoded checkpoint. Raises ValueTypeError if the checkpoint is not JSON."""
    return cut(encoded, whole=_WHOLE)


def point(checkpoint_id: str, workflow_name: str, timestamp: str, tx: Transaction) -> str:
    """Add a checkpoint to the index. Return the id for its version."""
    version_id = uuid4().hex
    _DIRECTORY.put(tx, {checkpoint_id: [workflow_name, timestamp, version_id]})
    return version_id


def read_encoded(within: Threads, checkpoint_id: str) -> dict[str, Any] | None:
    """Return an encoded checkpoint, or None."""
    shown = _DIRECTORY.get(within, checkpoint_id)
    return None if shown is None else _read_shown(within, shown)


def _read_shown(within: Threads, shown: list[str]) -> dict[str, Any] | None:
    version = _read_version(within, shown)
    return None if version is None else join(version.state)


def _read_version(within: Threads, shown: list[str]) -> Checkpoint | None:
    """Return the version of an index entry, or None if its thread was deleted or the version was pruned."""
    workflow_name, _timestamp, version_id = shown
    try:
        return within.thread(thread_of(workflow_name)).at(version_id)
    except NotFoundError:
        return None


def _not_found(checkpoint_id: str) -> WorkflowCheckpointException:
    return WorkflowCheckpointException(f"No checkpoint found with ID {checkpoint_id}")
