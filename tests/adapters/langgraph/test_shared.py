"""Equal pieces are stored once, even if a graph passes them to a subgraph, a tool or another agent."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="needs langgraph")

import ormsgpack
from histories import THREADS, Line, World, answer, config, put_writes, puts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Send

import statelog
from statelog.adapters.kit import lineage
from statelog.adapters.kit.packed import Packed, put_together
from statelog.adapters.langgraph import StatelogSaver
from statelog.adapters.langgraph.values.list_items import cut
from statelog.cli.values import describe, to_json

CONFIG = config("t")

plain = st.recursive(
    st.none() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=60) | st.binary(max_size=200),
    lambda inner: st.lists(inner, max_size=40) | st.dictionaries(st.text(max_size=5), inner, max_size=20),
    max_leaves=60,
)


def _records(store):
    """Sizes of all records."""
    with store._engine.read() as view:
        return [len(view.transaction.get_log(lsn) or b"") for lsn in range(1, view.transaction.last_lsn() + 1)]


@pytest.fixture
def saver(tmp_path):
    with StatelogSaver.open(tmp_path / "s.state", durability="interval") as saver:
        yield saver


@settings(max_examples=100, deadline=None)
@given(plain, st.integers(0, 6), st.integers(0, 40))
def test_an_image_is_joined_byte_for_byte(value, code, lost):
    """Custom serialisers may return any bytes."""
    objects = ormsgpack.Ext(code, ormsgpack.packb(["module", "Name", value, "method"]))
    for data in (
        ormsgpack.packb({"messages": ["m" * 200] * 9, "more": value}),
        ormsgpack.packb(value, option=ormsgpack.OPT_NON_STR_KEYS),
        ormsgpack.packb({"state": objects, "rest": [value] * 3}, default=None),
    ):
        for given_data in (data, data[: len(data) - lost] or b"\xc0", data + b"x"):
            pieces = cut(given_data)
            assert pieces is None or put_together(b"".join(pieces)) == given_data


def test_a_list_in_a_tool_call_is_split_and_a_message_is_not(saver):
    dumps = saver.serde.dumps_typed
    messages = [HumanMessage(f"{number} " + "x" * 300) for number in range(5)]
    pieces = cut(dumps([Send("tools", {"state": {"messages": messages}}), Send("tools", 1)])[1])
    assert pieces[1:-1] == [dumps(message)[1] for message in messages]
    assert cut(dumps(HumanMessage([{"type": "text", "text": "x" * 500}] * 4))[1]) is None


def _subgraphs(saver, turns, size):
    inner = StateGraph(MessagesState)
    inner.add_node("work", lambda _state: {"messages": [("ai", "done " + uuid4().hex * size)]})
    inner.add_edge(START, "work")
    outer = StateGraph(MessagesState)
    outer.add_node("agent", inner.compile())
    outer.add_edge(START, "agent")
    graph = outer.compile(checkpointer=saver)
    for _ in range(turns):
        found = graph.invoke({"messages": [("user", uuid4().hex * 5 * size)]}, CONFIG, durability="sync")
    return graph, sum(len(message.content) for message in found["messages"])


def test_messages_passed_to_a_subgraph_are_stored_once(saver):
    """The rest is LangGraph's data of each step, and the question as input and as a message."""
    _graph, text = _subgraphs(saver, 40, 20)
    assert sum(_records(saver.store)) < 8 * text
    assert saver.store.verify().ok


def test_a_new_process_also_shares_stored_pieces(tmp_path):
    text = 0
    for _ in range(20):
        with StatelogSaver.open(tmp_path / "s.state", durability="interval") as saver:
            _graph, text = _subgraphs(saver, 1, 40)
            size = sum(_records(saver.store))
    assert size < 8 * text


def test_a_tool_call_that_contains_the_state_stores_little(saver):
    line = Line(saver)
    messages = [HumanMessage(uuid4().hex * 30, id=str(number)) for number in range(60)]
    line.put(messages=messages)
    before = len(_records(saver.store))
    line.put(messages=messages, tasks=[Send("tools", {"state": {"messages": messages}})])
    made = sum(_records(saver.store)[before:])
    assert made < 4096
    held = saver.get_tuple(CONFIG).checkpoint["channel_values"]["tasks"]
    assert held == [Send("tools", {"state": {"messages": messages}})]


def test_split_values_are_shown_as_a_whole(saver):
    messages = [HumanMessage(f"question {number} " + "x" * 60) for number in range(30)]
    Line(saver).put(x={"messages": messages, "left": 3})
    (shown,) = [to_json(saver.store.thread("t").state["x"])]
    assert (set(shown), shown["left"], len(shown["messages"])) == ({"messages", "left"}, 3, 30)
    assert shown["messages"][7]["fields"]["content"].startswith("question 7")
    assert describe(saver.store.thread("t").state["x"]) == "dict, 2 keys"
    assert isinstance(saver.store.thread("t").state["x"][1], Packed)


PARENT = 3
"""Position of the config of the parent in an `answer`."""

removals = st.lists(
    st.sampled_from(("keep_latest a", "delete b", "run-1", "thread a", "compact", "retain", "reopen")), max_size=5
)


