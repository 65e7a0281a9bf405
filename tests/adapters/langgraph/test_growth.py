"""A step writes only new data, whatever its list and the rest of the thread contain."""

import operator
import random
import string
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypedDict

import pytest

pytest.importorskip("langgraph")

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send

from statelog.adapters.langgraph import StatelogSaver
from statelog.errors import ConflictError
from statelog.log.view import View

TEXT_SIZE_BYTES = 2000
CONFIG = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


class Texts:
    """Messages without common parts."""

    def __init__(self):
        self.random = random.Random(7)

    def message(self, **fields):
        return AIMessage("".join(self.random.choices(string.ascii_letters, k=TEXT_SIZE_BYTES)), **fields)


def put(saver, config, number, value):
    version = f"{number + 1:032}.0"
    checkpoint = empty_checkpoint() | {
        "id": str(uuid6(clock_seq=number)),
        "channel_values": {"l": value},
        "channel_versions": {"l": version},
    }
    return saver.put(config, checkpoint, {}, {"l": version})


def without_middle(messages, texts):
    kept = messages[:20] + messages[21:] if len(messages) > 50 else messages
    return [*kept, texts.message()]


MOMENT = datetime(2026, 1, 2, tzinfo=UTC)

STEPS = {
    "append": lambda messages, texts: [*messages, texts.message()],
    "a window of 20": lambda messages, texts: [*messages, texts.message()][-20:],
    "a window of 100": lambda messages, texts: [*messages, texts.message()][-100:],
    "without one in the middle": without_middle,
    "the first cannot be proved": lambda messages, texts: [
        *messages,
        texts.message(response_metadata={} if messages else {"at": MOMENT}),
    ],
    "none can be proved": lambda messages, texts: [
        *messages,
        texts.message(response_metadata={"at": MOMENT + timedelta(seconds=len(messages))}),
    ],
}


@pytest.mark.parametrize("step", STEPS)
def test_a_put_writes_only_new_values(tmp_path, step):
    texts, messages, at = Texts(), [], CONFIG
    with StatelogSaver.open(tmp_path / "s") as saver:
        before = 0
        for number in range(160):
            messages = STEPS[step](messages, texts)
            at = put(saver, at, number, messages)
            if number == 119:
                before = saver.store.statistics().records_size_bytes
        per_put = (saver.store.statistics().records_size_bytes - before) / 40
        assert saver.get_tuple(at).checkpoint["channel_values"]["l"] == messages
        assert saver.store.verify().problems == []
    assert per_put < 3 * TEXT_SIZE_BYTES, per_put


CHANGES = st.lists(
    st.tuples(st.sampled_from(["append", "drop", "insert", "replace", "move", "mutate"]), st.integers(0, 60)),
    max_size=4,
)


@given(st.lists(CHANGES, min_size=1, max_size=8), st.booleans(), st.integers(0, 40))
def test_a_changed_list_is_read_as_it_was_put(tmp_path_factory, steps, provable, size):
    made = iter(range(10**6))

    def item():
        number = next(made)
        at = number if provable else MOMENT + timedelta(seconds=number)
        return {"at": at, "text": f"{number}" * (40 if number % 3 else 1)}

    values, at, puts = [item() for _ in range(size)], CONFIG, []
    with StatelogSaver.open(tmp_path_factory.mktemp("lists") / "s") as saver:
        for number, changes in enumerate(steps):
            for change, where in changes:
                place = where % (len(values) + 1)
                if change == "append":
                    values = [*values, item()]
                elif change == "insert":
                    values = [*values[:place], item(), *values[place:]]
                elif values[place:]:
                    if change == "mutate":
                        values[place]["text"] += "!"
                        continue
                    rest = values[:place] + values[place + 1 :]
                    more = {"drop": [], "replace": [item()], "move": [values[place]]}[change]
                    values = [*more, *rest] if change == "move" else [*rest[:place], *more, *rest[place:]]
            at = put(saver, at, number, values)
            puts.append((at, [dict(each) for each in values]))
        for config, expected in puts:
            assert saver.get_tuple(config).checkpoint["channel_values"]["l"] == expected
        assert saver.store.verify().problems == []


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_node_that_returns_a_whole_list_stores_only_its_new_items(tmp_path, durability):
    texts = Texts()

    class State(TypedDict):
        items: Annotated[list, add_messages]

    builder = StateGraph(State)
    builder.add_node("a", lambda state: {"items": [*state["items"], texts.message()]})
    builder.add_edge(START, "a")
    with StatelogSaver.open(tmp_path / "s") as saver:
        graph = builder.compile(checkpointer=saver)
        for number in range(60):
            graph.invoke({"items": []}, CONFIG, durability=durability)
            if number == 39:
                before = saver.store.statistics().records_size_bytes
        per_turn = (saver.store.statistics().records_size_bytes - before) / 20
        assert len(graph.get_state(CONFIG).values["items"]) == 60
        assert saver.store.verify().problems == []
    assert per_turn < 8 * TEXT_SIZE_BYTES, per_turn  # The conversation has 60.


