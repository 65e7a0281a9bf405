"""Looks up the keys of a filter: `user.name` is a key of that name, or `name` in the dict `user`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from statelog.errors import UsageError


def check_keys(keys: Iterable[Any]) -> None:
    """Check the keys of a filter. Raises UsageError if a step of a path is empty, because no value has such a key."""
    for key in keys:
        if isinstance(key, str) and "" in key.split("."):
            message = f"filter: the key {key!r} is not a valid path: a part between dots is empty"
            raise UsageError(message, argument="filter", key=key)


def value_at(members: Mapping[str, Any], key: Any) -> Any:
    """Return the value of a key. If the key does not exist and has dots, it is read as a path.

    LangGraph's InMemoryStore uses a key unchanged. Its SQLite and Postgres stores read dots as steps of a path. So the
    unchanged key is tried first. A missing value is None.
    """
    found = members.get(key)
    if found is not None or not isinstance(key, str) or "." not in key or key in members:
        return found
    value: Any = members
    for step in key.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(step)
    return value
