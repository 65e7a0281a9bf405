"""Erases runs, with everything that is recorded about them on the board."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.board import reads
from statelog.board.names import compile_pattern
from statelog.board.retention import keys_deleted
from statelog.durable import keys
from statelog.durable.endings import stage_end
from statelog.durable.runs import ENDED, board_of, find, retried, task_key_of
from statelog.errors import RunNotFoundError, ThreadNotFoundError
from statelog.store.session import session_of

if TYPE_CHECKING:
    from statelog.store.store import Store

_RUNS = "durable/runs/*"
_DIRECTORIES = ("mail", "gates", "events", "children", "outbox", "outbox-parked")


class RunOnBoard(NamedTuple):
    """The facts about a run that its board entry contains."""

    id: str
    thread: str
    parent: str | None


def runs_on_board(store: Store) -> list[RunOnBoard]:
    """Return all runs, the oldest first. A run with a deleted entry is included while the entry's history is kept."""
    board = board_of(store)
    values = [entry.value for entry in board.list(_RUNS)]
    values += [value for key in _deleted(store) if (value := _last_value(board.history(key))) is not None]
    values.sort(key=lambda value: value["created"])
    return [RunOnBoard(value["id"], value["thread"], value.get("parent")) for value in values]


def erase_run(store: Store, run: str) -> None:
    """Remove a run, its entries on the board, and their history. The thread of the run stays.

    An open run ends without its compensations. A process that drives the run stops at its next operation. If this
    process dies during the erasure, `runs_on_board` still returns the run.
    """

    def end(tx: Any) -> None:
        entry = find(store, run)
        if entry.value["status"] in ENDED:
            return
        task = board_of(store).get(task_key_of(entry.value))
        stage_end(tx, store, entry, task, {"status": "cancelled", "error": "the run was erased", "checkpoint": ""})

    with suppress(RunNotFoundError):
        retried(store, end)
    quoted, board = keys.check_run_id(run), board_of(store)
    with suppress(ThreadNotFoundError):
        store.delete_thread(f"statelog:stream/{quoted}")
    for directory in _DIRECTORIES:
        board.erase(f"durable/{directory}/{quoted}/**")
    for key in (f"durable/tasks/*/*/{quoted}", keys.deadline_key(run), keys.delivery_key(run)):
        board.erase(key)
    board.erase(keys.run_key(run))


def _deleted(store: Store) -> list[str]:
    with session_of(store).read() as view:
        board = reads.board_of(view)
        return [] if board is None else list(keys_deleted(view, board, compile_pattern(_RUNS)))


def _last_value(records: list[Any]) -> dict[str, Any] | None:
    return next((entry.value for entry in records if entry.value is not None), None)
