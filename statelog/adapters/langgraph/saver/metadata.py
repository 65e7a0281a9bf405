"""Returns LangGraph's metadata of a checkpoint, without calling LangGraph if it adds nothing.

`get_checkpoint_metadata` copies an application's values from a config. Most configs have none: they name the thread,
and have LangGraph's own values under keys that LangGraph leaves out. Trial calls show which keys it leaves out.
"""

from __future__ import annotations

from collections import ChainMap
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import get_checkpoint_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import CheckpointMetadata

_KEYS_MAX = 1024
_ANY_VALUES = ("x", 1, 1.5, True, None, {"x": 1}, ["x"])

_left_out: set[str] = set()
"""Keys that LangGraph leaves out of the metadata, whatever their value."""
_taken: set[str] = set()
"""Keys that LangGraph may copy to the metadata."""


def metadata_of(config: RunnableConfig, metadata: CheckpointMetadata) -> CheckpointMetadata:
    """Return the result of `get_checkpoint_metadata`, or `metadata` if both are equal."""
    given: Any = config
    for part in (given.get("configurable"), given.get("metadata")):
        if part and not (type(part) is dict and part.keys() <= _left_out) and not _is_left_out(part):
            return get_checkpoint_metadata(config, metadata)
    for value in metadata.values():
        if isinstance(value, str) and (type(value) is not str or "\0" in value):
            return get_checkpoint_metadata(config, metadata)
    return metadata


def _is_left_out(part: Any) -> bool:
    """Return True if LangGraph copies nothing from a part of a config."""
    if type(part) is dict:
        return part.keys() <= _left_out or _learn(part)
    if type(part) is ChainMap:
        return all(
            not each or (type(each) is dict and each.keys() <= _left_out) or _is_left_out(each) for each in part.maps
        )
    return not part


def _learn(part: dict[Any, Any]) -> bool:
    for key in part.keys() - _left_out - _taken:
        if type(key) is not str:
            return False
        if len(_left_out) + len(_taken) >= _KEYS_MAX:
            _left_out.clear()
            _taken.clear()
        (_left_out if all(_is_nothing(key, value) for value in _ANY_VALUES) else _taken).add(key)
    return part.keys() <= _left_out


def _is_nothing(key: str, value: object) -> bool:
    named: Any = ({"configurable": {key: value}}, {"metadata": {key: value}})
    return not any(get_checkpoint_metadata(config, {}) for config in named)


DELTAS = "counters_since_delta_snapshot"
"""The metadata key under which a checkpoint lists its DeltaChannels without a value of their own."""


def deltas_of(metadata: Mapping[str, Any]) -> set[str]:
    """Return the DeltaChannels that have no value of their own, from the metadata of a checkpoint."""
    counters = metadata.get(DELTAS)
    return set(map(str, counters)) if isinstance(counters, dict) else set()
