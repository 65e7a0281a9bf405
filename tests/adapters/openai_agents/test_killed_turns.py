"""A turn whose process is killed at any fault point is in the conversation whole, or not at all."""

from __future__ import annotations

import asyncio

import pytest

agents = pytest.importorskip("agents")

from agents import Agent, Runner, function_tool  # noqa: E402
from agents.testing import ScriptedModel  # noqa: E402
from forked import Nursery  # noqa: E402
from openai.types.responses import (  # noqa: E402
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

import statelog  # noqa: E402
from statelog.adapters.kit.ordered import Json  # noqa: E402
from statelog.adapters.openai_agents import StatelogSession  # noqa: E402
from statelog.adapters.openai_agents.conversation import RUN  # noqa: E402

agents.set_tracing_disabled(disabled=True)

CALL = ResponseFunctionToolCall(id="f", call_id="c", type="function_call", name="refund", arguments='{"order": 7}')
SAID = ResponseOutputText(text="done", type="output_text", annotations=[])
ANSWER = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[SAID])
EARLIER = ["user", "message"]
WAITING = [*EARLIER, "user", "function_call"]
ENDED = [*WAITING, "function_call_output", "message"]


@function_tool(needs_approval=True)
def refund(order: int) -> str:
    return f"refunded {order}"


def agent(*steps):
    return Agent(name="a", model=ScriptedModel(steps=[list(step) for step in steps]), tools=[refund])


async def state_to_go_on_with(session):
    state = await session.pending(agent([ANSWER]))
    state.approve(state.get_interruptions()[0])
    return state


# --- what a process does --------------------------------------------------------------


async def first_turn(session):
    await session.run(agent([ANSWER]), "hi")


async def turn_that_waits(session):
    assert (await session.run(agent([CALL]), "refund order 7")).interruptions


async def streamed_turn_that_waits(session):
    result = await session.run_streamed(agent([CALL]), "refund order 7")
    async for _event in result.stream_events():
        pass


async def turn_that_goes_on(session):
    await session.run(agent([ANSWER]), await state_to_go_on_with(session))


async def turn_in_two_commits(session):
    """Be what `run` must not be: the SDK's runner adds the items, and then the state is kept."""
    result = await Runner.run(agent([CALL]), "refund order 7", session=session)
    waiting = Json.of(result.to_state().to_json())
    session.store.thread(session.thread_id).commit({RUN: waiting})


def with_session(path, act, begin=lambda: None, end=lambda: None):
    with statelog.open(path) as store:
        begin()
        asyncio.run(act(StatelogSession("s", store)))
        end()


def after_one_turn(path):
    with_session(path, first_turn)


def while_one_waits(path):
    after_one_turn(path)
    with_session(path, turn_that_waits)


def killed_at_first(path, begin, end):
    with_session(path, first_turn, begin, end)


def killed_as_it_waits(path, begin, end):
    with_session(path, turn_that_waits, begin, end)


def killed_streamed(path, begin, end):
    with_session(path, streamed_turn_that_waits, begin, end)


def killed_as_it_goes_on(path, begin, end):
    with_session(path, turn_that_goes_on, begin, end)


def killed_in_two_commits(path, begin, end):
    with_session(path, turn_in_two_commits, begin, end)


# --- what another process finds ---------------------------------------------------------


async def found(session):
    kinds = [item.get("type") or item["role"] for item in await session.get_items()]
    turns = [turn["content"] for turn in await session.get_conversation_turns()]
    return kinds, turns, await session.pending(agent()) is not None


BEFORE = {
    "killed_at_first": ([], [], False),
    "killed_as_it_waits": (EARLIER, ["hi"], False),
    "killed_as_it_goes_on": (WAITING, ["hi", "refund order 7"], True),
}
AFTER = {
    "killed_at_first": (EARLIER, ["hi"], False),
    "killed_as_it_waits": (WAITING, ["hi", "refund order 7"], True),
    "killed_as_it_goes_on": (ENDED, ["hi", "refund order 7"], False),
}
BEFORE["killed_streamed"] = BEFORE["killed_in_two_commits"] = BEFORE["killed_as_it_waits"]
AFTER["killed_streamed"] = AFTER["killed_in_two_commits"] = AFTER["killed_as_it_waits"]
MADE = {"killed_at_first": None, "killed_as_it_goes_on": "while_one_waits"}
AGAIN = {"killed_at_first": first_turn, "killed_as_it_goes_on": turn_that_goes_on}


def look_at(deaths, work):
    """Check what each death has left, and that the turn can begin again where it is not there. Count both."""
    lost = kept = 0
    for death in deaths:
        with statelog.open(death.path) as store:
            session = StatelogSession("s", store)
            left = asyncio.run(found(session))
            assert left in (BEFORE[work], AFTER[work]), death
            assert left == AFTER[work] or not death.is_acknowledged, death
            if left == BEFORE[work]:
                lost += 1
                asyncio.run(AGAIN.get(work, turn_that_waits)(session))
            else:
                kept += 1
            assert asyncio.run(found(session)) == AFTER[work], death
            assert store.verify().ok
    return lost, kept


@pytest.fixture(scope="module")
def nursery():
    with Nursery(__file__) as forking:
        yield forking


@pytest.mark.parametrize("work", ["killed_at_first", "killed_as_it_waits", "killed_streamed", "killed_as_it_goes_on"])
def test_a_turn_is_there_whole_or_begins_again(nursery, tmp_path, work):
    deaths = nursery.deaths(work, tmp_path, before=MADE.get(work, "after_one_turn"))
    assert all(count > 2 for count in look_at(deaths, work)), "killed before the commit, and after it"


def test_a_turn_in_two_commits_is_caught(nursery, tmp_path):
    work = "killed_in_two_commits"
    with pytest.raises(AssertionError, match="Death"):
        look_at(nursery.deaths(work, tmp_path, before="after_one_turn"), work)
