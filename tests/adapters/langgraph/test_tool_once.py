"""A tool that drives a durable run pays once, wherever the process is killed, and however many processes resume."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

pytest.importorskip("langgraph")

from statelog import durable
from statelog.adapters.langgraph import StatelogSaver

PROGRAM = '''
import os, sys
from pathlib import Path
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, ToolRuntime, tools_condition
from statelog import durable
from statelog.adapters.langgraph import StatelogSaver
from statelog.errors import StepInterruptedError

folder, dies_at, way, count = Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3], int(sys.argv[4])


def reach(place):
    mark = folder / f"died-{place}"
    if place in dies_at and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), 9)


def note(name, key):
    with (folder / name).open("a") as file:
        file.write(f"{key}\\n")


def pay(key, amount):
    reach("before the payment")
    note("bank", key)
    reach("after the payment")
    return f"paid {amount}"


def find_payment(key, amount):
    reach("in the look-up")
    return f"paid {amount}" if (folder / "bank").exists() and key in (folder / "bank").read_text().split() else None


@durable.workflow
def pay_once(run, amount):
    while True:
        try:
            return run.step_with(durable.StepOptions(semantics="at_most_once"), pay, run.id, amount)
        except StepInterruptedError:
            found = run.step(find_payment, run.id, amount)
            if found is not None:
                return found


with StatelogSaver.open(folder / "agent.state") as saver:

    @tool
    def refund(amount: int, runtime: ToolRuntime) -> str:
        """Refund."""
        id = f"{runtime.config['configurable']['thread_id']}/{runtime.tool_call_id}"
        info = durable.run(saver.store, pay_once, amount, id=id, wait_s=60)
        reach("behind the run")
        return info.result()

    def model(state):
        note("asked", len(state["messages"]))
        if state["messages"][-1].type == "tool":
            return {"messages": [AIMessage("Done.")]}
        calls = [{"name": "refund", "args": {"amount": 7}, "id": f"call-{n}"} for n in range(count)]
        return {"messages": [AIMessage("", tool_calls=calls)]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("tools", ToolNode([refund]))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    graph = builder.compile(checkpointer=saver)
    config = {"configurable": {"thread_id": "t"}}
    state = graph.get_state(config)
    if state.next or not state.values:
        begin = None if state.next else {"messages": [("user", "refund")]}
        if way == "async":
            import asyncio
            asyncio.run(graph.ainvoke(begin, config, durability="sync"))
        else:
            graph.invoke(begin, config, durability="sync")
'''
PLACES = ["before the payment", "after the payment", "behind the run", "after the payment,in the look-up"]


@pytest.fixture
def start(tmp_path):
    def begin(dies_at="", way="sync", count=1):
        command = [sys.executable, "-c", PROGRAM, str(tmp_path), dies_at, way, str(count)]
        return subprocess.Popen(command, env=os.environ, stderr=subprocess.PIPE, text=True)

    return begin


def lines(folder, name):
    return (folder / name).read_text().split()


def ended(process):
    _out, errors = process.communicate(timeout=60)
    return process.returncode, errors


@pytest.mark.parametrize(
    ("dies_at", "way"),
    [
        *((place, "sync") for place in PLACES if place != "behind the run"),
        *(pytest.param(*case, marks=pytest.mark.soak) for case in [("behind the run", "sync"), (PLACES[1], "async")]),
    ],
)
def test_a_killed_tool_has_paid_once_and_its_answer_is_in_the_conversation(tmp_path, start, dies_at, way):
    kills = len(dies_at.split(","))
    codes = [ended(start(dies_at, way))[0] for _process in range(kills + 1)]
    assert codes == [-signal.SIGKILL] * kills + [0]
    assert lines(tmp_path, "bank") == ["t/call-0"]
    assert lines(tmp_path, "asked") == ["1", "3"]
    with StatelogSaver.open(tmp_path / "agent.state") as saver:
        found = saver.get_tuple({"configurable": {"thread_id": "t"}}).checkpoint["channel_values"]["messages"]
        assert [message.content for message in found] == ["refund", "", "paid 7", "Done."]
        assert durable.get_run(saver.store, "t/call-0").status == "completed"
        assert saver.store.verify().ok


def test_two_processes_that_resume_at_once_pay_once(tmp_path, start):
    ended(start("after the payment"))
    both = [start(), start()]
    assert [ended(process) for process in both] == [(0, "")] * 2
    assert lines(tmp_path, "bank") == ["t/call-0"]


def test_each_tool_call_of_one_answer_pays_once(tmp_path, start):
    ended(start("after the payment", count=3))
    assert ended(start(count=3)) == (0, "")
    assert sorted(lines(tmp_path, "bank")) == ["t/call-0", "t/call-1", "t/call-2"]
