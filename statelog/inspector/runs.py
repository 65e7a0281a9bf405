"""The screens of runs: a list, one run as a waterfall, two runs side by side, and changes of a run by a person.

This process does not run code of workflows. A run that can continue waits for a worker.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.routing import Route

from statelog import documents, durable
from statelog.durable.comparison import in_order
from statelog.durable.infos import STATUSES
from statelog.durable.keys import check_run_id, place_of_gate
from statelog.errors import CheckError, CorruptionError, NotFoundError, StatelogError, UsageError
from statelog.inspector.answers import (
    cursor,
    error_document,
    json_of,
    needed,
    page_limit,
    reading,
    text_of,
    whole_number,
    writing,
)
from statelog.inspector.board import now
from statelog.inspector.records import read_records
from statelog.inspector.values import AnswerLimits, display, path_of, rest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.requests import Request

    from statelog.durable import RunDifference, RunInfo, StepInfo
    from statelog.inspector.opened import Inspected
    from statelog.store.store import Store

_DIRECTORY = "durable/runs/"
_EXAMINED_MAX = 500
"""The maximum number of runs that one answer examines. If few of them match, the page is short, with a cursor."""
_FOLLOWED_MAX = 2000
"""The maximum number of records to search for new runs. If there are more, the keys of all runs are read again."""
_LISTED_MAX = 100
"""The maximum number of events, messages or chunks of a run in one answer."""
_NAME_CHARACTERS_MAX = 200
_SMALL = {"nodes": 12, "items": 5, "characters": 200, "depth": 1}


class RunFilter(NamedTuple):
    """The filters of the list. An empty filter matches all runs."""

    status: str = ""
    workflow: str = ""
    queue: str = ""
    error: str = ""
    newer_s: int = 0
    older_s: int = 0

    def fits(self, info: RunInfo) -> bool:
        """Return True if a run matches all filters except the filters for its age."""
        return (
            (not self.status or info.status == self.status)
            and (not self.workflow or info.workflow == self.workflow)
            and (not self.queue or info.queue == self.queue)
            and (not self.error or self.error.casefold() in (info.error or "").casefold())
        )


def routes(inspected: Inspected) -> list[Route]:
    """Return the routes of the screens."""
    store = inspected.store
    places = RunIndex(store)

    def listed(request: Request) -> Any:
        given = request.query_params.get
        wanted = RunFilter(
            status=given("status", ""),
            workflow=given("workflow", ""),
            queue=given("queue", ""),
            error=given("error", ""),
            newer_s=whole_number(request, "newer_s", 0, maximum=10**9),
            older_s=whole_number(request, "older_s", 0, maximum=10**9),
        )
        return list_runs(store, places, wanted, after=cursor(request), limit=page_limit(request))

    def one(request: Request) -> Any:
        offset = whole_number(request, "offset", 0)
        return show_run(store, needed(request, "id"), offset=offset, limit=page_limit(request, 200))

    def value(request: Request) -> Any:
        found = part_of(store, needed(request, "id"), needed(request, "part"))
        room = AnswerLimits(nodes=2000, characters=200_000)
        return rest(found, path_of(request), whole_number(request, "start", 0), room)

    def listed_part(request: Request) -> Any:
        return list_part(store, needed(request, "id"), needed(request, "of"), cursor(request))

    def text(request: Request) -> Any:
        return as_text(part_of(store, needed(request, "id"), needed(request, "part")))

    def compared(request: Request) -> Any:
        offset, limit = whole_number(request, "offset", 0), page_limit(request, 200)
        return compare_runs(store, needed(request, "left"), needed(request, "right"), offset=offset, limit=limit)

    return [
        Route("/api/runs", reading(listed)),
        Route("/api/runs/compare", reading(compared)),
        Route("/api/run", reading(one)),
        Route("/api/run/value", reading(value)),
        Route("/api/run/list", reading(listed_part)),
        Route("/api/run/text", reading(text)),
        *_write_routes(store),
    ]


def _write_routes(store: Store) -> list[Route]:
    def answer(_request: Request, body: Mapping[str, Any]) -> Any:
        approved, by = body.get("approved"), body.get("by") or None
        if type(approved) is not bool:
            message = f"approved must be true or false, not {approved!r:.40}"
            raise UsageError(message, argument="approved")
        gate = durable.answer(store, text_of(body, "gate"), approved=approved, payload=json_of(body, "payload"), by=by)
        return _changed(store, gate.run)

    def act(change: Callable[[Store, str], Any]) -> Callable[[Request, Mapping[str, Any]], Any]:
        def changed(_request: Request, body: Mapping[str, Any]) -> Any:
            run = text_of(body, "run")
            change(store, run)
            return _changed(store, run)

        return changed

    def fork(_request: Request, body: Mapping[str, Any]) -> Any:
        return fork_run(store, body)

    return [
        Route("/api/run/answer", writing(answer), methods=["POST"]),
        Route("/api/run/cancel", writing(act(_cancel)), methods=["POST"]),
        Route("/api/run/retry", writing(act(durable.retry)), methods=["POST"]),
        Route("/api/run/resume", writing(act(durable.resume)), methods=["POST"]),
        Route("/api/run/fork", writing(fork), methods=["POST"]),
    ]


# --- the list ------------------------------------------------------------------------


def list_runs(store: Store, places_of: RunIndex, wanted: RunFilter, *, after: str, limit: int) -> dict[str, Any]:
    """Return a page of runs, the newest first.

    The page also has the runs that cannot be read, with their errors.

    Args:
        store: the store.
        places_of: the times and keys of the runs of the store.
        wanted: the filters.
        after: `next` of the previous page; empty for the first page.
        limit: the maximum number of runs in the page.

    Raises:
        UsageError: the status does not exist, or `after` is not a cursor of this list.
    """
    if wanted.status and wanted.status not in STATUSES:
        message = f"status must be one of {', '.join(STATUSES)}, not {wanted.status[:40]!r}"
        raise UsageError(message, argument="status", value=wanted.status[:40])
    places = places_of.newest_first(wanted)
    total = len(places)
    if after:
        bound = _parse_cursor(after)
        places = [place for place in places if place < bound]
    rows: list[dict[str, Any]] = []
    passed: tuple[int, str] | None = None
    for examined, place in enumerate(places):
        if len(rows) >= limit or examined >= _EXAMINED_MAX:
            break
        row = _row_of_key(store, place[1], wanted)
        rows += [] if row is None else [row]
        passed = place
    is_more = bool(places) and passed != places[-1]
    return {
        "runs": rows,
        "next": f"{passed[0]}-{passed[1]}" if is_more and passed is not None else None,
        "total": total,
        "now": now(),
    }


class RunIndex:
    """The times and keys of all runs. They are read once, and then kept up to date from the log."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._lsn = 0
        self._created_us: dict[str, int] = {}

    def newest_first(self, wanted: RunFilter) -> list[tuple[int, str]]:
        """Return the creation time in microseconds and the key of each run whose age matches."""
        with self._lock:
            last = self._store.last_lsn
            if self._lsn == 0 or last - self._lsn > _FOLLOWED_MAX:
                self._created_us = self._read()
            else:
                self._follow(last)
            self._lsn = last
            found = [(time_us, key) for key, time_us in self._created_us.items()]
        at = datetime.now(UTC)
        if wanted.newer_s:
            least_us = _us(at - timedelta(seconds=wanted.newer_s))
            found = [place for place in found if place[0] >= least_us or not place[0]]
        if wanted.older_s:
            most_us = _us(at - timedelta(seconds=wanted.older_s))
            found = [place for place in found if place[0] <= most_us]
        return sorted(found, reverse=True)

    def _read(self) -> dict[str, int]:
        board = self._store.board()
        try:
            return {each.key: _us(each.created) for each in board.list(f"{_DIRECTORY}*", values=False)}
        except CorruptionError:  # An entry is damaged, but the index has all keys.
            return dict.fromkeys(board.children(_DIRECTORY), 0)

    def _follow(self, last: int) -> None:
        for _lsn, record in read_records(self._store, self._lsn, last):
            key = "" if isinstance(record, StatelogError) else record.body.get("key")
            if isinstance(record, StatelogError) or not isinstance(key, str) or not key.startswith(_DIRECTORY):
                continue
            if record.body.get("act") == "delete":
                self._created_us.pop(key, None)
            else:
                self._created_us.setdefault(key, _us(record.time))


