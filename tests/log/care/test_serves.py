"""A dependent branch is removed as a whole with the version it depends on, and not before."""

from __future__ import annotations

import io

import pytest

import statelog
from statelog.log.care import kept_versions


@pytest.fixture
def store(tmp_path):
    with statelog.open(tmp_path / "a.state", durability="interval") as store:
        yield store
        assert store.verify().ok


def _call(thread, name, serves, count=3, at=0):
    """Create a branch of `count` versions for the version that calls it."""
    branch = thread.fork(name, at=at)
    for number in range(count):
        branch.commit({name: number}, metadata={"statelog:serves": serves} if serves else {})
    return branch


def _own(branch, base=0):
    return sorted(version for version in (each.version for each in branch.history()) if version > base)


def _calling(store):
    """Commit ten versions, each with a dependent branch."""
    thread = store.thread("t")
    thread.commit({"n": -1})
    calls = []
    for number in range(10):
        thread.commit({"n": number}, id=f"c{number}")
        calls.append(_call(thread, f"call{number}", f"c{number}"))
    return thread, calls


def test_a_dependent_branch_is_removed_with_its_version(store):
    _thread, calls = _calling(store)
    store.prune(keep_last=3)
    assert [_own(call) for call in calls] == [[]] * 7 + [[1, 2, 3]] * 3


def test_pins_in_one_thread_keep_no_branch_of_another(store):
    """Branches are numbered by thread."""
    _thread, calls = _calling(store)
    copied = store.copy_thread("t", "copy")
    store.prune(keep_last=3, pinned=[copied.checkout("call0").head])
    assert [_own(call) for call in calls] == [[]] * 7 + [[1, 2, 3]] * 3
    assert _own(copied.checkout("call0")) == [1, 2, 3]


def test_a_branch_of_a_version_that_is_kept_reads_as_before(store):
    _thread, calls = _calling(store)
    before = [(each.id, dict(each.state)) for each in calls[8].history()]
    store.prune(keep_last=4)
    assert [(each.id, dict(each.state)) for each in calls[8].history()] == before


def test_an_independent_branch_keeps_its_head(store):
    thread = store.thread("t")
    thread.commit({"n": 0}, id="c0")
    kept = _call(thread, "all calls", None)
    for number in range(5):
        thread.commit({"n": number})
    store.prune(keep_last=1)
    assert _own(kept) == [3]


def test_calls_of_a_branch_are_removed_with_it(store):
    thread = store.thread("t")
    thread.commit({"n": 0}, id="c0")
    outer = thread.fork("outer", at=0)
    outer.commit({"x": 1}, id="outer-1", metadata={"statelog:serves": "c0"})
    inner = _call(thread, "inner", "outer-1")
    thread.commit({"n": 1})
    store.prune(keep_last=2)
    assert (_own(outer), _own(inner)) == ([1], [2, 3])
    store.prune(keep_last=1)
    assert (_own(outer), _own(inner)) == ([], [])


def test_a_dependent_branch_waits_a_day_for_its_version(store, monkeypatch):
    thread = store.thread("t")
    thread.commit({"n": 0})
    call = _call(thread, "call", "not yet")
    thread.commit({"n": 1})
    store.prune(keep_last=1)
    assert _own(call) == [3]
    monkeypatch.setattr(kept_versions, "UNMET_US", 0)
    store.prune(keep_last=1)
    assert _own(call) == []


@pytest.mark.parametrize("kept_by", ["tag", "fork", "pin"])
def test_a_branch_is_kept_if_one_of_its_versions_is_kept(store, kept_by):
    thread, calls = _calling(store)
    pinned = []
    if kept_by == "tag":
        calls[0].tag("here")
    elif kept_by == "fork":
        calls[0].fork("on", at=3).commit({"x": 1})
    else:
        pinned = [calls[0].head]
    thread.commit({"n": 10})
    store.prune(keep_last=1, pinned=pinned)
    assert (_own(calls[0]), _own(calls[1])) == ([3], [])


def test_the_last_version_of_a_thread_is_kept(store):
    """The latest of the times of versions must not be forgotten (L2)."""
    thread = store.thread("t")
    thread.commit({"n": 0})
    thread.commit({"n": 1}, id="c1")
    thread.commit({"n": 2})
    call = _call(thread, "call", "c1")
    store.prune(keep_last=1)
    assert _own(call) == [3]


@pytest.mark.parametrize("is_base_there", [True, False])
def test_a_removed_branch_can_be_re_created(store, is_base_there):
    thread, calls = _calling(store)
    thread.commit({"n": 10})
    if is_base_there:
        thread.tag("base", 0)
    store.prune(keep_last=1)
    assert (_own(calls[0]), calls[0].head is not None) == ([], is_base_there)
    calls[0].commit({"again": 1})
    store.rebuild_index()
    assert (_own(calls[0]), calls[0].state["again"]) == ([1], 1)


@pytest.mark.slow
def test_a_running_policy_keeps_up_with_calls_of_many_versions(store):
    thread = store.thread("t")
    store.set_retention(keep_last=2, threads="t")
    thread.commit({"n": -1})
    calls = []
    for number in range(255):
        thread.commit({"n": number}, id=f"c{number}")
        calls.append(_call(thread, f"call{number}", f"c{number}", count=6))
    assert [_own(call) for call in calls] == [[]] * 253 + [[5, 6], [1, 2, 3, 4, 5, 6]]
    assert [checkpoint.version for checkpoint in thread.history()] == [255, 254, 0]


def test_a_version_tagged_during_retention_keeps_its_branch_complete(store, monkeypatch):
    """V1: the branch was to be removed and its nodes were not marked, when a tag keeps the version that it serves."""
    from statelog.log.care import retention

    thread, calls = _calling(store)
    start = retention.Collector.start

    def start_and_tag(collector):
        start(collector)
        if not thread.tags():
            thread.tag("late", 3)

    monkeypatch.setattr(retention.Collector, "start", start_and_tag)
    store.prune(keep_last=1)
    assert _own(calls[2]) == [3]
    assert calls[2].state["call2"] == 2


@pytest.mark.parametrize("threads", [None, ["t"]])
def test_a_thread_whose_branches_were_removed_can_be_exported(store, tmp_path, threads):
    """Also if the versions at which they begin were removed."""
    thread = store.thread("t")
    thread.commit({"n": 0})
    for number in range(1, 6):
        thread.commit({"n": number}, id=f"c{number}")
        _call(thread, f"call{number}", f"c{number}", at=number)
    thread.commit({"n": 6})
    store.prune(keep_last=3)
    exported = io.BytesIO()
    store.export(exported, threads=threads)
    exported.seek(0)
    with statelog.open(tmp_path / "b.state") as other:
        other.import_(exported)
        calls = [other.thread("t").checkout(f"call{number}") for number in (3, 4)]
        assert [call.head is not None and call.head.branch == call.branch for call in calls] == [False, True]
        assert other.verify().ok
