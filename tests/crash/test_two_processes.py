"""Two processes write one store at once: no update is lost, and either may be killed."""

from __future__ import annotations

from itertools import count, islice

import pytest

import statelog
from statelog import reducers
from statelog.errors import ConflictError
from statelog.testing import Child, Commit

SCHEMA = {"total": reducers.add, "log": reducers.append}
COMMITS = 60


def increments(name, count=COMMITS):
    return tuple(Commit("shared", ({"total": 1, "log": [name, number]},)) for number in range(count))


def assert_dense_chain(store):
    previous = "00" * 20
    for lsn, record in enumerate(store.log(), 1):
        assert record.lsn == lsn
        assert record.previous_digest == previous
        previous = record.digest
    assert store.verify().problems == []


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["commit", "interval"])
def test_two_writers_lose_no_update(path, durability):
    with (
        Child(path, increments("first"), schema=SCHEMA, durability=durability) as first,
        Child(path, increments("second"), schema=SCHEMA, durability=durability) as second,
    ):
        assert (first.wait(), second.wait()) == (False, False)
    with statelog.open(path) as store:
        thread = store.thread("shared", schema=SCHEMA)
        assert thread.state["total"] == 2 * COMMITS
        assert thread.version == 2 * COMMITS - 1
        for name in ("first", "second"):
            assert [number for who, number in thread.state["log"] if who == name] == list(range(COMMITS))
        assert_dense_chain(store)


def increment_once(thread):
    """Read, add one, and commit if nobody else has committed. Return the number of conflicts."""
    for conflicts in count():
        head = thread.head
        try:
            thread.commit({"counter": head.state["counter"] + 1}, expected_version=head.version)
        except ConflictError:
            continue
        return conflicts
    raise AssertionError


@pytest.mark.slow
def test_writers_that_read_before_writing_retry_and_lose_no_update(path):
    others = tuple(Commit("shared", ({"other": number},)) for number in range(COMMITS))
    with statelog.open(path) as store:
        thread = store.thread("shared")
        thread.commit({"counter": 0})
        with Child(path, others) as child:
            child.await_acknowledged(1)
            for _ in range(COMMITS):
                increment_once(thread)
            assert child.wait() is False
        assert thread.state.to_python() == {"counter": COMMITS, "other": COMMITS - 1}
        assert thread.version == 2 * COMMITS
        assert_dense_chain(store)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", ["commit.after_begin:20", "commit.after_put_log:20", "commit.before_lmdb_commit:20", None], ids=str
)
def test_one_of_two_writers_killed_takes_nothing_from_the_other(path, fault):
    with (
        statelog.open(path),  # so that neither is alone, and lets its commits wait for LMDB
        Child(path, increments("killed"), schema=SCHEMA, fault=fault) as killed,
        Child(path, increments("survivor"), schema=SCHEMA) as survivor,
    ):
        if fault is None:
            killed.await_acknowledged(20)
            killed.kill()
        assert killed.wait() is True
        assert survivor.wait() is False
    with statelog.open(path) as store:
        log = store.thread("shared", schema=SCHEMA).state["log"].to_python()
        theirs = [number for who, number in log if who == "survivor"]
        ours = [number for who, number in log if who == "killed"]
        assert theirs == list(range(COMMITS))
        assert ours == list(range(len(ours)))
        assert len(ours) in (killed.acknowledged, killed.acknowledged + 1)
        assert store.thread("shared").state["total"] == len(log)
        assert_dense_chain(store)


def test_a_reader_sees_commits_of_another_process(path):
    with statelog.open(path) as store, Child(path, increments("writer"), schema=SCHEMA) as child:
        records = islice(store.log(follow=True, timeout_s=5.0), COMMITS + 1)
        assert [record.lsn for record in records] == list(range(1, COMMITS + 2))
        assert child.wait() is False
        assert store.thread("shared").state["total"] == COMMITS
