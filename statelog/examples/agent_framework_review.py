"""Review three drafts, and wait for a person before the last one. A new process continues a killed one.

    python -m statelog.examples.agent_framework_review agent.state          # up to the question
    python -m statelog.examples.agent_framework_review agent.state yes      # another process answers it

No model is called. Agent Framework saves a checkpoint after each superstep.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import Any

from agent_framework import Executor, WorkflowBuilder, WorkflowContext, handler, response_handler

import statelog
from statelog.adapters.agent_framework import StatelogCheckpointStorage

LAST = 3
NAME = "review"


@dataclass
class Question:
    """A question for a person."""

    text: str


class Reviewer(Executor):
    """Reads drafts one by one."""

    def __init__(self) -> None:
        super().__init__(id="reviewer")

    @handler(input=int, output=int, workflow_output=str)
    async def read(self, number: Any, context: WorkflowContext[Any, Any]) -> None:
        """Read a draft, and ask about the last one."""
        context.set_state("read", [*(context.get_state("read") or []), number])
        if number == LAST:
            await context.request_info(Question(f"publish draft {number}?"), str)
        else:
            await context.send_message(number + 1, target_id="reviewer")

    @response_handler(request=Question, response=str, workflow_output=str)
    async def decide(self, original_request: Any, response: Any, context: WorkflowContext[Any, Any]) -> None:  # noqa: ARG002 - by position
        """End the workflow with the person's answer."""
        await context.yield_output(f"read {context.get_state('read')}, publish: {response}")


async def drive(store: statelog.Store, answer: str | None) -> str:
    """Begin, or continue where the last process ended. Return the question or the output."""
    storage = StatelogCheckpointStorage(store, [f"{Question.__module__}:{Question.__qualname__}"])
    reviewer = Reviewer()
    builder = WorkflowBuilder(start_executor=reviewer, checkpoint_storage=storage, name=NAME)
    workflow = builder.add_edge(reviewer, reviewer).build()
    latest = await storage.get_latest(workflow_name=NAME)
    if latest is None:
        result = await workflow.run(1)
    elif answer is None:
        result = await workflow.run(checkpoint_id=latest.checkpoint_id)
    else:
        responses = dict.fromkeys(latest.pending_request_info_events, answer)
        result = await workflow.run(checkpoint_id=latest.checkpoint_id, responses=responses)
    outputs = result.get_outputs()
    return str(outputs[0] if outputs else result.get_request_info_events()[0].data.text)


if __name__ == "__main__":
    with statelog.open(sys.argv[1]) as opened:
        print(asyncio.run(drive(opened, sys.argv[2] if len(sys.argv) > 2 else None)))
