"""Checks the arguments that a store's or a cache's methods get, before anything is done."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from threading import TIMEOUT_MAX
from typing import Any, Literal

from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    SearchOp,
    validate_op_namespace,
)

from statelog.errors import UsageError
from statelog.format import cbor


def check_op(op: Op) -> None:
    """Check that an operation is valid.

    Raises:
        InvalidNamespaceError: LangGraph does not allow a namespace, or one of its labels.
        ValueError: `op` is not an operation. UsageError: an argument has the wrong type. Facts: argument, value.
    """
    if isinstance(op, GetOp | PutOp):
        _check_namespace(op.namespace)
        _check("key", "a text", op.key, is_one=isinstance(op.key, str))
        if isinstance(op, PutOp):
            _check_index(op.index)
    elif isinstance(op, SearchOp | ListNamespacesOp):
        _check_count("limit", op.limit)
        _check_count("offset", op.offset)
        if isinstance(op, SearchOp):
            _check_namespace(op.namespace_prefix)
            _check("query", "a text", op.query, is_one=isinstance(op.query, str | None))
            _check("filter", "a dict of conditions", op.filter, is_one=isinstance(op.filter, Mapping | None))
        else:
            _check_conditions(op.match_conditions)
            if op.max_depth is not None:
                _check_count("max_depth", op.max_depth)
    else:
        message = f"Unknown operation type: {type(op)}"
        raise ValueError(message)  # noqa: TRY004 - LangGraph's stores raise ValueError
    validate_op_namespace(op)


def check_ops(ops: Any) -> None:
    """Check that `ops` is a batch of operations."""
    _check("ops", "several operations", ops, is_one=isinstance(ops, Iterable) and not isinstance(ops, str | bytes))


def check_stored(namespace: str, key: str, what: str) -> None:
    """Check that a store can store an item under this namespace and key.

    Raises:
        ValueTypeError: a name has a lone surrogate. LimitError: a name has over 4,096 bytes. Facts: path of the item.
    """
    for part, text in (("namespace", namespace), ("key", key)):
        cbor.encode({text: None}, path=f"{part} of {what} {key[:_NAMED_MAX]!r} in {namespace[:_NAMED_MAX]!r}")


_NAMED_MAX = 40

_UNITS_US = {"minutes": 60_000_000, "seconds": 1_000_000}

TTL_US_MAX = 60_000_000_000_000_000
"""The maximum time to live: nineteen centuries. A longer one is taken for a mistake."""


def ttl_us(ttl: Any, unit: Literal["minutes", "seconds"]) -> int | None:
    """Return a time to live in microseconds. None means that the item never expires.

    Raises:
        ValueError: `ttl` is invalid.
    """
    if ttl is None:
        return None
    is_number = isinstance(ttl, int | float) and not isinstance(ttl, bool) and not math.isnan(ttl)
    if not is_number or not 0 <= ttl * _UNITS_US[unit] <= TTL_US_MAX:
        most = TTL_US_MAX // _UNITS_US[unit]
        message = f"a time to live must be a number of {unit} from 0 to {most}, not {ttl!r}"
        raise ValueError(message)
    return round(ttl * _UNITS_US[unit])


def sweep_interval_s(*minutes: Any) -> float:
    """Return the first interval in `minutes` that is given, in seconds. As in LangGraph, 0 counts as not given.

    Raises:
        ValueError: an interval is invalid.
    """
    given = next(each for each in minutes if each is not None and each != 0)
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    if not is_number or not 0 < given < math.inf:
        message = f"sweep_interval_minutes must be a positive number of minutes, not {given!r}"
        raise ValueError(message)
    return float(min(given * 60, TIMEOUT_MAX))


def check_config(name: str, parts: str, config: Any) -> None:
    """Check that `config` is a configuration of LangGraph.

    Raises:
        ValueError: `config` is not a dict.
    """
    if config is not None and not isinstance(config, Mapping):
        message = f"{name} must be a dict of {parts}, not {config!r}"
        raise ValueError(message)


def check_several(argument: str, values: Any) -> None:
    """Check that `values` is a collection, and not a single string."""
    is_one = isinstance(values, Collection) and not isinstance(values, str | bytes)
    _check(argument, "a list", values, is_one=is_one)


def check_full_key(full_key: Any) -> None:
    """Check that `full_key` is the key of a cache entry: a namespace and a key in it."""
    is_pair = isinstance(full_key, tuple | list) and len(full_key) == 2
    _check(
        "key",
        "a pair of a namespace and a str",
        full_key,
        is_one=is_pair and isinstance(full_key[1], str),
    )
    check_cached_namespace(full_key[0])


def check_entry(entry: Any) -> None:
    """Check that `entry` is a value with its time to live."""
    _check("entry", "a pair of a value and seconds", entry, is_one=isinstance(entry, tuple | list) and len(entry) == 2)


def check_cached_namespace(namespace: Any) -> None:
    """Check that `namespace` is a namespace of a cache: a sequence of any strings."""
    is_one = isinstance(namespace, tuple | list) and all(isinstance(label, str) for label in namespace)
    _check("namespace", "a tuple of str", namespace, is_one=is_one)


def _check_namespace(namespace: Any) -> None:
    """Check that `namespace` is not a single string, because each of its letters would be taken for a label."""
    if isinstance(namespace, str | bytes) or not isinstance(namespace, Sequence):
        message = f"a namespace must be a tuple of str, not {namespace!r}"
        raise InvalidNamespaceError(message)


def _check_index(index: Any) -> None:
    """Check that `index` has paths. A single str is refused, because each of its letters would be taken for a path."""
    is_list = isinstance(index, Collection) and not isinstance(index, str | bytes)
    is_one = index is None or index is False or (is_list and all(isinstance(path, str) for path in index))
    _check("index", "False, or a list of paths", index, is_one=is_one)


def _check_conditions(conditions: Any) -> None:
    is_list = conditions is None or (isinstance(conditions, Collection) and not isinstance(conditions, str | bytes))
    is_one = is_list and all(isinstance(each, MatchCondition) for each in conditions or ())
    _check("match_conditions", "a list of MatchCondition", conditions, is_one=is_one)
    for condition in conditions or ():
        _check_namespace(condition.path)


def _check_count(argument: str, value: Any) -> None:
    _check(argument, "an int", value, is_one=isinstance(value, int) and not isinstance(value, bool))


def _check(argument: str, kind: str, value: Any, *, is_one: bool) -> None:
    if not is_one:
        message = f"{argument} must be {kind}, not {value!r}"
        raise UsageError(message, argument=argument, value=value)
