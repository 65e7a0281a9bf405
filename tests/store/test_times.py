"""A temporarily wrong clock affects only the threads that were committed with it (L2)."""

import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from io import BytesIO
from itertools import pairwise
from unittest import mock

import pytest

import statelog
from statelog.portable.salvage import salvage

DECADE_S = 3650 * 86_400
MINUTE = timedelta(minutes=1)


@contextmanager
def clock_off_by(seconds):
    """Let the clock be wrong."""
    now_ns = time.time_ns
    with mock.patch("time.time_ns", side_effect=lambda: now_ns() + seconds * 10**9):
        yield


@pytest.fixture(params=["commit", "interval"])
def path(tmp_path, request):
    """Return a store in which the clock was wrong for thread `other`."""
    path = tmp_path / "s.state"
    with statelog.open(path, durability=request.param) as store:
        store.thread("before").commit({"x": 0})
        with clock_off_by(DECADE_S):
            store.thread("other").commit({"x": 1})
    return path


@pytest.fixture
def store(path):
    """Return the open store."""
    with statelog.open(path) as store:
        yield store
        assert store.verify().problems == []


def is_now(moment):
    return abs(moment - datetime.now(UTC)) < MINUTE


def times_of(store, thread_id):
    """Return the times of a thread's versions in the order of the log."""
    return [row.time for row in store.log() if row.thread_id == thread_id and row.type in ("checkpoint", "rollback")]


def test_other_threads_do_not_follow_a_wrong_clock(store):
    for number in range(5):
        assert is_now(store.thread("before").commit({"x": number}).time)
        assert is_now(store.thread("new").commit({"x": number}).time)
    assert store.thread("new").at(datetime.now(UTC) + MINUTE).version == 4
    assert store.thread("other").head.time > datetime.now(UTC) + timedelta(days=3000)


def test_other_threads_do_not_follow_in_the_process_that_had_it_wrong(tmp_path):
    with statelog.open(tmp_path / "s.state") as store:
        threads = [store.thread(name) for name in "abc"]
        for number in range(3):
            for thread in threads:
                thread.commit({"n": number})
        with clock_off_by(DECADE_S):
            threads[0].commit({"n": 9})
        for _ in range(3):
            for thread in threads:
                made = thread.rollback(0) if thread.head.version % 2 else thread.commit({"n": 8})
                assert is_now(made.time) == (thread is not threads[0])
        assert all(before < after for before, after in pairwise(times_of(store, "a")))
        assert store.verify().problems == []


def test_old_versions_expire_after_a_wrong_clock(store):
    thread = store.thread("t")
    for number in range(5):
        thread.commit({"n": number})
    with clock_off_by(10):
        assert store.prune(max_age=1).expired_versions == 4


@pytest.mark.slow
def test_versions_of_one_thread_ascend_whatever_branch_and_clock(path):
    with statelog.open(path) as store:
        store.thread("t").commit({"x": 0})
        store.thread("t").fork("aside")
    for seconds in (0, -DECADE_S, 500, 0, -3):
        for branch in ("main", "aside", "main"):
            with clock_off_by(seconds), statelog.open(path) as store:
                line = store.thread("t", branch=branch)
                made = [line.commit({"x": 1}), line.commit({"x": 2}), line.rollback(0)]
                assert [line.at(each.time) for each in made] == made
    with statelog.open(path) as store:
        times = times_of(store, "t")
        assert len(times) == 46
        assert all(before < after for before, after in pairwise(times))
        assert store.verify().problems == []


def test_a_transaction_over_several_threads_gives_each_its_own_time(store):
    with store.transaction() as transaction:
        late = transaction.thread("other").commit({"x": 2})
        made = transaction.thread("new").commit({"x": 2})
        later = transaction.thread("other").commit({"x": 3})
    assert is_now(made.time)
    assert later.time - late.time == timedelta(microseconds=1)


def test_a_copy_has_the_time_of_copying(store):
    copy = store.copy_thread("other", "copy")
    assert is_now(copy.head.time)


def test_a_log_with_times_of_a_wrong_clock_can_be_exported_and_imported(store, tmp_path):
    store.thread("before").commit({"x": 1})
    store.thread("other").commit({"x": 1})
    exported = BytesIO()
    store.export(exported)
    exported.seek(0)
    with statelog.open(tmp_path / "new.state") as new:
        new.import_(exported)
        assert list(new.log()) == list(store.log())
        assert is_now(new.thread("before").commit({"x": 2}).time)
        assert new.verify().problems == []


def test_salvage_loses_no_record_because_of_a_wrong_clock(path, tmp_path):
    with statelog.open(path) as store:
        store.thread("before").commit({"x": 1})
        log = list(store.log())
    report = salvage(path, tmp_path / "new.state")
    assert report.lost == []
    with statelog.open(tmp_path / "new.state") as new:
        assert list(new.log()) == log


def test_a_clock_before_1970_makes_valid_records(tmp_path):
    with mock.patch("time.time_ns", return_value=-(10**18)), statelog.open(tmp_path / "s.state") as store:
        thread = store.thread("t")
        assert thread.commit({"x": 1}).time < thread.commit({"x": 2}).time
        assert store.verify().problems == []


def test_an_age_below_a_second_is_exact(store):
    thread = store.thread("t")
    for number in range(5):
        thread.commit({"n": number})
    time.sleep(0.01)
    assert store.prune(max_age=3600.5).expired_versions == 0
    assert store.prune(max_age=0.001).expired_versions == 4
