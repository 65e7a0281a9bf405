"""The entries of runs and tasks on the board. This module creates, finds, queues and wakes runs."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from statelog.durable import keys, observers
from statelog.durable.clock import clock
from statelog.durable.keys import HEADER, STEPS
from statelog.durable.values import check_names, decode, digest_of, guarded
from statelog.errors import (
    ConflictError,
    RunCancelledError,
    RunEndedError,
    RunFailedError,
    RunNotFoundError,
)
from statelog.store.arguments import PRIORITY_MAX
from statelog.store.board import own_board
from statelog.store.session import session_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from statelog.store.board import Board
    from statelog.store.entries import Entry
    from statelog.store.store import Store

ENDED: Final = ("completed", "failed", "cancelled")
OF_THE_END: Final = ("value", "error", "traceback", "failed", "ended", "checkpoint", "cancel", "parked")
"""The fields of an ended run that are removed when the run is opened again."""
DEFAULT_QUEUE: Final = "default"
AGENT: Final = "statelog"

_TRIES_MAX: Final = 1000


class Start(NamedTuple):
    """The start of a run: its workflow, arguments, and options."""

    workflow: str
    arguments: bytes
    """The encoded form of [args, kwargs]."""
    args: list[Any]
    kwargs: dict[str, Any]
    id: str
    thread: str
    branch: str = "main"
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    delay_s: float = 0.0
    timeout_s: float | None = None
    parent: str | None = None
    partition: str | None = None
    dedup: str | None = None
    aliases: tuple[str, ...] = ()
    """Former names of the workflow. A run of this id under a former name is the same run."""

    def guarded(self, store: Any) -> Start:
        """Return the start, with arguments as they will be stored. Raises SecretError if a name contains a secret."""
        if session_of(store).owner.guard is None:
            return self
        names = (self.workflow, self.queue, self.thread, self.branch, self.partition, self.dedup)
        check_names(store, *(name for name in names if name is not None))
        arguments = guarded(store, self.arguments, "arguments")
        args, kwargs = decode(arguments)
        return self._replace(arguments=arguments, args=args, kwargs=kwargs)

    def value(self) -> dict[str, Any]:
        """Return the value of the run's entry."""
        now_us = clock().now_us()
        return {
            "workflow": self.workflow,
            "args": self.args,
            "kwargs": self.kwargs,
            "digest": digest_of(self.arguments),
            "id": self.id,
            "thread": self.thread,
            "branch": self.branch,
            "queue": self.queue,
            "priority": self.priority,
            "partition": self.partition,
            "dedup": self.dedup,
            "parent": self.parent,
            "status": "open",
            "created": now_us,
            "due": now_us + round(self.delay_s * 1e6) if self.delay_s else 0,
            "timeout_s": self.timeout_s,
        }


def board_of(store: Any, agent: str = AGENT) -> Board:
    """Return a board of a store or transaction that may write below `durable/`."""
    return own_board(store, agent=agent)


def task_value(
    run: str, waiting_for: tuple[str, ...] = (), due_us: int = 0, error: str | None = None
) -> dict[str, Any]:
    """Return the value of a task's entry."""
    return {"run": run, "waiting_for": list(waiting_for), "due": due_us, "error": error}


def task_key_of(value: Mapping[str, Any]) -> str:
    """Return the key of a run's task."""
    return keys.task_key(value["queue"], value.get("partition"), value["workflow"], value["id"])


def delay_of(due_us: int) -> float | None:
    """Return the delay in seconds until a due time in microseconds since the epoch. Return None if it is 0 or past."""
    left_us = due_us - clock().now_us() if due_us else 0
    return left_us / 1e6 if left_us > 0 else None


FAR_S: Final = 10 * 365 * 86400.0
"""The delay, in seconds, of a task whose run waits for an event without a time limit."""


def find(store: Any, run: str) -> Entry:
    """Return the entry of a run. Raises RunNotFoundError."""
    found = board_of(store).get(keys.run_key(run))
    if found is None:
        raise RunNotFoundError(f"there is no run {run!r} in this store", run=run)
    return found


# --- the beginning -------------------------------------------------------------------------------


def create(store: Store, start: Start) -> bool:
    """Begin a run, after the other runs of its thread. Return False if the run exists already.

    An ended run is opened again if its thread was rolled back to a version in which the run was active.

    Raises:
        ConflictError: a run has this id, but a different workflow, different arguments or a different thread.
    """
    for _ in range(_TRIES_MAX):
        held = board_of(store).get(keys.run_key(start.id))
        start = start.guarded(store)
        if held is not None:
            check_same(start, held.value)
            if not reopens(store, held):
                return False
        with contextlib.suppress(ConflictError):
            with store.transaction() as tx:
                stage_create(tx, store, start, held)
            return True
    raise ConflictError(
        f"run {start.id!r} could not begin, because of repeated conflicts with other writers", run=start.id
    )


