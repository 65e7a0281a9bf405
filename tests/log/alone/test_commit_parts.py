"""A commit in one kernel call: what it is given, what it remembers, and rollbacks; see test_commit_alone.py."""

import operator

import pytest
from kernel_ways import commit_until_made, put_off_looks

import statelog
from statelog import kernels
from statelog.store.writes import NO_METADATA, plain_commit

pytestmark = pytest.mark.usefixtures("never_settled_by_time")


@pytest.mark.parametrize("wrong", range(6))
def test_what_an_environment_is_made_of_is_looked_at(thread, way, wrong):
    parts, *others = way.last
    with pytest.raises(TypeError):
        way.kernel((*parts[:wrong], object(), *parts[wrong + 1 :]), *others)
    made = way.made
    thread.commit({"x": "after it"})
    assert way.made == made + 1


def test_it_goes_on_after_a_compaction(store, thread, way):
    store.compact()
    commit_until_made(thread, way)


class Meddling:
    """A lock before which something happens."""

    def __init__(self, lock, nth, work):
        self.release = lock.release
        self._lock, self._nth, self._work = lock, nth, work

    def acquire(self, blocking):
        self._nth -= 1
        if not self._nth:
            self._work()
        return self._lock.acquire(blocking)


@pytest.mark.parametrize("kernel", ["commit_flushed"])
@pytest.mark.parametrize("nth", [1, 2])
def test_who_reads_as_it_is_entered_takes_nothing_away(store, thread, way, nth):
    """Taking the lock may run a finalizer, which reads: then nothing waits any more that the commit could join."""
    seen = []
    parts, caller, direct, request = (*way.last[:2], None, way.last[3])
    lock = parts.index(store._engine.environment.deferred.lock)
    meddled = (*parts[:lock], Meddling(parts[lock], nth, lambda: seen.append(thread.state["x"])), *parts[lock + 1 :])
    before = thread._session._engine.last.memory.heads[thread._place[:2]].event.version
    direct = plain_commit(thread._place, {"x": "entered"}, NO_METADATA, None, None)
    made = kernels.commit_flushed(meddled, caller, direct, type(request)(None))
    assert len(seen) == 1
    if made is None:
        thread.commit({"x": "entered"})
    assert (thread.version, thread.state["x"]) == (before + 1, "entered")
    thread.commit({"x": "next"})
    assert [each.version for each in thread.history()] == [*range(before + 2, -1, -1)]
    assert store.verify().ok


def test_rollbacks_to_what_lmdb_has_are_made_so(store, thread, way):
    for number in range(40):
        thread.commit({"x": number})
    version, wanted = thread.version, [thread.at(number).state["x"] for number in range(40)]
    commit_until_made(thread, way)
    made = way.made
    for number in range(200):
        thread.rollback(number % 40, metadata={"n": number})
        head = thread._session._engine.last.memory.heads[thread._place[:2]]
        assert head.event.target > 0
        if not number % 50:
            assert thread.state["x"] == wanted[number % 40]
            assert thread.head.metadata == {"n": number}
            commit_until_made(thread, way)
    assert way.made - made > 150
    assert thread.version > version + 200
    assert store.verify().ok


@pytest.mark.parametrize("wrong", [-1, 10**6, 10**30, "no such", True, None, 1.0])
def test_a_rollback_to_what_is_not_there_is_pythons(thread, way, wrong):
    made, version = way.made, thread._session._engine.last.memory.heads[thread._place[:2]].event.version
    with pytest.raises(statelog.errors.StatelogError):
        thread.rollback(wrong)
    assert way.made == made
    thread.rollback(version)  # the last one is not in LMDB
    assert thread.version == version + 1


def test_a_rollback_from_another_version_than_expected_is_refused(thread, way):
    made, version = way.made, thread._session._engine.last.memory.heads[thread._place[:2]].event.version
    with pytest.raises(statelog.errors.ConflictError):
        thread.rollback(3, expected_version=version - 1)
    assert way.made == made
    put_off_looks(thread)
    assert thread.rollback(3, expected_version=version).version == version + 1


def test_its_nodes_are_remembered_in_bounds(store, way):
    """As `NodeCache.put_nodes` does, which begins a new generation where one is full."""
    cache = store._engine.cache
    cache.clear()
    cache._half, ages, age = 20_000, [], cache._age
    cache._age = lambda size: (ages.append(size), age(size))
    thread = store.thread("t", schema={"x": None, "log": operator.add})
    for number in range(400):
        thread.commit({"log": ["entry " * (number % 90)]})
        held = sum(len(rows) + len(data) + 200 for rows, data in cache._young.values())
        nodes = sum(len(node.data) + 200 for _digest, node in cache._young_nodes.values())
        assert held + nodes == cache._size <= cache._half
    assert way.made > 300
    assert len(ages) > 5
    assert list(thread.state["log"]) == ["entry " * (number % 90) for number in range(400)]
