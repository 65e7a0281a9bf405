"""The memory of an engine about its last commit. It must end with a change by another process."""

from __future__ import annotations

import sys
import threading
import time

import forks
import pytest

import statelog
from statelog.errors import CheckpointNotFoundError, ConflictError

COMMIT = 'store.thread("t").commit({"n": -1})'
RETAIN = 'store.prune(threads="t", keep_last=2)'


def elsewhere(path, change):
    """Let another process change a store."""
    code = f"import statelog, sys\nstore = statelog.open(sys.argv[1])\n{change}\nstore.close()"
    forks.run([sys.executable, "-c", code, str(path)], check=True, timeout=600)


def refuse_commit(thread):
    with pytest.raises(ConflictError):
        thread.commit({"n": 0}, expected_version=77)


def refuse_rollback(thread):
    with pytest.raises(CheckpointNotFoundError):
        thread.rollback(77)


def change_nothing(thread):
    assert thread.edit(lambda _mount: None) is None


@pytest.mark.parametrize("change", [COMMIT, RETAIN])
@pytest.mark.parametrize("idle", [refuse_commit, refuse_rollback, change_nothing])
def test_changes_of_another_process_after_an_empty_transaction_are_seen(store, path, idle, change):
    thread = store.thread("t")
    for number in range(6):
        thread.commit({"n": number})
    idle(thread)
    elsewhere(path, change)
    version = thread.version
    assert thread.commit({"n": 6}).version == version + 1
    assert store.verify().problems == []


RETAIN_IN_PART = """
from statelog.log.care import retention, vacuum
retention.RECORDS_PER_TRANSACTION_MAX = vacuum.RECORDS_PER_TRANSACTION_MAX = 1
thread = store.thread("t")
for number in range({count}):
    thread.commit({{"n": number}})
care, left = store._engine.care, [{cut}]
def cut(work):
    left[0] -= 1
    if left[0] < 0:
        raise KeyboardInterrupt
    return care(work)
store._engine.care = cut
try:
    store.prune(threads="t", keep_last=1)
except KeyboardInterrupt:
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 20, 40])
def test_a_page_with_its_earlier_bytes_does_not_prove_the_head_current(store, path, count):
    """Retention has removed everything after the remembered head, except the last commit."""
    thread = store.thread("t")
    for number in range(18):
        thread.commit({"n": number})
    elsewhere(path, RETAIN_IN_PART.format(count=count, cut=count - 1))
    assert [checkpoint.version for checkpoint in thread.history(limit=2)] == [17 + count, 17]
    assert thread.commit({"n": 18}).version == 18 + count
    assert store.verify().problems == []


def test_nothing_is_forgotten_over_a_transaction_that_changed_nothing(store):
    thread = store.thread("t")
    thread.commit({"n": 0})
    remembered = store._engine.committer.last.memory
    refuse_commit(thread)
    thread.commit({"n": 1})
    assert store._engine.committer.last.memory is remembered


@pytest.mark.slow
@pytest.mark.parametrize("idle", [refuse_commit, refuse_rollback, lambda thread: thread.commit({"n": 6})])
@pytest.mark.parametrize("change", [COMMIT, RETAIN])
def test_changes_of_another_engine_in_the_same_transaction_are_seen(store, path, idle, change):
    with statelog.open(path) as other:
        thread = store.thread("t")
        for number in range(6):
            thread.commit({"n": number})
        works = [
            lambda: idle(thread),
            lambda: exec(change, {"store": other}),
            lambda: thread.commit({"n": 7}),
            lambda: exec(change, {"store": other}),
        ]
        threads = [threading.Thread(target=work) for work in works]
        with store._engine.store_file.lmdb_file.write_lock:
            for each in threads:
                each.start()
                time.sleep(0.1)
        for each in threads:
            each.join(timeout=60)
        version = thread.version
        assert thread.commit({"n": 8}).version == version + 1
        assert store.verify().problems == []


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["interval", "commit"])
def test_the_answer_about_large_leaves_is_not_reused_by_the_next_call(path, durability):
    """Commits a leaf that the store already has, and then rolls back to a version without remembered jumps."""
    with statelog.open(path, durability=durability) as store:
        thread = store.thread("t")
        for number in range(60):
            thread.commit({"n": number})
        thread.fork("side", at=5)
        thread.commit({"text": "q" * 5000})
    for turn in range(3):
        with statelog.open(path, durability=durability) as store:
            thread = store.thread("t")
            for number in range(30):
                thread.commit({"n": number})
                thread.commit({f"again {number % 3}": "q" * 5000, "n": -number})
                target = (7 * number + turn) % thread.version
                assert thread.rollback(target).state_digest == thread.at(target).state_digest
            assert store.verify().ok
