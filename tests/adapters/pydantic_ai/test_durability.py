"""Runs of agents: no model request and no tool call that was recorded is made again."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from contextvars import Context
from pathlib import Path

import pytest

pytest.importorskip("pydantic_ai.conversation_store")

from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

import statelog
from statelog import durable
from statelog.adapters.pydantic_ai import StatelogDurability
from statelog.errors import ConflictError, RunEndedError, StepFailedError

TOOLS = 4


def agent_of(durability, calls, *, is_parallel=False, tool=None):
    """Return an agent of four tool calls that counts what is called."""

    def model(messages, _info):
        done = sum(part.part_kind == "tool-return" for message in messages for part in message.parts)
        calls.append(f"model{done}")
        if done >= TOOLS:
            returned = [p.content for m in messages for p in m.parts if p.part_kind == "tool-return"]
            return ModelResponse(parts=[TextPart(" ".join(returned))])
        numbers = range(TOOLS) if is_parallel else [done]
        return ModelResponse(parts=[ToolCallPart("work", {"n": number}) for number in numbers])

    agent = Agent(FunctionModel(model), name="a", capabilities=[durability], retries=3)

    @agent.tool_plain
    async def work(n: int) -> str:
        calls.append(f"tool{n}")
        if tool is not None:
            await tool(n)
        return f"result{n}"

    return agent


@pytest.fixture
def held(tmp_path):
    with statelog.open(tmp_path / "a.state") as store:
        yield store


EXPECTED = "result0 result1 result2 result3"


def test_a_run_that_has_ended_is_replayed_without_a_call(held):
    async def work():
        durability, calls = StatelogDurability(held), []
        agent = agent_of(durability, calls)
        for _time in range(2):
            async with durability.run("evt-991"):
                assert (await agent.run("go")).output == EXPECTED
        assert Counter(calls) == Counter(
            f"{kind}{n}" for kind, most in (("model", 5), ("tool", 4)) for n in range(most)
        )

    asyncio.run(work())
    info = durable.get_run(held, "evt-991")
    assert (info.status, info.workflow) == ("completed", "pydantic-ai")
    assert sum("model.request" in step.name for step in durable.steps(held, "evt-991")) == 5


def test_outside_of_a_run_nothing_is_recorded(held):
    calls, before = [], held.last_lsn
    agent = agent_of(StatelogDurability(held), calls)
    assert asyncio.run(agent.run("go")).output == EXPECTED
    assert held.last_lsn == before


def test_parallel_tools_keep_their_results_whichever_ends_first(held):
    async def work():
        durability, calls, order, begun = StatelogDurability(held), [], [3, 1, 0, 2], asyncio.Event()

        async def in_order(n):
            if n == 2 and calls.count("tool2") == 1:
                begun.set()
                await asyncio.sleep(60)
            await asyncio.sleep(0.01 * order.index(n))

        agent = agent_of(durability, calls, is_parallel=True, tool=in_order)

        async def once():
            async with durability.run("r"):
                return (await agent.run("go")).output

        task = asyncio.create_task(once())
        await begun.wait()
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await once() == EXPECTED
        assert Counter(calls) == Counter({"model0": 1, "tool0": 1, "tool1": 1, "tool2": 2, "tool3": 1, "model4": 1})

    asyncio.run(work())


def test_a_tools_request_to_the_model_is_recorded(held):
    async def work():
        durability, calls = StatelogDurability(held), []

        async def refuses_once(n):
            if n == 1 and calls.count("tool1") == 1:
                raise ModelRetry("again")

        agent = agent_of(durability, calls, tool=refuses_once)
        for _time in range(2):
            async with durability.run("r"):
                assert "again" in (await agent.run("go")).output
        assert calls.count("tool1") == 1

    asyncio.run(work())


def agent_with(durability, tool, seen):
    """Return an agent that calls one tool, and notes the keys of the arguments as its model has them."""

    def model(messages, _info):
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("work", {"z": 1, "a": 2})])
        seen.append(list(messages[1].parts[0].args))
        return ModelResponse(parts=[TextPart("done")])

    agent = Agent(FunctionModel(model), name="a", capabilities=[durability])
    agent.tool_plain(tool, name="work")
    return agent


def test_arguments_and_results_of_tools_keep_the_order_of_their_keys(held):
    returned, seen = {"z": 1, "a": {"y": [{"q": 1, "b": 2}], "b": 3}, "m": None}, []

    def tool(z: int, a: int):
        return returned | {"sum": z + a}

    async def work():
        durability = StatelogDurability(held)
        agent = agent_with(durability, tool, seen)
        for _time in range(2):
            async with durability.run("r"):
                result = await agent.run("go")
            assert json.dumps(result.all_messages()[2].parts[0].content) == json.dumps(returned | {"sum": 3})
        assert seen == [["z", "a"]]

    asyncio.run(work())


def test_a_tool_result_that_holds_itself_fails_the_run(held):
    def tool(z: int, a: int):
        cycle = {"sum": z + a}
        cycle["self"] = cycle
        return cycle

    async def work():
        durability = StatelogDurability(held)
        agent = agent_with(durability, tool, [])
        for _time in range(2):
            with pytest.raises(StepFailedError, match="Circular reference"):
                async with durability.run("r"):
                    await agent.run("go")

    asyncio.run(work())
    assert durable.get_run(held, "r").status == "failed"


def test_an_ended_run_refuses_another_agent_run(held):
    async def work():
        durability, calls = StatelogDurability(held), []
        agent = agent_of(durability, calls)

        async def prompt(*prompts):
            async with durability.run("r"):
                for each in prompts:
                    await agent.run(each)

        await prompt("go")
        with pytest.raises(RunEndedError):
            await prompt("go", "go on")
        assert calls.count("model0") == 1

    asyncio.run(work())


def test_two_processes_are_not_in_one_run(held, tmp_path):
    async def work(other):
        async with StatelogDurability(held).run("r"):
            with pytest.raises(ConflictError):
                await asyncio.get_running_loop().create_task(enter(other), context=Context())

    async def enter(other):
        async with StatelogDurability(other).run("r"):
            raise AssertionError("two are in")

    with statelog.open(tmp_path / "a.state") as other:
        asyncio.run(work(other))


KILLED = """
import asyncio, os, sys
from pathlib import Path

