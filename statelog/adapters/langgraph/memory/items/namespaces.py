"""Converts namespaces to strings and back, and matches them with conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langgraph.store.base import MatchCondition

Namespace = tuple[str, ...]

_SEPARATOR = "."
"""The separator of labels. LangGraph does not allow a dot in a label."""


def to_text(namespace: Sequence[str]) -> str:
    """Return a namespace as one string."""
    return _SEPARATOR.join(namespace)


def from_text(text: str) -> Namespace:
    """Return the namespace that `to_text` has converted to a string."""
    return tuple(text.split(_SEPARATOR)) if text else ()


def fits(namespace: Namespace, condition: MatchCondition) -> bool:
    """Return whether a namespace matches a condition on its prefix or suffix. `*` matches any label.

    Raises:
        ValueError: the match type does not exist.
    """
    path = condition.path
    if condition.match_type == "prefix":
        return begins(namespace, path)
    if condition.match_type == "suffix":
        labels = namespace[len(namespace) - len(path) :] if len(path) <= len(namespace) else ()
    else:
        message = f"Unsupported match type: {condition.match_type}"
        raise ValueError(message)
    return begins(labels, path)


def begins(namespace: Namespace, path: Sequence[str]) -> bool:
    """Return True if a namespace begins with a path. A `*` in the path matches any one label."""
    labels = namespace[: len(path)]
    return len(labels) == len(path) and all(wanted in ("*", label) for label, wanted in zip(labels, path, strict=True))


def common_prefix(conditions: Iterable[MatchCondition]) -> Namespace:
    """Return the longest prefix without a wildcard that the conditions require. Only namespaces below it can match."""
    longest: Namespace = ()
    for condition in conditions:
        if condition.match_type == "prefix":
            path = tuple(condition.path)
            fixed = path[: path.index("*")] if "*" in path else path
            longest = max(longest, fixed, key=len)
    return longest


def cut(namespaces: Iterable[Namespace], max_depth: int | None) -> list[Namespace]:
    """Cut namespaces to at most `max_depth` labels. Return each result once, sorted."""
    return sorted({namespace[:max_depth] for namespace in namespaces} if max_depth is not None else namespaces)
