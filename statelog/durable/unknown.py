"""Reports runs in the queues of a worker whose workflow the worker does not know."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

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


class UnknownWorkflows:
    """Reports, in the log and in `RunInfo.error`, the runs that a worker cannot take up.

    Args:
        store: the store.
        known: names of known workflows, in the form of key parts.
        queues: names of the worker's queues, in the form of key parts. None for all queues.

    """

    def __init__(self, store: Store, known: Collection[str], queues: Collection[str] | None) -> None:
        self._store, self._known, self._queues = store, known, queues
        self._told: set[str] = set()

    def tell(self) -> None:
        """Check the queues. Log each unknown workflow once, and set the error of each of its runs."""
        for task in self._waiting():
            run = task.value["run"]
            with suppress(RunNotFoundError, ConflictError):  # Another worker has taken up the run.
                name = find(self._store, run).value["workflow"]
                error = f"a worker has looked at it, and does not know workflow {name!r}"
                with self._store.transaction() as tx:
                    value = {**task.value, "error": error, "is_unknown": True}
                    board_of(tx).cas(task.key, value, expected_version=task.version, priority=task.priority)
                if name not in self._told:
                    self._told.add(name)
                    known = ", ".join(sorted(self._known))
                    _log.warning("run %s waits: this worker does not know workflow %s; it knows %s", run, name, known)

    def _waiting(self) -> Iterator[Entry]:
        """Yield tasks of unknown workflows that could be claimed now, and are not reported yet."""
        board, now = board_of(self._store), datetime.now(UTC)
        for queue in board.children("durable/tasks/"):
            name = queue.split("/")[2].partition("@")[0]
            if self._queues is not None and name not in self._queues:
                continue
            for directory in board.children(queue):
                if directory.split("/")[3] in self._known:
                    continue
                for task in board.list(f"{directory}*", limit=_LOOKED_AT_MAX):
                    is_ready = task.claim is None and (task.ready is None or task.ready <= now)
                    if is_ready and not task.value["waiting_for"] and not task.value["error"]:
                        yield task
