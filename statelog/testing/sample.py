"""A schema for tests. It does not need Hypothesis, so it can be sent to the processes that crash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog import reducers

if TYPE_CHECKING:
    from collections.abc import Mapping


def keep_longer(current: str, write: str) -> str:
    """Return the longer text, or the current one if both are equally long. An example of a user's reducer."""
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
"""A schema with every reducer, for `writes` and `histories`."""
