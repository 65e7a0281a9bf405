"""Reports queued runs whose workflow a worker of the queue does not know."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Final

from statelog.durable.keys import unknown_key
from statelog.durable.runs import board_of, find
from statelog.errors import ConflictError, RunNotFoundError
from statelog.redaction import redacting_logger

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from statelog.store.entries import Entry
    from statelog.store.store import Store

_log = redacting_logger("statelog.durable")

_LOOKED_AT_MAX: Final = 100
"""The maximum number of tasks to check for each workflow and queue, because a queue may be long."""

_MARKED_AGAIN_S: Final = 60.0
"""The minimum interval between two marks of a workflow, in seconds. Workers that know the workflow remove the mark."""


class UnknownWorkflows:
    """Reports runs that perhaps no worker can drive. The log and `RunInfo.waiting_for` show them.

    An entry of the board marks a workflow of a queue as unknown. It applies to tasks that are older than the entry.

    Args:
        store: the store.
        known: names of known workflows, in the form of key parts.
        queues: names of the worker's queues, in the form of key parts. None for all queues.
    """

    def __init__(self, store: Store, known: Collection[str], queues: Collection[str] | None) -> None:
        self._store, self._known, self._queues = store, known, queues
        self._reported: set[str] = set()
        self._marked_s: dict[str, float] = {}
        """For each mark, by its key, the time from which this worker may set it again."""

    def report(self) -> None:
        """Check the queues. Log each unknown workflow once, mark it, and remove the marks of known workflows."""
        self.remove_marks()
        found: dict[str, list[Entry]] = {}
        for key, each in self._waiting():
            found.setdefault(key, []).append(each)
        for key, tasks in found.items():
            with suppress(RunNotFoundError, ConflictError):  # Another worker has claimed or marked the run.
                task = tasks[0]
                run = task.value["run"]
                name = find(self._store, run).value["workflow"]
                self._mark(key, name, max(each.version for each in tasks))
                if name not in self._reported:
                    self._reported.add(name)
                    wait = f" for {', '.join(task.value['waiting_for'])}" if task.value["waiting_for"] else ""
                    known = ", ".join(sorted(self._known))
                    _log.warning(
                        "run %s waits%s: this worker does not know workflow %s; it knows %s. If the workflow was"
                        " renamed, pass its old name in aliases=",
                        run,
                        wait,
                        name,
                        known,
                    )

    def _mark(self, key: str, workflow: str, version: int) -> None:
        """Set a mark, unless there is one that is later than `version`."""
        board, now_s = board_of(self._store), monotonic()
        held = board.get(key)
        if held is not None and held.version > version:
            return
        if held is None and now_s < self._marked_s.get(key, 0.0):
            return
        self._marked_s[key] = now_s + _MARKED_AGAIN_S
        board.cas(key, {"workflow": workflow}, expected_version=0 if held is None else held.version)

    def remove_marks(self) -> None:
        """Remove the marks of known workflows."""
        board = board_of(self._store)
        for mark in board.list(unknown_key("*", "*")):
            _durable, _unknown, queue, workflow = mark.key.split("/")
            if workflow in self._known and (self._queues is None or queue in self._queues):
                with suppress(ConflictError):
                    board.delete(mark.key, expected_version=mark.version)

    def _waiting(self) -> Iterator[tuple[str, Entry]]:
        """Yield each task of an unknown workflow that waits or could be claimed now, with the key of its mark."""
        board, now = board_of(self._store), datetime.now(UTC)
        for queue in board.children("durable/tasks/"):
            name = queue.split("/")[2].partition("@")[0]
            if self._queues is not None and name not in self._queues:
                continue
            for directory in board.children(queue):
                workflow = directory.split("/")[3]
                if workflow in self._known:
                    continue
                for task in board.list(f"{directory}*", limit=_LOOKED_AT_MAX):
                    is_ready = task.ready is None or task.ready <= now
                    if task.claim is None and (is_ready or task.value["waiting_for"]):
                        yield unknown_key(name, workflow), task
