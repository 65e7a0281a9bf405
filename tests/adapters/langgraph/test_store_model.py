"""The store answers like LangGraph's InMemoryStore, except for what the class states."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

pytest.importorskip("langgraph", reason="LangGraph is not installed")

from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from statelog.adapters.langgraph import StatelogStore
from statelog.adapters.langgraph.memory.store import STORE_THREAD_ID

LABELS = st.sampled_from(["a", "b", "users", "é", "x y", "*", "0"])
NAMESPACES = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
KEYS = st.sampled_from(["k", "k2", "", "ключ", "a.b", "long " * 40])
NUMBERS = st.integers(-3, 3) | st.sampled_from([0.5, -2.0, 2.0, 10**30])
TEXTS = st.sampled_from(["", "a", "b", "x" * 500, "y" * 5000])
VALUES = st.fixed_dictionaries(
    {"n": NUMBERS},
    optional={
        "s": TEXTS,
        "b": st.booleans(),
        "none": st.none(),
        "d": st.fixed_dictionaries({"m": NUMBERS}, optional={"t": TEXTS}),
        "l": st.lists(TEXTS, max_size=3),
    },
)
ORDERS = st.sampled_from(["$gt", "$gte", "$lt", "$lte", "$eq", "$ne"])
OPERATORS = st.dictionaries(ORDERS, NUMBERS, min_size=1, max_size=2)
EQUALITIES = st.sampled_from(["$eq", "$ne"])
FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "n": NUMBERS | OPERATORS,
        "s": TEXTS | st.dictionaries(EQUALITIES, TEXTS, min_size=1, max_size=2),
        "b": st.booleans(),
        "none": st.none() | st.just({"$eq": None}),
        "missing": st.none() | st.just({"$ne": 1}),
        "d": st.fixed_dictionaries({"m": NUMBERS | OPERATORS}),
        "l": st.lists(TEXTS, max_size=3),
    },
)
LIMITS = st.integers(0, 6) | st.just(100)
CONDITIONS = st.builds(MatchCondition, st.sampled_from(["prefix", "suffix"]), st.lists(LABELS, max_size=3).map(tuple))
PREFIXES = st.lists(LABELS, max_size=2).map(tuple)
OPERATIONS = st.one_of(
    st.builds(PutOp, NAMESPACES, KEYS, st.none() | VALUES, st.none(), st.none()),
    st.builds(PutOp, NAMESPACES, KEYS, VALUES, st.none(), st.none()),
    st.builds(GetOp, NAMESPACES, KEYS),
    st.builds(SearchOp, PREFIXES, st.none() | FILTERS, LIMITS, LIMITS, st.sampled_from([None, ""])),
    st.builds(ListNamespacesOp, st.none() | st.lists(CONDITIONS, max_size=2).map(tuple), st.none() | st.integers(1, 3),
              LIMITS, LIMITS),
)  # fmt: skip


class Model:
    """LangGraph's InMemoryStore, with the order of the class and without empty namespaces."""

    def __init__(self):
        self.store = InMemoryStore()
        self.puts = {}
        self.numbers = count()

    def batch(self, ops):
        answers = [self.answer(op) for op in ops]
        places = {}
        for op in ops:
            if isinstance(op, PutOp):
                places.pop((op.namespace, op.key), None)
                places[op.namespace, op.key] = op
        for place, op in places.items():
            self.store.batch([op])
            self.puts.pop(place, None)
            if op.value is not None:
                self.puts[place] = next(self.numbers)
        return answers

    def answer(self, op):
        if isinstance(op, SearchOp):
            (found,) = self.store.batch([op._replace(limit=10**6, offset=0)])
            found.sort(key=lambda item: self.puts[item.namespace, item.key], reverse=True)
            return found[op.offset : op.offset + op.limit]
        if isinstance(op, ListNamespacesOp):
            for namespace in [each for each, items in self.store._data.items() if not items]:
                del self.store._data[namespace]
        return self.store.batch([op])[0] if not isinstance(op, PutOp) else None


def shown(answer):
    """Return an answer without the times, which two stores do not share."""
    if isinstance(answer, list):
        return [shown(each) for each in answer]
    return answer if answer is None or isinstance(answer, tuple) else (answer.namespace, answer.key, answer.value)


BATCHES = st.lists(st.lists(OPERATIONS, max_size=8), max_size=12)


def compare(path, batches, *, is_async=False):
    model = Model()
    with StatelogStore.open(path, durability="interval") as store:
        for ops in batches:
            answers = asyncio.run(store.abatch(ops)) if is_async else store.batch(ops)
            assert [shown(answer) for answer in answers] == [shown(answer) for answer in model.batch(ops)], ops
        everything = SearchOp((), None, 10**6)
        assert shown(store.batch([everything])) == shown(model.batch([everything]))
        state = store.store.thread(STORE_THREAD_ID).state.to_python()
        for namespace, key in model.puts:
            assert key in state["items"][".".join(namespace)]
        assert sum(map(len, state.get("items", {}).values())) == len(model.puts)
        assert sum(map(len, state.get("recent", {}).values())) == len(model.puts)
        assert store.store.verify().problems == []


@given(BATCHES, st.booleans())
def test_every_answer_equals_that_of_the_in_memory_store(tmp_path_factory, batches, is_async):
    compare(tmp_path_factory.mktemp("model") / "a.state", batches, is_async=is_async)


@pytest.mark.parametrize(
    "broken",
    [
        ("changes._delete", lambda *_arguments: None),
        ("changes.recent_key", lambda number: f"{number:012x}"),
        ("changes._add_namespace", lambda *_arguments: None),
        ("filters.is_equal", lambda _value, _other: True),
        ("lookup.fits", lambda _namespace, _condition: True),
        ("lookup.cut", lambda namespaces, _max_depth: list(namespaces)),
    ],
    ids=lambda broken: broken[0],
)
def test_the_comparison_detects_a_broken_store(tmp_path, monkeypatch, broken):
    """The negative control of the property above."""
    monkeypatch.setattr(f"statelog.adapters.langgraph.memory.items.{broken[0]}", broken[1])
    batches = [
        [PutOp(("b",), "k", {"n": 1}), PutOp(("a", "b"), "k", {"n": 2}), PutOp(("a", "b"), "l", {"n": 3})],
        [SearchOp(("a",)), SearchOp((), {"n": 2}), ListNamespacesOp((MatchCondition("suffix", ("z",)),))],
        [PutOp(("b",), "k", None), ListNamespacesOp(None, 1)],
    ]
    with pytest.raises((AssertionError, KeyError)):
        compare(tmp_path / "a.state", batches)
    monkeypatch.undo()
    compare(tmp_path / "b.state", batches)


@settings(max_examples=10)
@given(st.lists(st.builds(PutOp, NAMESPACES, KEYS, st.none() | VALUES, st.none(), st.none()), min_size=1, max_size=20))
def test_deleting_every_item_leaves_nothing(tmp_path_factory, puts):
    with StatelogStore.open(tmp_path_factory.mktemp("model") / "a.state", durability="interval") as store:
        store.batch(puts)
        store.batch([PutOp(put.namespace, put.key, None) for put in puts])
        state = store.store.thread(STORE_THREAD_ID).state.to_python()
        assert {channel: held for channel, held in state.items() if held and channel != "last"} == {}
