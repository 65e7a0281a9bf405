"""Ends runs that have not begun, after a cancellation or a timeout.

Such a run waits in a queue, or for its turn on its thread. It has not recorded any step, so there is nothing to undo.
It ends in one commit, and its workflow is not called.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from statelog.durable.clock import clock
from statelog.durable.endings import stage_end
from statelog.durable.keys import run_key
from statelog.durable.runs import ENDED, board_of, find, has_begun, retried, task_key_of, time_of_start
from statelog.errors import LeaseLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from statelog.store.claims import Claim
    from statelog.store.snapshot import Snapshot
    from statelog.store.store import Store

PATTERN: Final = "durable/deadlines/*"
"""Matches the keys of all deadlines. A deadline's entry is due when the time of its run is up."""

_LOOK_AGAIN_S: Final = 5.0
"""The delay before the next check of an overdue run that a process drives, because the process may release it."""


def stage_cancellation(tx: Any, store: Store, run: str) -> bool:
    """Stage the end of a cancelled run. Return False if the run has begun or has ended."""
    with store.snapshot() as seen:
        return _stage(tx, seen, run, "cancelled", lambda _value: "it was cancelled")


def end_overdue(store: Store, run: str) -> bool:
    """End a run if its time is up and it has not begun. Return True if this call has ended the run."""
    value = find(store, run).value
    timeout_s = value["timeout_s"]
    if timeout_s is None or time_of_start(value) + round(timeout_s * 1e6) > clock().now_us():
        return False
    is_ended: bool = retried(store, lambda tx: _stage_failure(tx, store, run))
    return is_ended


def end_claimed(store: Store, claim: Claim) -> None:
    """End the run of a claimed deadline if it has not begun. Otherwise, its next operation notices the timeout."""

    def work(tx: Any) -> bool:
        if _stage_failure(tx, store, claim.value["run"]):
            return True
        entry = board_of(store).get(run_key(claim.value["run"]))
        task = None if entry is None else board_of(store).get(task_key_of(entry.value))
        if task is not None and task.claim is not None:
            return False
        board_of(tx).delete(claim.key, fence=claim)
        return True

    with suppress(LeaseLostError):  # Another worker has handled the deadline, or the run has ended.
        if not retried(store, work):
            claim.fail("its run is driven", retry_in_s=_LOOK_AGAIN_S)


def _stage_failure(tx: Any, store: Store, run: str) -> bool:
    """Stage the failure of a run whose time is up. Return False if the run has begun or has ended."""

    def say(value: Mapping[str, Any]) -> str:
        return f"TimeoutError: the run took longer than {value['timeout_s']:g} s"

    with store.snapshot() as seen:
        return _stage(tx, seen, run, "failed", say)


def _stage(tx: Any, seen: Snapshot, run: str, status: str, say: Callable[[Mapping[str, Any]], str]) -> bool:
    """Stage the end of a run that has not begun. Return False if the run has begun or has ended.

    All reads use the snapshot `seen`. A worker may claim the run, or its turn may come, at any time. So the transaction
    fails if the entries have changed since the snapshot.
    """
    entry = board_of(seen).get(run_key(run))
    if entry is None or entry.value["status"] in ENDED:
        return False
    task = board_of(seen).get(task_key_of(entry.value))
    if has_begun(seen, entry.value, task):
        return False
    stage_end(tx, seen, entry, task, {"status": status, "error": say(entry.value), "checkpoint": None})
    return True
