"""Moves the data of hidden ancestors: pruned checkpoints that a saver hides, but needs for a ``DeltaChannel``'s value.

A thread is moved as its saver shows it. If the hidden ancestors of a checkpoint contribute to its values, one
ancestor is put into the target in their place. It has the values with which they begin, and the writes since then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from langgraph.checkpoint.base import WRITES_IDX_MAP, empty_checkpoint

from statelog.adapters.langgraph.move.checked import check_kinds, taken
from statelog.adapters.langgraph.move.untouched import UntouchedSerializer

if TYPE_CHECKING:
    from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple, DeltaChannelHistory

    from statelog.adapters.langgraph.move.endpoints import CheckpointKey, Endpoint

_SERIALIZER = UntouchedSerializer()


def _histories(endpoint: Endpoint, found: CheckpointTuple) -> dict[str, DeltaChannelHistory]:
    """Return the ancestors' values and writes for the channels that have no value in a checkpoint."""
    values = found.checkpoint["channel_values"]
    channels = [
        name for name in found.checkpoint["channel_versions"] if name not in values and name not in WRITES_IDX_MAP
    ]
    told = endpoint.saver.get_delta_channel_history(config=found.config, channels=channels) if channels else {}
    return {name: history for name, history in told.items() if "seed" in history or history["writes"]}


def contributions(endpoint: Endpoint, found: CheckpointTuple) -> dict[str, Any]:
    """Return the ancestors' values and writes for a checkpoint in a form that can be compared."""
    return {
        name: (
            _SERIALIZER.dumps_typed(history["seed"]) if "seed" in history else None,
            [_SERIALIZER.dumps_typed(value) for _, _, value in history["writes"]],
        )
        for name, history in _histories(endpoint, found).items()
    }


def put_stand_in(source: Endpoint, target: Endpoint, found: CheckpointTuple, parent: CheckpointKey) -> None:
    """Put one ancestor into the target in place of those that the source hides, if they contribute anything.

    Args:
        source: the endpoint from which `found` was read.
        target: the endpoint that lacks `parent`.
        found: the checkpoint whose parent is not shown.
        parent: the place of the hidden parent.
    """
    histories = _histories(source, found)
    if not histories:
        return
    versions = {name: cast("str", target.saver.get_next_version(None, None)) for name in histories}
    checkpoint: Checkpoint = {
        **empty_checkpoint(),
        "id": parent.checkpoint_id,
        "ts": found.checkpoint["ts"],
        "channel_values": {name: history["seed"] for name, history in histories.items() if "seed" in history},
        "channel_versions": {**versions},
    }
    check_kinds(target, parent, checkpoint["channel_values"])
    config = parent.config()
    named = {name: value for name, value in config["configurable"].items() if name != "checkpoint_id"}
    metadata: CheckpointMetadata = {"source": "fork", "step": -2, "parents": {}}
    with taken(target, parent):
        target.saver.put({"configurable": named}, checkpoint, metadata, {**versions})
        for name, history in histories.items():
            # Put each channel's writes as the writes of a separate task, so that their numbers keep their order.
            target.saver.put_writes(config, [(name, value) for _, _, value in history["writes"]], f"before {name}")
