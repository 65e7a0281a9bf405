"""The outbox: what a run emits leaves after its commit, at least once, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.durable.clock import clock, moment_of
from statelog.durable.keys import (
    check_part,
    delivery_key,
    outbox_directory,
    parked_directory,
    text_digest,
)
from statelog.durable.runs import board_of, retried
from statelog.durable.values import recorded
from statelog.errors import MessageNotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from statelog.store.entries import Entry
    from statelog.store.store import Store

_SUFFIX_SIZE = 8
_SHOWN = ("id", "topic", "payload", "run", "thread", "branch", "checkpoint", "gate", "attempts")


@dataclass(frozen=True, slots=True)
class Message:
    """What a run has emitted, or that a gate of it waits for an answer (topic `gate/opened`).

    Attributes:
        id: the same at every delivery, and no other message has it: who gets it twice knows by it.
        checkpoint: id of the checkpoint in which it was emitted.
        gate: id of the gate that waits, if it tells of one.
        time: when it was emitted.
        place: its name among the messages of its run, for `redeliver`.
        attempts: how often the subscriber that refused it most has done so.
        error: the last refusal: what was answered, or raised. Of a webhook neither the URL nor the text of the answer.
        due: when it is tried again, None: at once, or not at all.
        is_parked: whether a subscriber has refused it for good.
    """

    id: str
    topic: str
    payload: Any
    run: str
    thread: str
    branch: str
    checkpoint: str
    gate: str | None
    time: datetime
    place: str
    attempts: int
    error: str | None
    due: datetime | None
    is_parked: bool


def check_topic(topic: str) -> None:
    """Refuse what is no topic: names, with slashes between them. Raises UsageError, LimitError."""
    if not isinstance(topic, str):
        raise UsageError(f"a topic is a text, not {topic!r}", argument="topic", value=topic)
    for part in topic.split("/"):
        check_part("topic", part)


class Emitted(NamedTuple):
    """What a run emits with a commit."""

    topic: str
    payload: Any
    gate: str | None = None
    """Id of the gate of which it tells."""


def stage_message(tx: Any, value: Mapping[str, Any], place: str, emitted: Emitted, checkpoint: str) -> None:
    """Stage a message in the transaction of what it tells. Raises UsageError, ValueTypeError, LimitError."""
    check_topic(emitted.topic)
    run = value["id"]
    board = board_of(tx)
    digest = text_digest(f"{run}/{place}/{checkpoint}")
    message = {
        "id": f"msg_{digest}",
        "topic": emitted.topic,
        "payload": recorded(tx, emitted.payload, "payload"),
        "run": run,
        "thread": value["thread"],
        "branch": value["branch"],
        "checkpoint": checkpoint,
        "gate": emitted.gate,
        "time": clock().now_us(),
        "delivered": [],
        "attempts": 0,
    }
    # A run that was rolled back, or continued as new, comes to the same place again: both messages are to leave.
    board.create(f"{outbox_directory(run)}{place}-{digest[:_SUFFIX_SIZE]}", message)
    board.set(delivery_key(run), {"run": run})


def stage_withdrawal(tx: Any, store: Any, gate: str) -> None:
    """Stage that the message goes that a gate waits for its answer: nobody is to be told that any more."""
    outside, board = board_of(store), board_of(tx)
    run = gate.rpartition("/")[0]
    messages = outside.list(f"durable/outbox/{run}/*")
    told = [entry for entry in messages if entry.value["gate"] == gate]
    for entry in told:
        board.delete(entry.key, expected_version=entry.version)
    if told and len(told) == len(messages):
        delivery = outside.get(f"durable/deliver/{run}")
        if delivery is not None and delivery.claim is None:
            board.delete(delivery.key, expected_version=delivery.version)


def waiting(store: Any, run: str | None = None) -> list[Entry]:
    """Return the messages that wait, of each run in the order in which they were emitted."""
    return _listed(store, "durable/outbox/**" if run is None else f"{outbox_directory(run)}*")


def _listed(store: Any, pattern: str) -> list[Entry]:
    return sorted(board_of(store).list(pattern), key=order_of)


def order_of(entry: Entry) -> int:
    """Return the LSN with which a message was emitted. What is noted of it later changes its version."""
    return int(entry.value.get("order", entry.version))


def message_of(entry: Entry) -> Message:
    """Return a message as its entry says."""
    value = entry.value
    is_parked = entry.key.startswith("durable/outbox-parked/")
    dues = [each["due"] for each in value.get("refusals", {}).values() if each["due"]]
    return Message(
        **{name: value[name] for name in _SHOWN},
        time=moment_of(value["time"]),
        place=entry.key.rpartition("/")[2],
        error=value.get("error"),
        due=moment_of(min(dues)) if dues and not is_parked else None,
        is_parked=is_parked,
    )


def outbox(store: Store, *, parked: bool | None = None) -> list[Message]:
    """Return the messages that have not left, in the order in which they were emitted.

    Args:
        store: the store.
        parked: True: only those that a subscriber has refused for good. False: only those that wait.
    """
    if parked is not None and type(parked) is not bool:
        raise UsageError(f"parked is True, False or None, not {parked!r}", argument="parked", value=parked)
    found = [] if parked else waiting(store)
    if parked is not False:
        found += _listed(store, "durable/outbox-parked/**")
    return [message_of(each) for each in sorted(found, key=order_of)]


def redeliver(store: Store, run: str, place: str) -> None:
    """Have a parked message wait again, with all attempts before it, in front of what was emitted after it.

    Who had it does not get it again.

    Args:
        store: the store.
        run: id of its run.
        place: `Message.place`.

    Raises:
        MessageNotFoundError: no such message is parked. Facts: run, place.
    """
    parked = f"{parked_directory(run)}{place}"
    key = f"{outbox_directory(run)}{place}"

    def work(tx: Any) -> None:
        entry = board_of(store).get(parked)
        if entry is None:
            message = f"no parked message {place!r} of run {run!r} in this store"
            raise MessageNotFoundError(message, run=run, place=place)
        value = {name: each for name, each in entry.value.items() if name not in ("refusals", "error")}
        board = board_of(tx)
        board.delete(parked, expected_version=entry.version)
        board.create(key, {**value, "attempts": 0})
        board.set(delivery_key(run), {"run": run})

    retried(store, work)
