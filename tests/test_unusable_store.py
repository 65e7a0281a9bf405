"""A store that is closed, read-only, forked or full, or whose disk is bad: a specific exception, and nothing lost."""

from __future__ import annotations

import asyncio
import os

import pytest

import statelog
from statelog import reducers
from statelog.aio.bridge import Runner
from statelog.errors import (
    ClosedError,
    ForkedError,
    ReadOnlyError,
    StoreFullError,
)
from statelog.storage import faults
from statelog.testing import identical

SCHEMA = {"any": reducers.replace, "total": reducers.add, "names": reducers.append}
STATE = {"any": "value", "total": 5, "names": ["a"]}


@pytest.fixture
def thread(store):
    thread = store.thread("t", schema=SCHEMA)
    thread.commit({"any": "value", "total": 5, "names": "a"}, metadata={"node": "start"}, id="first")
    thread.tag("tagged")
    return thread


def test_a_closed_store_refuses_everything(store, thread):
    head, history, log = thread.head, thread.history(), store.log()
    names = thread.state["names"]
    large = store.thread("large").commit({"x": list(range(1000))}).state["x"]
    store.close()
    store.close()
    for act in (
        lambda: thread.commit({"any": 1}),
        lambda: thread.head,
        lambda: thread.state,
        lambda: thread.version,
        lambda: next(history),
        lambda: next(log),
        lambda: thread.rollback(0),
        lambda: thread.fork("new"),
        lambda: thread.tag("new"),
        thread.tags,
        thread.branches,
        lambda: thread.mount().__enter__(),
        lambda: head.branch,
        lambda: head.state["any"],
        lambda: large[500],
        lambda: store.thread("t"),
        lambda: list(store.threads()),
        lambda: store.last_lsn,
        store.verify,
        store.rebuild_index,
        store.statistics,
        lambda: store.prune(keep_last=1),
    ):
        with pytest.raises(ClosedError):
            act()
    with pytest.raises(ClosedError), store.transaction() as transaction:
        transaction.thread("t")
    assert names == ["a"]
    assert (head.version, head.metadata, head.kind) == (0, {"node": "start"}, "commit")
    assert store.closed
    with statelog.open(store.path) as again:
        assert again.thread("t").state["total"] == 5


def test_a_read_only_store_refuses_writes_and_goes_on_reading(store, thread):
    store.close()
    with statelog.open(store.path, read_only=True) as opened:
        thread = opened.thread("t", schema=SCHEMA)
        lsn = opened.last_lsn
        for act in (
            lambda: thread.commit({"any": 1}),
            lambda: thread.rollback(0),
            lambda: thread.fork("new"),
            lambda: thread.tag("new"),
            lambda: thread.untag("tagged"),
            opened.rebuild_index,
            lambda: opened.prune(keep_last=1),
            lambda: opened.delete_thread("t"),
            lambda: opened.thread("new").commit({"x": 1}),
        ):
            with pytest.raises(ReadOnlyError):
                act()
        with pytest.raises(ReadOnlyError), opened.transaction() as transaction:
            transaction.thread("t").commit({"any": 1})
        with pytest.raises(ReadOnlyError), thread.mount() as state:
            state["any"] = 2
        assert opened.last_lsn == lsn
        assert opened.read_only
        assert identical(thread.state, STATE)
        assert opened.verify().problems == []


def in_child(act):
    """Run `act` in a forked child; return what it gives, or the name of its error."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = repr(act())
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer
            answer = type(error).__name__
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        answer = answers.read()
    assert os.waitpid(child, 0)[1] == 0
    return answer


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_is_refused_until_it_opens_the_store_again(store, thread):
    head = thread.head
    for act in (
        lambda: thread.commit({"any": 1}),
        lambda: thread.state,
        lambda: head.branch,
        lambda: store.thread("t"),
        lambda: store.last_lsn,
        lambda: list(store.log()),
        lambda: list(store.threads()),
        store.verify,
        store.rebuild_index,
        store.flush,
    ):
        assert in_child(act) == ForkedError.__name__

    def open_again():
        with statelog.open(store.path) as opened:
            return opened.thread("t", schema=SCHEMA).commit({"total": 1}).version

    assert in_child(open_again) == "1"
    assert in_child(store.close) == "None"
    assert thread.state["total"] == 6
    thread.commit({"total": 1})
    assert thread.version == 2


def fill_up(thread, size_bytes=5000):
    """Commit until the store is full; return how many commits there was room for."""
    for commits in range(1000):
        try:
            thread.commit({"log": os.urandom(size_bytes)})
        except StoreFullError:
            return commits
    raise AssertionError


@pytest.mark.slow
def test_a_full_store_can_be_read_and_accepts_commits_that_fit(refused, path):
    with statelog.open(path, max_size_bytes=1 << 20) as store:
        thread = store.thread("t", schema={"log": reducers.append})
        thread.commit({"log": "first"})
        with refused(store, StoreFullError, max_size_bytes=1 << 20, path=str(path)):
            thread.commit({"log": os.urandom(2 << 20)})
        commits = fill_up(thread)
        head = thread.head
        assert head.version == commits
        assert len(thread.state["log"]) == commits + 1
        assert store.verify().problems == []
        assert path.stat().st_size <= 1 << 20
        for _ in range(3):  # refused as often as one asks, and still there
            with pytest.raises(StoreFullError):
                thread.commit({"log": os.urandom(100_000)})
        assert thread.head == head
    with statelog.open(path, max_size_bytes=4 << 20) as store:
        assert store.thread("t").commit({"log": os.urandom(100_000)}).version == commits + 1


@pytest.mark.slow
def test_space_that_retention_frees_is_usable_again(path):
    with statelog.open(path, max_size_bytes=2 << 20) as store:
        thread = store.thread("t")
        fill_up(thread, 20_000)
        store.prune(keep_last=2)
        assert thread.commit({"log": os.urandom(200_000)}).version > 0
        assert store.verify().problems == []


@pytest.mark.parametrize("errno", [28, 5])
def test_a_disk_that_refuses_writes_leaves_the_store_as_it_was(thread, errno):
    def fail():
        raise OSError(errno, os.strerror(errno))

    kind = StoreFullError if errno == 28 else OSError
    faults.arm("commit.before_lmdb_commit", action=fail)
    try:
        with pytest.raises((kind, statelog.errors.StorageError)):
            thread.commit({"total": 1})
    finally:
        faults.disarm()
    assert thread.version == 0
    assert thread.commit({"total": 1}).version == 1
    assert thread.state["total"] == 6


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_threads_that_it_has_not(tmp_path):
    runner = Runner(str(tmp_path))

    def ask():
        return asyncio.run(runner.run(lambda: 7))

    assert ask() == 7  # so that there is a thread which the child has not
    assert in_child(ask) == "7"
    assert in_child(lambda: runner.close(lambda: None).result(10)) == "None"
    assert ask() == 7
    runner.close(lambda: None).result(10)
