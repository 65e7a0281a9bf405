"""Required ancestors of a version are kept, whatever the policy."""

from __future__ import annotations

import pytest

import statelog
from statelog import reducers
from statelog.log.care import retention
from statelog.store.session import session_of

NEEDS = {"statelog:needs": ["items"]}


@pytest.fixture
def store(tmp_path):
    with statelog.open(tmp_path / "a.state", durability="interval") as store:
        yield store
        assert store.verify().ok


def _fill(thread, count, snapshots=()):
    """Commit versions that have only their additions. Some have the whole list."""
    for version in range(thread.version + 1, thread.version + 1 + count):
        if version in snapshots:
            thread.commit({"items": list(range(version))})
        else:
            thread.commit({"added": version}, metadata=NEEDS)


def _versions(thread):
    return sorted(checkpoint.version for checkpoint in thread.history())


@pytest.mark.parametrize(("keep_last", "first"), [(1, 6), (3, 6), (4, 3), (6, 3), (8, 0), (10, 0)])
def test_ancestors_are_kept_back_to_the_one_with_the_whole_channel(store, keep_last, first):
    """Of nine versions, 0, 3 and 6 have the whole list. The kept ones begin with one of these."""
    thread = store.thread("t")
    _fill(thread, 9, snapshots=(0, 3, 6))
    store.prune(keep_last=keep_last)
    assert _versions(thread) == list(range(first, 9))
    assert thread.at(first).state["items"] == list(range(first))


def test_without_a_whole_channel_all_ancestors_are_kept_and_without_a_requirement_none(store):
    needy, plain = store.thread("needy"), store.thread("plain")
    _fill(needy, 9)
    for number in range(9):
        plain.commit({"added": number}, metadata={"statelog:needs": "no list", "x": ["statelog:needs"]})
    store.prune(keep_last=1)
    assert (_versions(needy), _versions(plain)) == (list(range(9)), [8])


def test_with_several_channels_the_oldest_required_ancestor_counts(store):
    thread = store.thread("t")
    thread.commit({"a": [1], "b": [1]})
    thread.commit({"x": 1}, metadata={"statelog:needs": ["a", "b"]})
    thread.commit({"b": [1, 2]}, metadata={"statelog:needs": ["a"]})
    thread.commit({"x": 2}, metadata={"statelog:needs": ["a", "b"]})
    thread.commit({"a": [1, 2]}, metadata={"statelog:needs": ["b"]})
    store.prune(keep_last=1)
    assert _versions(thread) == [2, 3, 4]


def test_tags_and_forks_keep_their_ancestors(store):
    thread = store.thread("t")
    _fill(thread, 12, snapshots=(0, 3, 6, 9))
    thread.tag("here", 4)
    fork = thread.fork("f", at=7, update={"x": 1}, metadata=NEEDS)
    _fill(thread, 6, snapshots=(14,))
    store.prune(keep_last=1)
    assert _versions(thread) == [3, 4, 6, 7, 14, 15, 16, 17]
    assert sorted(checkpoint.version for checkpoint in fork.history()) == [3, 4, 6, 7, 8]


def test_a_young_version_keeps_older_ones(store):
    thread = store.thread("t")
    _fill(thread, 6, snapshots=(2,))
    store.prune(max_age=3600)
    assert _versions(thread) == list(range(6))
    store.prune(max_age=0.0)
    assert _versions(thread) == [2, 3, 4, 5]


def test_a_required_version_does_not_expire_by_name(store):
    thread = store.thread("t")
    _fill(thread, 6, snapshots=(2,))
    assert store.expire([thread.at(version) for version in range(5)]).expired_versions == 2
    assert _versions(thread) == [2, 3, 4, 5]


@pytest.mark.slow
def test_a_running_policy_keeps_required_ancestors(store):
    thread = store.thread("t")
    store.set_retention(keep_last=5, threads="t")
    _fill(thread, 1000, snapshots=range(0, 1000, 150))
    held = 1000 - 1000 % 150
    assert set(range(held - 150, 1000)) >= set(_versions(thread)) >= set(range(held, 1000))
    assert thread.at(held).state["items"] == list(range(held))


def test_required_ancestors_survive_a_rebuilt_index_and_a_copy(store):
    thread = store.thread("t")
    _fill(thread, 9, snapshots=(3,))
    store.rebuild_index()
    copy = store.copy_thread("t", "copy")
    store.prune(keep_last=1)
    assert _versions(thread) == _versions(copy) == list(range(3, 9))


@pytest.mark.parametrize("stays", ["head", "tag", "fork", "pin"])
def test_a_version_kept_by_a_tag_or_fork_keeps_its_ancestors(store, stays):
    thread = store.thread("t")
    _fill(thread, 9, snapshots=(2, 5))
    kept = 4 if stays != "head" else 8
    if stays == "tag":
        thread.tag("here", kept)
    if stays == "fork":
        thread.fork("other", at=kept)
    if stays == "pin":
        store.prune(keep_last=1, pinned=[thread.at(kept)])
    else:
        store.expire(list(thread.history()))
    holder = 2 if kept == 4 else 5
    assert set(range(holder, kept + 1)) <= set(_versions(thread))
    assert thread.at(holder).state["items"] == list(range(holder))


@pytest.mark.slow
def test_no_node_is_removed_before_a_node_that_refers_to_it(store, monkeypatch):
    """T5: a turn that ends early leaves dead nodes, which the process of the next turn does not know."""
    thread = store.thread("t", schema={"log": reducers.append, "items": reducers.replace})
    store.set_retention(keep_last=2, threads="t")
    monkeypatch.setattr(retention, "_POLICY_TRANSACTIONS_MAX", 1)
    for number in range(192):
        added = {"log": f"{number} " * 100} | ({"items": number} if number in (0, 180) else {})
        thread.commit(added, metadata={} if "items" in added else NEEDS)
    assert 100 < len(_versions(thread)) < 192
    assert store.verify().ok
    monkeypatch.undo()
    thread.commit({"log": reducers.Overwrite([]), "items": 0})
    session_of(store).engine.collectors.clear()
    for number in range(63):
        thread.commit({"log": f"{number}"})
    assert _versions(thread) == [254, 255]
    assert store.verify().ok
    store.prune()
    assert store.verify().ok
    assert store.statistics().records_size_bytes < 60_000
