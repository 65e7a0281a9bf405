"""A schema to try things with. Processes that crash are sent it, and need no Hypothesis for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog import reducers

if TYPE_CHECKING:
    from collections.abc import Mapping


def keep_longer(current: str, write: str) -> str:
    """Merge as a user's reducer would: the longer text stays, the current one if equally long."""
    return write if len(write) > len(current) else current


SCHEMA: Mapping[str, reducers.Reducer] = {
    "query": reducers.replace,
    "total": reducers.add,
    "findings": reducers.add,
    "text": reducers.add,
    "steps": reducers.append,
    "more": reducers.extend,
    "seen": reducers.union,
    "notes": reducers.merge,
    "deep": reducers.deep_merge,
    "best": reducers.max,
    "least": reducers.min,
    "messages": reducers.upsert("id"),
    "longest": reducers.custom(keep_longer),
}
"""A schema with every reducer; `writes` and `histories` fit it."""
