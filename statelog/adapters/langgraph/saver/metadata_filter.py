"""Filters checkpoints by their metadata."""

from __future__ import annotations

from typing import Any

from statelog.adapters.langgraph.values.paths import value_at


def fits(metadata: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Return True if metadata has the wanted values. A key may be a path: `user.name`."""
    return all(_is_equal(value_at(metadata, key), value) for key, value in wanted.items())


def _is_equal(a: Any, b: Any) -> bool:
    """Return True if two values of metadata are equal in JSON, where 1 equals 1.0 but not true."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_is_equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_is_equal, a, b))
    return bool(a == b)
