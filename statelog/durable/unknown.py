"""Telling of runs that wait in the queues of a worker, and whose workflow it does not know."""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from statelog.durable.runs import board_of, find
from statelog.errors import ConflictError, RunNotFoundError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from statelog.store.entries import Entry
    from statelog.store.store import Store

_log = logging.getLogger("statelog.durable")

_LOOKED_AT_MAX: Final = 100
"""Of the tasks of one workflow in one queue so many are looked at: a queue may be long."""


class UnknownWorkflows:
    """Tells, in the log and in `RunInfo.error`, which runs a worker cannot take up.

    Args:
        store: the store.
        known: names of workflows, as parts of keys.
        queues: names of queues, as parts of keys; None: all.

    """

    def __init__(self, store: Store, known: Collection[str], queues: Collection[str] | None) -> None:
        self._store, self._known, self._queues = store, known, queues
        self._told: set[str] = set()

    def tell(self) -> None:
        """Look at the queues: each workflow is logged once, and each run has it as its error."""
        for task in self._waiting():
            run = task.value["run"]
            with suppress(RunNotFoundError, ConflictError):  # another worker has taken it up, and knows it
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
        """Return tasks of unknown workflows that could be claimed now, and have not been told."""
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
