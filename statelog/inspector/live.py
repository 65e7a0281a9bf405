"""Live updates: changes of the store as server-sent events, read from the log.

A stream waits for a record, pauses for `_PAUSE_S`, and then reports all records at once. So an open inspector reads the
log at most twice a second. If other processes write fast, it pauses longer, because a page then redraws more.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.responses import StreamingResponse
from starlette.routing import Route

from statelog.errors import LimitError, StatelogError
from statelog.inspector.answers import of_error
from statelog.inspector.records import read_records
from statelog.log.kinds.entries import OWN_IDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.responses import Response

    from statelog.inspector.opened import Inspected
    from statelog.store.store import Store

_PAUSE_S = 0.5
_BUSY_PAUSE_S = 1.5
"""The pause after an event with more than `_RECORDS_READ_MAX` records."""
_WAIT_S = 0.5
"""The time after which a stream checks whether the server is stopping."""
_SILENCE_S = 15.0
"""The time after which a stream without changes sends a comment, to keep the connection open."""
_RECORDS_READ_MAX = 100
"""The maximum number of records that one event reads. If there are more, it has `"all": true`, and names the newest."""
_STREAMS_MAX = 16


def routes(inspected: Inspected) -> list[Route]:
    """Return the route of the stream."""
    limiter = CapacityLimiter(_STREAMS_MAX)
    open_streams: list[None] = []

    async def live(request: Request) -> Response:
        if len(open_streams) >= _STREAMS_MAX:
            return of_error(LimitError(f"{_STREAMS_MAX} pages already have a stream open", limit=_STREAMS_MAX))
        try:
            last = await run_sync(_start, inspected.store, request.headers.get("last-event-id"))
        except StatelogError as error:
            return of_error(error)

        async def stream() -> AsyncIterator[str]:
            open_streams.append(None)
            try:
                async for text in _stream(inspected, last, limiter):
                    yield text
            except StatelogError:  # End the stream. The next request of the page reports the error.
                return
            finally:
                open_streams.pop()

        return StreamingResponse(stream(), media_type="text/event-stream")

    return [Route("/api/live", live)]


def _start(store: Store, seen: str | None) -> int:
    """Return the LSN after which to begin: `seen`, the last LSN that the page has received, or the store's last LSN."""
    last = store.last_lsn
    return min(int(seen), last) if seen is not None and seen.isascii() and seen.isdigit() and len(seen) < 20 else last


async def _stream(inspected: Inspected, last: int, limiter: CapacityLimiter) -> AsyncIterator[str]:
    store = inspected.store
    yield f"id: {last}\nretry: 1000\ndata: {{}}\n\n"
    silent_s, pause_s = 0.0, _PAUSE_S
    while not inspected.is_stopping():
        if not await run_sync(partial(store.wait, last, _WAIT_S), limiter=limiter, abandon_on_cancel=True):
            silent_s += _WAIT_S
            if silent_s >= _SILENCE_S:
                silent_s = 0.0
                yield ": quiet\n\n"
            continue
        await asyncio.sleep(pause_s)
        after = last
        last, event = await run_sync(changes, store, after, limiter=limiter)
        silent_s, pause_s = 0.0, _BUSY_PAUSE_S if "all" in event else _PAUSE_S
        yield f"id: {last}\ndata: {json.dumps(event)}\n\n"


def changes(store: Store, after: int) -> tuple[int, dict[str, Any]]:
    """Return the last LSN, and the thread ids, board keys and record types in the records after the LSN `after`."""
    last = store.last_lsn
    start = max(after, last - _RECORDS_READ_MAX)
    threads: dict[str, None] = {}
    keys: dict[str, None] = {}
    types: dict[str, None] = {}
    for _lsn, record in read_records(store, start, last):
        if isinstance(record, StatelogError):  # A damaged record names neither a thread nor a key.
            continue
        types[record.type] = None
        if record.type == "entry":
            keys[str(record.body.get("key", ""))] = None
        elif record.thread_id is not None and record.thread_id not in OWN_IDS:
            threads[record.thread_id] = None
    event = {"lsn": last, "threads": [*threads], "keys": [*keys], "types": [*types]}
    if start > after:
        event["all"] = True
    return last, event