def _us(time: datetime) -> int:
    return round(time.timestamp() * 1e6)


def _parse_cursor(after: str) -> tuple[int, str]:
    time_us, dash, key = after.partition("-")
    if not dash or not (time_us.isascii() and time_us.isdigit() and len(time_us) < 20) or not key:
        message = f"{after[:40]!r} is not a cursor of this list"
        raise UsageError(message, argument="after", value=after[:40])
    return int(time_us), key


def _row_of_key(store: Store, key: str, wanted: RunFilter) -> dict[str, Any] | None:
    """Return the row of a run, or None if it does not match or no longer exists."""
    try:
        entry = store.board().get(key)
        if entry is None:
            return None
        info = durable.get_run(store, entry.value["id"])
    except NotFoundError:
        return None
    except (CorruptionError, CheckError) as error:
        return {"id": key.removeprefix(_DIRECTORY), "problem": error_document(error)}
    return _row(info) if wanted.fits(info) else None


def _row(info: RunInfo) -> dict[str, Any]:
    shown = display(info.value, AnswerLimits(**_SMALL)) if info.status == "completed" else None
    return {**documents.run_document(info), "value": shown}


# --- one run -------------------------------------------------------------------------


def show_run(store: Store, id: str, *, offset: int, limit: int) -> dict[str, Any]:
    """Return a run with a page of its calls, in the order in which they were recorded.

    `problems` has the errors of unreadable parts. The other parts are returned.

    Raises:
        RunNotFoundError: the run does not exist.
    """
    info = durable.get_run(store, id)
    answer: dict[str, Any] = {
        **_row(info),
        "value": display(info.value) if info.status == "completed" else None,
        "args": display(list(info.args)),
        "kwargs": display(info.kwargs),
        "traceback": info.traceback,
        "replaced": [[place, display(result, AnswerLimits(**_SMALL))] for place, result in info.replaced.items()],
        "problems": [],
        "now": now(),
    }
    parts: dict[str, Callable[[], Any]] = {
        "steps": lambda: _steps(store, id, offset, limit),
        "gates": lambda: _gates(store, id, {row["place"] for row in answer["steps"]["rows"]}),
        **{name: partial(listing, store, id, "") for name, listing in _LISTINGS.items()},
    }
    for name, part in parts.items():
        try:
            answer[name] = part()
        except (CorruptionError, CheckError) as error:
            answer[name] = [] if name == "gates" else {"rows": [], "next": None, "total": 0}
            answer["problems"].append({"what": name, **error_document(error)})
    return answer


