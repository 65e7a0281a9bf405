"""Kills processes around a tool that needs an approval, and shows what remains of the conversation.

`python -m statelog.adapters.openai_agents.atomic_demo` prints the table of GUIDE.md. It compares a session of a store
with the recipe of the SDK's guide: SQLiteSession, and the RunState in a file.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SQLITE, OURS = "sqlite", "statelog"
BEFORE, AFTER, NEVER = "before its commit", "after it", "never"
FIRST, RESUMED = "first", "resumed"
_PROCESSES_MAX = 5


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """The state after a process has finished the turn, or cannot continue it.

    Attributes:
        refunds: the number of times that the tool ran.
        kinds: the number of items of each kind in the conversation.
        is_lost: whether the run that waited for an approval is lost.
    """

    refunds: int
    kinds: dict[str, int]
    is_lost: bool

    @property
    def is_whole(self) -> bool:
        """Whether the conversation has exactly one question, call, output and answer."""
        return self.kinds == {"user": 1, "function_call": 1, "function_call_output": 1, "message": 1}


def demonstrate(kind: str, point: str, killed: str) -> TurnOutcome:
    """Run processes until one finishes. Kill either the first process or the one that resumes.

    Args:
        kind: `SQLITE` or `OURS`.
        point: `BEFORE` or `AFTER`: when to kill the process, relative to the write that follows `Runner.run`.
        killed: `FIRST` or `RESUMED`: which process to kill.
    """
    with tempfile.TemporaryDirectory() as folder:
        told: dict[str, Any] = {}
        for number in range(_PROCESSES_MAX):
            is_killed = number == (0 if killed == FIRST else 1)
            command = [sys.executable, "-m", __spec__.name, kind, folder, point if is_killed else NEVER]
            done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - this program itself
            if done.returncode == -signal.SIGKILL:
                continue
            if done.returncode:
                raise RuntimeError(done.stderr)
            told = json.loads(done.stdout.splitlines()[-1])
            if not told["waits"]:
                break
        ran = Path(folder, "refunds")
        refunds = ran.read_text().count("\n") if ran.exists() else 0
        return TurnOutcome(refunds, told["kinds"], told["is_lost"])


def _write_state(path: Path, result: Any) -> None:
    if result.interruptions:
        path.write_text(json.dumps(result.to_state().to_json()))
    else:
        path.unlink(missing_ok=True)


async def _process(kind: str, folder: Path, killed_at: str) -> None:
    """Begin the turn in this process, or approve the waiting run and resume it."""
    from agents import Agent, Runner, RunState, SQLiteSession, function_tool, set_tracing_disabled
    from agents.testing import ScriptedModel
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    from statelog.adapters.openai_agents import StatelogSession

    set_tracing_disabled(disabled=True)

    @function_tool(needs_approval=True)
    def refund(order: int) -> str:
        with (folder / "refunds").open("a") as file:
            file.write(f"order {order}\n")
        return "refunded"

    call = ResponseFunctionToolCall(
        id="f1", call_id="c1", type="function_call", name="refund", arguments='{"order": 7}'
    )
    said = ResponseOutputText(text="done", type="output_text", annotations=[])
    answer = ResponseOutputMessage(id="m1", type="message", role="assistant", status="completed", content=[said])
    agent = Agent(name="refunds", tools=[refund])
    waiting = folder / "state.json"

    def die_if(point: str) -> None:
        if killed_at == point:
            os.kill(os.getpid(), signal.SIGKILL)

    session: Any
    state: Any = None
    if kind == OURS:
        session = StatelogSession.open("ticket", folder / "agent.state")
        state = await session.pending(agent)
        if killed_at == BEFORE:
            session._write = lambda *_args, **_options: die_if(BEFORE)  # noqa: SLF001 - the process dies at its commit
    else:
        session = SQLiteSession("ticket", folder / "sessions.db")
        if waiting.exists():
            state = await RunState.from_json(agent, json.loads(waiting.read_text()))
    items = await session.get_items()
    is_over = bool(items) and items[-1].get("type") == "message"
    is_lost = state is None and bool(items) and not is_over
    waits = False
    if not is_lost and not is_over:
        if state is not None:
            state.approve(state.get_interruptions()[0])
        agent.model = ScriptedModel(steps=[[call], [answer]] if state is None else [[answer]])
        given = "refund order 7" if state is None else state
        if kind == OURS:
            result = await session.run(agent, given)
        else:
            result = await Runner.run(agent, given, session=session)
            die_if(BEFORE)
            _write_state(waiting, result)
        die_if(AFTER)
        waits = bool(result.interruptions)
        items = await session.get_items()
    kinds = Counter(str(item.get("type") or item.get("role")) for item in items)
    print(json.dumps({"waits": waits, "kinds": kinds, "is_lost": is_lost}))  # noqa: T201 - read by the parent process


def main() -> None:
    """Print the table."""
    for kind, point in ((SQLITE, BEFORE), (OURS, BEFORE), (OURS, AFTER)):
        for killed in (FIRST, RESUMED):
            found = demonstrate(kind, point, killed)
            left = "the RunState is lost" if found.is_lost else "one of each" if found.is_whole else f"{found.kinds}"
            print(f"{kind:9}killed {point:18}in the {killed:8}process: {found.refunds} refunds, {left}")  # noqa: T201


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(_process(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
    else:
        main()
