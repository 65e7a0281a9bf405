"""A saver over a store of a fleet: with `durability="sync"`, another machine continues the run of a lost one."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("langgraph.graph", reason="needs langgraph")

from graphs import chat, review
from langgraph.types import Command

from statelog.adapters.langgraph import StatelogSaver
from statelog.fleet import connect

CONFIG = {"configurable": {"thread_id": "42"}}
HOUR_MS = 3_600_000
"""So long that nothing is shipped by time: everything in the storage was waited for."""


@pytest.fixture
def machine(tmp_path):
    """Make machines that share a folder."""
    (tmp_path / "bucket").mkdir()
    return lambda name: connect(f"file://{tmp_path}/bucket", tmp_path / name)


def said(fleet, path):
    """Return the shipped messages."""
    fleet.restore("t", path)
    with StatelogSaver.open(path) as saver:
        values = chat().compile(checkpointer=saver).get_state(CONFIG).values
    return [message.content for message in values.get("messages", [])]


def test_only_with_sync_all_checkpoints_are_shipped_when_a_run_returns(machine, tmp_path):
    with machine("a").open("t", ship_ms=HOUR_MS) as store:
        graph = chat().compile(checkpointer=StatelogSaver(store))
        graph.invoke({"messages": [("user", "one")]}, CONFIG, durability="sync")
        assert said(machine("b"), tmp_path / "1.state") == ["one", "answer 1"]
        graph.invoke({"messages": [("user", "two")]}, CONFIG, durability="async")
        graph.invoke({"messages": [("user", "three")]}, CONFIG)
        assert said(machine("b"), tmp_path / "2.state") == ["one", "answer 1"]
        asyncio.run(graph.ainvoke({"messages": [("user", "four")]}, CONFIG, durability="sync"))
        assert said(machine("b"), tmp_path / "3.state")[-2:] == ["four", "answer 7"]


def test_each_superstep_is_shipped_before_the_next_one_begins(machine, tmp_path):
    with machine("a").open("t", ship_ms=HOUR_MS) as store:
        seen = []
        builder = chat()

        def look(_state):
            seen.append(said(machine("b"), tmp_path / "r.state"))
            return {"turns": 1}

        builder.add_node("look", look)
        builder.add_edge("answer", "look")
        graph = builder.compile(checkpointer=StatelogSaver(store))
        graph.invoke({"messages": [("user", "one")]}, CONFIG, durability="sync")
        assert seen == [["one", "answer 1"]]


def test_a_waiting_question_can_be_answered_on_another_machine(machine):
    """The last write of that run is the interrupt, and not a checkpoint."""
    late = machine("a").open("t", ship_ms=HOUR_MS)
    graph = review().compile(checkpointer=StatelogSaver(late))
    graph.invoke({"log": []}, CONFIG, durability="sync")
    with machine("b").open("t", takeover="now") as store:
        graph = review().compile(checkpointer=StatelogSaver(store))
        [question] = graph.get_state(CONFIG).interrupts
        assert question.value == "first question"
        graph.invoke(Command(resume="yes"), CONFIG, durability="sync")
        assert graph.get_state(CONFIG).interrupts[0].value == "second question"


def test_acknowledge_remote_holds_for_every_durability(machine, tmp_path):
    with machine("a").open("t", ship_ms=HOUR_MS, acknowledge="remote") as store:
        graph = chat().compile(checkpointer=StatelogSaver(store))
        graph.invoke({"messages": [("user", "one")]}, CONFIG)
        assert said(machine("b"), tmp_path / "1.state") == ["one", "answer 1"]
