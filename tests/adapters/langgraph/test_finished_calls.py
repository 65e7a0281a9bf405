"""Retention removes a finished subgraph call with its caller, and pending writes with their checkpoint."""

from __future__ import annotations

import threading
from random import Random
from typing import TypedDict

import pytest

pytest.importorskip("langgraph.graph", reason="needs langgraph")

from click.testing import CliRunner
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from statelog.adapters.langgraph import StatelogSaver
from statelog.adapters.langgraph.saver import write_sweep
from statelog.adapters.langgraph.values.names import WRITES_BRANCH
from statelog.cli.application import main
from statelog.log.care import kept_versions


@pytest.fixture
def saver(tmp_path):
    with StatelogSaver.open(tmp_path / "a.state", durability="interval") as saver:
        yield saver
        assert saver.store.verify().ok


class Talk(TypedDict):
    asked: str
    told: str


def _graph(*steps):
    """Return a graph with sequential nodes of the given names."""
    builder = StateGraph(Talk)
    builder.add_sequence(steps)
    builder.add_edge(START, steps[0][0])
    return builder


def _nested():
    """Return a graph with a subgraph that is interrupted."""
    look = ("look", lambda state: {"told": f"looked at {state['asked']}"})
    ask = ("ask", lambda state: {"told": f"{state['told']}, {interrupt('inside')}"})
    after = ("after", lambda state: {"told": f"{state['told']}, after"})
    return _graph(look, ("inner", _graph(look, ask).compile()), after)


def _two_deep():
    return _graph(("middle", _graph(("deep", _nested().compile())).compile()))


ASKED = {"asked": "this"}


def _config(thread="t"):
    return {"configurable": {"thread_id": thread}}


def _turn(graph, thread="t"):
    """Run a turn in which the innermost graph asks and is answered."""
    graph.invoke(ASKED, _config(thread), durability="sync")
    return graph.invoke(Command(resume="yes"), _config(thread), durability="sync")["told"]


def _namespaces(saver):
    return {each.config["configurable"]["checkpoint_ns"] for each in saver.list(_config())} - {""}


def _told(state):
    return (state.values, state.next, [(task.name, task.state and _told(task.state)) for task in state.tasks])


def _read(graph, thread="t"):
    """Return all facts about a thread's checkpoints and about the graphs they have called."""
    configs = [state.config for state in graph.get_state_history(_config(thread))]
    return {each["configurable"]["checkpoint_id"]: _told(graph.get_state(each, subgraphs=True)) for each in configs}


@pytest.mark.parametrize("make", [_nested, _two_deep])
def test_a_finished_call_is_removed_with_its_caller(saver, make):
    graph = make().compile(checkpointer=saver)
    _turn(graph)
    called = _namespaces(saver)
    _turn(graph)
    before = _read(graph)
    saver.store.prune(keep_last=3)  # Of the second turn.
    assert called
    assert _namespaces(saver)
    assert _namespaces(saver).isdisjoint(called)
    after = _read(graph)
    assert after == {id: before[id] for id in after}
    saver.store.prune(keep_last=1)
    assert _namespaces(saver) == set()
    assert _turn(graph).startswith("looked at this, yes")


def test_an_interrupted_call_is_kept_and_continues(saver):
    graph = _nested().compile(checkpointer=saver)
    for _number in range(3):
        _turn(graph)
    graph.invoke(ASKED, _config(), durability="sync")
    before = _told(graph.get_state(_config(), subgraphs=True))
    saver.store.prune(keep_last=1)
    assert (_told(graph.get_state(_config(), subgraphs=True)), len(_namespaces(saver))) == (before, 1)
    assert graph.invoke(Command(resume="no"), _config())["told"] == "looked at this, no, after"


def test_a_run_can_continue_from_a_kept_caller(saver):
    graph = _nested().compile(checkpointer=saver)
    for _number in range(3):
        _turn(graph)
    saver.store.prune(keep_last=4)
    caller = next(each for each in graph.get_state_history(_config()) if each.next == ("inner",))
    graph.invoke(None, caller.config)
    assert graph.invoke(Command(resume="again"), _config())["told"] == "looked at this, again, after"


def test_a_call_put_before_its_caller_is_kept(saver):
    """As with durability="exit", which puts the called graph first."""
    graph = _nested().compile(checkpointer=saver)
    graph.invoke(ASKED, _config(), durability="exit")
    saver.store.prune(keep_last=1)
    assert len(_namespaces(saver)) == 1
    assert graph.invoke(Command(resume="yes"), _config())["told"] == "looked at this, yes, after"


def test_a_subgraph_with_its_own_history_keeps_its_latest_checkpoint(saver):
    inner = _graph(("one", lambda state: {"told": f"inner {state['asked']}"})).compile(checkpointer=True)
    graph = _graph(("inner", inner)).compile(checkpointer=saver)
    for _number in range(3):
        graph.invoke(ASKED, _config())
    saver.store.prune(keep_last=1)
    assert _namespaces(saver) == {"inner"}


def _kept_by(path, way):
    """Run forty turns with one kind of maintenance. Return the remaining steps, and the size of the compacted file."""
    with StatelogSaver.open(path, durability="interval") as saver:
        graph = _nested().compile(checkpointer=saver)
        for _number in range(40):
            _turn(graph)
        way(saver)
        kept = [each.metadata["step"] for each in saver.list(_config())]
        saver.store.compact()
    return kept, path.stat().st_size


def test_prune_keeps_the_same_as_retention(tmp_path):
    """It keeps the same checkpoints, and a file of nearly the same size."""
    pruned, pruned_size = _kept_by(tmp_path / "pruned", lambda saver: saver.prune(["t"]))
    retained, retained_size = _kept_by(tmp_path / "retained", lambda saver: saver.store.prune(keep_last=1))
    assert pruned == retained
    assert abs(pruned_size - retained_size) <= 4 * 4096