def test_a_namespace_is_searched_only_among_its_own_lines(tmp_path, monkeypatch):
    class State(TypedDict):
        items: Annotated[list, operator.add]

    inner = StateGraph(State)
    inner.add_node("s", lambda _state: {"items": ["s"]})
    inner.add_edge(START, "s")
    called = inner.compile()
    builder = StateGraph(State)
    builder.add_node("sub", lambda _state: {"items": called.invoke({"items": []})["items"]})
    builder.add_conditional_edges(START, lambda _state: [Send("sub", {"items": []}) for _ in range(20)], ["sub"])
    heads = []
    read = View.head_checkpoint
    with StatelogSaver.open(tmp_path / "s") as saver:
        graph = builder.compile(checkpointer=saver)
        for _ in range(2):
            graph.invoke({"items": ["q"]}, CONFIG)
        monkeypatch.setattr(View, "head_checkpoint", lambda *of: heads.append(of) or read(*of))
        found = {
            each.config["configurable"]["checkpoint_ns"] for each in saver.list({"configurable": {"thread_id": "t"}})
        }
        assert len(found) == 41
        assert len(heads) > 40
        for namespace in ("sub:none", *sorted(found)[:3]):
            heads.clear()
            config = {"configurable": {"thread_id": "t", "checkpoint_ns": namespace}}
            known = [each.config for each in saver.list(config)]
            assert [each["configurable"]["checkpoint_ns"] for each in known] == [namespace] * len(known)
            assert bool(known) == (namespace in found)
            assert len(heads) <= 4


def test_forks_of_a_namespace_are_found_and_not_those_of_a_namespace_with_the_same_prefix(tmp_path):
    with StatelogSaver.open(tmp_path / "s") as saver:
        ids = {}
        for namespace in ("a", "ab", "a@b", ""):
            at = {"configurable": {"thread_id": "t", "checkpoint_ns": namespace}}
            first = put(saver, at, 0, [1])
            made = [first, put(saver, first, 1, [2]), put(saver, first, 2, [3])]
            ids[namespace] = sorted((each["configurable"]["checkpoint_id"] for each in made), reverse=True)
        for namespace, expected in ids.items():
            found = saver.list({"configurable": {"thread_id": "t", "checkpoint_ns": namespace}})
            assert [each.config["configurable"]["checkpoint_id"] for each in found] == expected


def test_a_rollback_of_an_older_release_is_not_a_successor(tmp_path, monkeypatch):
    monkeypatch.setattr("statelog.store.frameworks.is_line", lambda _name: False)
    builder = StateGraph(MessagesState)
    builder.add_node("a", lambda _state: {"messages": [("ai", "x")]})
    builder.add_edge(START, "a")
    with StatelogSaver.open(tmp_path / "s", conflict="raise") as saver:
        graph = builder.compile(checkpointer=saver)
        for _ in range(3):
            graph.invoke({"messages": [("user", "q")]}, CONFIG)
        thread = saver.store.thread("t")
        last = thread.version
        thread.rollback(5)
        thread.rollback(last)
        assert len(graph.invoke({"messages": [("user", "q")]}, CONFIG)["messages"]) == 8
        thread.rollback(4)
        earlier = graph.get_state(CONFIG).config
        assert len(graph.invoke({"messages": [("user", "q")]}, CONFIG)["messages"]) == 10
        with pytest.raises(ConflictError):  # That one has a successor.
            graph.invoke({"messages": [("user", "q")]}, earlier)
        assert len(graph.get_state(CONFIG).values["messages"]) == 10


def test_a_write_refers_to_the_input_that_another_saver_has_put(tmp_path):
    size = 700  # With more, the lists at the heads of lines are searched.
    messages = [AIMessage(letter * size) for letter in "ab"]
    with StatelogSaver.open(tmp_path / "s") as saver, StatelogSaver.open(tmp_path / "s") as other:
        version = f"{1:032}.0"
        checkpoint = empty_checkpoint() | {
            "id": str(uuid6(clock_seq=1)),
            "channel_values": {"__start__": {"messages": messages[:1]}},
            "channel_versions": {"__start__": version},
        }
        at = saver.put(CONFIG, checkpoint, {}, {"__start__": version})
        sizes = [other.store.statistics().records_size_bytes]
        for task, given in (("task", messages[:1]), ("another", messages[1:])):
            other.put_writes(at, [("messages", given)], task)
            sizes.append(other.store.statistics().records_size_bytes)
        assert sizes[1] - sizes[0] < size < sizes[2] - sizes[1]
        assert ("task", "messages", messages[:1]) in saver.get_tuple(at).pending_writes