def _remove(saver, path, kind):
    store = saver.store
    if kind == "keep_latest a":
        saver.prune(["a"], strategy="keep_latest")
    elif kind == "delete b":
        saver.prune(["b"], strategy="delete")
    elif kind == "run-1":
        saver.delete_for_runs(["run-1"])
    elif kind == "thread a":
        saver.delete_thread("a")
    elif kind == "retain":
        store.prune(keep_last=2)
    elif kind == "compact":
        store.compact()
    else:
        store.close()
        return StatelogSaver(statelog.open(path, durability="interval"))
    return saver


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(puts | put_writes, min_size=3, max_size=14), removals)
def test_kept_versions_read_as_before_whatever_is_removed(history, kinds):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s"
        saver = StatelogSaver(statelog.open(path, durability="interval"))
        world = World(saver)
        for step in history:
            world.apply(step)
        before = {repr(found.config): answer(found) for found in saver.list(None)}
        for kind in kinds:
            saver = _remove(saver, path, kind)
            assert saver.store.verify().ok
            for found in saver.list(None):
                expected = before[repr(found.config)]
                if found.parent_config is None and expected[PARENT] is not None:
                    assert saver.get_tuple(expected[PARENT]) is None  # It was pruned.
                    expected = (*expected[:PARENT], None, *expected[PARENT + 1 :])
                assert answer(found) == expected
        saver.store.close()


def test_text_of_a_deleted_thread_is_removed(tmp_path):
    path = tmp_path / "s.state"
    with StatelogSaver.open(path) as saver:
        for thread in THREADS:
            messages = [HumanMessage(f"of {thread} {number} " + "x" * 60) for number in range(40)]
            line = Line(saver, thread)
            line.put(messages=messages)
            line.put(x={"messages": messages})
            saver.put_writes(line.config, [("messages", messages)], "task")
        saver.delete_thread("a")
        saver.store.compact()
        assert saver.store.verify().ok
    data = path.read_bytes()
    assert b"of b 7 " in data
    assert b"of a 7 " not in data
    assert b"of a 39 " not in data


def test_negative_control_references_to_nodes_of_removed_versions_are_detected(saver):
    """`verify` reports references to nodes that no kept version has."""
    messages = [HumanMessage(uuid4().hex * 9, id=str(number)) for number in range(40)]
    lost = []
    line = Line(saver)
    line.put(messages=messages)
    similar = lineage.similar_nodes

    def remembered(batch, thread, wanted, *branches):
        lost.extend(similar(batch, thread, wanted, *branches))
        return lost

    with patch.object(lineage, "similar_nodes", remembered):
        line.put(x={"messages": messages})
        line.put(messages=[], x=None)
        saver.prune(["t"])
        saver.put(config("t", "child:1"), _handing_on(messages), {}, {"x": "1"})
    assert lost
    assert not saver.store.verify().ok


def _handing_on(messages):
    return empty_checkpoint() | {"channel_values": {"x": {"messages": messages}}, "channel_versions": {"x": "1"}}


def test_without_the_faulty_cache_the_same_history_is_sound(saver):
    messages = [HumanMessage(uuid4().hex * 9, id=str(number)) for number in range(40)]
    line = Line(saver)
    line.put(messages=messages)
    line.put(x={"messages": messages})
    line.put(messages=[], x=None)
    saver.prune(["t"])
    saver.put(config("t", "child:1"), _handing_on(messages), {}, {"x": "1"})
    assert saver.store.verify().ok
    found = saver.get_tuple(config("t", "child:1"))
    assert found.checkpoint["channel_values"]["x"] == {"messages": messages}


def _copies(store, text):
    """Return the number of occurrences of a text in the log."""
    with store._engine.read() as view:
        records = [bytes(view.transaction.get_log(lsn)) for lsn in range(1, view.transaction.last_lsn() + 1)]
    return sum(record.count(text.encode()) for record in records)


def _next(saver, last, changed, at, step, source="loop"):
    versions = dict.fromkeys(
        changed, saver.get_next_version(max(last["channel_versions"].values(), default=None), None)
    )
    made = {
        **last,
        "id": str(uuid6()),
        "channel_values": last["channel_values"] | changed,
        "channel_versions": last["channel_versions"] | versions,
    }
    return made, lambda: saver.put(at, made, {"source": source, "step": step, "parents": {}}, versions)


@pytest.mark.parametrize(
    "order", [("input", "writes", "step"), ("writes", "input", "step"), ("input", "step", "writes")], ids="-".join
)
@pytest.mark.parametrize("is_another_between", [False, True])
def test_the_input_of_a_run_is_stored_once_in_any_order_of_calls(saver, order, is_another_between):
    """LangGraph makes each of these calls on an OS thread. It waits for the previous checkpoint, but not for writes."""
    message = HumanMessage("a question " * 50, id="1")
    first = {**empty_checkpoint(), "id": str(uuid6())}
    at = saver.put(CONFIG, first, {"source": "loop", "step": -2, "parents": {}}, {})
    begun, put_input = _next(saver, first, {"__start__": {"messages": [message]}}, at, -1, "input")
    at_input = {"configurable": at["configurable"] | {"checkpoint_id": begun["id"]}}
    _made, put_step = _next(saver, begun, {"messages": [message]}, at_input, 0)
    calls = {
        "input": put_input,
        "writes": lambda: saver.put_writes(at_input, [("messages", [message])], "task", "path"),
        "step": put_step,
    }
    for name in order:
        calls[name]()
        if is_another_between:
            other = saver.put(config("other"), {**empty_checkpoint(), "id": str(uuid6())}, {}, {})
            saver.put_writes(other, [("x", [1, 2])], "other", "path")
    assert _copies(saver.store, "a question a question") == 25
    found = saver.get_tuple(at_input)
    assert found.checkpoint["channel_values"]["__start__"] == {"messages": [message]}
    assert found.pending_writes == [("task", "messages", [message])]
    assert saver.get_tuple(CONFIG).checkpoint["channel_values"]["messages"] == [message]
    assert saver.store.verify().ok
