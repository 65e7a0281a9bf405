"""Items: order, batches, times, bad input, sizes, and their display."""

from __future__ import annotations

import asyncio
import enum
import json
import subprocess
import sys
from collections import OrderedDict
from contextlib import suppress
from types import MappingProxyType

import pytest

pytest.importorskip("langgraph", reason="LangGraph is not installed")

from langgraph.graph import END, START, StateGraph
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

import statelog
from statelog.adapters.langgraph import StatelogCache, StatelogSaver, StatelogStore
from statelog.adapters.langgraph.memory.store import STORE_THREAD_ID
from statelog.errors import ClosedError, LimitError, UsageError, ValueTypeError
from statelog.store.snapshot import SnapshotSession

USERS = ("users", "1")


@pytest.fixture
def memory(store, clock):
    return StatelogStore(store, clock=clock)


def keys(found):
    return [item.key for item in found]


# --- order and batches ------------------------------------------------------------------


def test_results_are_in_the_order_of_the_last_put(memory, clock):
    for key in ("a", "b", "c"):
        memory.put(USERS, key, {"n": 1})
    clock.now_s -= 3600  # Clocks may go back, but the order does not follow them.
    memory.put(("users", "2"), "d", {"n": 2})
    memory.put(USERS, "a", {"n": 3})
    assert keys(memory.search(("users",))) == ["a", "d", "c", "b"]
    assert keys(memory.search(("users",), limit=2, offset=1)) == ["d", "c"]
    assert keys(memory.search(USERS, filter={"n": 1})) == ["c", "b"]
    assert keys(memory.search((), filter={"n": {"$gte": 2}})) == ["a", "d"]


def test_a_search_with_rare_matches_finds_all_in_order(memory):
    memory.batch([PutOp(USERS, f"{number}", {"n": number % 200, "m": number}) for number in range(1000)])
    assert [item.value["m"] for item in memory.search(USERS, filter={"n": 7})] == [807, 607, 407, 207, 7]
    assert [item.value["m"] for item in memory.search(("users",), filter={"n": 7}, limit=2, offset=2)] == [407, 207]
    assert memory.search(USERS, filter={"n": 7, "m": 8}) == []


@pytest.mark.parametrize(("spaces", "each"), [(300, 1), (100, 20), (70, 3)])
def test_searches_over_many_namespaces_are_in_order(memory, spaces, each):
    puts = [PutOp(("users", f"{number % spaces}", "x"), f"{number}", {"n": number}) for number in range(spaces * each)]
    memory.batch(puts)
    memory.put(("other",), "o", {"n": -1})
    memory.put(("users", "7", "x"), "7", {"n": 7})
    expected = [7, *(number for number in reversed(range(spaces * each)) if number != 7)]
    assert [item.value["n"] for item in memory.search(("users",), limit=10**6)] == expected
    assert [item.value["n"] for item in memory.search((), limit=10, offset=2)] == expected[1:11]
    assert [item.value["n"] for item in memory.search(("users",), filter={"n": {"$lt": 5}})] == [4, 3, 2, 1, 0]
    assert [item.value["n"] for item in memory.search(("users", "7"), limit=1)] == [7]
    assert memory.search(("user",)) == []
    assert len(memory.list_namespaces(prefix=("users",), limit=1000)) == spaces


def test_reads_of_a_batch_see_the_state_before_it(memory):
    memory.put(USERS, "a", {"n": 1})
    got, _put, _deleted, found, namespaces, _last = memory.batch(
        [
            GetOp(USERS, "a"),
            PutOp(USERS, "a", {"n": 2}),
            PutOp(USERS, "a", None),
            SearchOp(()),
            ListNamespacesOp(),
            PutOp(USERS, "a", {"n": 3}),
        ]
    )
    assert (got.value, [item.value for item in found], namespaces) == ({"n": 1}, [{"n": 1}], [USERS])
    assert memory.get(USERS, "a").value == {"n": 3}
    assert memory.batch([]) == []


