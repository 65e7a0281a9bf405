"""Pauses of an agent with `checkpointing=True`. A pause can be resumed only once, with the messages that it had."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from statelog.errors import ConflictError, UsageError

if TYPE_CHECKING:
    from strands import Agent
    from strands.agent.agent_result import AgentResult

__all__ = ["pause_of", "resume"]

_CHECKPOINT, _KEPT = "checkpoint", "messages_digest"


def pause_of(agent: Agent, result: AgentResult) -> dict[str, Any]:
    """Return a pause as JSON values: the framework's checkpoint, and the digest of the messages before it.

    Args:
        agent: the agent that has paused.
        result: the result of the agent's call, with the stop reason "checkpoint".

    Raises:
        UsageError: the result is not a pause.
    """
    if result.checkpoint is None:
        message = f"the agent did not pause: it stopped with {result.stop_reason!r}"
        raise UsageError(message, stop_reason=result.stop_reason)
    return {_CHECKPOINT: result.checkpoint.to_dict(), _KEPT: _digest(agent)}


def resume(agent: Agent, pause: Mapping[str, Any]) -> dict[str, Any]:
    """Return the prompt that resumes a pause: `agent(resume(agent, pause))`.

    Args:
        agent: an agent with the messages of the session.
        pause: the result of `pause_of`.

    Raises:
        ConflictError: the messages differ from the pause's messages, so it was resumed before, or the session has
            continued. No tool has run.
        UsageError: `pause` is not a result of `pause_of`.
    """
    if not isinstance(pause, Mapping) or pause.keys() != {_CHECKPOINT, _KEPT}:
        message = "`pause` must be a result of `pause_of`, not the framework's checkpoint"
        raise UsageError(message)
    if pause[_KEPT] != _digest(agent):
        message = "the session has continued since this pause: resume the pause of its last result"
        raise ConflictError(message, checkpoint=pause[_CHECKPOINT], messages=len(agent.messages))
    return {"checkpointResume": {"checkpoint": dict(pause[_CHECKPOINT])}}


def _digest(agent: Agent) -> str:
    """Return the digest of an agent's messages. It includes call ids, so it differs after a repeated call."""
    text = json.dumps(agent.messages, sort_keys=True, default=lambda value: {"bytes": bytes(value).hex()})
    return blake2b(text.encode(), digest_size=20).hexdigest()
