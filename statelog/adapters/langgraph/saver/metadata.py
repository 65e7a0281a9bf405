"""What LangGraph adds to a checkpoint's metadata, without asking it where it adds nothing.

`get_checkpoint_metadata` takes from a config what an application has put there. Mostly that is nothing: a config names
the thread, and holds what LangGraph needs itself, under keys that are left out. Which these are is learned of it.
"""

from __future__ import annotations

from collections import ChainMap
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import get_checkpoint_metadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import CheckpointMetadata

_KEYS_MAX = 1024
_ANY_VALUES = ("x", 1, 1.5, True, None, {"x": 1}, ["x"])

_left_out: set[str] = set()
"""Keys of which nothing is taken, whatever stands there."""
_taken: set[str] = set()
"""Other keys."""


def metadata_of(config: RunnableConfig, metadata: CheckpointMetadata) -> CheckpointMetadata:
    """Return what `get_checkpoint_metadata` returns, or what was given if that is equal."""
    given: Any = config
    if (
        _is_left_out(given.get("configurable"))
        and _is_left_out(given.get("metadata"))
        and _is_as_given(metadata.values())
    ):
        return metadata
    return get_checkpoint_metadata(config, metadata)


def _is_as_given(values: Iterable[object]) -> bool:
    for value in values:
        if type(value) is str:
            if "\0" in value:
                return False
        elif isinstance(value, str):
            return False
    return True


def _is_left_out(part: Any) -> bool:
    """Tell whether nothing is taken of a part of a config."""
    if type(part) is dict:
        return part.keys() <= _left_out or _learn(part)
    if type(part) is ChainMap:
        return all(map(_is_left_out, part.maps))
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


def deltas_of(metadata: Mapping[str, Any]) -> set[str]:
    """Return the DeltaChannels of a checkpoint that have no value of their own, by its metadata."""
    counters = metadata.get("counters_since_delta_snapshot")
    return set(map(str, counters)) if isinstance(counters, dict) else set()