def test_a_batch_is_committed_completely_or_not_at_all(memory):
    memory.put(USERS, "a", {"n": 1})
    version = memory.store.thread(STORE_THREAD_ID).version
    memory.batch([PutOp(USERS, f"{number}", {"n": number}) for number in range(100)])
    assert memory.store.thread(STORE_THREAD_ID).version == version + 1
    with pytest.raises(ValueTypeError, match=r"users\.1\.bad\.x: cannot store object"):
        memory.batch([PutOp(USERS, "good", {"n": 1}), PutOp(USERS, "bad", {"x": object()})])
    with pytest.raises(ValueError, match="Unsupported operator"):
        memory.batch([PutOp(USERS, "good", {"n": 1}), SearchOp((), {"n": {"$where": 1}})])
    memory.delete(USERS, "never there")
    assert memory.store.thread(STORE_THREAD_ID).version == version + 1
    assert memory.get(USERS, "good") is None


def test_a_put_keeps_created_at_and_changes_updated_at(memory, clock):
    memory.put(USERS, "a", {"n": 1})
    clock.now_s += 60
    memory.put(USERS, "a", {"n": 2})
    item = memory.get(USERS, "a")
    assert (item.updated_at - item.created_at).total_seconds() == 60
    assert item.created_at.timestamp() == 1_700_000_000
    (found,) = memory.search(USERS)
    assert (found.created_at, found.updated_at, found.score) == (item.created_at, item.updated_at, None)
    memory.delete(USERS, "a")
    memory.put(USERS, "a", {"n": 3})
    item = memory.get(USERS, "a")
    assert item.created_at == item.updated_at
    assert memory.get(USERS, "a", refresh_ttl=False) == item


# --- namespaces ---------------------------------------------------------------------------


def test_namespaces_match_at_either_end_with_wildcards(memory):
    spaces = [("a", "b", "c"), ("a", "b", "d", "e"), ("a", "b", "d", "i"), ("a", "b", "f"), ("a", "c", "f"), ("b",)]
    memory.batch([PutOp(space, "k", {"n": 1}) for space in reversed(spaces)])
    assert memory.list_namespaces() == spaces
    assert memory.list_namespaces(prefix=("a", "b"), max_depth=3) == [("a", "b", "c"), ("a", "b", "d"), ("a", "b", "f")]
    assert memory.list_namespaces(prefix=("a", "*", "f")) == [("a", "b", "f"), ("a", "c", "f")]
    assert memory.list_namespaces(suffix=("f",), prefix=("a", "c")) == [("a", "c", "f")]
    assert memory.list_namespaces(suffix=("d", "*")) == [("a", "b", "d", "e"), ("a", "b", "d", "i")]
    assert memory.list_namespaces(prefix=("*", "b"), limit=2, offset=1) == [("a", "b", "d", "e"), ("a", "b", "d", "i")]
    assert memory.list_namespaces(prefix=("a", "b", "c", "d")) == []
    assert memory.list_namespaces(prefix=("none",)) == []
    memory.delete(("a", "c", "f"), "k")
    assert memory.list_namespaces(prefix=("a", "c")) == []
    with pytest.raises(ValueError, match="Unsupported match type"):
        memory.batch([ListNamespacesOp((MatchCondition("infix", ("a",)),))])


def test_a_prefix_matches_whole_labels(memory):
    memory.put(("user",), "a", {"n": 1})
    memory.put(("user", "x"), "b", {"n": 1})
    memory.put(("users",), "c", {"n": 1})
    assert sorted(keys(memory.search(("user",)))) == ["a", "b"]
    assert keys(memory.search(("user", "x", "y"))) == []


@pytest.mark.parametrize("namespace", [(), ("langgraph", "x"), ("a", ""), ("a.b",), ("a", 1), ("a\x00",)])
def test_namespaces_that_langgraph_forbids_raise_its_error(memory, namespace):
    with suppress(InvalidNamespaceError):
        InMemoryStore().put(namespace, "k", {"n": 1})
        pytest.skip("this release of LangGraph allows it")
    with pytest.raises(InvalidNamespaceError):
        memory.put(namespace, "k", {"n": 1})
    if namespace and namespace[0] != "langgraph":
        for op in (PutOp(namespace, "k", {"n": 1}), GetOp(namespace, "k"), SearchOp(namespace)):
            with pytest.raises(InvalidNamespaceError):
                memory.batch([op])
            with pytest.raises(InvalidNamespaceError):
                asyncio.run(memory.abatch([op]))
        with pytest.raises(InvalidNamespaceError):
            memory.list_namespaces(suffix=namespace)
    assert memory.store.last_lsn == 0


