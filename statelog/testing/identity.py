"""Compares two values in all properties that a store promises to keep."""

from __future__ import annotations

import math
import struct
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable


def identical(first: object, second: object) -> bool:
    """Return True if two values are equal, and all their parts have equal types.

    For Python, 1, 1.0 and True are equal, and a NaN differs from itself. A store distinguishes 1, 1.0 and True, and
    returns a NaN as stored. Views count as the lists and dicts they show.
    """
    return exact_form(first) == exact_form(second)


def exact_form(value: Any) -> Hashable:
    """Return a hashable form of a value. Two values have equal forms if and only if they are `identical`."""
    value = value.to_python() if hasattr(value, "to_python") else value
    form: Hashable = value
    if isinstance(value, float):
        form = "nan" if math.isnan(value) else struct.pack(">d", value)
    elif isinstance(value, list | tuple):
        form = tuple(exact_form(item) for item in value)
    elif isinstance(value, dict):
        form = frozenset((key, exact_form(member)) for key, member in value.items())
    elif isinstance(value, set | frozenset):
        form = frozenset(exact_form(element) for element in value)
    elif isinstance(value, datetime | Decimal):
        form = str(value)
    return type(value).__name__, form
