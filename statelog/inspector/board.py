"""The screen of the board: entries, the history of a key, claims and leases."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from statelog.documents import claim_document, entry_document, iso, lease_document
from statelog.errors import CheckError, CorruptionError
from statelog.inspector.answers import cursor, error_document, needed, page_limit, reading, whole_number
from statelog.inspector.values import AnswerLimits, display, path_of, rest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request

    from statelog.inspector.opened import Inspected
    from statelog.store.board import Board
    from statelog.store.entries import Entry

_OWN = "durable/"
"""The prefix of the keys of durable runs, which the screen of runs shows."""
_WILD = frozenset("*?")
_HISTORY_SKIPPED_MAX = 10_000
"""The maximum offset of a page in a key's history. The server also reads the records that the page skips."""


def routes(inspected: Inspected) -> list[Route]:
    """Return the routes of the screen."""
    store = inspected.store

    def entries(request: Request) -> Any:
        return list_entries(
            store.board(),
            prefix=request.query_params.get("prefix", ""),
            after=cursor(request),
            limit=page_limit(request),
        )

    def entry(request: Request) -> Any:
        offset = whole_number(request, "offset", 0, maximum=_HISTORY_SKIPPED_MAX)
        return show_entry(store.board(), needed(request, "key"), offset=offset, limit=page_limit(request, 20))

    def value(request: Request) -> Any:
        key, start = needed(request, "key"), whole_number(request, "start", 0)
        version = whole_number(request, "version", 0)
        found = store.board().get(key, at=version) if version else store.board().get(key)
        return rest(
            None if found is None else found.value,
            path_of(request),
            start,
            AnswerLimits(nodes=2000, characters=200_000),
        )

    def claims(request: Request) -> Any:
        return list_claims(store.board(), after=cursor(request), limit=page_limit(request))

    def leases(request: Request) -> Any:
        return list_leases(store.board(), after=cursor(request), limit=page_limit(request))

    return [
        Route("/api/board", reading(entries)),
        Route("/api/board/entry", reading(entry)),
        Route("/api/board/value", reading(value)),
        Route("/api/board/claims", reading(claims)),
        Route("/api/board/leases", reading(leases)),
    ]


def now() -> str:
    """Return the server's time. Pages count down to deadlines from it, because a browser's clock may be wrong."""
    return datetime.now(UTC).isoformat()


# --- entries -----------------------------------------------------------------------


def list_entries(board: Board, *, prefix: str, after: str, limit: int) -> dict[str, Any]:
    """Return a page of entries, sorted by key. Entries of durable runs are listed if the prefix begins with `durable/`.

    If a record is damaged, each entry is read separately, and the page has an error for each unreadable one.

    Args:
        board: the board.
        prefix: the prefix of the keys, or a pattern with `*` or `?`; empty for all keys.
        after: `next` of the previous page; empty for the first page.
        limit: the maximum number of entries in the page.

    Raises:
        UsageError: `prefix` or `after` cannot be part of a key.
    """
    try:
        rows = [_row(each) for each in _entries(board, prefix, after, limit + 1)]
    except CorruptionError:
        rows = _rows_one_by_one(board, prefix, after, limit + 1)
    return {"entries": rows[:limit], "next": rows[limit - 1]["key"] if len(rows) > limit else None, "now": now()}


def _entries(board: Board, prefix: str, after: str, limit: int) -> list[Entry]:
    if _WILD.intersection(prefix):
        return board.list(prefix, after=after, limit=limit)
    if prefix.endswith("/"):
        return board.list(f"{prefix}**", after=after, limit=limit)
    pattern = f"{_OWN}**" if prefix.startswith(_OWN) else "**"
    # Read the key `prefix` here, because the list below begins after it.
    exact = board.list(prefix) if prefix and not after else []
    found = board.list(pattern, after=after or prefix, limit=limit)
    return [*exact, *(each for each in found if each.key.startswith(prefix))][:limit]