# --- filters ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ({"n": 1}, "ab"),
        ({"n": True}, "c"),
        ({"n": {"$ne": True}}, "abdefg"),
        ({"n": {"$gt": 0.5}}, "ab"),
        ({"n": {"$gt": 0.5, "$lt": 1}}, ""),
        ({"n": {"$lte": "x"}}, "d"),
        ({"n": {"$gte": 10**40}}, ""),
        ({"n": None}, "fg"),
        ({"n": {"$eq": None}}, "fg"),
        ({"n": {"m": {"$gte": 2}}}, "e"),
        ({"n": {"m": 2, "t": None}}, "e"),
        ({"n": {"$eq": {"m": 2}}}, "e"),
        ({"n": {"$eq": {"m": True}}}, ""),
        ({"l": [1, {"$gt": 1}]}, "g"),
        ({"l": [1]}, ""),
        ({"l": {"$eq": [1, 2]}}, "g"),
        ({"n') = 1 OR (1": 1}, ""),
        ({"$where": "1"}, ""),
        ({"x.y": 1}, "f"),
        ({}, "abcdefg"),
    ],
)
def test_filters_compare_by_type_and_never_execute_code(memory, condition, found):
    values = {"a": 1, "b": 1.0, "c": True, "d": "10", "e": {"m": 2}}
    memory.batch([PutOp(USERS, key, {"n": value}) for key, value in values.items()])
    memory.put(USERS, "f", {"x.y": 1})
    memory.put(USERS, "g", {"n": None, "l": [1, 2], "long": "x" * 9000})
    assert "".join(sorted(keys(memory.search(USERS, filter=condition)))) == found


@pytest.mark.parametrize(
    "condition", [{"$regex": "x"}, {"$gt": 1, "plain": 2}, {"$gt": None}, {"$lt": True}, {"$gt": []}]
)
def test_invalid_filters_are_refused_even_by_an_empty_store(memory, condition):
    with pytest.raises(ValueError, match=r"\$|Unsupported"):
        memory.search(USERS, filter={"n": condition})


@pytest.mark.parametrize("condition", [{"user.": 1}, {"n": {".": 1}}])
def test_a_filter_with_an_empty_step_is_refused(memory, condition):
    with pytest.raises(statelog.UsageError, match="a part between dots is empty"):
        memory.search(USERS, filter=condition)


def test_invalid_operations_are_refused(memory):
    with pytest.raises(ValueError, match="Unknown operation type"):
        memory.batch(["get"])


# --- values -------------------------------------------------------------------------------


class Colour(enum.StrEnum):
    RED = "red"


def test_values_are_returned_as_json_or_unchanged(memory):
    put = OrderedDict(n=2**70, f=1.5, t=(1, 2), c=Colour.RED, o=OrderedDict(b=Colour.RED), l=[enum.IntEnum("E", "A").A])
    memory.put(USERS, "a", put)
    assert memory.get(USERS, "a").value == {**put, "l": [1]}
    assert type(memory.get(USERS, "a").value["o"]["b"]) is str
    memory.put(USERS, "b", MappingProxyType({"x": 1}))
    assert memory.get(USERS, "b").value == {"x": 1}
    got = memory.get(USERS, "b").value
    got["x"] = 2  # A copy.
    assert memory.get(USERS, "b").value == {"x": 1}


