"""The ranking of facts by their text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from statelog.memory.recall import Place
    from statelog.memory.timeline import Stored
    from statelog.store.store import Store


def text_places(store: Store, scope: str, query: str, facts: Mapping[str, list[Stored]]) -> Iterator[Place]:
    """Yield the places of facts that have words of a query, the best first."""
    words = set(query.casefold().split())
    scored = [
        (len(words & set(str(each["text"]).casefold().split())), key, each["id"])
        for key, held in facts.items()
        for each in held
    ]
    for score, key, fact_id in sorted(scored, key=lambda each: (-each[0], each[1])):
        if score:
            yield key, fact_id
