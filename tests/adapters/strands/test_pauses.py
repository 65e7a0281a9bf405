"""Pauses of an agent: each is resumed once, also by other processes, and a stale one runs no tool."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("strands", exc_type=ImportError)

from strands import Agent, tool
from strands.models.model import Model
from strands.session import SnapshotSessionManager

from statelog.adapters.strands import StatelogStorage, pause_of, resume
from statelog.errors import ConflictError, UsageError

pytestmark = pytest.mark.filterwarnings("ignore")


class Scripted(Model):
    """A model that calls a tool with equal arguments and ids, or says a text, by how often it was asked."""

    def __init__(self, answers):
        self.answers = answers

    def update_config(self, **config): ...

    def get_config(self):
        return {}

    async def structured_output(self, *_args, **_options):
        yield {}

    async def stream(self, messages, *_args, **_options):
        answer = self.answers[sum(message["role"] == "assistant" for message in messages)]
        yield {"messageStart": {"role": "assistant"}}
        if answer == "call":
            yield {"contentBlockStart": {"start": {"toolUse": {"name": "pay", "toolUseId": "same"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": '{"amount": 7}'}}}}
        else:
            yield {"contentBlockDelta": {"delta": {"text": answer}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if answer == "call" else "end_turn"}}


class Desk:
    """Agents of one session, each as another process would make it; `paid` counts calls of the tool."""

    def __init__(self, store):
        self.store, self.paid = store, []

    def agent(self):
        @tool
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return "paid"

        sessions = SnapshotSessionManager(session_id="s", storage=StatelogStorage(self.store))
        model = Scripted(["call", "call", "done"])
        options = {"tools": [pay], "checkpointing": True, "agent_id": "a", "callback_handler": None}
        return Agent(model, session_manager=sessions, **options)

    def begin(self):
        """Ask; return the pause before the tool, as it comes back from where it was kept."""
        agent = self.agent()
        return json.loads(json.dumps(pause_of(agent, agent("pay 7 twice"))))

    def go_on(self, pause):
        agent = self.agent()
        return agent, agent(resume(agent, pause))


@pytest.fixture
def desk(store):
    return Desk(store)


def test_a_pause_resumed_twice_runs_no_tool_again_and_not_the_next(desk):
    before_tool = desk.begin()
    agent, result = desk.go_on(before_tool)
    after_tool = pause_of(agent, result)
    for _time in range(2):
        with pytest.raises(ConflictError, match="has continued since"):
            desk.go_on(before_tool)
    desk.go_on(after_tool)
    with pytest.raises(ConflictError):
        desk.go_on(before_tool)  # the same call again is due, with the same id and arguments
    assert desk.paid == [7]


def test_every_pause_in_its_turn_leads_to_the_end(desk):
    pause = desk.begin()
    reasons = []
    for _step in range(4):
        agent, result = desk.go_on(pause)
        reasons.append(result.stop_reason)
        pause = pause_of(agent, result) if result.checkpoint else None
    assert (reasons, pause, desk.paid) == (["checkpoint"] * 3 + ["end_turn"], None, [7, 7])


def test_a_pause_left_by_a_kill_is_resumed_from_the_session(desk):
    pause = desk.begin()
    resume(desk.agent(), pause)  # the process died before its tool
    desk.go_on(pause)
    assert desk.paid == [7]


def test_invalid_pauses_are_refused(desk):
    agent = desk.agent()
    result = agent("pay 7 twice")
    for wrong in (result.checkpoint.to_dict(), {}, None, {"checkpoint": {}}):
        with pytest.raises(UsageError, match="pause_of"):
            resume(agent, wrong)
    result.checkpoint = None
    with pytest.raises(UsageError, match="did not pause"):
        pause_of(agent, result)
