"""The cache gives the same answers as LangGraph's in-memory cache, expires entries, and is shared in one file."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from unittest.mock import patch

import pytest

pytest.importorskip("langgraph", reason="LangGraph is not installed")

from clocks import Clock
from hypothesis import given
from hypothesis import strategies as st
from langgraph.cache.memory import InMemoryCache
from langgraph.graph import END, START, StateGraph
from langgraph.types import CachePolicy

from statelog.adapters.langgraph import StatelogCache, StatelogStore
from statelog.adapters.langgraph.memory.cache import CACHE_THREAD_ID
from statelog.errors import ValueTypeError


@pytest.fixture
def cache(store, clock):
    return StatelogCache(store, clock=clock)


@pytest.mark.parametrize("value", [object(), {"a": [1, {2: object()}]}])
def test_a_value_refused_by_the_serialiser_is_named(cache, value):
    cache.set({(("a", "b"), "kept"): (1, None)})
    with pytest.raises(ValueTypeError, match=r"^a\.b\.k.*: the serialiser does not accept object"):
        cache.set({(("a", "b"), "kept"): (2, None), (("a", "b"), "k"): (value, None)})
    assert cache.get([(("a", "b"), "kept"), (("a", "b"), "k")]) == {(("a", "b"), "kept"): 1}


NAMESPACES = st.lists(st.sampled_from(["a", "b", "a,b", '"', ""]), max_size=2).map(tuple)
FULL_KEYS = st.tuples(NAMESPACES, st.sampled_from(["k", "l", ""]))
VALUES = st.one_of(
    st.none(), st.integers(-(2**63), 2**63), st.text(max_size=5), st.lists(st.booleans(), max_size=3), st.binary()
)
PAIRS = st.dictionaries(FULL_KEYS, st.tuples(VALUES, st.none() | st.integers(0, 20)), max_size=4)
CALLS = st.one_of(
    st.tuples(st.just("set"), PAIRS),
    st.tuples(st.just("get"), st.lists(FULL_KEYS, max_size=4)),
    st.tuples(st.just("clear"), st.none() | st.lists(NAMESPACES, max_size=2)),
    st.tuples(st.just("pass"), st.integers(0, 10)),
)


@given(st.lists(CALLS, max_size=20), st.booleans())
def test_random_calls_get_the_same_answers_as_from_the_in_memory_cache(tmp_path_factory, calls, is_async):
    clock = Clock()
    theirs = InMemoryCache()
    with (
        StatelogCache.open(tmp_path_factory.mktemp("c") / "a.state", clock=clock, durability="interval") as ours,
        patch("langgraph.cache.memory.datetime") as their_module,
    ):
        their_module.datetime = SimpleNamespace(now=lambda _zone: datetime.fromtimestamp(clock.now_s, UTC))
        their_module.timedelta = timedelta
        for name, argument in calls:
            if name == "pass":
                clock.now_s += argument
            elif is_async:
                answer = asyncio.run(getattr(ours, f"a{name}")(argument))
                assert answer == getattr(theirs, name)(argument)
            else:
                assert getattr(ours, name)(argument) == getattr(theirs, name)(argument)
        assert ours.store.verify().problems == []


def test_expired_entries_are_removed_with_later_writes(cache, clock):
    cache.set({(("n",), f"{number}"): (number, 10) for number in range(50)})
    clock.now_s += 10
    assert cache.get([(("n",), "7")]) == {}
    cache.set({(("m",), "new"): (1, None)})
    state = cache.store.thread(CACHE_THREAD_ID).state.to_python()
    assert (list(state["entries"]), state["expiring"]) == (['["m"]'], {})
    cache.set({(("m",), "new"): (2, 5)})
    cache.set({(("m",), "new"): (3, None)})
    clock.now_s += 6
    assert cache.get([(("m",), "new")]) == {(("m",), "new"): 3}


def test_large_values_and_types_of_langgraph_are_restored(cache):
    from langchain_core.messages import HumanMessage

    value = {"messages": [HumanMessage("hello", id="1")], "data": b"x" * 100_000}
    cache.set({(("n",), "k"): (value, 60)})
    cache.set({(("n",), "k"): (value, 60)})
    assert cache.get([(("n",), "k")]) == {(("n",), "k"): value}


def test_the_next_process_finds_the_entries_and_versions_do_not_accumulate(path):
    with StatelogCache.open(path) as cache:
        for number in range(200):
            cache.set({(("n",), "k"): (number, None)})
        assert len(list(cache.store.thread(CACHE_THREAD_ID).history())) <= 65
    code = (
        "import sys; from statelog.adapters.langgraph import StatelogCache\n"
        "with StatelogCache.open(sys.argv[1]) as cache: print(cache.get([(('n',), 'k')]))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{(('n',), 'k'): 199}"


def test_a_cache_and_a_store_share_a_file(store):
    cache, memory = StatelogCache(store), StatelogStore(store)
    cache.set({(("n",), "k"): (1, None)})
    memory.put(("n",), "k", {"n": 2})
    cache.clear()
    assert (cache.get([(("n",), "k")]), memory.get(("n",), "k").value) == ({}, {"n": 2})


def test_a_graph_caches_its_nodes(cache):
    runs = []

    def work(state):
        runs.append(state["x"])
        return {"x": state["x"] + 1}

    graph = StateGraph(dict)
    graph.add_node("work", work, cache_policy=CachePolicy(ttl=60))
    graph.add_edge(START, "work")
    graph.add_edge("work", END)
    compiled = graph.compile(cache=cache)
    assert [compiled.invoke({"x": 1}) for _ in range(3)] == [{"x": 2}] * 3
    assert asyncio.run(compiled.ainvoke({"x": 1})) == {"x": 2}
    assert runs == [1]
    compiled.clear_cache()
    compiled.invoke({"x": 1})
    assert runs == [1, 1]


def test_tasks_share_the_cache(path):
    async def main():
        async with StatelogCache.open(path) as cache:
            return await use(cache), cache.store

    async def use(cache):
        await asyncio.gather(*[cache.aset({(("n",), f"{number}"): (number, 60)}) for number in range(50)])
        return await cache.aget([(("n",), f"{number}") for number in range(50)])

    found, store = asyncio.run(main())
    assert list(found.values()) == list(range(50))
    assert store.closed


def test_an_entry_of_a_different_serialiser_is_named(store, cache):
    """For example, an entry of an EncryptedSerializer with another key."""
    cache.set({(("a",), "k"): (1, None)})
    other = StatelogCache(
        store, serde=SimpleNamespace(dumps_typed=lambda _: ("own", b"x"), loads_typed=lambda _: 1 / 0)
    )
    with pytest.raises(ZeroDivisionError) as caught:
        other.get([(("a",), "k")])
    assert caught.value.__notes__ == [
        "statelog: raised by the serialiser for entry 'k' of namespace ('a',): set it again or clear it"
    ]
    other.set({(("a",), "k"): (2, None)})
    with pytest.raises(NotImplementedError, match="own"):  # LangGraph raises this for an unknown type.
        cache.get([(("a",), "k")])
    cache.clear([("a",)])
    assert cache.get([(("a",), "k")]) == {}