def _steps(store: Store, id: str, offset: int, limit: int) -> dict[str, Any]:
    found = durable.steps(store, id)
    page = found[offset : offset + limit]
    before = found[offset - 1].ended if 0 < offset <= len(found) else None
    rows = [_step(store, each) for each in page]
    more = offset + limit if offset + limit < len(found) else None
    return {"rows": rows, "next": more, "total": len(found), "before": documents.iso(before)}


def _step(store: Store, step: StepInfo) -> dict[str, Any]:
    return {
        **documents.step_document(step),
        "name": step.name[:_NAME_CHARACTERS_MAX],
        "result": None if step.status != "done" else display(step.result, AnswerLimits(nodes=60, items=10, depth=3)),
        "child": None if step.child is None else _child(store, step.child),
    }


def _child(store: Store, id: str) -> dict[str, Any]:
    try:
        return _row(durable.get_run(store, id))
    except StatelogError as error:
        return {"id": id, "problem": error_document(error)}


def _gates(store: Store, id: str, places: set[str]) -> list[dict[str, Any]]:
    """Return the gates of a run at the given places."""
    found = [(place_of_gate(each.id), each) for each in durable.gates(store, run=id)]
    return [
        {
            **documents.gate_document(gate),
            "place": place,
            "payload": display(gate.payload, AnswerLimits(nodes=60, items=10, depth=3)),
        }
        for place, gate in found
        if place in places
    ]


