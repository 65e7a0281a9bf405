"""The outbox: what a run emits leaves after its commit, at least once, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.durable.clock import clock
from statelog.durable.naming import check_part, delivery_key, message_digest, outbox_directory
from statelog.durable.runs import board_of
from statelog.durable.values import storable
from statelog.errors import UsageError

if TYPE_CHECKING:
    from statelog.durable.execution import Execution


_SUFFIX_SIZE = 8


def check_topic(topic: str) -> None:
    """Refuse what is no topic: names, with slashes between them. Raises UsageError, LimitError."""
    if not isinstance(topic, str):
        raise UsageError(f"a topic is a text, not {topic!r}", argument="topic", value=topic)
    for part in topic.split("/"):
        check_part("topic", part)


def stage_message(
    tx: Any,
    execution: Execution,
    place: str,
    topic: str,
    payload: Any,
    *,
    checkpoint: str | None,
    gate: str | None = None,
) -> None:
    """Stage a message in the transaction of what it tells. Raises UsageError, ValueTypeError, LimitError."""
    check_topic(topic)
    run = execution.id
    board = board_of(tx)
    digest = message_digest(f"{run}/{place}/{checkpoint}")
    value = {
        "id": f"msg_{digest}",
        "topic": topic,
        "payload": storable(payload),
        "run": run,
        "thread": execution.value["thread"],
        "branch": execution.value["branch"],
        "checkpoint": checkpoint,
        "gate": gate,
        "time": clock().now_us(),
        "delivered": [],
        "attempts": 0,
    }
    # A run that was rolled back, or continued as new, comes to the same place again: both messages are to leave.
    board.create(f"{outbox_directory(run)}{place}-{digest[:_SUFFIX_SIZE]}", value)
    board.set(delivery_key(run), {"run": run})
