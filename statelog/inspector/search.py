"""The screen of the search in the texts of threads, the board, LangGraph's store and durable runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from statelog.inspector.answers import page_limit, reading
from statelog.search.hits import hit_document

if TYPE_CHECKING:
    from starlette.requests import Request

    from statelog.inspector.opened import Inspected


def routes(inspected: Inspected) -> list[Route]:
    """Return the routes of the screen."""
    store = inspected.store

    def search(request: Request) -> Any:
        given = request.query_params
        hits = store.search(
            given.get("query", ""),
            threads=given.get("threads") or None,
            where=given.get("where") or None,
            role=given.get("role") or None,
            history=given.get("history") == "yes",
            match="any" if given.get("match") == "any" else "all",
            limit=page_limit(request),
        )
        return {"hits": [hit_document(hit) for hit in hits], "notes": list(hits.notes)}

    return [Route("/api/search", reading(search))]
