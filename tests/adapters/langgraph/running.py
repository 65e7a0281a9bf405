"""Runs a graph in a process that tests kill: `python running.py crash|talk STORE ...`."""

from __future__ import annotations

import operator
import os
import sys
from pathlib import Path
from typing import Annotated, TypedDict

from graphs import chat, config
from langchain_core.messages import HumanMessage
from langgraph.graph import END, START, StateGraph

from statelog.adapters.langgraph import StatelogSaver
from statelog.errors import ConflictError

STEPS = 20


class Steps(TypedDict):
    log: Annotated[list[str], operator.add]


def note(path, text):
    """Append a line in such a way that a kill right afterwards does not lose it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{text}\n".encode())
    os.close(descriptor)


def noted(path):
    return path.read_text().split() if path.exists() else []


class NotingSaver(StatelogSaver):
    """Records the tasks whose writes were acknowledged."""

    notes = Path()

    def put_writes(self, config, writes, task_id, task_path=""):
        super().put_writes(config, writes, task_id, task_path)
        for channel, value in writes:
            if channel == "log" and value:
                note(self.notes / "acknowledged", value[0])


def steps(notes):
    """Return a graph with twenty supersteps of two tasks each."""
    builder = StateGraph(Steps)

    def add(name, *before):
        def run(_state):
            note(notes / "ran", name)
            return {"log": [name]}

        builder.add_node(name, run)
        for each in before:
            builder.add_edge(each, name)

    before = [START]
    for number in range(STEPS):
        names = [f"a{number}", f"b{number}"]
        for name in names:
            add(name, *before)
        before = names
    for name in before:
        builder.add_edge(name, END)
    return builder


def run_steps(path, notes, durability):
    """Run or continue the graph, and return its result."""
    NotingSaver.notes = notes
    with NotingSaver.open(path) as saver:
        graph = steps(notes).compile(checkpointer=saver)
        has_begun = saver.get_tuple(config()) is not None
        start = None if has_begun else {"log": []}
        return graph.invoke(start, {**config(), "recursion_limit": 100}, durability=durability)["log"]


def talk(path, name, turns):
    """Add `turns` messages to a thread that others also write to."""
    with StatelogSaver.open(path, conflict="raise") as saver:
        graph = chat().compile(checkpointer=saver)
        for turn in range(turns):
            while True:
                try:
                    graph.invoke({"messages": [HumanMessage(f"{name} {turn}", id=f"{name}-{turn}")]}, config())
                except ConflictError:
                    continue
                break


if __name__ == "__main__":
    command, store, *rest = sys.argv[1:]
    if command == "crash":
        run_steps(Path(store), Path(rest[0]), rest[1])
    else:
        talk(Path(store), rest[0], int(rest[1]))
