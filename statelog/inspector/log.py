"""The screen of the log, which lists its records from the newest backwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from statelog.errors import StatelogError, UsageError
from statelog.inspector.answers import error_document, page_limit, reading, whole_number
from statelog.inspector.records import read_records
from statelog.inspector.values import AnswerLimits, display, path_of, rest

if TYPE_CHECKING:
    from starlette.requests import Request

    from statelog.inspector.opened import Inspected
    from statelog.log.reader import LogRecord
    from statelog.store.store import Store

_STRETCH_RECORDS = 128
_RECORDS_READ_MAX = 4096
"""The maximum number of records that one answer examines. If few of them match, the page is short, with a cursor."""


def routes(inspected: Inspected) -> list[Route]:
    """Return the routes of the screen."""
    store = inspected.store

    def log(request: Request) -> Any:
        return list_records(
            store,
            before=whole_number(request, "before", 0),
            low=whole_number(request, "from", 1),
            high=whole_number(request, "to", 0),
            type_=request.query_params.get("type", ""),
            thread=request.query_params.get("thread", ""),
            limit=page_limit(request),
        )

    def body(request: Request) -> Any:
        lsn = whole_number(request, "lsn", 0)
        if not 0 < lsn <= store.last_lsn:
            message = f"lsn must be the number of a record of this store, 1 to {store.last_lsn}, not {lsn}"
            raise UsageError(message, argument="lsn", value=lsn)
        room = AnswerLimits(nodes=2000, characters=200_000)
        return rest(_body(next(store.log(lsn - 1))), path_of(request), whole_number(request, "start", 0), room)

    return [Route("/api/log", reading(log)), Route("/api/log/body", reading(body))]


def list_records(
    store: Store, *, before: int, low: int, high: int, type_: str, thread: str, limit: int
) -> dict[str, Any]:
    """Return a page of records, the newest first.

    The page also has the records that cannot be read, with their errors.

    Args:
        store: the store.
        before: `next` of the previous page; 0 for the first page.
        low: the lowest LSN to return.
        high: the highest LSN to return; 0 for the last one.
        type_: only records of this type; empty for all.
        thread: only records whose thread id or board key contains this string; empty for all.
        limit: the maximum number of records in the page.
    """
    last = store.last_lsn
    top = min(high or last, before - 1 if before else last, last)
    records: list[dict[str, Any]] = []
    at, read = top, 0
    while at >= max(low, 1) and len(records) < limit and read < _RECORDS_READ_MAX:
        start = max(at - _STRETCH_RECORDS, low - 1, 0)
        for row in reversed([_row(*each) for each in read_records(store, start, at)]):
            read += 1
            at = row["lsn"] - 1
            if _fits(row, type_, thread):
                records.append(row)
                if len(records) >= limit:
                    break
    return {"records": records, "next": at + 1 if at >= max(low, 1) else None, "last": last, "read": read}


def _body(record: LogRecord) -> dict[str, Any]:
    """Return the fields of a record that are not empty."""
    return {name: value for name, value in record.body.items() if value not in (None, {}, [])}


def _row(lsn: int, record: LogRecord | StatelogError) -> dict[str, Any]:
    if isinstance(record, StatelogError):
        return {"lsn": lsn, "problem": error_document(record)}
    return {
        "lsn": lsn,
        "type": record.type,
        "time": record.time.isoformat(),
        "thread": record.thread_id,
        "key": record.body.get("key") if record.type == "entry" else None,
        "size_bytes": record.size_bytes,
        "digest": record.digest,
        "continues": record.continues,
        "body": display(_body(record), AnswerLimits(nodes=24, items=8, characters=120, depth=1)),
    }


def _fits(row: dict[str, Any], type_: str, thread: str) -> bool:
    """Return True if a row matches the filters. A damaged record always matches, because its type is not known."""
    if "problem" in row:
        return True
    return (not type_ or row["type"] == type_) and (
        not thread or thread in (row["thread"] or "") or thread in (row["key"] or "")
    )
