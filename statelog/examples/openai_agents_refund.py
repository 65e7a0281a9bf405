"""An agent of the OpenAI Agents SDK asks before a refund. Another process answers after the first one has died.

`python -m statelog.examples.openai_agents_refund` needs no key: the model is a script.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from agents import Agent, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from statelog.adapters.openai_agents import StatelogSession

CALL = ResponseFunctionToolCall(id="f1", call_id="c1", type="function_call", name="refund", arguments='{"order": 7}')
SAID = ResponseOutputText(text="Order 7 is refunded.", type="output_text", annotations=[])
ANSWER = ResponseOutputMessage(id="m1", type="message", role="assistant", status="completed", content=[SAID])


@function_tool(needs_approval=True)
def refund(order: int) -> str:
    """Refund an order."""
    return f"order {order} refunded"


async def ask(path: Path) -> None:
    """Run until the tool waits for its approval. Then this process is killed."""
    session = StatelogSession.open("ticket-42", path)
    result = await session.run(Agent(name="a", model=ScriptedModel(steps=[[CALL]]), tools=[refund]), "Refund order 7")
    print(f"waits for {len(result.interruptions)} approval", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


async def answer(path: Path) -> str:
    """Approve the waiting call in another process, and continue."""
    session = StatelogSession.open("ticket-42", path)
    agent = Agent(name="a", model=ScriptedModel(steps=[[ANSWER]]), tools=[refund])
    state = await session.pending(agent)
    assert state is not None, "nothing waits"
    state.approve(state.get_interruptions()[0])
    result = await session.run(agent, state)
    session.close()
    return str(result.final_output)


def main() -> None:
    """Ask in a process that is killed, and answer in this one."""
    set_tracing_disabled(disabled=True)
    if len(sys.argv) > 1:
        asyncio.run(ask(Path(sys.argv[1])))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.state"
        command = [sys.executable, "-m", "statelog.examples.openai_agents_refund", str(path)]
        subprocess.run(command, check=False)  # noqa: S603 - this program
        print(asyncio.run(answer(path)))


if __name__ == "__main__":
    main()
