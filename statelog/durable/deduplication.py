"""Deduplication keys. If an open run of the same queue has the key of a new start, the start returns this run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.durable.keys import dedup_key, run_key
from statelog.durable.runs import (
    ENDED,
    board_of,
    check_same,
    delay_of,
    has_begun,
    reopens,
    retried,
    stage_create,
    task_key_of,
    task_value,
)
from statelog.errors import ConflictError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from statelog.durable.runs import Start
    from statelog.store.board import Board
    from statelog.store.entries import Entry
    from statelog.store.store import Store


def create_once(store: Store, start: Start, *, is_debounced: bool) -> str:
    """Begin a run, unless a run with its deduplication key is open. Return the id of the new or open run.

    Args:
        store: the store.
        start: the start of the run, with a deduplication key.
        is_debounced: if the open run has not begun, give it the arguments and the due time of this start.

    Raises:
        ConflictError: as `create`; or the open run has a different workflow.
    """
    start = start.guarded(store)
    assert start.dedup is not None
    key = dedup_key(start.queue, start.dedup)

    def work(tx: Any) -> str:
        outside = board_of(store)
        held = outside.get(key)
        entry = None if held is None else outside.get(run_key(held.value["run"]))
        if entry is not None and entry.value["status"] not in ENDED:
            if entry.value["workflow"] not in (start.workflow, *start.aliases):
                message = (
                    f"run {entry.value['id']!r} of queue {start.queue!r} has this dedup_key, "
                    f"but is a run of workflow {entry.value['workflow']!r}"
                )
                raise ConflictError(message, run=entry.value["id"], workflow=entry.value["workflow"])
            if is_debounced:
                _stage_new_arguments(tx, store, entry, start)
            return str(entry.value["id"])
        there = outside.get(run_key(start.id))
        if there is not None:
            check_same(start, there.value)
            if not reopens(store, there):
                return start.id
        board_of(tx).cas(key, {"run": start.id}, expected_version=0 if held is None else held.version)
        stage_create(tx, store, start, there)
        return start.id

    return str(retried(store, work))


def _stage_new_arguments(tx: Any, store: Store, entry: Entry, start: Start) -> None:
    """Stage the arguments and the due time of `start` for an open run, if that run has not begun."""
    task = board_of(store).get(task_key_of(entry.value))
    if has_begun(store, entry.value, task):
        return
    new = start.value()
    value = {**entry.value, **{name: new[name] for name in ("args", "kwargs", "digest", "due")}}
    board = board_of(tx)
    board.cas(entry.key, value, expected_version=entry.version)
    if task is not None:
        made = task_value(value["id"], (), value["due"])
        delay_s = delay_of(value["due"])
        board.cas(task.key, made, expected_version=task.version, priority=task.priority, delay_s=delay_s)


def stage_forgotten(board: Board, store: Any, value: Mapping[str, Any]) -> None:
    """Stage the removal of a run's deduplication key, because the run ends."""
    held = board_of(store).get(dedup_key(value["queue"], value["dedup"]))
    if held is not None and held.value["run"] == value["id"]:
        board.delete(held.key, expected_version=held.version)