def _rows_one_by_one(board: Board, prefix: str, after: str, limit: int) -> list[dict[str, Any]]:
    """Return rows as in `list_entries`, but read each entry separately, so that a damaged one hides no other."""
    is_pattern = bool(_WILD.intersection(prefix))
    rows: list[dict[str, Any]] = []
    for key in _keys(board, "" if is_pattern else prefix[: prefix.rfind("/") + 1], after):
        if not is_pattern and not key.startswith(prefix):
            continue
        try:
            entry = board.get(key)
            rows += [] if entry is None else [_row(entry)]
        except (CorruptionError, CheckError) as error:
            rows.append({"key": key, "problem": error_document(error)})
        if len(rows) >= limit:
            break
    return rows


def _keys(board: Board, directory: str, after: str) -> Iterator[str]:
    """Yield the keys below `directory` that sort after the key `after`."""
    for child in board.children(directory):
        if not child.endswith("/"):
            if child > after:
                yield child
        elif child > after or after.startswith(child):
            yield from _keys(board, child, after)


def _row(entry: Entry) -> dict[str, Any]:
    """Return an entry with the beginning of its value."""
    return {
        **entry_document(entry),
        "ready": iso(entry.ready),
        "priority": entry.priority,
        "attempts": entry.attempts,
        "error": entry.error,
        **({} if entry.schema_version == 1 else {"schema_version": entry.schema_version}),
        "value": display(entry.value, AnswerLimits(nodes=12, items=5, characters=120, depth=1)),
        "claim": claim_document(entry),
    }


def show_entry(board: Board, key: str, *, offset: int, limit: int) -> dict[str, Any]:
    """Return an entry with its value, and a page of its history, the newest record first.

    `entry` is None if the key has no entry. `problems` has the errors of unreadable parts.

    Raises:
        UsageError: `key` is not a valid key.
    """
    answer: dict[str, Any] = {"key": key, "entry": None, "history": [], "next": None, "problems": [], "now": now()}
    try:
        entry = board.get(key)
        if entry is not None:
            answer["entry"] = {**_row(entry), "value": display(entry.value)}
    except (CorruptionError, CheckError) as error:
        answer["problems"].append(error_document(error))
    found, problem = _history(board, key, offset + limit + 1)
    answer["history"] = [_row(each) for each in found[offset : offset + limit]]
    if len(found) > offset + limit <= _HISTORY_SKIPPED_MAX:
        answer["next"] = offset + limit
    if problem is not None and problem not in answer["problems"]:
        answer["problems"].append(problem)
    return answer


def _history(board: Board, key: str, limit: int) -> tuple[list[Entry], dict[str, Any] | None]:
    """Return the last records of a key, back to the first unreadable one, and the error of reading that record."""
    try:
        return board.history(key, limit=limit), None
    except CorruptionError as error:
        problem = error_document(error)
    readable: list[Entry] = []
    low, high = 0, limit  # The last `low` records are readable, and the last `high` are not.
    while low + 1 < high:
        middle = (low + high) // 2
        try:
            readable = board.history(key, limit=middle)
            low = middle
        except CorruptionError:
            high = middle
    return readable, problem


# --- claims and leases ---------------------------------------------------------------


def list_claims(board: Board, *, after: str, limit: int) -> dict[str, Any]:
    """Return a page of claimed entries, sorted by key, including entries whose claim has expired."""
    found = [each for each in board.claims() if each.key > after]
    rows = [_row(each) for each in found[:limit]]
    return {"claims": rows, "next": rows[-1]["key"] if len(found) > limit else None, "now": now()}


def list_leases(board: Board, *, after: str, limit: int) -> dict[str, Any]:
    """Return a page of leases that were not released, sorted by name."""
    found = [each for each in board.leases() if each.name > after]
    rows = [lease_document(each) for each in found[:limit]]
    return {"leases": rows, "next": rows[-1]["name"] if len(found) > limit else None, "now": now()}
