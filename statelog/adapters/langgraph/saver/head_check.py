"""Checks that a saver makes for `resume_or_start`: no other run overtakes the run, and no answer is used twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.adapters.langgraph.values.names import ANSWERS, AT_HEAD, NO_TASK
from statelog.errors import ConflictError

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import CheckpointMetadata, CheckpointTuple

    from statelog.adapters.langgraph.values.names import AtHead, CheckpointName


def is_at_head(config: RunnableConfig, asked: CheckpointName, metadata: CheckpointMetadata) -> bool:
    """Return True if the config's `AtHead` requires a checkpoint to continue the last checkpoint of its thread.

    Raises:
        ConflictError: the run begins at a checkpoint that `resume_or_start` has not seen.
    """
    run: AtHead = config["configurable"][AT_HEAD]
    if run.thread_id != asked.thread_id or asked.namespace:  # A node may run a different graph with this config.
        return False
    if metadata.get("source") == "input" and asked.id != run.checkpoint_id:
        message = f"thread {asked.thread_id!r}: another run has continued it in the meantime, so the input was not used"
        raise ConflictError(
            message, thread=asked.thread_id, expected_version=run.checkpoint_id or None, actual_version=asked.id
        )
    return True


def without_used_answer(config: RunnableConfig, found: CheckpointTuple) -> CheckpointTuple:
    """Return a checkpoint without the thread's last answer, if a run continues after it and a task has used it.

    Otherwise LangGraph would also use the answer for the task's next question.
    """
    run: AtHead = config["configurable"][AT_HEAD]
    if not run.is_answered:
        return found
    writes = found.pending_writes or []
    answers = [write for write in writes if write[1] == ANSWERS]
    last = next((write for write in answers if write[0] == NO_TASK), None)
    if last is None or not any(write[0] != NO_TASK and write[2] and write[2][-1] == last[2] for write in answers):
        return found
    return found._replace(pending_writes=[write for write in writes if write is not last])
