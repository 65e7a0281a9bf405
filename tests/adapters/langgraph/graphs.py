"""Graphs that use the features of LangGraph, and a comparison of two savers."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt

DURABILITIES = ("sync", "async", "exit")


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    turns: Annotated[int, operator.add]


def chat():
    """A graph with one node and one message a turn."""

    def answer(state):
        number = len(state["messages"])
        return {"messages": [AIMessage(f"answer {number}", id=f"ai-{number}")], "turns": 1}

    builder = StateGraph(Chat)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder


class Work(TypedDict):
    log: Annotated[list[str], operator.add]
    approved: Any


def review():
    """A graph with a node that asks a question between two nodes that work."""
    builder = StateGraph(Work)
    builder.add_node("draft", lambda _state: {"log": ["drafted"]})

    def ask(_state):
        answers = [interrupt("first question"), interrupt("second question")]
        return {"log": [f"asked {answers}"], "approved": answers}

    builder.add_node("ask", ask)
    builder.add_node("send", lambda state: {"log": [f"sent {state['approved']}"]})
    builder.add_edge(START, "draft")
    builder.add_edge("draft", "ask")
    builder.add_edge("ask", "send")
    return builder


def nested():
    """A graph with a subgraph that is interrupted."""
    inner = StateGraph(Work)
    inner.add_node("one", lambda _state: {"log": ["inner one"]})
    inner.add_node("two", lambda _state: {"log": [f"inner {interrupt('inside')}"]})
    inner.add_edge(START, "one")
    inner.add_edge("one", "two")
    outer = StateGraph(Work)
    outer.add_node("before", lambda _state: {"log": ["before"]})
    outer.add_node("inner", inner.compile())
    outer.add_node("after", lambda _state: {"log": ["after"]})
    outer.add_edge(START, "before")
    outer.add_edge("before", "inner")
    outer.add_edge("inner", "after")
    return outer


def fan_out(count):
    """A graph with many tasks in one superstep, and one task that joins them."""
    builder = StateGraph(Work)
    builder.add_node("start", lambda _state: {"log": ["start"]})
    builder.add_node("task", lambda state: {"log": [f"task {state['number']} {'x' * 50}"]})
    builder.add_node("join", lambda state: {"approved": len(state["log"])})
    builder.add_edge(START, "start")
    builder.add_conditional_edges("start", lambda _state: [Send("task", {"number": n}) for n in range(count)], ["task"])
    builder.add_edge("task", "join")
    return builder


def config(thread="t", **more):
    return {"configurable": {"thread_id": thread, **more}}


def seen(snapshot):
    """Return the content of a state snapshot without ids and times."""
    tasks = [(task.name, task.error, [each.value for each in task.interrupts]) for task in snapshot.tasks]
    metadata = {key: value for key, value in snapshot.metadata.items() if key != "parents"}
    return (snapshot.values, snapshot.next, metadata, tasks)


def history(graph, thread="t"):
    return [seen(snapshot) for snapshot in graph.get_state_history(config(thread))]


__all__ = ["DURABILITIES", "Command", "chat", "config", "fan_out", "history", "nested", "review", "seen"]
