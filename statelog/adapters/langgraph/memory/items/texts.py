"""Ranks items by their text, for a store without vectors."""

from __future__ import annotations

from glob import escape
from typing import TYPE_CHECKING, Any

from statelog.adapters.langgraph.memory.items.namespaces import to_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langgraph.store.base import SearchOp

    import statelog
    from statelog.adapters.langgraph.memory.items.lookup import FoundItem, Reader
    from statelog.adapters.langgraph.memory.items.namespaces import Namespace

_HITS_MAX = 1000
"""The maximum number of texts that a query finds."""

Ranked = list[tuple[str, str, float]]
"""The namespace, the key and the score of each item that a query finds, the best first."""


def find_by_text(store: statelog.Store, op: SearchOp) -> Ranked:
    """Return the items that have a word of the query. An item with several texts has the score of the best one."""
    found: dict[tuple[str, str], float] = {}
    where = f"items:{escape(to_text(op.namespace_prefix))}*"
    for hit in store.search(op.query or "", where=where, match="any", limit=_HITS_MAX):
        found.setdefault((hit.namespace or "", hit.key or ""), hit.score)
    return [(*place, score) for place, score in found.items()]


def rank_by_text(
    reader: Reader, prefix: Namespace, query: Ranked, matches: Callable[[Any], bool] | None
) -> Iterator[FoundItem]:
    """Yield matching items in and below a namespace: those that a query finds, the best first, and then the others."""
    within, ranked = {*reader.namespaces(prefix)}, set()
    for namespace, key, score in query:
        found = reader.match(namespace, key, matches) if namespace in within else None
        if found is not None:
            ranked.add((namespace, key))
            yield found._replace(score=score)
    for found in reader.recent(prefix, matches):
        if (found.namespace, found.key) not in ranked:
            yield found
