"""Ends the execution of a run: the run ends, is suspended, is parked, or begins again. Each of these is one commit."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from statelog.durable import keys, observers
from statelog.durable.clock import clock
from statelog.durable.deduplication import stage_forgotten
from statelog.durable.keys import HEADER, STEPS
from statelog.durable.outbox import stage_withdrawal
from statelog.durable.probes import call_probe
from statelog.durable.runs import (
    FAR_S,
    board_of,
    delay_of,
    find,
    is_version_conflict,
    retried,
    stage_task,
    stage_wake_up,
    task_key_of,
    task_value,
)
from statelog.errors import ConflictError, LeaseLostError, RunNotFoundError, StatelogError
from statelog.reducers import DROP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from statelog.durable.execution import Execution, Wait
    from statelog.store.claims import Claim
    from statelog.store.entries import Entry
    from statelog.store.store import Store

ATTEMPTS_MAX: Final = 20
"""A run is parked if its process has died this many times in a row (D20)."""


STOPPED_DELAY_S_MAX: Final = 60.0
"""The longest delay before a stopped run may be claimed again, in seconds."""


def end(execution: Execution, status: str, more: Mapping[str, Any]) -> None:
    """Record the end of a run, and let its thread's next run begin. Raises Stopped if the store refuses the commit."""
    store, claim = execution.store, execution.claim
    checkpoint = keys.new_checkpoint() if execution.has_header else None
    last = execution.deferred

    def work(tx: Any) -> None:
        task = board_of(store).get(task_key_of(execution.value))
        entry = find(store, execution.id)
        if checkpoint is not None:
            thread = execution.thread_in(tx)
            if last:  # Ends of waits must be in the version before the end of the run (D28).
                thread.commit({STEPS: last}, fence=claim)
            thread.commit({STEPS: DROP, HEADER: DROP}, fence=claim, id=checkpoint)
        stage_end(tx, store, entry, task, {**more, "status": status, "checkpoint": checkpoint}, fence=claim)

    _stopping(execution, "end", lambda: retried(store, work))
    if observers.observer is not None:
        observers.observer.ended(execution, status, more.get("error"), last)


def stage_end(
    tx: Any, seen: Any, entry: Entry, task: Entry | None, more: Mapping[str, Any], *, fence: Claim | None = None
) -> None:
    """Stage the end of a run (D17). It deletes the run's entries on the board, and wakes the runs that wait for it.

    The transaction may raise ConflictError when it commits. Then the caller must read and stage again.

    Args:
        tx: the transaction.
        seen: the store or a snapshot, from which further entries are read.
        entry: the run's entry.
        task: the run's task, or None if the run waits for its turn. Read it before further entries, or in one snapshot
            with them. Then a later wake-up changes the version of the task, and the transaction fails.
        more: the fields of the entry that describe the end: `status`, `checkpoint`, and `value` or `error`.
        fence: the claim under which the run was driven, or None if the run has not begun.
    """
    board = board_of(tx)
    value = {**entry.value, **more, "ended": clock().now_us()}
    board.cas(entry.key, value, expected_version=entry.version, fence=fence)
    if task is not None:  # If mail has just arrived, this write conflicts, and the retry deletes the mail.
        board.delete(task.key, expected_version=task.version)
    _next_of_thread(board, seen, value)
    _clear(tx, seen, value["id"])
    if value.get("dedup") is not None:
        stage_forgotten(board, seen, value)
    if value.get("timeout_s") is not None:
        board.delete(keys.deadline_key(value["id"]))
    for parent in dict.fromkeys(filter(None, (value.get("parent"), *value.get("waiters", ())))):
        with suppress(RunNotFoundError):
            stage_wake_up(tx, seen, find(seen, parent).value)


def _stopping(execution: Execution, what: str, work: Any) -> None:
    """Call `work`, which ends the execution. If the store refuses the commit, stop the execution and raise Stopped."""
    call_probe("before", execution.id, what)
    try:
        work()
    except StatelogError as error:
        raise execution.stopped(error) from error
    call_probe("after", execution.id, what)


def _next_of_thread(board: Any, store: Any, value: Mapping[str, Any]) -> None:
    """Remove a run from the line of runs that wait for its thread, and create a task for the next one. Stage both."""
    key = keys.line_key(value["thread"], value["branch"])
    line = board_of(store).get(key)
    waiting = [run for run in (line.value if line is not None else []) if run != value["id"]]
    if line is None:
        return
    if not waiting:
        board.delete(key, expected_version=line.version)
        return
    board.cas(key, waiting, expected_version=line.version)
    if line.value[0] == value["id"]:
        stage_task(board, find(store, waiting[0]).value)


def _clear(tx: Any, store: Any, run: str) -> None:
    """Stage the removal of a run's mail, and the closing of its open gates."""
    outside, board = board_of(store), board_of(tx)
    mail = f"durable/mail/{keys.check_run_id(run)}/"
    for entry in outside.list(f"{mail}**") if outside.children(mail) else ():  # `children` is cheaper than a pattern.
        board.delete(entry.key)
    for gate in _gates(store, run):  # This includes gates that were opened before a rollback.
        if gate.value["status"] == "pending":
            board.cas(gate.key, {**gate.value, "status": "closed"}, expected_version=gate.version)
            stage_withdrawal(tx, store, gate.value["id"])