# --- what a run has besides its calls: pages that go on behind a cursor --------------------


def list_part(store: Store, id: str, of: str, after: str) -> dict[str, Any]:
    """Return a page of the events, mail or chunks of a run.

    Args:
        store: the store.
        id: the id of the run.
        of: "events", "mail" (which the run has not read), or "chunks" (of its streams).
        after: `next` of the previous page; empty for the first page.

    Raises:
        RunNotFoundError: the run does not exist.
        UsageError: `of` is not one of these, or `after` is not a cursor of this list.
    """
    if of not in _LISTINGS:
        message = f"of must be one of {', '.join(_LISTINGS)}, not {of[:40]!r}"
        raise UsageError(message, argument="of", value=of[:40])
    return _LISTINGS[of](store, id, after)


def _entries(directory: str, name: str, store: Store, id: str, after: str) -> dict[str, Any]:
    """Return a page of a run's entries in the board, below `directory`. `name` is the field with the value to show."""
    pattern = f"durable/{directory}/{check_run_id(id)}/**"
    found = store.board().list(pattern, after=after, limit=_LISTED_MAX + 1)
    rows = [
        {
            "name": each.value.get("topic") or each.key.rpartition("/")[2],
            "time": each.time.isoformat(),
            "value": display(each.value[name], AnswerLimits(**_SMALL)),
        }
        for each in sorted(found[:_LISTED_MAX], key=lambda each: each.time)  # Keys of mail are not in order of time.
        if isinstance(each.value, Mapping)
    ]
    return {"rows": rows, "next": found[_LISTED_MAX - 1].key if len(found) > _LISTED_MAX else None}


def _chunks(store: Store, id: str, after: str) -> dict[str, Any]:
    if after and not (after.isascii() and after.isdigit() and len(after) < 20):
        message = f"{after[:40]!r} is not a cursor of this list"
        raise UsageError(message, argument="after", value=after[:40])
    found = list(islice(durable.stream(store, id, after=int(after or 0), follow=False), _LISTED_MAX + 1))
    rows = [
        {"step": each.step, "attempt": each.attempt, "value": display(each.value, AnswerLimits(**_SMALL))}
        for each in found[:_LISTED_MAX]
    ]
    return {"rows": rows, "next": str(found[_LISTED_MAX - 1].cursor) if len(found) > _LISTED_MAX else None}


_LISTINGS: dict[str, Callable[[Store, str, str], dict[str, Any]]] = {
    "events": partial(_entries, "events", "value"),
    "mail": partial(_entries, "mail", "message"),
    "chunks": _chunks,
}


def part_of(store: Store, id: str, part: str) -> Any:
    """Return a value of a run: `args`, `kwargs`, `value`, `result PLACE`, `undo PLACE` or `gate ID`.

    Raises:
        RunNotFoundError, GateNotFoundError: the run or the gate does not exist.
        NotFoundError: the run has no such part. Facts: part.
    """
    kind, _, name = part.partition(" ")
    if kind in ("args", "kwargs", "value"):
        found = getattr(durable.get_run(store, id), kind)
        return list(found) if kind == "args" else found
    if kind in ("result", "undo"):
        for step in durable.steps(store, id):
            if step.place == name and step.is_compensation is (kind == "undo"):
                return step.result
    if kind == "gate":
        for gate in durable.gates(store, run=id):
            if gate.id == name:
                return gate.payload
    message = f"run {id!r} has no part {part[:80]!r}"
    raise NotFoundError(message, run=id, part=part[:80])


# --- what a person does -----------------------------------------------------------------


def as_text(value: Any) -> dict[str, Any]:
    """Return a value as JSON for an editor: {json}. If JSON would change it, return {json: None, why: reason}."""
    why = _refusal(value, 0)
    return {"json": json.dumps(value, ensure_ascii=False, indent=2) if why is None else None, "why": why}


_TEXT_DEPTH_MAX = 100


