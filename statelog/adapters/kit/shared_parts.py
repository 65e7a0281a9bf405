"""Changes only the differing parts of a value, so that equal parts stay shared with earlier versions."""

from __future__ import annotations

from typing import Any

__all__ = ["settle"]


def settle(parent: Any, key: Any, new: Any) -> None:
    """Make `parent[key]` of a mounted state equal to `new`, and change only parts that differ.

    Setting a nested list writes the whole list. `settle` keeps the common beginning of both lists and writes only the
    rest. It compares dicts key by key.

    Args:
        parent: the mounted state, or a dict in it.
        key: the key in `parent`.
        new: the new value, made of storable values.
    """
    old = parent.get(key) if hasattr(parent, "get") else parent[key]
    if isinstance(new, dict) and hasattr(old, "keys"):
        for gone in [name for name in old if name not in new]:
            del old[gone]
        for name, value in new.items():
            if name not in old or not _is_same(old[name], value):
                settle(old, name, value)
    elif isinstance(new, list) and hasattr(old, "extend"):
        same = _count_same(old, new)
        if same < len(old):
            del old[same:]
        old.extend(new[same:])
    else:
        parent[key] = new


def _is_same(old: Any, new: Any) -> bool:
    return type(old) is type(new) and bool(old == new)


def _count_same(old: Any, new: list[Any]) -> int:
    same = 0
    for mine, theirs in zip(old, new, strict=False):
        if not _is_same(mine, theirs):
            break
        same += 1
    return same
