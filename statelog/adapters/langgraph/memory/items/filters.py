"""Applies the filters of a search to values in their stored form. No part of a filter is run as code or as a query."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from statelog.adapters.langgraph.values.paths import check_keys, value_at
from statelog.errors import LimitError

Matches = Callable[[Any], bool]
"""Returns whether a value, or a view of one, matches a filter."""

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_ORDERED = (int, float, Decimal, str, datetime)


def compile_filter(conditions: Mapping[str, Any]) -> Matches:
    """Return a function that checks whether a dict meets the condition of each key.

    A key that the dict lacks is read as a path: `user.name` is `name` in the dict `user`. A missing value is None.

    A condition is a value, equal by JSON's types (1 and 1.0 are equal, 1 and True are not); a dict of operators,
    all of which must hold; a dict of conditions for a dict; or a list of conditions for a list of the same length.
    `$gt`, `$gte`, `$lt`, `$lte` compare numbers with numbers and strings with strings. Other values have no order.

    Raises:
        UsageError: a key is not a path, for example `user.`.
        ValueError: an operator does not exist, or compares a value that has no order.
        LimitError: the filter is nested deeper than a value can be, or has a cycle.
    """
    try:
        return _compile_members(conditions)
    except RecursionError:
        message = "filter is nested too deeply, or contains itself"
        raise LimitError(message, path="filter") from None


def _compile_members(conditions: Mapping[str, Any]) -> Matches:
    check_keys(conditions)
    members = [(key, _compile(condition)) for key, condition in conditions.items()]

    def matches(value: Any) -> bool:
        return isinstance(value, Mapping) and all(member(value_at(value, key)) for key, member in members)

    return matches


def _compile(condition: Any) -> Matches:
    if isinstance(condition, Mapping):
        if any(isinstance(key, str) and key.startswith("$") for key in condition):
            operators = [_compile_operator(name, operand) for name, operand in condition.items()]
            return lambda value: all(holds(value) for holds in operators)
        return _compile_members(condition)
    if isinstance(condition, list | tuple):
        members = [_compile(member) for member in condition]
        return lambda value: (
            _is_list(value)
            and len(value) == len(members)
            and all(holds(item) for holds, item in zip(members, value, strict=True))
        )
    return lambda value: is_equal(value, condition)


def _compile_operator(name: Any, operand: Any) -> Matches:
    if name == "$eq":
        return lambda value: is_equal(value, operand)
    if name == "$ne":
        return lambda value: not is_equal(value, operand)
    order = _ORDERS.get(name)
    if order is None:
        message = f"Unsupported operator: {name}"
        raise ValueError(message)
    if not isinstance(operand, _ORDERED) or isinstance(operand, bool):
        message = f"{name} compares numbers or strings, not {type(operand).__name__}"
        raise ValueError(message)  # noqa: TRY004 - an unknown operator also raises it
    return lambda value: _are_in_order(value, operand, order)


def _are_in_order(value: Any, operand: Any, order: Callable[[Any, Any], bool]) -> bool:
    if isinstance(value, bool) or not isinstance(value, _ORDERED) or _kind(value) is not _kind(operand):
        return False
    try:
        return bool(order(value, operand))
    # The values cannot be compared: for example, only one datetime has a time zone, or a value is a signalling NaN.
    except (TypeError, ArithmeticError):
        return False


def _kind(value: Any) -> type:
    return str if isinstance(value, str) else datetime if isinstance(value, datetime) else float


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def is_equal(value: Any, other: Any) -> bool:
    """Return True if two values are equal in JSON. They have the same type, where int and float are both numbers."""
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(other, Mapping):
        return (
            isinstance(value, Mapping)
            and len(value) == len(other)
            and all(key in value and is_equal(value[key], member) for key, member in other.items())
        )
    if _is_list(other):
        return (
            _is_list(value)
            and len(value) == len(other)
            and all(is_equal(a, b) for a, b in zip(value, other, strict=True))
        )
    return bool(value == other)
