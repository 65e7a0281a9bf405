"""Operations that wait for a time, a gate, mail, or a child."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from statelog.durable import keys
from statelog.durable.clock import clock, moment_of
from statelog.durable.execution import RECORDED, Suspended, Wait
from statelog.durable.outbox import Emitted, stage_withdrawal
from statelog.durable.runs import ENDED, FAR_S, Start, board_of, check_same, error_of_end, find, stage_create
from statelog.durable.steps import pause
from statelog.durable.values import arguments_item, digest_of, encode, guarded, recorded, storable, typed
from statelog.durable.workflows import check_number
from statelog.errors import (
    ConflictError,
    LeaseLostError,
    NondeterminismError,
    StatelogError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from statelog.durable.execution import Execution
    from statelog.durable.workflows import Workflow
    from statelog.store.entries import Entry

GATE_OPENED: Final = "gate/opened"
"""The topic of the messages that report waiting gates."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a gate.

    Attributes:
        approved: True if the request was approved. False if it was refused, or nobody answered in time.
        payload: the payload that was given with the answer.
        by: the name of the person or program that answered, or None.
        is_timeout: True if nobody answered in time.
    """

    approved: bool
    payload: Any = None
    by: str | None = None
    is_timeout: bool = False


def due_of(timeout_s: float | None) -> int:
    """Return the time at which a wait ends, in microseconds since the epoch; 0 for never. Raises UsageError."""
    if timeout_s is None:
        return 0
    return clock().now_us() + round(min(check_number("timeout_s", timeout_s, least=0), FAR_S) * 1e6)


def _is_over(due_us: int) -> bool:
    return 0 < due_us <= clock().now_us()


async def take_sleep(execution: Execution, place: str, seconds: float) -> None:
    """Wait for `seconds` from the first call on. A replay does not wait again."""
    until_us = due_of(seconds)
    digest = digest_of(encode(float(seconds), "seconds"))
    if execution.begin(place, "sleep", "", digest) is not None:
        return
    begun = execution.record.begun.get(place)
    if begun is None:
        await execution.check_signals(place)
        begun = execution.begun(place, "sleep", "", digest, u=until_us)
        await execution.host.io(execution.commit, begun)
    if not _is_over(begun["u"]):
        await execution.check_signals(place)
        await pause(execution, begun["u"], "time")
    execution.defer(execution.done(place, "sleep", "", digest))


# --- gates -----------------------------------------------------------------------------------


async def take_gate(execution: Execution, place: str, name: str, payload: Any, timeout_s: float | None) -> Answer:
    """Return the answer of a gate. On the first call, open the gate. Raises Suspended if there is no answer yet."""
    due_us = due_of(timeout_s)
    keys.check_part("gate", name)
    digest = execution.digest_of(encode(payload, f"payload of gate {name!r}"))
    done = execution.begin(place, "gate", name, digest)
    if done is not None:
        return Answer(**done["r"])
    gate = keys.gate_id(execution.id, keys.visit_of(place, execution.visit))
    begun = execution.record.begun.get(place)
    if begun is None:
        await execution.check_signals(place)
        begun = execution.begun(place, "gate", name, digest, g=gate, u=due_us)
        await execution.host.io(_open_gate, execution, begun, payload)
    gate = begun["g"]
    given = await execution.host.io(_take_answer, execution, begun, payload)
    if given is not None:
        return Answer(**given)
    await execution.check_signals(place)
    raise Suspended(Wait(f"gate {gate}", begun["u"], lambda: _answered(execution, gate) is not None))


def _open_gate(execution: Execution, begun: Mapping[str, Any], payload: Any) -> None:
    gate = begun["g"]
    value = _gate_value(execution, begun, payload)

    def also(tx: Any) -> None:
        board_of(tx).set(keys.gate_key(gate), value)

    due = moment_of(begun["u"]).isoformat() if begun["u"] else None
    announcement = {"name": begun["n"], "payload": payload, "due": due}
    execution.commit(dict(begun), also=also, emitted=Emitted(GATE_OPENED, announcement, gate))


def _gate_value(execution: Execution, begun: Mapping[str, Any], payload: Any) -> dict[str, Any]:
    return {
        "id": begun["g"],
        "run": execution.id,
        "name": begun["n"],
        "thread": execution.value["thread"],
        "payload": recorded(execution.store, payload, "payload"),
        "status": "pending",
        "opened": begun["t"],
        "due": begun["u"],
        "answer": None,
    }


def _reopen_gate(execution: Execution, begun: Mapping[str, Any], payload: Any, entry: Entry | None) -> None:
    """Reopen a gate that the end of the run closed, because a rollback of the thread has undone this end."""
    value, version = _gate_value(execution, begun, payload), 0 if entry is None else entry.version
    try:
        with execution.store.transaction() as tx:
            board_of(tx).cas(keys.gate_key(begun["g"]), value, expected_version=version, fence=execution.claim)
    except ConflictError:
        return
    except StatelogError as error:
        raise execution.stopped(error) from error


def _answered(execution: Execution, gate: str) -> Mapping[str, Any] | None:
    entry = board_of(execution.store).get(keys.gate_key(gate))
    answer: Mapping[str, Any] | None = None if entry is None else entry.value["answer"]
    return answer


def _take_answer(execution: Execution, begun: Mapping[str, Any], payload: Any) -> Mapping[str, Any] | None:
    """Record and return the answer of a gate, or its timeout. Return None if there is neither."""
    key = keys.gate_key(begun["g"])
    while True:
        entry = board_of(execution.store).get(key)
        answer: Mapping[str, Any] | None = None if entry is None else entry.value["answer"]
        if answer is not None:
            execution.defer(execution.done(begun["p"], "gate", begun["n"], begun.get("a"), r=answer))
            return answer
        if execution.is_dry or not _is_over(begun["u"]):
            if not execution.is_dry and (entry is None or entry.value["status"] == "closed"):
                _reopen_gate(execution, begun, payload, entry)
            return None
        answer = {"approved": False, "payload": None, "by": None, "is_timeout": True}
        item = execution.done(begun["p"], "gate", begun["n"], begun.get("a"), r=answer)

        def late(tx: Any, entry: Entry | None = entry) -> None:
            if entry is not None:
                board_of(tx).cas(entry.key, {**entry.value, "status": "late"}, expected_version=entry.version)
                stage_withdrawal(tx, execution.store, begun["g"])

        try:
            execution.commit(item, also=late)
        except ConflictError:  # The gate was answered at the last moment.
            continue
        return answer


# --- mail ------------------------------------------------------------------------------------


async def take_mail(execution: Execution, place: str, topic: str, timeout_s: float | None) -> Any:
    """Return the next message of a topic, or None after a timeout. Raises Suspended if there is no message yet."""
    due_us = due_of(timeout_s)
    directory = keys.mail_directory(execution.id, topic)
    done = execution.begin(place, "recv", topic)
    if done is not None:
        return done.get("r")
    await execution.check_signals(place)
    replacement = execution.replacement(place, "recv", topic)
    if replacement is not None:
        await execution.host.io(execution.commit, execution.done(place, "recv", topic, r=replacement["r"]))
        return replacement["r"]
    if timeout_s is not None and place not in execution.record.begun:
        found = await execution.host.io(_take_message, execution, place, topic, 0)
        if found is not None:
            return found.get("r")
        await execution.host.io(execution.commit, execution.begun(place, "recv", topic, u=due_us))
    begun = execution.record.begun.get(place)
    until_us = 0 if begun is None else begun["u"]
    found = await execution.host.io(_take_message, execution, place, topic, until_us)
    if found is not None:
        return found.get("r")
    raise Suspended(Wait(f"mail {topic}", until_us, lambda: bool(_mail(execution, directory))))


def _mail(execution: Execution, directory: str) -> list[Entry]:
    return sorted(board_of(execution.store).list(f"{directory}*"), key=lambda each: each.version)


def _take_message(execution: Execution, place: str, topic: str, due_us: int) -> Mapping[str, Any] | None:
    """Record the oldest message, or the timeout, and return its item. Return None if there is neither."""
    directory = keys.mail_directory(execution.id, topic)
    while True:
        held = _mail(execution, directory)
        if not held and not _is_over(due_us):
            return None
        if not held:
            item = execution.done(place, "recv", topic, late=True)
            execution.commit(item)
            return item
        first = held[0]
        item = execution.done(place, "recv", topic, r=first.value["message"])

        def also(tx: Any, first: Entry = first) -> None:
            board_of(tx).delete(first.key, expected_version=first.version)

        try:
            execution.commit(item, also=also)
        except ConflictError:  # Another branch has taken the message.
            continue
        return item


# --- children ----------------------------------------------------------------------------------


async def take_child(
    execution: Execution,
    place: str,
    workflow: Workflow,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    id: str | None,
    drive: Any,
) -> Any:
    """Begin a child run, drive it here if no other process does, and return its result.

    Raises:
        Suspended: the child has not ended.
        RunFailedError, RunCancelledError: the child has failed or was cancelled.
    """
    run = keys.child_id(execution.id, keys.visit_of(place, execution.visit)) if id is None else id
    item = arguments_item(f"workflow {workflow.name!r}", workflow.function, args, kwargs, (), skip=1)
    item = guarded(execution.store, item, RECORDED)
    digest = digest_of(item)
    name = execution.name_at(place, "child", workflow.names)
    done = execution.begin(place, "child", name, digest)
    if done is not None:
        return execution.outcome(done, workflow.function)
    await execution.check_signals(place)
    replacement = execution.replacement(place, "child", name)
    if replacement is not None:
        result = replacement["r"]
        await execution.host.io(execution.commit, execution.done(place, "child", name, digest, r=result))
        return typed(workflow.function, "return", result)
    if place not in execution.record.begun:
        start = Start(
            workflow.name,
            item,
            storable(list(args)),
            storable(dict(kwargs)),
            run,
            run,
            queue=execution.value["queue"],
            priority=execution.value["priority"],
            parent=execution.id,
            aliases=workflow.aliases,
        )
        await execution.host.io(_begin_child, execution, place, digest, start)
    run = execution.record.begun[place]["c"]
    if not await execution.host.io(_has_ended, execution, run):
        try:
            await drive(run)
        except (LeaseLostError, NondeterminismError):
            pass  # The child continues in another process, or with other code.
        except StatelogError as failed:
            if type(failed) is UsageError:  # The child cannot be called here: it is async, and its parent is not.
                raise
            raise execution.stopped(failed) from failed
    value = (await execution.host.io(find, execution.store, run)).value
    if value["status"] not in ENDED:
        raise Suspended(Wait(f"run {run}", 0, lambda: _has_ended(execution, run)))
    if value["status"] == "completed":
        result = value.get("value")
        await execution.host.io(execution.commit, execution.done(place, "child", name, digest, r=result))
        return typed(workflow.function, "return", result)
    error = error_of_end(run, value["status"], value.get("error"))
    raise await execution.host.io(execution.record_failure, error, place, "child", name, digest)


def _has_ended(execution: Execution, run: str) -> bool:
    return find(execution.store, run).value["status"] in ENDED


def _begin_child(execution: Execution, place: str, digest: bytes, start: Start) -> None:
    while True:
        held = board_of(execution.store).get(keys.run_key(start.id))
        if held is not None:
            check_same(start, held.value)

        def also(tx: Any, held: Entry | None = held) -> None:
            if held is None:
                stage_create(tx, execution.store, start)
            elif held.value["status"] not in ENDED:  # The child began elsewhere. Its end must also wake this run.
                waiters = [*held.value.get("waiters", ()), execution.id]
                board_of(tx).cas(held.key, {**held.value, "waiters": waiters}, expected_version=held.version)
            board_of(tx).set(keys.child_key(execution.id, start.id), {"run": start.id})

        try:
            begun = execution.begun(place, "child", start.workflow, digest, c=start.id)
            execution.commit(begun, also=also)
        except ConflictError:
            continue
        return
