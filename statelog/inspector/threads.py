"""The screen of threads: a list, and one thread with its branches, versions and states."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from statelog.errors import CorruptionError, NotFoundError, StatelogError, UsageError
from statelog.inspector.answers import error_document, page_limit, reading
from statelog.inspector.records import read_records

if TYPE_CHECKING:
    from starlette.requests import Request

    from statelog import Thread
    from statelog.inspector.opened import Inspected
    from statelog.store.store import Store

_RECENT_RECORDS_MAX = 120
"""The first page searches this many records at the end of the log for recently changed threads."""
_RECORDS_READ = 60
_OWN = "statelog:"
"""The prefix of ids of threads that belong to runs, such as their streams. A search for this prefix lists them."""
_SIZES_MAX = 100
_SIZES_TIME_S = 0.3


def routes(inspected: Inspected) -> list[Route]:
    """Return the routes of the screen."""

    def threads(request: Request) -> Any:
        return list_threads(
            inspected.store,
            containing=request.query_params.get("containing", ""),
            after=request.query_params.get("after", ""),
            limit=page_limit(request),
        )

    return [
        Route("/api/threads", reading(threads)),
        Route("/api/threads/sizes", reading(partial(_sizes, inspected.store))),
    ]


def list_threads(store: Store, *, containing: str, after: str, limit: int) -> dict[str, Any]:
    """Return a page of threads: first those that changed recently, and then the others, the newest first.

    Threads that belong to runs are left out, unless `containing` begins with `statelog:`.

    Args:
        store: the store.
        containing: only threads whose id contains this string.
        after: `next` of the previous page; empty for the first page.
        limit: the maximum number of threads in the page.

    Raises:
        UsageError: `after` is not a cursor of this list.
    """
    if not after and not containing:
        top = store.last_lsn
        recent = _recent(store, top, limit)
        return {"threads": _rows(store, recent), "next": f"{top}-0"}
    parts = after.split("-") if after else ["0", "0"]
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 20 for part in parts):
        message = f"{after[:40]!r} is not a cursor of this list"
        raise UsageError(message, argument="after", value=after[:40])
    top, passed = map(int, parts)
    shown = set(_recent(store, top, limit)) if top else set()
    ids = store.thread_ids(containing=containing)
    if not containing.startswith(_OWN):
        ids = [id for id in ids if not id.startswith(_OWN)]
    # Positions count from the oldest thread, so threads created since the first page do not shift them.
    end = passed or len(ids)
    page = list(islice((at for at in range(min(end, len(ids)) - 1, -1, -1) if ids[at] not in shown), limit))
    return {
        "threads": _rows(store, [ids[at] for at in page]),
        "next": f"{top}-{page[-1]}" if page and page[-1] > 0 else None,
        "total": len(ids),
    }


def _recent(store: Store, top: int, limit: int) -> list[str]:
    """Return the ids of threads that the last records up to `top` have changed, the latest first."""
    found: dict[str, None] = {}
    end, least = top, max(0, top - _RECENT_RECORDS_MAX)
    while end > least and len(found) < limit:
        start = max(least, end - _RECORDS_READ)
        for _lsn, record in reversed([*read_records(store, start, end)]):
            id = None if isinstance(record, StatelogError) else record.thread_id
            if id is not None and not id.startswith(_OWN):  # The prefix also covers the board and leases.
                found[id] = None
        end = start
    return [*found][:limit]


def _sizes(store: Store, request: Request) -> dict[str, Any]:
    """Return the sizes of the states of threads, in the requested order. Stop after `_SIZES_TIME_S`."""
    ids = request.query_params.getlist("id")[:_SIZES_MAX]
    sizes: dict[str, int | None] = {}
    deadline_s = time.monotonic() + _SIZES_TIME_S
    for id in ids:
        sizes[id] = None
        # The row of the thread shows the error. Another process may delete the thread, or remove the version.
        with suppress(CorruptionError, NotFoundError):
            head = store.thread(id).head
            sizes[id] = None if head is None else head.state_size_bytes
        if time.monotonic() > deadline_s:
            break
    return {"sizes": sizes}


def _rows(store: Store, ids: list[str]) -> list[dict[str, Any]]:
    """Return the rows of threads, read in one transaction. Leave out threads that were deleted meanwhile."""
    with store.snapshot() as snapshot:
        return [row for id in ids if (row := _row(snapshot.thread(id))) is not None]


def _row(thread: Thread) -> dict[str, Any] | None:
    id = thread.id
    try:
        branches, head = thread.branches(), thread.head
    except CorruptionError as error:
        return {"id": id, "problem": error_document(error)}
    if not branches:
        return None
    return {
        "id": id,
        "branches": len(branches),
        "versions": sum(branch.head_version - branch.base_version for branch in branches),
        "branch": None if head is None else head.branch,
        "version": None if head is None else head.version,
        "changed": None if head is None else head.time.isoformat(),
    }
