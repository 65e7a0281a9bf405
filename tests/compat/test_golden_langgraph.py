"""Threads of LangGraph that an earlier release has written: messages with the names of their classes and fields.

`python tests/compat/test_golden_langgraph.py` of that release has made the store. It is not made again.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("langgraph")

from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.base.id import uuid6
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from statelog.adapters.langgraph import StatelogSaver
from statelog.adapters.langgraph.crossings import observe

STORE = Path(__file__).parent / "langgraph_long.state.gz"
TOLD = Path(__file__).parent / "langgraph_long.json.gz"
TEXT_SIZE_BYTES = 480
TURNS = 2


def text(number):
    return f"{number} " * (TEXT_SIZE_BYTES // 3)


def messages(number):
    call = {"name": "search", "args": {"query": text(number)}, "id": f"c{number}", "type": "tool_call"}
    return [
        SystemMessage(text(number)),
        HumanMessage(text(number), name="ann"),
        AIMessage("", tool_calls=[call], id=f"run-{number}", response_metadata={"model": "m"}),
        ToolMessage(text(number), tool_call_id=f"c{number}", status="error"),
        AIMessageChunk(text(number)),
    ]


def graph(saver):
    def ask(state):
        return {"messages": [AIMessage(interrupt(f"question {len(state['messages'])}"))]}

    inner = StateGraph(MessagesState)
    inner.add_node("ask", ask)
    inner.add_edge(START, "ask")
    outer = StateGraph(MessagesState)
    outer.add_node("more", lambda state: {"messages": messages(len(state["messages"]))})
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "more")
    outer.add_edge("more", "inner")
    return outer.compile(checkpointer=saver)


def turn(saver, number):
    config = {"configurable": {"thread_id": "t"}}
    graph(saver).invoke({"messages": [("user", text(number))]}, config, durability="sync")
    return graph(saver).invoke(Command(resume=f"answer {number}"), config, durability="sync")["messages"]


def made(path):
    with StatelogSaver.open(path) as saver:
        for number in range(TURNS):
            turn(saver, number)
        return json.loads(json.dumps(observe(saver.store), default=repr))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "old.state"
    path.write_bytes(gzip.decompress(STORE.read_bytes()))
    return path


def test_an_old_store_reads_as_it_did_when_it_was_written(path):
    expected = json.loads(gzip.decompress(TOLD.read_bytes()))
    with StatelogSaver.open(path) as saver:
        assert json.loads(json.dumps(observe(saver.store), default=repr)) == expected
        shown = str(saver.store.thread("t").head.state["messages"])
        assert "HumanMessage" in shown
        assert saver.store.verify().ok


def test_a_put_after_an_old_checkpoint_writes_only_new_items(path):
    with StatelogSaver.open(path) as saver:
        config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        found = saver.get_tuple(config)
        held = found.checkpoint["channel_values"]["messages"]
        version = saver.get_next_version(found.checkpoint["channel_versions"]["messages"], None)
        checkpoint = found.checkpoint | {
            "id": str(uuid6()),
            "channel_values": found.checkpoint["channel_values"] | {"messages": [*held, AIMessage(text(9))]},
            "channel_versions": found.checkpoint["channel_versions"] | {"messages": version},
        }
        before = saver.store.statistics().records_size_bytes
        at = saver.put(found.config, checkpoint, {"step": 99}, {"messages": version})
        assert (
            saver.store.statistics().records_size_bytes - before < 3 * TEXT_SIZE_BYTES < len(held) * TEXT_SIZE_BYTES / 3
        )
        assert saver.get_tuple(at).checkpoint["channel_values"]["messages"] == [*held, AIMessage(text(9))]


def test_an_old_thread_goes_on(path):
    with StatelogSaver.open(path) as saver:
        assert len(turn(saver, TURNS)) == (TURNS + 1) * 7
        assert saver.store.verify().ok


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "made.state"
        told = made(file)
        STORE.write_bytes(gzip.compress(file.read_bytes(), mtime=0))
        TOLD.write_bytes(gzip.compress(json.dumps(told).encode(), mtime=0))