def test_prune_keeps_a_call_whose_caller_it_keeps(saver):
    graph = _nested().compile(checkpointer=saver)
    _turn(graph)
    graph.invoke(ASKED, _config(), durability="sync")
    before = _told(graph.get_state(_config(), subgraphs=True))
    saver.prune(["t"])
    assert (_told(graph.get_state(_config(), subgraphs=True)), len(_namespaces(saver))) == (before, 1)


# --- pending writes ------------------------------------------------------------------


def _at(number):
    id = None if number is None else f"1ef{number:05d}-0000-6000-8000-000000000000"
    return {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": id}}


def _put(saver, number):
    id = _at(number)["configurable"]["checkpoint_id"]
    checkpoint = {"v": 4, "id": id, "ts": "", "channel_values": {}, "channel_versions": {}, "versions_seen": {}}
    saver.put(_at(number - 1 if number else None), checkpoint, {"step": number}, {})


def _put_with_writes(saver, count):
    for number in range(count):
        _put(saver, number)
        saver.put_writes(_at(number), [("x", number)], f"task-{number}")


def _write_count(saver):
    return len(saver.store.thread("t").checkout(WRITES_BRANCH).state)


def test_pending_writes_are_removed_with_their_checkpoint(saver):
    _put_with_writes(saver, 20)
    saver.store.prune(keep_last=3)
    left = [[(f"task-{number}", "x", number)] for number in (19, 18, 17)]
    assert (_write_count(saver), [each.pending_writes for each in saver.list(_config())]) == (3, left)


def test_a_running_policy_removes_pending_writes(saver):
    saver.store.set_retention(keep_last=3)
    _put_with_writes(saver, 500)
    assert _write_count(saver) < 250


def test_the_command_removes_pending_writes(tmp_path):
    path = tmp_path / "a.state"
    with StatelogSaver.open(path) as saver:
        _put_with_writes(saver, 20)
    assert CliRunner().invoke(main, ["retain", str(path), "--keep-last", "3"]).exit_code == 0
    with StatelogSaver.open(path) as saver:
        assert _write_count(saver) == 3


def test_pending_writes_put_before_their_checkpoint_are_kept(saver):
    _put(saver, 0)
    saver.put_writes(_at(1), [("x", "early")], "task")
    for _time in range(2):
        saver.store.prune(keep_last=1)
    _put(saver, 1)
    saver.store.prune(keep_last=1)
    assert saver.get_tuple(_at(1)).pending_writes == [("task", "x", "early")]


def test_pending_writes_wait_a_day_for_their_checkpoint(saver, monkeypatch):
    _put(saver, 0)
    saver.put_writes(_at(1), [("x", "never")], "task")
    monkeypatch.setattr(write_sweep, "UNMET_US", 0)
    saver.store.prune(keep_last=1)
    assert _write_count(saver) == 0


# --- at random, beside running graphs, against a model ---------------------------------------


class _LostError(AssertionError):
    """A kept checkpoint has changed."""


class _Run:
    """Graphs that ask, are answered and are pruned at random, and the expected content of each thread."""

    def __init__(self, saver, seed):
        self.saver = saver
        self.random = Random(seed)
        self.graph = self.random.choice((_nested, _two_deep))().compile(checkpointer=saver)
        self.expected = {"a": {}, "b": {}}
        self.is_asking = {"a": False, "b": False}

    def step(self):
        thread = self.random.choice("ab")
        if self.random.random() < 0.5:
            self._invoke(thread)
        else:
            self._let_go(thread)
        for each, expected in self.expected.items():
            if _read(self.graph, each) != expected:
                raise _LostError(each)

    def _invoke(self, thread):
        given = Command(resume="yes") if self.is_asking[thread] else ASKED
        self.graph.invoke(given, _config(thread), durability=self.random.choice(("sync", "async")))
        self.is_asking[thread] = not self.is_asking[thread]
        self.expected[thread] = _read(self.graph, thread)

    def _let_go(self, thread):
        keep_last = self.random.randint(1, 8)
        if self.random.random() < 0.25:
            self.saver.prune([thread])
            keep_last = 1
        else:
            self.saver.store.prune(keep_last=keep_last, threads=thread)
        newest_first = list(self.expected[thread].items())
        self.expected[thread] = dict(newest_first[:keep_last])


def _run_at_random(saver, seed, steps):
    """Runs beside a thread of many turns, from which a policy removes some."""
    saver.store.set_retention(keep_last=3, threads="busy")
    busy_graph = _nested().compile(checkpointer=saver)
    stop, told = threading.Event(), set()

    def work():
        while not stop.is_set():
            told.add(_turn(busy_graph, "busy"))

    busy = threading.Thread(target=work)
    busy.start()
    try:
        run = _Run(saver, seed)
        for _number in range(steps):
            run.step()
    finally:
        stop.set()
        busy.join()
    assert told == {"looked at this, yes, after"}


@pytest.mark.parametrize("seed", range(6))
def test_randomly_kept_checkpoints_read_as_before_while_graphs_run(saver, seed):
    _run_at_random(saver, seed, steps=14)


def test_a_namespace_removed_while_its_caller_is_kept_is_detected(saver, monkeypatch):
    """Negative control: retention treats no caller as kept."""
    monkeypatch.setattr(kept_versions.Keeps, "_keeps", lambda _keeps, _event: False)
    with pytest.raises(_LostError):
        _run_at_random(saver, seed=0, steps=100)
