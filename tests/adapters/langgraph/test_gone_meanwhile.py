"""Runs that continue from a checkpoint that has been pruned, deleted, expired or superseded lose no channel."""

import operator
import threading
from typing import Annotated, TypedDict

import pytest

pytest.importorskip("langgraph")

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from meanwhile import deletions, interrupted_before_each_read, preparing, removals

from statelog.adapters.langgraph import StatelogSaver
from statelog.errors import ThreadDeletedError, UsageError
from statelog.store.session import session_of

THREAD = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
LONG = ["x" * 100, "y" * 100]


class State(TypedDict, total=False):
    messages: Annotated[list[str], operator.add]
    n: int


REMOVALS = {
    "prune all but the latest": lambda saver: saver.prune(["t"]),
    "prune all": lambda saver: saver.prune(["t"], strategy="delete"),
    "delete the run before": lambda saver: saver.delete_for_runs(["before"]),
    "retain the last": lambda saver: saver.store.prune(keep_last=1),
    "nothing": lambda _saver: None,
}


@pytest.fixture(params=[True, False], ids=["one saver", "another saver"])
def savers(tmp_path, request):
    """Return a saver that runs graphs, and a saver that removes checkpoints."""
    with StatelogSaver.open(tmp_path / "agent.state") as saver:
        yield saver, saver if request.param else StatelogSaver(saver.store)
        assert saver.store.verify().ok


def put(saver, parent, id, values, versions, new):
    checkpoint = empty_checkpoint() | {"id": id, "channel_values": values, "channel_versions": versions}
    return saver.put(parent, checkpoint, {"step": 1}, {name: versions[name] for name in new})


@pytest.mark.parametrize("remove", REMOVALS.values(), ids=REMOVALS)
def test_a_channel_that_a_step_has_not_written_is_kept(savers, remove):
    saver, other = savers
    first = put(saver, THREAD, "1", {"m": LONG, "n": 1}, {"m": "1", "n": "1"}, "mn")
    put(other, first, "2", {"m": [*LONG, "z"], "n": 1}, {"m": "2", "n": "1"}, "m")
    remove(other)
    put(saver, first, "3", {"m": LONG, "n": 2}, {"m": "1", "n": "2"}, "n")
    assert saver.get_tuple(THREAD).checkpoint["channel_values"] == {"m": LONG, "n": 2}


@pytest.mark.parametrize("make", [InMemorySaver, None], ids=["in memory", "ours"])
def test_a_channel_whose_version_was_superseded_is_kept(savers, make):
    saver = savers[0] if make is None else make()
    put(saver, THREAD, "1", {"x": "v1", "y": "v1"}, {"x": "1", "y": "1"}, "xy")
    at = put(saver, THREAD, "1", {"x": "v2", "y": "v1"}, {"x": "2", "y": "1"}, "x")
    put(saver, at, "2", {"x": "v1", "y": "v2"}, {"x": "1", "y": "2"}, "y")
    assert set(saver.get_tuple(THREAD).checkpoint["channel_values"]) == {"x", "y"}


@pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "beside another run"])
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("remove", REMOVALS.values(), ids=REMOVALS)
def test_a_run_returns_the_stored_state(savers, remove, durability, is_alone):
    saver, other = savers
    inside, goes_on = threading.Event(), threading.Event()

    def work(state):
        if state.get("n") == 99:
            inside.set()
            goes_on.wait(20)
        return {"n": 5}

    builder = StateGraph(State)
    builder.add_node("work", work)
    builder.add_node("end", lambda _state: {"n": 6})
    builder.add_edge(START, "work")
    builder.add_edge("work", "end")
    graph, beside = builder.compile(checkpointer=saver), builder.compile(checkpointer=other)
    graph.invoke({"messages": ["a", "b", *LONG]}, THREAD | {"metadata": {"run_id": "before"}})
    returned = []
    run = threading.Thread(target=lambda: returned.append(graph.invoke({"n": 99}, THREAD, durability=durability)))
    run.start()
    assert inside.wait(20)
    if not is_alone:
        beside.update_state(THREAD, {"messages": ["d"], "n": 7}, as_node="end")
    remove(other)
    goes_on.set()
    run.join()
    assert returned == [{"messages": ["a", "b", *LONG], "n": 6}]
    assert graph.get_state(THREAD).values == returned[0]


REMOVING = {
    "prune all but the latest": lambda saver: saver.prune(["a", "b"]),
    "prune all": lambda saver: saver.prune(["a", "b"], strategy="delete"),
    "delete runs": lambda saver: saver.delete_for_runs(["1"]),
    "retain the last": lambda saver: saver.store.prune(keep_last=1),
    "list": lambda saver: list(saver.list(None)),
}


def fill(saver):
    for thread in ("a", "b"):
        at = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        for id in "12":
            at = saver.put(at, empty_checkpoint() | {"id": id}, {"step": int(id), "run_id": id}, {})
            saver.put_writes(at, [("m", id)], id)
    session_of(saver.store).engine.cache.clear()
    return saver.store, saver


@pytest.fixture
def prepared(tmp_path):
    return preparing(tmp_path, fill, StatelogSaver.open)


@pytest.mark.parametrize("delete", deletions("a").values(), ids=deletions("a"))
@pytest.mark.parametrize("act", REMOVING.values(), ids=REMOVING)
def test_a_thread_deleted_by_another_process_is_skipped(prepared, act, delete):
    def of_the_saver(_store, saver):
        act(saver)

    assert set(interrupted_before_each_read(prepared, of_the_saver, delete, every=3)) == {None}


def removed_runs(_store, saver):
    saver.delete_for_runs(["1"])
    assert [each.checkpoint["id"] for each in saver.list({"configurable": {"thread_id": "b"}})] == ["2"]


SHOWN = {
    "delete runs": removed_runs,
    "head": lambda store, _saver: store.thread("a").head,
    "version": lambda store, _saver: store.thread("a").version,
    "history": lambda store, _saver: [each.version for each in store.thread("a").history()],
}


@pytest.mark.parametrize("remove", removals("a").values(), ids=removals("a"))
@pytest.mark.parametrize("act", SHOWN.values(), ids=SHOWN)
def test_checkpoints_removed_by_another_process_are_skipped(prepared, act, remove):
    every = 7 if act is removed_runs else 1
    for error in interrupted_before_each_read(prepared, act, remove, every=every):
        assert error is None or isinstance(error, ThreadDeletedError), error


@pytest.mark.parametrize("remove", removals("a").values(), ids=removals("a"))
def test_a_rollback_raises_an_error_of_its_own(prepared, remove):
    for error in interrupted_before_each_read(prepared, lambda store, _saver: store.thread("a").rollback(-1), remove):
        assert isinstance(error, UsageError), error  # No id can sort after these ids, or the thread is gone.
