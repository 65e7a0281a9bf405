"""Compares `StatelogDurability` with DBOSDurability on SQLite: an agent run of five model requests and four tool calls.

The time of the agent without durability is subtracted from both.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from dbos import DBOS, DBOSConfig
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

import statelog
from benchmarks.adapters.measurement import Stopwatch
from benchmarks.result import Result, at_most
from statelog.adapters.pydantic_ai import StatelogDurability

if TYPE_CHECKING:
    from benchmarks.result import TargetCheck
    from benchmarks.workload import Bench

RUNS = 40
TOOLS = 4


def measure(bench: Bench) -> Result:
    """Measure runs of nine durable operations."""
    bench.directory.mkdir(parents=True, exist_ok=True)
    return Result((asyncio.run(_measure(bench)),), ())


def _model(messages: list[Any], _info: object) -> ModelResponse:
    done = sum(part.part_kind == "tool-return" for message in messages for part in message.parts)
    return ModelResponse(parts=[TextPart("done") if done == TOOLS else ToolCallPart("work", {"n": done})])


async def _work(n: int) -> str:
    return f"result {n}" * 20


async def _measure(bench: Bench) -> TargetCheck:
    folder, clock = bench.directory, Stopwatch()
    config: DBOSConfig = {"name": "bench", "system_database_url": f"sqlite:///{folder / 'dbos.sqlite'}"}
    DBOS(config=config)
    store = statelog.open(folder / "pydantic-ai.state")
    durability: Any = StatelogDurability(store)
    theirs = Agent(FunctionModel(_model), name="theirs", capabilities=[DBOSDurability()])
    ours = Agent(FunctionModel(_model), name="ours", capabilities=[durability])
    theirs.tool_plain(DBOS.step()(_work), name="work")  # DBOSDurability requires a DBOS step.
    plain: Any = Agent(FunctionModel(_model), name="plain")
    for agent in (ours, plain):
        agent.tool_plain(_work, name="work")

    @DBOS.workflow()
    async def flow() -> str:
        return str((await theirs.run("go")).output)

    DBOS.launch()
    try:
        for number in range(bench.size(RUNS, at_least=10)):
            with clock("theirs"):
                await flow()
            with clock("ours"):
                async with durability.run(f"run-{number}"):
                    await ours.run("go")
            with clock("plain"):
                await plain.run("go")
    finally:
        DBOS.destroy()
        store.close()
    ours_s, theirs_s = (clock.median_s(name) - clock.median_s("plain") for name in ("ours", "theirs"))
    return at_most("pydantic-ai: nine durable operations, relative to DBOS's on SQLite", ours_s / theirs_s, 0.3)
