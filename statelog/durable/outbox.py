"""The outbox: what a run emits leaves after its commit, at least once, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.durable.clock import clock
from statelog.durable.naming import check_part, delivery_key, message_digest, outbox_directory
from statelog.durable.runs import board_of
from statelog.durable.values import storable

if TYPE_CHECKING:
    from statelog.durable.execution import Execution


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
    for part in str(topic).split("/"):
        check_part("topic", part)
    run = execution.id
    board = board_of(tx)
    value = {
        "id": f"msg_{message_digest(f'{run}/{place}/{checkpoint}')}",
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
    board.set(f"{outbox_directory(run)}{place}", value)
    board.set(delivery_key(run), {"run": run})
