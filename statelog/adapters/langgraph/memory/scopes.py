"""Deletes the LangGraph items of a scope of `statelog.Memory`. `statelog.memory` imports this file by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langgraph.store.base import PutOp

from statelog.adapters.kit import lives
from statelog.adapters.langgraph.memory.store import StatelogStore
from statelog.adapters.langgraph.values.names import STORE_THREAD_ID

if TYPE_CHECKING:
    import statelog

_PAGE = 256


def forget_items(store: statelog.Store, scope: str) -> list[str]:
    """Delete the items of a scope, with their history. Return their names.

    The scope `user/42` has the namespaces that begin with `("user", "42")`.
    """
    namespace = tuple(scope.split("/"))
    if any("." in label for label in namespace):  # LangGraph allows no dots in labels, so the scope has no items.
        return []
    held = StatelogStore(store)
    held.sweep_ttl()
    names: list[str] = []
    while found := held.search(namespace, limit=_PAGE, refresh_ttl=False):
        held.batch([PutOp(item.namespace, item.key, None) for item in found])
        names += ["/".join((*item.namespace, item.key)) for item in found]
    lives.forget(store, STORE_THREAD_ID)
    return sorted(names)