import statelog
from statelog.adapters.pydantic_ai import StatelogDurability
sys.path.insert(0, sys.argv[2])
from test_durability import agent_of

folder = Path(sys.argv[1])

class Calls(list):
    def append(self, what):
        with (folder / "calls").open("a") as file:
            file.write(what + "\\n")

async def die_once(n):
    if not (folder / f"killed{n}").exists():
        (folder / f"killed{n}").touch()
        os.kill(os.getpid(), 9)

async def main():
    with statelog.open(folder / "a.state") as store:
        durability = StatelogDurability(store)
        agent = agent_of(durability, Calls(), tool=die_once, is_parallel=sys.argv[3] == "parallel")
        async with durability.run("one"):
            print((await agent.run("go")).output)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["sequential", "parallel"])
def test_killed_in_each_of_four_tools_no_model_call_is_repeated(tmp_path, how):
    folder = str(Path(__file__).parent)
    for _process in range(TOOLS + 1):
        made = subprocess.run(
            [sys.executable, "-c", KILLED, str(tmp_path), folder, how],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
    assert made.returncode == 0, made.stderr
    assert made.stdout.strip() == EXPECTED
    calls = Counter((tmp_path / "calls").read_text().split())
    assert all(count == 1 for what, count in calls.items() if what.startswith("model"))
    if how == "sequential":
        assert all(calls[f"tool{n}"] == 2 for n in range(TOOLS))