def stage_create(tx: Any, store: Store, start: Start, held: Entry | None = None) -> None:
    """Stage the beginning of a run. With `held`, the entry of an ended run, stage the reopening of the run.

    The transaction raises ConflictError when it commits if another process has changed the entries.
    """
    start = start.guarded(store)
    board = board_of(tx)
    value = start.value()
    if held is None:
        value |= observers.started(store)
        board.create(keys.run_key(start.id), value)
        stage_deadline(board, value)
    else:
        kept = {**held.value, "status": "open"}
        for name in OF_THE_END:
            kept.pop(name, None)
        board.cas(keys.run_key(start.id), kept, expected_version=held.version)
        value = kept
    stage_turn(board, store, value)


def stage_turn(board: Board, store: Store, value: Mapping[str, Any]) -> None:
    """Add a run to the line of runs that wait for its thread. If the line was empty, create its task. Stage both."""
    key = keys.line_key(value["thread"], value["branch"])
    line = board_of(store).get(key)
    if line is None:
        board.create(key, [value["id"]])
        stage_task(board, value)
    elif line.value:
        board.cas(key, [*line.value, value["id"]], expected_version=line.version)


def stage_task(board: Board, value: Mapping[str, Any]) -> None:
    """Stage the task of a run, which may be claimed from the due time of the run on."""
    due_us = value.get("due", 0)
    made = task_value(value["id"], (), due_us)
    board.create(task_key_of(value), made, priority=value["priority"], delay_s=delay_of(due_us))


def time_of_start(value: Mapping[str, Any]) -> int:
    """Return the time from which the `timeout_s` of a run counts: the start of the run, or its last retry."""
    return int(value.get("retried", value["created"]))


def stage_deadline(board: Board, value: Mapping[str, Any]) -> None:
    """Stage the entry for the deadline of a run. A worker claims it when it is due, to end a run that has not begun."""
    if value["timeout_s"] is not None:
        due_us = time_of_start(value) + round(value["timeout_s"] * 1e6)
        made = {"run": value["id"], "due": due_us}
        board.create(keys.deadline_key(value["id"]), made, priority=PRIORITY_MAX, delay_s=delay_of(due_us))


def has_begun(store: Any, value: Mapping[str, Any], task: Entry | None) -> bool:
    """Return False if an open run has done nothing yet, and no process drives it. Such a run may end or change at once.

    Args:
        store: the store, or a snapshot of it.
        value: the value of the run's entry.
        task: the run's task, or None if it does not have one.
    """
    if task is None:  # The run may be waiting for its turn on its thread.
        line = board_of(store).get(keys.line_key(value["thread"], value["branch"]))
        if line is None or value["id"] not in line.value[1:]:
            return True
    else:
        # Earlier releases set `is_unknown` with an error on the task of a run that has not begun.
        has_error = task.value["error"] is not None and not task.value.get("is_unknown")
        has_stopped = bool(task.value["waiting_for"]) or has_error
        has_crashed = task.attempts > 0 or task.value.get("crashes", 0) > 0
        if task.claim is not None or has_stopped or has_crashed:
            return True
    return is_at_work(store, value)


def check_same(start: Start, held: Mapping[str, Any]) -> None:
    """Raise ConflictError if a start differs from `held`, the run with its id, in workflow, arguments or thread."""
    is_other = held["workflow"] not in (start.workflow, *start.aliases)
    if is_other or held["digest"] != digest_of(start.arguments):
        what = "a different workflow" if is_other else "different arguments"
        message = f"run {start.id!r} already exists with {what}: a repeated id must mean the same run"
        raise ConflictError(message, run=start.id, workflow=held["workflow"], arguments=tuple(held["args"]))
    if held["thread"] != start.thread and not held.get("forked"):
        message = f"run {start.id!r} is in thread {held['thread']!r}, not in {start.thread!r}"
        raise ConflictError(message, run=start.id, thread=held["thread"])


def reopens(store: Store, held: Entry) -> bool:
    """Return True if an ended run must continue, because its thread was rolled back to before the end of the run."""
    return held.value["status"] in ENDED and is_at_work(store, held.value)


def thread_of(held: Any, value: Mapping[str, Any], schema: object = None) -> Any:
    """Return the thread of a run from `held`, a store or a transaction."""
    return held.thread(value["thread"], branch=value["branch"], schema=schema)


