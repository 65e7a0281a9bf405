"""A `put` without a parent re-creates a deleted thread, as with LangGraph's own savers."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="needs langgraph")

from histories import config
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from statelog.adapters.langgraph import StatelogSaver
from statelog.adapters.langgraph.values.names import time_us_of
from statelog.errors import ThreadDeletedError
from statelog.log.times import now_us

CONFIG = config("t")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s.state"


@pytest.fixture
def saver(path):
    with StatelogSaver.open(path, durability="interval") as saver:
        yield saver


def _graph(saver):
    builder = StateGraph(MessagesState)
    builder.add_node("n", lambda _state: {"messages": [("ai", "hi")]})
    builder.add_edge(START, "n")
    return builder.compile(checkpointer=saver)


def test_the_time_of_an_id_is_decoded():
    before = now_us()
    made = time_us_of(str(uuid6()))
    assert before - 1000 <= made <= now_us() + 1000
    assert time_us_of("1ef00000-0000-4000-8000-000000000000") is None
    assert time_us_of("x") is None


@pytest.mark.parametrize("others", [False, True], ids=["this saver", "another one"])
def test_deleting_a_thread_resets_a_chat(saver, path, others):
    states = []
    for each in (InMemorySaver(), saver):
        graph = _graph(each)
        for _ in range(3):
            for _turn in range(2):
                graph.invoke({"messages": ["hello"]}, CONFIG)
            if others and each is saver:
                with StatelogSaver.open(path, durability="interval") as other:
                    other.delete_thread("t")
            else:
                each.delete_thread("t")
            assert each.get_tuple(CONFIG) is None
        graph.invoke({"messages": ["again"]}, CONFIG)
        states.append([message.content for message in graph.get_state(CONFIG).values["messages"]])
        states.append(len(list(each.list(CONFIG))))
    assert states[:2] == states[2:]
    assert saver.store.verify().ok


def _late_writes(saver):
    """Put the next writes of a run whose thread was deleted."""
    first = saver.put(CONFIG, empty_checkpoint(), {"step": -1}, {})
    second = saver.put(first, empty_checkpoint(), {"step": 0}, {})
    own, third, second_id = empty_checkpoint(), empty_checkpoint(), second["configurable"]["checkpoint_id"]
    return [
        lambda: saver.put_writes(second, [("x", "late")], "task"),
        lambda: saver.put_writes(second, [("__error__", "late")], "task"),
        lambda: saver.put_writes(first, [("x", "late")], "another task"),
        lambda: saver.put(second, third, {}, {}),
        lambda: saver.put(first, third, {}, {}),
        lambda: saver.put(CONFIG, own, {}, {}),
        lambda: saver.put(config("t", "child:1"), own, {}, {}),
        lambda: saver.put(config("t", "child:1"), empty_checkpoint(), {"parents": {"": second_id}}, {}),
        lambda: saver.put(config("t", "child:1|leaf:2"), empty_checkpoint(), {"parents": {"child:1": second_id}}, {}),
    ]


@pytest.mark.parametrize("is_anew", [False, True])
def test_nothing_of_a_deleted_thread_remains(saver, is_anew):
    late = _late_writes(saver)
    saver.delete_thread("t")
    if is_anew:
        saver.put(CONFIG, empty_checkpoint(), {"step": -1}, {})
    before = saver.store.last_lsn
    for call in late:
        with pytest.raises(ThreadDeletedError):
            call()
    assert saver.store.last_lsn == before
    assert len(list(saver.list(CONFIG))) == int(is_anew)


def test_writes_can_come_before_the_checkpoint_that_re_creates_the_thread(saver):
    """LangGraph submits both to OS threads and waits for neither."""
    saver.put(CONFIG, empty_checkpoint(), {}, {})
    saver.delete_thread("t")
    begun = empty_checkpoint()
    saver.put_writes(config("t", "", begun["id"]), [("x", 1)], "task")
    assert saver.get_tuple(CONFIG) is None
    saver.put(CONFIG, begun, {}, {})
    found = saver.get_tuple(CONFIG)
    assert (found.checkpoint["id"], found.pending_writes) == (begun["id"], [("task", "x", 1)])


def test_custom_ids_have_no_time(saver):
    """Then the named checkpoint must exist."""
    saver.put(CONFIG, {**empty_checkpoint(), "id": "one"}, {}, {})
    saver.delete_thread("t")
    for call in (
        lambda: saver.put_writes(config("t", "", "one"), [("x", 1)], "task"),
        lambda: saver.put(config("t", "", "one"), {**empty_checkpoint(), "id": "two"}, {}, {}),
    ):
        with pytest.raises(ThreadDeletedError):
            call()
    saver.put(CONFIG, {**empty_checkpoint(), "id": "one"}, {}, {})
    saver.put_writes(config("t", "", "one"), [("x", 1)], "task")
    saver.put(config("t", "", "one"), {**empty_checkpoint(), "id": "two"}, {}, {})
    assert [found.checkpoint["id"] for found in saver.list(CONFIG)] == ["two", "one"]


def test_refused_late_writes_do_not_affect_other_writes(saver):
    """Writes to the deleted and the re-created thread wait for one commit, and each has its own outcome."""
    late = _late_writes(saver)[0]
    saver.delete_thread("t")
    begun = saver.put(CONFIG, empty_checkpoint(), {}, {})
    outcomes = []

    def run(call):
        try:
            outcomes.append(call())
        except ThreadDeletedError as error:
            outcomes.append(type(error))

    calls = [
        late,
        lambda: saver.put_writes(begun, [("x", 1)], "a"),
        lambda: saver.put(begun, empty_checkpoint(), {}, {}),
    ]
    for _ in range(10):
        threads = [threading.Thread(target=run, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert outcomes.count(ThreadDeletedError) == 10
    assert outcomes.count(None) == 10
    assert ("a", "x", 1) in saver.get_tuple(begun).pending_writes
    assert "late" not in str([found.pending_writes for found in saver.list(CONFIG)])


def test_runs_that_continue_while_threads_are_deleted_never_mix(path):
    """As with `langgraph dev`: each run, before and after the deletion, sees its own writes, or gets an error."""
    with StatelogSaver.open(path, durability="interval") as saver:
        told, mixed = [], []

        def chat(name):
            graph = _graph(saver)
            for turn in range(12):
                try:
                    graph.invoke({"messages": [f"{name} {turn}"]}, CONFIG, durability="sync")
                except ThreadDeletedError:
                    told.append(name)

        def reset():
            for _ in range(12):
                saver.delete_thread("t")

        threads = [threading.Thread(target=chat, args=(name,)) for name in "ab"] + [threading.Thread(target=reset)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for found in saver.list(CONFIG):
            parent = found.parent_config
            if parent is not None and saver.get_tuple(parent) is None:
                mixed.append(found)
        assert mixed == []
        assert saver.store.verify().ok
