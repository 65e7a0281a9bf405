"""Functions for programs outside a run: answer its gates, send it mail, cancel it, read its events."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from statelog.durable import keys
from statelog.durable.clock import clock, moment_of
from statelog.durable.deadlines import stage_cancellation
from statelog.durable.endings import unpark
from statelog.durable.infos import get_run
from statelog.durable.outbox import stage_withdrawal
from statelog.durable.runs import ENDED, board_of, check_open, find, retried, stage_wake_up, wake
from statelog.durable.values import check_names, decode, encode, recorded
from statelog.durable.workflows import check_number, check_text
from statelog.errors import ConflictError, GateNotFoundError, RunNotFoundError, UsageError

if TYPE_CHECKING:
    from datetime import datetime

    from statelog.durable.infos import RunInfo
    from statelog.store.store import Store

_SLICE_S = 0.5


@dataclass(frozen=True, slots=True)
class Gate:
    """A point at which a run waits for an answer.

    Attributes:
        status: `pending`, `answered`, `late` (nobody answered in time), or `closed` (the run has ended, or has
            cancelled the wait).
    """

    id: str
    name: str
    run: str
    thread: str
    payload: Any
    status: str
    opened: datetime
    due: datetime | None
    approved: bool | None
    by: str | None


def gates(store: Store, *, pending: bool | None = None, run: str | None = None) -> list[Gate]:
    """Return the gates of a store, the oldest first.

    Args:
        store: the store.
        pending: True for the gates that wait for an answer, False for the other gates, None for all.
        run: the id of the run whose gates are returned; None for all runs.
    """
    pattern = "durable/gates/**" if run is None else f"durable/gates/{keys.check_run_id(run)}/*"
    found = [_gate_of(entry.value) for entry in board_of(store).list(pattern)]
    chosen = [each for each in found if pending is None or (each.status == "pending") is pending]
    return sorted(chosen, key=lambda each: each.opened)


def _gate_of(value: dict[str, Any]) -> Gate:
    answer = value["answer"] or {}
    due = moment_of(value["due"]) if value["due"] else None
    fields = (value["id"], value["name"], value["run"], value["thread"], value["payload"], value["status"])
    return Gate(*fields, moment_of(value["opened"]), due, answer.get("approved"), answer.get("by"))


def answer(store: Store, gate_id: str, *, approved: bool, payload: Any = None, by: str | None = None) -> Gate:
    """Answer a gate. A worker wakes up and continues the run. Without a worker, `durable.run` continues the run.

    Args:
        store: the store.
        gate_id: see `gates`.
        approved: the value of `answer.approved` in the workflow.
        payload: the value of `answer.payload` in the workflow.
        by: the name of the person or program that answers.

    Raises:
        GateNotFoundError: there is no such gate. Facts: gate.
        ConflictError: the gate was answered, its time is up, or its run has ended. Facts: gate, status, by.
        ValueTypeError, LimitError: the answer cannot be stored, or the run cannot record it. The gate stays open.
    """
    if type(approved) is not bool:
        raise UsageError(f"approved must be True or False, not {approved!r}", argument="approved", value=approved)
    if by is not None and not isinstance(by, str):
        raise UsageError(f"by must be a str, not {by!r}", argument="by", value=by)
    payload = recorded(store, payload, "answer")
    given = decode(encode({"approved": approved, "payload": payload, "by": by, "is_timeout": False}, "answer"))
    key = keys.gate_key(gate_id)

    def work(tx: Any) -> dict[str, Any]:
        entry = board_of(store).get(key)
        if entry is None:
            raise GateNotFoundError(f"there is no gate {gate_id!r} in this store", gate=gate_id)
        value: dict[str, Any] = entry.value
        is_late = 0 < value["due"] <= clock().now_us()
        if value["status"] != "pending" or is_late:
            status = "late" if value["status"] == "pending" else value["status"]
            held = (value["answer"] or {}).get("by")
            what = {"answered": f"was answered{f' by {held}' if held else ''}", "late": "was not answered in time"}
            message = f"gate {gate_id!r} {what.get(status, 'belongs to a run that has ended')}"
            raise ConflictError(message, gate=gate_id, status=status, by=held)
        changed = {**value, "status": "answered", "answer": given}
        board_of(tx).cas(key, changed, expected_version=entry.version)
        stage_withdrawal(tx, store, gate_id)
        stage_wake_up(tx, store, find(store, value["run"]).value)
        return changed

    return _gate_of(retried(store, work))


def send(store: Store, run: str, message: Any, *, topic: str = "default", idempotency_key: str | None = None) -> None:
    """Send a message to a run. The message is kept until the run receives it, or ends.

    Args:
        store: the store.
        run: the id of the run.
        message: the value that `run.recv` returns.
        topic: the topic that the run passes to `run.recv`.
        idempotency_key: the message is ignored if a message with the same key and topic still waits for the run.

    Raises:
        RunNotFoundError: there is no such run. RunEndedError: the run has ended.
        ValueTypeError, LimitError: the message cannot be stored. SecretError: the topic contains a secret.
    """
    given = recorded(store, message, "message")
    encode(given, "message")
    check_names(store, topic)
    if idempotency_key is not None:
        check_text("idempotency_key", idempotency_key)
    keys.run_key(run)
    name = uuid4().hex if idempotency_key is None else keys.text_digest(idempotency_key)
    key = f"{keys.mail_directory(run, topic)}{name}"

    def work(tx: Any) -> None:
        entry = find(store, run)
        check_open(entry.value)
        if board_of(store).get(key) is not None:
            return
        board_of(tx).create(key, {"message": given, "topic": topic})
        stage_wake_up(tx, store, entry.value)

    retried(store, work)


def get_event(store: Store, run: str, name: str, *, timeout_s: float = 0.0) -> Any:
    """Wait until a run has set an event, and return its value. Return None after `timeout_s`, or if the run has ended.

    Raises:
        RunNotFoundError: there is no such run.
    """
    check_number("timeout_s", timeout_s, least=0)
    key, deadline_s = keys.event_key(run, name), monotonic() + timeout_s
    while True:
        lsn = store.last_lsn
        entry = board_of(store).get(key)
        if entry is not None:
            return entry.value["value"]
        left_s = deadline_s - monotonic()
        if find(store, run).value["status"] in ENDED or left_s <= 0:
            return None
        with board_of(store).watch(key, after=lsn, timeout_s=min(left_s, _SLICE_S)) as events:
            next(events, None)


def cancel(store: Store, run: str) -> bool:
    """Cancel a run and its children. Return False if the run has ended.

    Each run stops at its next operation, and its compensations undo its steps. A step that is being called is
    interrupted only if it is async. If the run is waiting, the next worker or the next call of `run` undoes
    its steps. A run that has not begun ends at once.

    Raises:
        RunNotFoundError: there is no such run.
    """

    def work(tx: Any) -> bool:
        entry = find(store, run)
        if entry.value["status"] in ENDED:
            return False
        if stage_cancellation(tx, store, run):
            return True
        if not entry.value.get("cancel"):
            board_of(tx).cas(entry.key, {**entry.value, "cancel": True}, expected_version=entry.version)
            if entry.value["status"] != "parked":
                stage_wake_up(tx, store, entry.value, is_at_once=True)
        return True

    is_open: bool = retried(store, work)
    if is_open:
        unpark(store, run)
        for child in board_of(store).list(f"durable/children/{keys.check_run_id(run)}/*"):
            try:
                cancel(store, child.value["run"])
            except RunNotFoundError:
                continue
    return is_open


def resume(store: Store, run: str) -> RunInfo:
    """Continue a parked run, or make a suspended run check its waits now. A worker or `durable.run` then drives it.

    Raises:
        RunNotFoundError: there is no such run. RunEndedError: the run has ended.
    """
    check_open(find(store, run).value)
    unpark(store, run)
    wake(store, run)
    return get_run(store, run)
