"""Arguments of the store and of the cache that cannot be: refused by name, before anything is done."""

import pytest

pytest.importorskip("langgraph")

from langgraph.store.base import GetOp, InvalidNamespaceError, PutOp

from statelog import UsageError
from statelog.adapters.langgraph import StatelogCache, StatelogStore


@pytest.fixture
def store(tmp_path):
    with StatelogStore.open(tmp_path / "agent.state") as opened:
        opened.put(("a",), "k", {"x": 1})
        yield opened


@pytest.fixture
def cache(store):
    opened = StatelogCache(store.store)
    opened.set({(("a",), "k"): (1, None)})
    return opened


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("limit", lambda store: store.search((), limit=1.5)),
        ("limit", lambda store: store.search((), limit=True)),
        ("offset", lambda store: store.search((), offset=None)),
        ("filter", lambda store: store.search((), filter="x")),
        ("filter", lambda store: store.search((), filter=[1])),
        ("query", lambda store: store.search((), query=5)),
        ("limit", lambda store: store.list_namespaces(limit="1")),
        ("max_depth", lambda store: store.list_namespaces(max_depth=1.5)),
        ("key", lambda store: store.batch([PutOp(("b",), "x", {}), GetOp(("a",), 5)])),
        ("key", lambda store: store.batch([PutOp(("b",), "x", {}), PutOp(("a",), None, {})])),
    ],
)
def test_a_store_refuses_by_name_and_changes_nothing(store, argument, call):
    with pytest.raises(UsageError) as caught:
        call(store)
    assert caught.value.facts["argument"] == argument
    assert [item.key for item in store.search(())] == ["k"]


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.put("ab", "k", {}),
        lambda store: store.get("ab", "k"),
        lambda store: store.delete("ab", "k"),
        lambda store: store.search("ab"),
        lambda store: store.list_namespaces(prefix="ab"),
        lambda store: store.list_namespaces(suffix="ab"),
        lambda store: store.batch([GetOp(b"ab", "k")]),
    ],
)
def test_a_text_is_no_namespace(store, call):
    with pytest.raises(InvalidNamespaceError):
        call(store)
    assert store.list_namespaces() == [("a",)]


@pytest.mark.parametrize("minutes", ["x", -1, float("nan"), True])
def test_an_interval_that_is_none_starts_no_sweeper(store, minutes):
    with pytest.raises(ValueError, match="minutes"):
        store.start_ttl_sweeper(minutes)
    assert store.stop_ttl_sweeper(0)


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("keys", lambda cache: cache.get(None)),
        ("keys", lambda cache: cache.get("ab")),
        ("key", lambda cache: cache.get([None])),
        ("key", lambda cache: cache.get(["ab"])),
        ("key", lambda cache: cache.get([(("a",), 5)])),
        ("namespace", lambda cache: cache.get([("ab", "k")])),
        ("pairs", lambda cache: cache.set([])),
        ("key", lambda cache: cache.set({(("b",), "k"): (1, None), 1: (1, None)})),
        ("entry", lambda cache: cache.set({(("b",), "k"): (1, None), (("a",), "k"): 1})),
        ("namespaces", lambda cache: cache.clear("ab")),
        ("namespaces", lambda cache: cache.clear(5)),
        ("namespace", lambda cache: cache.clear([("a",), 5])),
    ],
)
def test_a_cache_refuses_by_name_and_changes_nothing(cache, argument, call):
    with pytest.raises(UsageError) as caught:
        call(cache)
    assert caught.value.facts["argument"] == argument
    assert cache.get([(("a",), "k"), (("b",), "k")]) == {(("a",), "k"): 1}


@pytest.mark.parametrize("seconds", ["x", -1, float("inf"), True])
def test_a_cache_refuses_a_time_to_live_that_is_none(cache, seconds):
    with pytest.raises(ValueError, match="seconds"):
        cache.set({(("b",), "k"): (1, None), (("a",), "k"): (2, seconds)})
    assert cache.get([(("a",), "k"), (("b",), "k")]) == {(("a",), "k"): 1}
