"""Values changed in place where they differ, so that the rest stays shared with the versions before."""

from __future__ import annotations

from typing import Any

__all__ = ["settle"]


def settle(parent: Any, key: Any, new: Any) -> None:
    """In a mount: make `parent[key]` equal `new`; touch only what differs.

    A list that is set whole below the top of a state is written whole, at each change. Settled, what is equal at its
    beginning stays, and what is new is written: dicts key by key, lists behind what they have in common with the new
    one.

    Args:
        parent: the mounted state, or a dict of it.
        key: of `parent`.
        new: the value: dicts and lists of what can be stored.

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
