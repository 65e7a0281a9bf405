"""The screen of health: the file, verification, sizes, retention that is due, and the fleet."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from statelog.errors import StatelogError, ThreadNotFoundError, UsageError
from statelog.inspector.answers import (
    error_document,
    is_set,
    needed,
    page_limit,
    reading,
    whole_number,
)
from statelog.inspector.board import now
from statelog.store.retain import count_due
from statelog.store.session import session_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from statelog.inspector.opened import Inspected
    from statelog.store.store import Store
    from statelog.store.thread_info import ThreadInfo

_OWNER = "-owner"
"""The suffix of the file that a fleet stores beside its copy of a store."""
_PROBLEMS_SHOWN_MAX = 200
_CHANNELS_MAX = 200
_DUE_MAX = 10_000
"""The number of due versions of a thread at which counting stops."""


class _StoppedError(Exception):
    """Ends a job because the server is stopping, and is about to close its store."""


@dataclass(slots=True)
class StoreJob:
    """A job that reads the whole store in its own OS thread. The same job does not run twice at a time."""

    inspected: Inspected
    work: Callable[[Store, Callable[[int, int], None]], dict[str, Any]]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _state: dict[str, Any] = field(default_factory=lambda: {"state": "idle"})

    def start(self) -> None:
        """Start the work, unless it is running."""
        with self._lock:
            if self._state["state"] == "running":
                return
            self._state = {"state": "running", "done": 0, "all": 0, "began": now()}
        threading.Thread(target=self._run, name="statelog-inspector", daemon=True).start()

    def status(self) -> dict[str, Any]:
        """Return `state` (idle, running, done or failed) with progress, result or error."""
        with self._lock:
            return {**self._state, "now": now()}

    def _run(self) -> None:
        started = time.perf_counter()
        try:
            result: dict[str, Any] = {"state": "done", "result": self.work(self.inspected.store, self._tell)}
        except StatelogError as error:
            result = {"state": "failed", "problem": error_document(error)}
        except _StoppedError:
            result = {"state": "idle"}
        except Exception as error:  # noqa: BLE001 - a waiting page must see that the work has ended
            problem = {"error": type(error).__name__, "message": str(error), "facts": {}}
            result = {"state": "failed", "problem": problem}
        with self._lock:
            began = self._state.get("began")
            self._state = {**result, "began": began, "duration_s": round(time.perf_counter() - started, 3)}

    def _tell(self, done: int, in_all: int) -> None:
        if self.inspected.is_stopping():
            raise _StoppedError
        with self._lock:
            self._state |= {"done": done, "all": in_all}


def routes(inspected: Inspected) -> list[Route]:
    """Return the routes of the screen. Its jobs only read, so a GET with start=1 may start one."""
    store = inspected.store
    verification, counting = StoreJob(inspected, _verify), StoreJob(inspected, _count)

    def run(job: StoreJob) -> Callable[[Request], Any]:
        def answer(request: Request) -> Any:
            if is_set(request, "start"):
                job.start()
            return job.status()

        return answer

    def health(_request: Request) -> Any:
        return show_health(store)

    def fleet(_request: Request) -> Any:
        return {"fleet": show_fleet(inspected), "is_copy": Path(f"{store.path}{_OWNER}").exists()}

    def channels(request: Request) -> Any:
        return measure_channels(store, needed(request, "thread"), request.query_params.get("branch") or "main")

    def due(request: Request) -> Any:
        offset = whole_number(request, "offset", 0, maximum=10**9)
        return list_due(store, offset=offset, limit=page_limit(request))

    return [
        Route("/api/health", reading(health)),
        Route("/api/health/fleet", reading(fleet)),
        Route("/api/health/verify", reading(run(verification))),
        Route("/api/health/statistics", reading(run(counting))),
        Route("/api/health/channels", reading(channels)),
        Route("/api/health/retention", reading(due)),
    ]


def show_health(store: Store) -> dict[str, Any]:
    """Return the facts about the file that are known without reading the file."""
    return {
        "path": str(store.path),
        "size_bytes": store.path.stat().st_size,
        "last_lsn": store.last_lsn,
        "durability": store.durability,
        "read_only": store.read_only,
        "fenced": store.fenced,
        "now": now(),
    }


def show_fleet(inspected: Inspected) -> dict[str, Any] | None:
    """Return the owner and the lag of a fleet's store, or None for any other store.

    This process knows both if it ships or follows the store. Otherwise it asks the storage.
    """
    store = inspected.store
    if inspected.ask_fleet is not None:
        return {"role": "none", "last_lsn": store.last_lsn, **inspected.ask_fleet()}
    try:
        remote = store.remote
    except UsageError:
        return None
    status = {name: _plain(value) for name, value in asdict(remote.status()).items()}
    return {"role": "reader" if store.read_only else "owner", **status}


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | str) else f"{value:.3f}"


# --- jobs ------------------------------------------------------------------------------


def _verify(store: Store, tell: Callable[[int, int], None]) -> dict[str, Any]:
    report = store.verify(progress=tell)
    problems = [asdict(each) for each in report.problems[:_PROBLEMS_SHOWN_MAX]]
    counts = {"records": report.records, "nodes": report.nodes, "bytes": report.bytes}
    return {"ok": report.ok, **counts, "problems": problems, "problem_count": len(report.problems)}


def _count(store: Store, tell: Callable[[int, int], None]) -> dict[str, Any]:
    statistics = store.statistics(progress=tell)
    return {
        "file_size_bytes": statistics.file_size_bytes,
        "map_size_bytes": statistics.map_size_bytes,
        "compacted_size_bytes": statistics.compacted_size_bytes,
        "records_size_bytes": statistics.records_size_bytes,
        "records_are_estimated": statistics.records_are_estimated,
        "snapshots_size_bytes": statistics.snapshots_size_bytes,
        "snapshots_are_estimated": statistics.snapshots_are_estimated,
        "unowned_size_bytes": statistics.unowned_size_bytes,
        "shared_size_bytes": statistics.shared_size_bytes,
        "pages_used": statistics.pages_used,
        "pages_free": statistics.pages_free,
        "page_size_bytes": statistics.page_size_bytes,
        "readers": statistics.readers,
        "last_lsn": statistics.last_lsn,
        "thread_count": statistics.thread_count,
        "branch_count": statistics.branch_count,
        "checkpoint_count": statistics.checkpoint_count,
        "nodes": statistics.nodes,
        "tables": {name: {"entries": each.entries, "pages": each.pages} for name, each in statistics.tables.items()},
        "policies": [
            {"pattern": each.pattern, "id_digest": each.id_digest, "policy": each.policy}
            for each in statistics.policies
        ],
        "threads": [asdict(each) for each in statistics.threads],
    }


# --- sizes of channels -------------------------------------------------------------------


def measure_channels(store: Store, thread: str, branch: str) -> dict[str, Any]:
    """Return the sizes of the channels at the head of a branch, the largest first. See `Thread.size`.

    Raises:
        ThreadNotFoundError, BranchNotFoundError: the thread or the branch does not exist.
    """
    held = store.thread(thread, branch=branch)
    if not held.branches():
        message = f"no thread {thread!r} in this store"
        raise ThreadNotFoundError(message, thread=thread)
    size = held.size()
    rows = [{"name": name, **asdict(each)} for name, each in islice(size.channels.items(), _CHANNELS_MAX)]
    whole = {"size_bytes": size.size_bytes, "shared_size_bytes": size.shared_size_bytes}
    return {"thread": thread, "branch": branch, "channels": rows, "count": len(size.channels), **whole}


# --- retention -------------------------------------------------------------------------


def list_due(store: Store, *, offset: int, limit: int) -> dict[str, Any]:
    """Return the threads with a retention policy, and the number of versions that each policy would remove now.

    Args:
        store: the store.
        offset: the number of threads to skip: `next` of the previous page.
        limit: the number of threads that one answer examines.
    """
    found = list(islice(store.threads(), offset, offset + limit + 1))
    rows = [_due_row(store, info) for info in found[:limit] if info.policy]
    return {"threads": rows, "next": offset + limit if len(found) > limit else None, "looked_at": len(found[:limit])}


def _due_row(store: Store, info: ThreadInfo) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": info.id,
        "policy": info.policy,
        "versions": info.versions,
        "due": None,
        "is_more": False,
        "problem": None,
    }
    try:
        row["due"] = count_due(session_of(store).owner, info.id, info.policy, count_max=_DUE_MAX)
        row["is_more"] = row["due"] == _DUE_MAX
    except StatelogError as error:
        row["problem"] = error_document(error)
    return row
