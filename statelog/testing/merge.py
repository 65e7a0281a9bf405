"""Merges writes into channels, in plain Python."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, NoReturn

from statelog.errors import ReducerTypeError, SchemaError
from statelog.reducers import Overwrite, Reducer, Remove

if TYPE_CHECKING:
    from collections.abc import Mapping

_WRITES: dict[str, tuple[type, ...]] = {
    "extend": (list, tuple),
    "union": (set, frozenset, list, tuple),
    "merge": (dict,),
    "deep_merge": (dict,),
}
_CURRENTS: dict[str, tuple[type, ...]] = {
    "append": (list,),
    "extend": (list,),
    "union": (set, frozenset),
    "merge": (dict,),
    "deep_merge": (dict,),
    "upsert": (list,),
}


def check_write(reducer: Reducer, channel: str, write: Any) -> None:
    """Raise ReducerTypeError for a write of a type that the reducer never accepts, whatever the current value is."""
    if isinstance(write, Overwrite):
        return
    if reducer.name == "upsert":
        items = write if isinstance(write, list | tuple) else [write]
        if not all(isinstance(item, dict | Remove) for item in items):
            _refuse(reducer, channel, write)
    elif not isinstance(write, _WRITES.get(reducer.name, (object,))):
        _refuse(reducer, channel, write)


def merge_write(reducer: Reducer, state: Mapping[str, Any], channel: str, write: Any) -> Any:
    """Return the channel's new value. With most reducers, the first write becomes the value.

    Raises:
        ReducerTypeError: the write does not merge with the value.
        SchemaError: a user's function is not available. Exceptions of a user's function propagate.
    """
    if isinstance(write, Overwrite):
        return write.value
    if reducer.name == "python" and reducer.function is None:
        message = f"channel {channel!r} merges with {reducer.label}: pass schema= with that function"
        raise SchemaError(message, channel=channel, reducer=reducer.spec)
    if channel not in state:
        return _first(reducer, channel, write)
    current = state[channel]
    if not isinstance(current, _CURRENTS.get(reducer.name, (object,))):
        _refuse(reducer, channel, write)
    return _call(reducer, channel, current, write)


def _first(reducer: Reducer, channel: str, write: Any) -> Any:
    if reducer.name == "append":
        return [write]
    if reducer.name == "extend":
        return list(write)
    if reducer.name == "union":
        return set(write) if isinstance(write, list | tuple) else write
    if reducer.name == "upsert":
        return _call(reducer, channel, [], write)
    return write


def _call(reducer: Reducer, channel: str, current: Any, write: Any) -> Any:
    if reducer.function is not None:
        return reducer.function(copy.deepcopy(current), write)
    try:
        return reducer(current, write)
    except (TypeError, ArithmeticError) as error:
        message = f"channel {channel!r} ({reducer.spec}): {error}"
        raise ReducerTypeError(message, channel=channel, reducer=reducer.spec) from error


def _refuse(reducer: Reducer, channel: str, write: object) -> NoReturn:
    message = f"channel {channel!r} ({reducer.spec}): cannot merge {type(write).__name__}"
    raise ReducerTypeError(message, channel=channel, reducer=reducer.spec)
