"""The cache of nodes, and the checks of a node from the disk."""

from __future__ import annotations

import pytest

from statelog.errors import CorruptionError
from statelog.format.record import NodeRow, pack_nodes
from statelog.log.nodes import NodeCache
from statelog.tree.node import LEAF, ROOT, Node, node_digest

DIGEST = bytes(range(20))


def node(size=100):
    return Node(bytes(size), size, 1)


def test_a_node_that_was_put_is_returned():
    cache = NodeCache()
    cache.put(DIGEST, node(5), 1, 2)
    assert cache.get(DIGEST, 1, 2) == node(5)
    assert cache.get(DIGEST, 1, 3) is None
    cache.clear()
    assert cache.get(DIGEST, 1, 2) is None


def test_nodes_remembered_under_another_digest_are_not_used():
    """A locator that was damaged may lead to another node."""
    cache = NodeCache()
    cache.put(DIGEST, node(), 1, 2)
    cache.put_nodes(2, *pack_nodes([NodeRow(LEAF, DIGEST, b"x", 1)])[1:])
    assert cache.get(bytes(20), 1, 2) is None
    assert cache.get(bytes(20), 2, 0) is None
    assert cache.get(DIGEST, 2, 0) == Node(b"x", 1, 2)


def test_requested_nodes_stay_cached_and_others_are_dropped():
    cache = NodeCache(100_000)
    cache.put(DIGEST, node(), 0, 0)
    for number in range(1, 2000):
        cache.put(DIGEST, node(), 1, number)
        assert cache.get(DIGEST, 0, 0) == node()
    assert cache.get(DIGEST, 1, 1) is None
    held = sum(cache.get(DIGEST, 1, number) is not None for number in range(1, 2000))
    assert held * 100 <= 100_000


def test_a_node_that_would_fill_the_cache_is_not_kept():
    cache = NodeCache(100_000)
    cache.put(DIGEST, node(50_000), 1, 1)
    assert cache.get(DIGEST, 1, 1) is None


@pytest.fixture
def written(store):
    """A checkpoint whose list has its own nodes."""
    made = store.thread("t").commit({"x": ["y" * 100] * 3})
    store._engine.cache.clear()
    return store, made


def test_a_node_is_read_by_type_digest_and_place(written):
    store, made = written
    event = made._event
    root = store._engine.read_node(ROOT, event.root_digest, event.root_lsn, event.root_node)
    assert node_digest(ROOT, root.content) == event.root_digest


@pytest.mark.parametrize("wrong", ["type", "digest", "record", "node"])
def test_a_node_that_is_not_the_one_referred_to_is_damage(written, wrong):
    store, made = written
    event = made._event
    with pytest.raises(CorruptionError) as caught:
        store._engine.read_node(
            LEAF if wrong == "type" else ROOT,
            bytes(20) if wrong == "digest" else event.root_digest,
            99 if wrong == "record" else event.root_lsn,
            99 if wrong == "node" else event.root_node,
        )
    assert caught.value.lsn == (99 if wrong == "record" else event.root_lsn)
    assert caught.value.node == (99 if wrong == "node" else event.root_node)