def _refusal(value: Any, depth: int) -> str | None:
    """Return the reason why JSON cannot represent a value, or None."""
    if value is None or type(value) in (bool, int, str):
        return None
    if type(value) is float and value - value == 0:
        return None
    if depth >= _TEXT_DEPTH_MAX:
        return "The value is too deep for an editor."
    inner: Iterable[Any]
    if type(value) is list:
        inner = value
    elif type(value) is dict and all(type(key) is str for key in value):
        inner = value.values()
    else:
        return f"The recorded value has a {type(value).__name__}, which JSON does not have. Fork it in Python."
    return next((why for why in (_refusal(each, depth + 1) for each in inner) if why is not None), None)


def fork_run(store: Store, body: Mapping[str, Any]) -> dict[str, Any]:
    """Start a run that continues from the middle of an existing run. See `durable.fork`.

    `body` has `run`, `at`, `id`, and the replaced `args`, `kwargs`, and results (`replace`, keyed by place). Values are
    JSON strings, so that large numbers keep their digits.

    Raises:
        UsageError: a string is not JSON, or `args`, `kwargs` or `replace` has the wrong type.
    """
    replace = body.get("replace") or {}
    if not isinstance(replace, Mapping):
        message = f"replace must be an object that maps places to JSON texts, not {type(replace).__name__}"
        raise UsageError(message, argument="replace")
    args = json_of(body, "args")
    if args is not None and not isinstance(args, list):
        message = f"args must be a JSON list of arguments, not {args!r:.40}"
        raise UsageError(message, argument="args")
    handle = durable.fork(
        store,
        text_of(body, "run"),
        at=text_of(body, "at"),
        id=text_of(body, "id"),
        args=args,
        kwargs=json_of(body, "kwargs"),
        replace={place: json_of(replace, place) for place in replace},
    )
    return _changed(store, handle.id)


def _cancel(store: Store, run: str) -> None:
    if not durable.cancel(store, run):
        message = f"run {run!r} has ended: nothing is left to cancel"
        raise UsageError(message, run=run)


def _changed(store: Store, run: str) -> dict[str, Any]:
    """Return a run after a change, and as `worker` the Python call that continues it, or None if it has ended."""
    info = durable.get_run(store, run)
    worker = None
    if not info.has_ended:
        worker = f"durable.run_worker(store, [{info.workflow}])"
    return {"run": _row(info), "worker": worker}


# --- two runs side by side ----------------------------------------------------------------


def compare_runs(store: Store, left: str, right: str, *, offset: int, limit: int) -> dict[str, Any]:
    """Return a page of the calls of two runs by place, with their differences.

    `first` is the row of the first call that differs, or None. `runs` lists the differences of the runs themselves.

    Raises:
        RunNotFoundError: one of the runs does not exist.
    """
    infos = [durable.get_run(store, left), durable.get_run(store, right)]
    differences = durable.compare_runs(store, left, right)
    told = {_place_of(each): each.what for each in differences if each.place is not None}
    calls, others = ({_place(each): each for each in durable.steps(store, run)} for run in (left, right))
    places = in_order(calls, others)
    rows = [
        {
            "place": place.removeprefix("undo."),
            "is_compensation": place.startswith("undo."),
            "what": told.get(place),
            "left": None if place not in calls else _step(store, calls[place]),
            "right": None if place not in others else _step(store, others[place]),
        }
        for place in places[offset : offset + limit]
    ]
    return {
        "left": {**_row(infos[0]), "args": display(list(infos[0].args)), "kwargs": display(infos[0].kwargs)},
        "right": {**_row(infos[1]), "args": display(list(infos[1].args)), "kwargs": display(infos[1].kwargs)},
        "runs": [each.what for each in differences if each.place is None],
        "rows": rows,
        "first": next((at for at, place in enumerate(places) if place in told), None),
        "count": len(told),
        "total": len(places),
        "next": offset + limit if offset + limit < len(places) else None,
        "now": now(),
    }


def _place(step: StepInfo) -> str:
    """Return the place of a call, or for a compensation `undo.` and the place of the call that it compensates."""
    return f"undo.{step.place}" if step.is_compensation else step.place


def _place_of(difference: RunDifference) -> str:
    step = difference.left or difference.right
    return str(difference.place) if step is None else _place(step)
