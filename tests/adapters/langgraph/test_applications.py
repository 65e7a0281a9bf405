"""Applications with five packages in their newest releases behave as with LangGraph's own savers."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("langchain.agents", reason="needs langchain")

from applications import APPLICATIONS, INDEX, PACKAGES, told, turn
from histories import config
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from statelog.adapters.langgraph import StatelogSaver, StatelogStore

pytestmark = pytest.mark.filterwarnings("ignore")

KILLED = -9
_CHANCE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|20\d\d-\d\d-\d\dT[\d:.+]+")
"""Ids and times."""


@pytest.fixture(params=APPLICATIONS)
def name(request):
    package = PACKAGES.get(request.param, "langchain")
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")
    return request.param


@pytest.fixture
def saver(tmp_path):
    with StatelogSaver.open(tmp_path / "s.state") as saver:
        yield saver
        assert saver.store.verify().ok


def _in_memory(name):
    return APPLICATIONS[name]([], checkpointer=InMemorySaver(), store=InMemoryStore(index=INDEX))


def _kept(name, saver):
    return APPLICATIONS[name]([], checkpointer=saver, store=StatelogStore(saver.store, index=INDEX))


def _seen(snapshot):
    metadata = {key: snapshot.metadata[key] for key in ("source", "step")}
    tasks = [(task.name, len(task.interrupts), task.error is None) for task in snapshot.tasks]
    return _CHANCE.sub("*", str((told(snapshot.values), snapshot.next, metadata, tasks)))


def _history(graph):
    return [_seen(snapshot) for snapshot in graph.get_state_history(config("t"))]


def test_the_history_of_an_application_equals_that_of_an_in_memory_saver(name, saver):
    histories = []
    for graph in (_in_memory(name), _kept(name, saver)):
        for number in range(3):
            turn(graph, f"question {number}")
        histories.append(_history(graph))
    assert histories[0] == histories[1]
    assert len(histories[0]) > 9


def test_replays_and_forks_equal_those_of_an_in_memory_saver(name, saver):
    found = []
    for graph in (_in_memory(name), _kept(name, saver)):
        for number in range(2):
            turn(graph, f"question {number}")
        past = [snapshot for snapshot in graph.get_state_history(config("t")) if snapshot.next][3]
        graph.invoke(None, past.config)
        forked = graph.update_state(past.config, {"messages": [HumanMessage("something else")]})
        graph.invoke(None, forked)
        turn(graph, "and then")
        found.append((_history(graph), _seen(graph.get_state(forked))))
    assert found[0] == found[1]


@pytest.mark.parametrize("call", [2, pytest.param(4, marks=pytest.mark.soak)])
def test_a_killed_turn_ends_as_if_it_had_not_been_killed(name, tmp_path, call):
    expected = _in_memory(name)
    path = tmp_path / "s.state"
    command = [sys.executable, "applications.py", name, str(path), str(call)]
    ended = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, check=False, timeout=600)
    assert ended.returncode == KILLED, ended.stderr.decode()
    with StatelogSaver.open(path) as saver:
        graph = _kept(name, saver)
        messages = graph.get_state(config("t")).values["messages"]
        asked = sum(message.type == "human" for message in messages)
        turn(graph, None)
        for number in range(2):
            turn(expected, f"question {number}")
            if number >= asked:
                turn(graph, f"question {number}")
        states = [told(each.get_state(config("t")).values) for each in (expected, graph)]
        assert _CHANCE.sub("*", str(states[0])) == _CHANCE.sub("*", str(states[1]))
        assert saver.store.verify().ok


def test_the_file_has_each_text_at_most_a_few_times(name, saver):
    graph = _kept(name, saver)
    for number in range(8):
        result = turn(graph, f"question {number}")
    text = sum(len(message.content) for message in result["messages"])
    checkpoints = sum(1 for _ in saver.list(None))
    with saver.store._engine.read() as view:
        records = [len(view.transaction.get_log(lsn) or b"") for lsn in range(1, view.transaction.last_lsn() + 1)]
    assert sum(records) < 4 * text + 4096 * checkpoints