def test_values_that_cannot_be_stored_are_refused_by_path(memory):
    with pytest.raises(ValueTypeError, match=r"users\.1\.k\.a\[1\]"):
        memory.put(USERS, "k", {"a": [1, object()]})
    with pytest.raises(ValueTypeError, match=r"users\.1\.k.*keys are str"):
        memory.put(USERS, "k", {1: "a"})
    with pytest.raises(UsageError, match=r"users\.1\.k: an item must be a dict"):
        memory.put(USERS, "k", [1])
    with pytest.raises(LimitError):
        memory.put(USERS, "k" * 5000, {"n": 1})
    with pytest.raises(LimitError):
        memory.put(tuple("x" * 100 for _ in range(50)), "k", {"n": 1})
    deep = {}
    for _ in range(150):
        deep = {"d": deep}
    with pytest.raises(LimitError):
        memory.put(USERS, "k", deep)
    assert memory.search(()) == []


def test_large_values_are_written_once_and_read_lazily(memory):
    texts = {f"text {number}": f"{number} " + "x" * 1_000_000 for number in range(3)}
    for key, text in texts.items():
        memory.put(USERS, key, {"text": text, "n": 1, "rows": [[number, "y" * 50] for number in range(500)]})
    assert {item.key: item.value["text"] for item in memory.search(USERS)} == texts
    for _ in range(3):
        memory.put(USERS, "text 1", {"text": texts["text 1"], "n": 2, "rows": []})
    head = memory.store.thread(STORE_THREAD_ID).head
    assert next(memory.store.log(after=head.lsn - 1)).size_bytes < 20_000
    assert memory.get(USERS, "text 1").value == {"text": texts["text 1"], "n": 2, "rows": []}


def test_a_put_among_many_items_writes_one_path(memory):
    memory.batch([PutOp(("many", f"{number % 7}"), f"key {number}", {"n": number}) for number in range(20_000)])
    memory.put(("many", "3"), "key 10", {"n": -1})
    head = memory.store.thread(STORE_THREAD_ID).head
    assert next(memory.store.log(after=head.lsn - 1)).size_bytes < 16_384
    assert keys(memory.search(("many", "3"), limit=1)) == ["key 10"]
    assert len(memory.search(("many",), limit=10**6)) == 20_000


def test_a_search_reads_nothing_of_other_namespaces(path, monkeypatch):
    with StatelogStore.open(path) as memory:
        memory.batch([PutOp((f"{space}",), f"{n}", {"text": "x" * 3000}) for space in range(50) for n in range(40)])
        memory.put(USERS, "a", {"n": 1})
    read = []
    original = SnapshotSession._nodes
    monkeypatch.setattr(SnapshotSession, "_nodes", lambda self, refs: read.extend(refs) or original(self, refs))
    one = SnapshotSession._node
    monkeypatch.setattr(SnapshotSession, "_node", lambda self, *ref: read.append(ref) or one(self, *ref))
    with StatelogStore.open(path) as memory:
        assert keys(memory.search(("users",), filter={"n": 1})) == ["a"]
        assert memory.get(USERS, "a").value == {"n": 1}
        assert len(read) < 40
        read.clear()
        assert len(memory.search(("7",), limit=100)) == 40
        assert 40 < len(read) < 120  # Negative control: items are nodes, and are counted.


