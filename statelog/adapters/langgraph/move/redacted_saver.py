"""Redacts a source's secrets when they are read, so that the source equals what a target with a guard stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.adapters.langgraph.move.untouched import UntouchedSerializer
from statelog.adapters.langgraph.values.codec import ValueCodec
from statelog.guard.hook import Redactor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
    from langgraph.checkpoint.base.types import DeltaChannelHistory

_METADATA = "metadata"


class RedactedSaver:
    """Reads from a saver, and redacts what a store's guard would redact.

    Args:
        saver: the saver to read from.
        guard: the store's guard.

    Attributes:
        threads: the ids of the threads in which a secret was redacted.
    """

    def __init__(self, saver: BaseCheckpointSaver[Any], guard: Redactor) -> None:
        self._saver = saver
        self._codec = ValueCodec(UntouchedSerializer(), Redactor(guard.detector))
        self.threads: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._saver, name)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint without secrets. Raises SecretError if a secret cannot be cut out."""
        found = self._saver.get_tuple(config)
        values = found and isinstance(found.checkpoint, dict) and found.checkpoint.get("channel_values")
        if found is None or not isinstance(values, dict) or not isinstance(found.metadata, dict):
            return found  # The checkpoint is damaged: the caller reports it.
        thread = config["configurable"]["thread_id"]
        redacted = {name: self._redacted(value, (name,), thread) for name, value in values.items()}
        writes = found.pending_writes and [
            (task, channel, self._redacted(value, (channel,), thread)) for task, channel, value in found.pending_writes
        ]
        metadata: Any = {key: self._redacted(value, (_METADATA, key), thread) for key, value in found.metadata.items()}
        checkpoint: Any = {**found.checkpoint, "channel_values": redacted}
        return found._replace(checkpoint=checkpoint, metadata=metadata, pending_writes=writes)

    def get_delta_channel_history(self, *, config: RunnableConfig, channels: list[str]) -> dict[str, Any]:
        """Return the ancestors' values and writes for some channels, without secrets."""
        thread = config["configurable"]["thread_id"]
        told: Mapping[str, DeltaChannelHistory] = self._saver.get_delta_channel_history(
            config=config, channels=channels
        )
        made: dict[str, Any] = {}
        for name, history in told.items():
            writes = [(task, path, self._redacted(value, (name,), thread)) for task, path, value in history["writes"]]
            made[name] = {**history, "writes": writes}
            if "seed" in history:
                made[name]["seed"] = self._redacted(history["seed"], (name,), thread)
        return made

    def _redacted(self, value: Any, path: tuple[str, ...], thread: str) -> Any:
        serialiser = self._codec.serde
        kind, data = serialiser.dumps_typed(value)
        _kind, made = self._codec.dump(value, ".".join(path), path)
        if made == data:
            return value
        self.threads.add(thread)
        return serialiser.loads_typed((kind, made))
