"""Invalid arguments of the store and the cache are refused with their names before anything is done."""

import sys

import pytest

pytest.importorskip("langgraph")

from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, PutOp

from statelog import UsageError
from statelog.adapters.langgraph import StatelogCache, StatelogStore
from statelog.adapters.langgraph.memory.items import arguments
from statelog.errors import ClosedError, LimitError, ValueTypeError


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
        ("ops", lambda store: store.batch(5)),
        ("ops", lambda store: store.batch("get")),
        ("match_conditions", lambda store: store.batch([ListNamespacesOp(5)])),
        ("match_conditions", lambda store: store.batch([ListNamespacesOp((("prefix", ("a",)),))])),
        ("index", lambda store: store.put(("b",), "x", {}, index=5)),
        ("index", lambda store: store.put(("b",), "x", {}, index=True)),
        ("index", lambda store: store.put(("b",), "x", {}, index="text")),
        ("index", lambda store: store.put(("b",), "x", {}, index=[None])),
        ("key", lambda store: store.batch([PutOp(("b",), "x", {}), GetOp(("a",), 5)])),
        ("key", lambda store: store.batch([PutOp(("b",), "x", {}), PutOp(("a",), None, {})])),
    ],
)
def test_a_store_refuses_invalid_arguments_by_name_and_changes_nothing(store, argument, call):
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
def test_a_str_is_not_a_namespace(store, call):
    with pytest.raises(InvalidNamespaceError):
        call(store)
    assert store.list_namespaces() == [("a",)]


@pytest.mark.parametrize("bound", [sys.maxsize, 1 << 64])
def test_limits_of_any_size_are_accepted(store, bound):
    assert [item.key for item in store.search((), limit=bound)] == ["k"]
    assert store.search((), limit=bound, offset=1) == []
    assert store.search((), offset=bound) == []
    assert store.list_namespaces(limit=bound) == [("a",)]


def nested(depth):
    value = 1
    for _ in range(depth):
        value = {"x": value}
    return value


def test_an_endless_filter_is_refused(store):
    with pytest.raises(LimitError, match=r"^filter is nested too deeply"):
        store.search((), filter=nested(5000))
    assert store.search((), filter=nested(100)) == []


@pytest.mark.parametrize(
    ("kind", "says", "namespace", "key", "value"),
    [
        (LimitError, "key of item 'kkk", ("b",), "k" * 5000, {}),
        (LimitError, "namespace of item 'x' in 'bbb", ("b" * 5000,), "x", {}),
        (ValueTypeError, "key of item '.ud800' in 'b'", ("b",), "\ud800", {}),
        (ValueTypeError, "namespace of item 'x' in '.ud800'", ("\ud800",), "x", {}),
        (LimitError, r"b\.x\..*: nested deeper than 127 levels", ("b",), "x", nested(200)),
        (LimitError, "b.x: a key has 5003 bytes", ("b",), "x", {"k" * 5000: 1}),
    ],
)
def test_an_item_that_cannot_be_stored_is_named(store, kind, says, namespace, key, value):
    with pytest.raises(kind, match=f"^{says}"):
        store.batch([PutOp(("b",), "good", {}), PutOp(namespace, key, value)])
    assert [item.key for item in store.search(())] == ["k"]
    assert store.get(namespace, key) is None


@pytest.mark.parametrize("minutes", ["x", -1, float("nan"), float("inf"), True])
def test_an_invalid_interval_starts_no_sweeper(store, minutes):
    with pytest.raises(ValueError, match=r"^sweep_interval_minutes must be a positive number of minutes"):
        store.start_ttl_sweeper(minutes)
    configured = StatelogStore(store.store, ttl={"sweep_interval_minutes": minutes})
    with pytest.raises(ValueError, match=r"^sweep_interval_minutes"):
        configured.start_ttl_sweeper()
    assert store.stop_ttl_sweeper(0)


def test_an_interval_of_zero_means_no_interval_as_for_langgraph(store):
    assert arguments.sweep_interval_s(0, None, 5) == arguments.sweep_interval_s(None, 0, 5) == 300.0
    store.start_ttl_sweeper(0)
    assert store.stop_ttl_sweeper()


def test_the_longest_interval_is_accepted(store):
    store.start_ttl_sweeper(1e300)
    assert not store.stop_ttl_sweeper(0) or store.stop_ttl_sweeper()


def test_a_closed_store_starts_no_sweeper(store):
    store.close()
    with pytest.raises(ClosedError):
        store.start_ttl_sweeper()


@pytest.mark.parametrize("kind", [StatelogStore, StatelogCache])
@pytest.mark.parametrize("given", ["agent.state", None, 5])
def test_a_file_that_is_not_a_store_has_no_contents(kind, given):
    with pytest.raises(UsageError, match=f"^a {kind.__name__} needs an open store") as caught:
        kind(given)
    assert caught.value.facts["argument"] == "store"


@pytest.mark.parametrize("ttl", [5, "x", [1]])
def test_an_invalid_ttl_configuration_is_refused(store, ttl):
    with pytest.raises(ValueError, match=r"^ttl must be a dict"):
        StatelogStore(store.store, ttl=ttl)


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
def test_a_cache_refuses_invalid_arguments_by_name_and_changes_nothing(cache, argument, call):
    with pytest.raises(UsageError) as caught:
        call(cache)
    assert caught.value.facts["argument"] == argument
    assert cache.get([(("a",), "k"), (("b",), "k")]) == {(("a",), "k"): 1}


@pytest.mark.parametrize(
    ("kind", "says", "namespace", "key"),
    [
        (LimitError, "key of entry 'kkk", ("b",), "k" * 5000),
        (LimitError, "namespace of entry 'x'", ("b" * 5000,), "x"),
        (ValueTypeError, "key of entry '.ud800'", ("b",), "\ud800"),
        (ValueTypeError, "namespace of entry 'x'", ("\ud800",), "x"),
    ],
)
def test_an_entry_that_cannot_be_stored_is_named(cache, kind, says, namespace, key):
    with pytest.raises(kind, match=f"^{says}"):
        cache.set({(("b",), "k"): (1, None), (namespace, key): (2, None)})
    assert cache.get([(("a",), "k"), (("b",), "k"), (namespace, key)]) == {(("a",), "k"): 1}


@pytest.mark.parametrize("seconds", ["x", -1, float("inf"), True])
def test_a_cache_refuses_an_invalid_time_to_live(cache, seconds):
    with pytest.raises(ValueError, match="seconds"):
        cache.set({(("b",), "k"): (1, None), (("a",), "k"): (2, seconds)})
    assert cache.get([(("a",), "k"), (("b",), "k")]) == {(("a",), "k"): 1}