def _gates(store: Any, run: str) -> list[Entry]:
    outside, gates = board_of(store), f"durable/gates/{keys.check_run_id(run)}/"
    return list(outside.list(f"{gates}*")) if outside.children(gates) else []


def suspend(execution: Execution, waits: Sequence[Wait]) -> bool:
    """Suspend a run until one of its waits ends. If one has ended already, return False: call the workflow again.

    Raises:
        Stopped: another process has ended the run or taken it over, or the store refuses the commit.
    """
    store, claim = execution.store, execution.claim
    assert claim is not None
    key = task_key_of(execution.value)
    execution.flush()
    while True:
        task = board_of(store).get(key)
        if task is None:
            message = f"the task of run {execution.id!r} no longer exists: another process has ended the run"
            raise execution.stopped(LeaseLostError(message, key=key, token=claim.token))
        execution.check_stop()
        if execution.is_cancelled and not execution.is_shielded:
            return False
        dues = [wait.due_us for wait in waits if wait.due_us]
        if execution.deadline_us:
            dues.append(execution.deadline_us)
        due_us = min(dues, default=0)
        if any(wait.is_ready() for wait in waits) or 0 < due_us <= clock().now_us():
            return False
        value = task_value(execution.id, tuple(dict.fromkeys(wait.label for wait in waits)), due_us)
        value["items"] = execution.recorded
        delay_s = delay_of(due_us) if due_us else FAR_S

        call_probe("before", execution.id, "suspension")
        try:
            with store.transaction() as tx:
                board = board_of(tx)
                board.delete(key, expected_version=task.version, fence=claim)
                board.create(key, value, priority=execution.value["priority"], delay_s=delay_s)
        except ConflictError as error:
            if not is_version_conflict(error):
                raise execution.stopped(error) from error
            continue  # The task was changed to wake the run, so the waits must be checked again.
        except StatelogError as error:
            raise execution.stopped(error) from error
        call_probe("after", execution.id, "suspension")
        if observers.observer is not None:
            observers.observer.suspended(execution, waits)
        return True


def restart(execution: Execution, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Record that a run begins again with new arguments, as `continue_as_new` requests. Raises Stopped."""
    store, claim = execution.store, execution.claim

    def work(tx: Any) -> None:
        entry = find(store, execution.id)
        visit = entry.value.get("visit", 0) + 1
        value = {**entry.value, "args": list(args), "kwargs": dict(kwargs), "visit": visit}
        value.pop("replaced", None)  # Drop the replaced results: their places now belong to different calls.
        if execution.has_header:
            execution.thread_in(tx).commit({STEPS: DROP, HEADER: DROP}, fence=claim)
        board_of(tx).cas(entry.key, value, expected_version=entry.version, fence=claim)
        for gate in _gates(store, execution.id):
            board_of(tx).delete(gate.key, expected_version=gate.version)
            stage_withdrawal(tx, store, gate.value["id"])

    def begin() -> None:
        retried(store, work)
        execution.leave()  # An abandoned branch may still run. It must not record its outcome.

    _stopping(execution, "beginning anew", lambda: execution.alone(begin))


def put_back(
    store: Store, value: Mapping[str, Any], claim: Claim, *, delay_s: float, error: str | None, backs_off: bool = False
) -> None:
    """Release a run that has stopped, so that a process may claim it after `delay_s`.

    With `backs_off`, the delay grows with the number of stops since the run was last suspended.
    """
    call_probe("before", value["id"], "return to its queue")
    key = task_key_of(value)
    task = board_of(store).get(key)
    if task is None or task.claim is None or task.claim.token != claim.token:
        return
    with store.transaction() as tx:
        board = board_of(tx)
        board.delete(key, fence=claim)
        stops = task.value.get("stops", 0) + 1
        if backs_off:
            delay_s = max(delay_s, min(2.0 ** min(stops - 1, 10), STOPPED_DELAY_S_MAX))
        due_us = clock().now_us() + round(delay_s * 1e6) if delay_s else 0
        made = {**task_value(value["id"], (), due_us, error), "stops": stops}
        board.create(key, made, priority=value["priority"], delay_s=delay_s or None)


def park(store: Store, run: str, claim: Claim, error: str) -> None:
    """Park a run: no process drives it until a person calls `resume`."""

    def work(tx: Any) -> None:
        entry = find(store, run)
        board = board_of(tx)
        board.cas(entry.key, {**entry.value, "status": "parked", "error": error}, expected_version=entry.version)
        board.delete(task_key_of(entry.value), fence=claim)

    retried(store, work)


def unpark(store: Store, run: str) -> None:
    """Open a parked run again, and stage its task. A run that is not parked does not change."""

    def work(tx: Any) -> None:
        entry = find(store, run)
        if entry.value["status"] != "parked":
            return
        value = {name: each for name, each in entry.value.items() if name != "error"}
        board = board_of(tx)
        board.cas(entry.key, {**value, "status": "open"}, expected_version=entry.version)
        stage_task(board, {**value, "due": 0})

    retried(store, work)
