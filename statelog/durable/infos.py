"""The public view of runs: `RunInfo`, `get_run` and `runs`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Generic, cast

from statelog.durable import keys
from statelog.durable.clock import moment_of
from statelog.durable.runs import ENDED, board_of, error_of_end, find, task_key_of
from statelog.durable.workflows import R
from statelog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from statelog.store.entries import Entry
    from statelog.store.snapshot import Snapshot
    from statelog.store.store import Store

STATUSES: Final = ("queued", "running", "suspended", "parked", *ENDED)


@dataclass(frozen=True, slots=True)
class RunInfo(Generic[R]):
    """The state of a run at one moment.

    Attributes:
        status: `queued` (the run waits for a process, or for its turn), `running`, `suspended` (the run waits, and no
            process is occupied), `parked` (a person must act, and call `resume`), `completed`, `failed`, `cancelled`.
        value: the result of the workflow, if the run has completed.
        error: the error of a failed run, as `Type: message`; the reason of a run that has stopped.
        waiting_for: the events that a suspended run waits for: `gate ID`, `mail TOPIC`, `time`, `run ID`. With
            `code WORKFLOW`, it waits for a worker that knows its workflow, because a worker of its queue does not.
        due: the time at which a suspended run continues by itself, or None if it waits for an event only.
        attempts: how often the run was claimed since its last suspension.
        parked: compensations that have failed permanently, by the step that they should undo.
        traceback: the traceback of the exception that made the run fail, cut to 16,384 characters.
        forked_from: the id of the run that `fork` has begun this run from, or None.
        forked_at: the place in `forked_from` of the first call that the fork did not copy, or None if it copied all
            calls.
        replaced: the results that `fork(replace=)` has given, by the place of the call. `continue_as_new` drops them.
    """

    id: str
    workflow: str
    thread: str
    branch: str
    status: str
    value: R | None
    error: str | None
    waiting_for: tuple[str, ...]
    created: datetime
    ended: datetime | None
    due: datetime | None
    queue: str
    priority: int
    attempts: int
    parent: str | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    parked: tuple[str, ...] = field(default=())
    traceback: str | None = None
    forked_from: str | None = None
    forked_at: str | None = None
    replaced: dict[str, Any] = field(default_factory=dict)

    @property
    def has_ended(self) -> bool:
        """True if the run has completed, has failed, or was cancelled."""
        return self.status in ENDED

    def result(self) -> R:
        """Return the result of the workflow.

        Raises:
            RunFailedError: the run has failed. Facts: run, error. RunCancelledError: the run was cancelled.
            UsageError: the run has not ended.
        """
        if not self.has_ended:
            what = f"{self.status}, and waits for {', '.join(self.waiting_for)}" if self.waiting_for else self.status
            message = f"run {self.id!r} has no result yet: it is {what}"
            raise UsageError(message, argument="run", value=self.id)
        if self.status != "completed":
            raise error_of_end(self.id, self.status, self.error)
        return cast("R", self.value)


def info_of(store: Store, entry: Entry) -> RunInfo:
    """Return the state of a run: of an ended run from its entry, of another run as it is now. Raises RunNotFoundError.

    The entry, the task and the line of an open run are read in one snapshot, because another process may end the run.
    """
    if entry.value["status"] in ENDED:
        return _info_in(store, entry)
    with store.snapshot() as seen:
        return _info_in(seen, find(seen, entry.value["id"]))


def _info_in(seen: Store | Snapshot, entry: Entry) -> RunInfo:
    """Return the state of a run from its entry and its task. `seen` is a snapshot, unless the run has ended."""
    value = entry.value
    status, due_us, error = value["status"], 0, value.get("error")
    waiting_for: tuple[str, ...] = ()
    attempts = 0
    if status not in ENDED and status != "parked":
        task = board_of(seen).get(task_key_of(value))
        if task is None:
            status, waiting_for = _in_line(seen, value)
        else:
            attempts = task.attempts
            waiting_for, due_us = tuple(task.value["waiting_for"]), task.value["due"]
            error = task.value.get("error") or error
            if task.claim is not None and task.claim.expires > datetime.now(UTC):
                status, waiting_for, due_us = "running", (), 0
            else:
                status = "suspended" if waiting_for else "queued"
                if _is_marked(seen, value, task):
                    waiting_for = (*waiting_for, f"code {value['workflow']}")
                    if status == "queued":
                        error = error or f"a worker has looked at it, but does not know workflow {value['workflow']!r}"
    parked = value.get("parked") or ()
    return RunInfo(
        id=value["id"],
        workflow=value["workflow"],
        thread=value["thread"],
        branch=value["branch"],
        status=status,
        value=value.get("value"),
        error=error,
        waiting_for=waiting_for,
        created=moment_of(value["created"]),
        ended=moment_of(value["ended"]) if value.get("ended") else None,
        due=moment_of(due_us) if due_us else None,
        queue=value["queue"],
        priority=value["priority"],
        attempts=attempts,
        parent=value.get("parent"),
        args=tuple(value["args"]),
        kwargs=dict(value["kwargs"]),
        parked=tuple(parked),
        traceback=value.get("traceback"),
        forked_from=value.get("forked"),
        forked_at=value.get("forked_at"),
        replaced={place: each["r"] for place, each in value.get("replaced", {}).items()},
    )


def _is_marked(seen: Store | Snapshot, value: Mapping[str, Any], task: Entry) -> bool:
    """Return True if a worker has marked the run's workflow as unknown since `task` was written."""
    queue, workflow = keys.check_queue(value["queue"]), keys.check_part("workflow", value["workflow"])
    mark = board_of(seen).get(keys.unknown_key(queue, workflow))
    return mark is not None and mark.version > task.version


def _in_line(seen: Store | Snapshot, value: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    line = board_of(seen).get(keys.line_key(value["thread"], value["branch"]))
    ahead = line.value[0] if line is not None and line.value else None
    return "queued", () if ahead in (None, value["id"]) else (f"run {ahead}",)


def get_run(store: Store, run: str) -> RunInfo:
    """Return the state of a run.

    Raises:
        RunNotFoundError: there is no run with this id. Facts: run.
    """
    with store.snapshot() as seen:
        return _info_in(seen, find(seen, run))


def runs(
    store: Store, *, status: str | None = None, workflow: str | None = None, thread: str | None = None
) -> list[RunInfo]:
    """Return the runs of a store, the oldest first.

    Args:
        store: the store.
        status: return only runs with this status; see `RunInfo`.
        workflow: return only runs of the workflow with this name.
        thread: return only runs of the thread with this id.

    Raises:
        UsageError: there is no such status.
    """
    if status is not None and status not in STATUSES:
        raise UsageError(
            f"status must be one of {', '.join(STATUSES)}, not {status!r}", argument="status", value=status
        )
    with store.snapshot() as seen:
        found = [
            _info_in(seen, entry)
            for entry in board_of(seen).list("durable/runs/*")
            if (workflow is None or entry.value["workflow"] == workflow)
            and (thread is None or entry.value["thread"] == thread)
        ]
    return sorted((each for each in found if status is None or each.status == status), key=lambda each: each.created)
