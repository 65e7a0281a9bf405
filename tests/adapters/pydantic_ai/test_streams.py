"""Streamed runs of agents in a durable run: killed and resumed, they ask no model again."""

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pydantic_ai.conversation_store")

from pydantic_ai import Agent
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.run import AgentRunResultEvent

import statelog
from statelog import durable
from statelog.adapters.pydantic_ai import StatelogDurability

TOOLS = 2


def agent_of(durability, called, *, chunk=None, tool=None):
    """Return an agent of a model that only streams; `chunk` and `tool` are called in the midst of each."""

    async def model(messages, _info):
        done = sum(part.part_kind == "tool-return" for message in messages for part in message.parts)
        called(f"model{done}")
        if done < TOOLS:
            yield {0: DeltaToolCall("work", f'{{"n": {done}}}')}
            return
        yield "al"
        if chunk is not None:
            await chunk()
        yield "l done"

    agent = Agent(FunctionModel(stream_function=model), name="a", capabilities=[durability])

    @agent.tool_plain
    async def work(n: int) -> str:
        called(f"tool{n}")
        if tool is not None:
            await tool(n)
        return f"result{n}"

    return agent


async def by_stream(agent):
    async with agent.run_stream("go") as result:
        return "".join([text async for text in result.stream_text(delta=True, debounce_by=None)])


async def by_events(agent):
    async with agent.run_stream_events("go") as events:
        [output] = [event.result.output async for event in events if isinstance(event, AgentRunResultEvent)]
    return output


async def by_nodes(agent):
    async with agent.iter("go") as run:
        async for node in run:
            if Agent.is_model_request_node(node) or Agent.is_call_tools_node(node):
                async with node.stream(run.ctx) as events:
                    async for _event in events:
                        pass
        return run.result.output


async def by_handler(agent):
    async def handler(_context, events):
        async for _event in events:
            pass

    return (await agent.run("go", event_stream_handler=handler)).output


WAYS = {way.__name__: way for way in (by_stream, by_events, by_nodes, by_handler)}


@pytest.fixture
def held(tmp_path):
    with statelog.open(tmp_path / "a.state") as store:
        yield store


@pytest.mark.parametrize("way", WAYS)
def test_a_streamed_run_is_replayed_without_a_call(held, way):
    async def work():
        durability, calls = StatelogDurability(held), []
        agent = agent_of(durability, calls.append)
        for _time in range(2):
            async with durability.run("r"):
                assert await WAYS[way](agent) == "all done"
        assert calls == ["model0", "tool0", "model1", "tool1", "model2"]

    asyncio.run(work())
    assert durable.get_run(held, "r").status == "completed"


def test_in_a_run_a_response_is_handed_out_once_it_is_recorded(held):
    async def work():
        durability, calls = StatelogDurability(held), []

        async def chunks():
            async with agent.run_stream("go") as result:
                return [text async for text in result.stream_text(delta=True, debounce_by=None)]

        agent = agent_of(durability, calls.append)
        assert await chunks() == ["al", "l done"]
        for _time in range(2):
            async with durability.run("r"):
                assert await chunks() == ["all done"]

    asyncio.run(work())


def test_iteration_that_was_left_is_left_again(held):
    async def work():
        durability, calls = StatelogDurability(held), []
        agent = agent_of(durability, calls.append)
        for _time in range(2):
            async with durability.run("r"), agent.iter("go") as run:
                async for node in run:
                    if Agent.is_model_request_node(node):
                        async with node.stream(run.ctx) as events:
                            assert [event async for event in events]
                        break
        assert calls == ["model0"]

    asyncio.run(work())
    assert durable.get_run(held, "r").status == "completed"


KILLED = """
import asyncio, os, sys
from pathlib import Path

import statelog
from statelog.adapters.pydantic_ai import StatelogDurability
sys.path.insert(0, sys.argv[2])
from test_streams import WAYS, agent_of

folder, way = Path(sys.argv[1]), WAYS[sys.argv[3]]

def called(what):
    with (folder / "calls").open("a") as file:
        file.write(what + "\\n")

def die_once(what):
    if not (folder / what).exists():
        (folder / what).touch()
        os.kill(os.getpid(), 9)

async def chunk():
    die_once("chunk")

async def tool(n):
    if n == 1:
        die_once("tool")

async def main():
    with statelog.open(folder / "a.state") as store:
        durability = StatelogDurability(store)
        agent = agent_of(durability, called, chunk=chunk, tool=tool)
        async with durability.run("one"):
            print(await way(agent))

asyncio.run(main())
"""


@pytest.mark.parametrize("way", WAYS)
def test_killed_in_a_tool_and_in_a_response_only_these_are_begun_again(tmp_path, way):
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(Path(__file__).parent), way]
    for returncode in (-signal.SIGKILL, -signal.SIGKILL, 0):
        made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        assert made.returncode == returncode, made.stderr
    assert made.stdout.strip() == "all done"
    calls = Counter((tmp_path / "calls").read_text().split())
    assert calls == {"model0": 1, "tool0": 1, "model1": 1, "tool1": 2, "model2": 2}
