"""The outbox, which sends the messages of a run after their commit, at least once, in order."""

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
    """A message that a run has emitted, or the report that a gate waits for an answer (topic `gate/opened`).

    Attributes:
        id: the id of the message, which is the same in each delivery. A receiver detects repeated deliveries by it.
        checkpoint: the id of the checkpoint in which the message was emitted.
        gate: the id of the waiting gate, or None.
        time: the time at which the message was emitted.
        place: the name of the message within its run, for `redeliver`.
        attempts: the number of refusals by the subscriber that has refused the message most often.
        error: the answer or exception of the last refusal, without the URL of a webhook or the text of its answer.
        due: when the message is tried again; None if it may be sent at once, or is parked.
        is_parked: True if a subscriber has refused the message permanently.
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
    """Check a topic, which consists of names with slashes between them. Raises UsageError, LimitError."""
    if not isinstance(topic, str):
        raise UsageError(f"a topic must be a str, not {topic!r}", argument="topic", value=topic)
    for part in topic.split("/"):
        check_part("topic", part)


class Emitted(NamedTuple):
    """A message that a run emits with a commit."""

    topic: str
    payload: Any
    gate: str | None = None
    """The id of the gate that the message is about, or None."""


def stage_message(tx: Any, value: Mapping[str, Any], place: str, emitted: Emitted, checkpoint: str) -> None:
    """Stage a message in the transaction that the message reports. Raises UsageError, ValueTypeError, LimitError."""
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
    # The key has a digest, because a run may emit at the same place again, after a rollback or `continue_as_new`. Both
    # messages are sent.
    board.create(f"{outbox_directory(run)}{place}-{digest[:_SUFFIX_SIZE]}", message)
    board.set(delivery_key(run), {"run": run})


def stage_withdrawal(tx: Any, store: Any, gate: str) -> None:
    """Stage the removal of the message that reports an open gate, because the gate no longer waits."""
    outside, board = board_of(store), board_of(tx)
    run = gate.rpartition("/")[0]
    messages = outside.list(f"durable/outbox/{run}/*")
    of_gate = [entry for entry in messages if entry.value["gate"] == gate]
    for entry in of_gate:
        board.delete(entry.key, expected_version=entry.version)
    if of_gate and len(of_gate) == len(messages):
        delivery = outside.get(f"durable/deliver/{run}")
        if delivery is not None and delivery.claim is None:
            board.delete(delivery.key, expected_version=delivery.version)


def waiting(store: Any, run: str | None = None) -> list[Entry]:
    """Return the waiting messages of a run, or of all runs, in the order in which they were emitted."""
    return _listed(store, "durable/outbox/**" if run is None else f"{outbox_directory(run)}*")


def _listed(store: Any, pattern: str) -> list[Entry]:
    return sorted(board_of(store).list(pattern), key=order_of)


def order_of(entry: Entry) -> int:
    """Return the LSN at which a message was emitted. Later changes of its entry keep this LSN as `order`."""
    return int(entry.value.get("order", entry.version))


def message_of(entry: Entry) -> Message:
    """Return the message that an entry of the outbox contains."""
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
    """Return the messages that have not left the outbox, in the order in which they were emitted.

    Args:
        store: the store.
        parked: True for the parked messages, False for the waiting messages, None for both.

    Raises:
        UsageError: `parked` is not valid.
    """
    if parked is not None and type(parked) is not bool:
        raise UsageError(f"parked must be True, False or None, not {parked!r}", argument="parked", value=parked)
    found = [] if parked else waiting(store)
    if parked is not False:
        found += _listed(store, "durable/outbox-parked/**")
    return [message_of(each) for each in sorted(found, key=order_of)]


def redeliver(store: Store, run: str, place: str) -> None:
    """Put a parked message back into the outbox, before later messages of its run. Its attempts start from zero.

    Subscribers that already have the message do not get it again.

    Args:
        store: the store.
        run: the id of the run that emitted the message.
        place: the `Message.place` of the message.

    Raises:
        MessageNotFoundError: no such message is parked. Facts: run, place.
    """
    parked = f"{parked_directory(run)}{place}"
    key = f"{outbox_directory(run)}{place}"

    def work(tx: Any) -> None:
        entry = board_of(store).get(parked)
        if entry is None:
            message = f"run {run!r} has no parked message at {place!r} in this store"
            raise MessageNotFoundError(message, run=run, place=place)
        value = {name: each for name, each in entry.value.items() if name not in ("refusals", "error")}
        board = board_of(tx)
        board.delete(parked, expected_version=entry.version)
        board.create(key, {**value, "attempts": 0})
        board.set(delivery_key(run), {"run": run})

    retried(store, work)