def wake_if_it_can_continue(store: Store, run: str) -> bool:
    """Wake a suspended run if its thread was rolled back, or if a child that it waits for can continue.

    Return True if the run was woken.
    """
    value = find(store, run).value
    task = board_of(store).get(task_key_of(value))
    if task is None or task.claim is not None or not task.value["waiting_for"] or "items" not in task.value:
        return False
    state = thread_of(store, value).state
    header, held = state.get(HEADER), state.get(STEPS)
    is_there = header is not None and header["run"] == value["id"]
    is_as_it_was = task.value["items"] == (len(held or ()) if is_there else 0)
    if is_as_it_was and not _child_can_continue(store, task.value["waiting_for"]):
        return False
    wake(store, run)
    return True


def _child_can_continue(store: Store, waiting_for: Sequence[str]) -> bool:
    """Return True if a child that a run waits for, or a child of that child, may be driven now."""
    for child in (label.removeprefix("run ") for label in waiting_for if label.startswith("run ")):
        task = board_of(store).get(task_key_of(find(store, child).value))
        if task is None or task.claim is not None:
            continue
        if task.ready is None or task.ready <= datetime.now(UTC):
            return True
        if _child_can_continue(store, task.value["waiting_for"]):
            wake(store, child)
            return True
    return False


def is_at_work(store: Any, value: Mapping[str, Any]) -> bool:
    """Return True if the head of a run's thread names this run as the active run."""
    header = thread_of(store, value).state.get(HEADER)
    return header is not None and bool(header["run"] == value["id"])


# --- waking ------------------------------------------------------------------------------------


def stage_wake_up(tx: Any, store: Any, value: Mapping[str, Any], *, is_at_once: bool = False) -> None:
    """Stage the wake-up of a suspended run. With `is_at_once`, also wake a run whose beginning or retry is delayed.

    The transaction may raise ConflictError when it commits. Then the caller must read and stage again.
    """
    key = task_key_of(value)
    task = board_of(store).get(key)
    if task is not None:
        due_us = 0 if is_at_once or task.value["waiting_for"] else task.value["due"]
        kept = {**task.value, "due": due_us}
        agent = AGENT if task.claim is None or task.claim.holder is None else task.claim.holder
        how: dict[str, Any] = {"priority": task.priority, "delay_s": delay_of(due_us)}
        # Write even if nothing changes: a process that is about to suspend the run compares the version.
        board_of(tx, agent).cas(key, kept, expected_version=task.version, **how)


def skip_retry_delay(store: Store, run: str) -> None:
    """Allow a run that has stopped with an error to be claimed now, without its delay."""
    value = find(store, run).value
    task = board_of(store).get(task_key_of(value))
    if task is not None and task.claim is None and task.value.get("error") and not task.value["waiting_for"]:
        retried(store, lambda tx: stage_wake_up(tx, store, value, is_at_once=True))


def wake(store: Store, run: str) -> None:
    """Wake a run now, whatever it waits for."""

    def work(tx: Any) -> None:
        stage_wake_up(tx, store, find(store, run).value, is_at_once=True)

    retried(store, work)


def is_version_conflict(error: ConflictError) -> bool:
    """Return True if a commit was refused because an entry or thread has changed since it was read.

    The facts of such an error contain a version. The ConflictErrors that this package itself raises do not have a
    version, and are not retried.
    """
    return "actual_version" in error.facts or "version" in error.facts


def retried(store: Store, work: Any) -> Any:
    """Call `work` in a transaction, commit, and return its result. Repeat if data that `work` has read was changed.

    Raises:
        ConflictError: `work` has raised it, or each of 1,000 attempts conflicted with other writes.
    """
    for _ in range(_TRIES_MAX):
        try:
            with store.transaction() as tx:
                result = work(tx)
        except ConflictError as error:
            if not is_version_conflict(error):
                raise
            continue
        return result
    raise ConflictError("repeated conflicts with other writers")


def error_of_end(run: str, status: str, error: object) -> RunFailedError | RunCancelledError:
    """Return the error for a run that has failed or was cancelled."""
    kind, what = (RunCancelledError, "was cancelled") if status == "cancelled" else (RunFailedError, "has failed")
    return kind(f"run {run!r} {what}: {error}", run=run, error=error)


def check_open(value: Mapping[str, Any]) -> None:
    """Raise RunEndedError if a run has ended."""
    if value["status"] in ENDED:
        message = f"run {value['id']!r} has ended: its status is {value['status']}"
        raise RunEndedError(message, run=value["id"], status=value["status"])