def test_statelog_shows_the_items(memory, path):
    memory.put(USERS, "prefs", {"theme": "dark"})
    memory.store.close()
    command = [sys.executable, "-m", "statelog", "show", str(path), STORE_THREAD_ID, "--path", "items", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    shown = json.dumps(json.loads(done.stdout))
    assert all(word in shown for word in ("users.1", "prefs", "theme", "dark", "created"))


# --- opening and closing --------------------------------------------------------------------


def test_the_next_opening_finds_everything_in_one_file(path):
    async def read():
        async with StatelogStore.open(path) as memory:
            return await memory.aget(USERS, "a"), await memory.alist_namespaces()

    with StatelogStore.open(path) as memory:
        memory.put(USERS, "a", {"n": 1})
        assert memory.store.path == path
    with pytest.raises(ClosedError):
        memory.get(USERS, "a")
    item, namespaces = asyncio.run(read())
    assert (item.value, namespaces) == ({"n": 1}, [USERS])
    with StatelogStore.open(path, read_only=True) as memory:
        assert keys(memory.search(())) == ["a"]
        with pytest.raises(statelog.StatelogError):
            memory.put(USERS, "a", {"n": 2})


def test_a_store_that_others_also_use_stays_open(store):
    store.thread("other").commit({"x": 1})
    with StatelogStore(store) as memory:
        memory.put(USERS, "a", {"n": 1})
    assert store.thread("other").state == {"x": 1}
    assert StatelogStore(store).get(USERS, "a").value == {"n": 1}


@pytest.mark.parametrize("thread_id", ["langgraph:store", "langgraph:cache"])
def test_a_saver_refuses_the_threads_of_items_and_cache(store, thread_id):
    memory, saver = StatelogStore(store), StatelogSaver(store)
    memory.put(USERS, "a", {"n": 1})
    StatelogCache(store).set({(("n",), "k"): (1, None)})
    with pytest.raises(UsageError, match="is reserved for StatelogStore"):
        saver.get_tuple({"configurable": {"thread_id": thread_id}})
    with pytest.raises(UsageError, match="is reserved for StatelogStore"):
        saver.delete_thread(thread_id)
    with pytest.raises(UsageError, match="is reserved for StatelogStore"):
        saver.prune([thread_id])
    saver.delete_for_runs(["run"])
    assert list(saver.list(None)) == []
    assert memory.get(USERS, "a").value == {"n": 1}


def test_a_graph_can_use_the_store(store):
    def remember(state, *, store):
        store.put(USERS, "last", {"text": state["text"]})
        return {"text": store.get(USERS, "last").value["text"] + "!"}

    async def aremember(state, *, store):
        await store.aput(USERS, "last", {"text": state["text"]})
        return {"text": (await store.aget(USERS, "last")).value["text"] + "?"}

    memory = StatelogStore(store)
    graph = StateGraph(dict)
    graph.add_node("remember", remember)
    graph.add_edge(START, "remember")
    graph.add_edge("remember", END)
    assert graph.compile(store=memory).invoke({"text": "hello"}) == {"text": "hello!"}
    graph = StateGraph(dict)
    graph.add_node("remember", aremember)
    graph.add_edge(START, "remember")
    graph.add_edge("remember", END)
    assert asyncio.run(graph.compile(store=memory).ainvoke({"text": "hello"})) == {"text": "hello?"}


def test_without_index_a_query_is_ignored_as_by_langgraphs_stores(memory):
    for each in (memory, InMemoryStore()):
        each.put(USERS, "a", {"n": 1}, index=["n"])
        assert keys(each.search(USERS, query="anything")) == ["a"]
        each.batch([PutOp(USERS, "b", {"n": 2}), SearchOp(USERS, query="anything")])
        asyncio.run(each.abatch([PutOp(USERS, "c", {"n": 3}), SearchOp(USERS, query="anything")]))
        assert sorted(keys(each.search(USERS, query="", filter={"n": {"$gt": 1}}))) == ["b", "c"]


DOTTED = {
    "deep": {"user": {"name": "ann", "tags": ["x"]}, "n": 1},
    "flat": {"user.name": "ann"},
    "both": {"user.name": "bob", "user": {"name": "ann"}},
    "text": {"user": "ann"},
    "none": {"user.name": None, "user": {"name": "ann"}},
    "empty": {},
}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"user.name": "ann"}, {"deep", "flat"}),
        ({"user.name": {"$eq": "ann"}}, {"deep", "flat"}),
        ({"user.name": {"$gt": "a"}, "n": 1}, {"deep"}),
        ({"user.tags": ["x"]}, {"deep"}),
        ({"user.name": {"$ne": "ann"}}, {"both", "text", "none", "empty"}),
        ({"user.name.first": "ann"}, set()),
        ({"user.name": None}, {"text", "none", "empty"}),
        ({"user": {"name": "ann"}}, {"deep", "both", "none"}),
    ],
)
def test_a_filter_accepts_a_key_with_dots_or_a_path(memory, asked, expected):
    for key, value in DOTTED.items():
        memory.put(USERS, key, value)
    assert {*keys(memory.search(USERS, filter=asked))} == expected
