"""A diff has exactly the changes from one state to the other."""

from __future__ import annotations

import random
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

import statelog
from statelog import reducers
from statelog.testing import identical, large_values, values

NUMBERS = count()
SMALL = values(max_leaves=4)
STATES = st.dictionaries(
    st.sampled_from("abcd"),
    st.one_of(SMALL, st.lists(SMALL, max_size=6), st.dictionaries(st.text(max_size=3), SMALL), large_values()),
)


def applied(old, changes):
    """Apply changes, given as (path, kind, new), to a value."""
    if [change for change in changes if not change[0]]:
        assert len(changes) == 1
        return changes[0][2]
    inside = {}
    for path, kind, new in changes:
        inside.setdefault((path[0], kind == "added" and len(path) == 1), []).append((path[1:], kind, new))
    kept = {at: applied(old[at], rest) for (at, is_added), rest in inside.items() if not is_added and not gone(rest)}
    lost = {at for (at, is_added), rest in inside.items() if not is_added and gone(rest)}
    added = {at: rest[0][2] for (at, is_added), rest in inside.items() if is_added}
    if isinstance(old, dict):
        return {key: kept.get(key, value) for key, value in old.items() if key not in lost} | added
    items = [kept.get(at, value) for at, value in enumerate(old) if at not in lost]
    for at in sorted(added):
        items.insert(at, added[at])
    return items


def gone(rest):
    return rest[0][0] == () and rest[0][1] == "removed"


@pytest.fixture(scope="module")
def diff_of(shared_store):
    def diff(old, new):
        thread = shared_store.thread(f"thread {next(NUMBERS)}")
        before = thread.commit({"state": old})
        after = thread.commit({"state": new})
        return list(statelog.diff(before, after))

    return diff


def as_changes(diff):
    return [(change.path[1:], change.kind, change.new) for change in diff]


@pytest.mark.slow
@given(STATES, STATES)
def test_applying_a_diff_to_the_old_state_gives_the_new_one(diff_of, old, new):
    assert identical(applied(old, as_changes(diff_of(old, new))), new)


@given(st.integers(0, 2**32), st.sampled_from([3, 50, 129, 2000]))
def test_applying_a_diff_of_edited_lists_gives_the_new_list(diff_of, seed, size):
    rng = random.Random(seed)
    old = [f"item {rng.randrange(size)}" for _ in range(size)]
    new = list(old)
    for _ in range(rng.randrange(6)):
        at = rng.randrange(len(new) + 1)
        new[at : at + rng.randrange(3)] = [f"new {rng.randrange(100)}" for _ in range(rng.randrange(3))]
    changes = diff_of({"list": old}, {"list": new})
    assert applied({"list": old}, as_changes(changes)) == {"list": new}
    assert len(changes) <= 40


@pytest.mark.slow
@given(STATES)
def test_equal_states_do_not_differ(diff_of, state):
    assert diff_of(state, state) == []


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from("abcdefgh"), SMALL), st.dictionaries(st.sampled_from("abcdefgh"), SMALL))
def test_every_change_is_one(diff_of, old, new):
    for change in diff_of(old, new):
        assert change.kind in {"added", "removed", "changed"}
        assert not identical(change.old, change.new) or change.kind != "changed"


def test_a_diff_names_the_path_of_a_change_deep_in_large_values(shared_store):
    thread = shared_store.thread("deep", schema={"files": reducers.deep_merge, "log": reducers.extend})
    files = {f"dir {number}": {f"file {n}": "x" * 100 for n in range(50)} for number in range(50)}
    before = thread.commit({"files": files, "log": list(range(5000))})
    after = thread.commit({"files": {"dir 7": {"file 3": "changed", "new": 1}}, "log": [5000]})
    found = {(change.path, change.kind) for change in statelog.diff(before, after)}
    assert found == {
        (("files", "dir 7", "file 3"), "changed"),
        (("files", "dir 7", "new"), "added"),
        (("log", 5000), "added"),
    }


@pytest.mark.slow
def test_the_cost_of_a_diff_follows_the_change(shared_store, monkeypatch):
    thread = shared_store.thread("cost", schema={"log": reducers.extend, "notes": reducers.merge})
    before = thread.commit({"log": list(range(20_000)), "notes": {f"key {n}": n for n in range(20_000)}})
    after = thread.commit({"log": [1], "notes": {"key 777": "changed"}})
    reads = []
    read_node = shared_store._engine.read_node
    monkeypatch.setattr(shared_store._engine, "read_node", lambda *place: reads.append(place) or read_node(*place))
    assert len(list(statelog.diff(before, after))) == 2
    assert len(set(reads)) <= 250  # of some 2,500


def test_a_diff_with_nothing_is_all_of_it(shared_store):
    head = shared_store.thread("all").commit({"a": 1, "b": [1, 2]})
    assert {(change.path, change.kind) for change in statelog.diff(None, head)} == {
        (("a",), "added"),
        (("b",), "added"),
    }
    assert {change.kind for change in statelog.diff(head, None)} == {"removed"}
