"""An agent of pydantic-ai is killed in a tool and continued. No model request is made twice.

    python -m statelog.examples.pydantic_ai_killed

It needs pydantic-ai, but no network, because the model is a function.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import statelog


def _model(messages: list[Any], _info: object) -> Any:
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

    done = sum(part.part_kind == "tool-return" for message in messages for part in message.parts)
    print("the model is asked, bookings so far:", done, flush=True)
    return ModelResponse(parts=[TextPart("booked") if done == 2 else ToolCallPart("book", {"night": done})])


async def _book(night: int) -> str:
    folder = Path(sys.argv[1])
    print("booking night", night, flush=True)
    if night == 1 and not (folder / "killed").exists():
        (folder / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "a room"


async def _travel(folder: Path) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.models.function import FunctionModel

    from statelog.adapters.pydantic_ai import StatelogDurability

    with statelog.open(folder / "agent.state") as store:
        durability: Any = StatelogDurability(store)
        agent = Agent(FunctionModel(_model), name="travel", capabilities=[durability])
        agent.tool_plain(_book, name="book")
        async with durability.run("trip-1"):
            print((await agent.run("two nights in Rome")).output)


def main() -> None:
    """Begin the trip in a process that is killed, and end it in another process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "statelog.examples.pydantic_ai_killed", folder]
        print("killed:", subprocess.run(command, check=False).returncode, flush=True)  # noqa: S603 - this program
        subprocess.run(command, check=True)  # noqa: S603 - this program


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(_travel(Path(sys.argv[1])))
    else:
        main()
