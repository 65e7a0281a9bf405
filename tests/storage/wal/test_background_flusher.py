"""A store that has come to rest, and goes on: with the pin that it gave back, and the thread that waits."""

import os
import signal
import sys
import threading
import time

import forks
import pytest
from waiting import until

import statelog
from statelog.errors import JournalMissingError
from statelog.storage.file.sidecar_files import journal_path
from statelog.storage.wal import background_flusher

COMMIT = """
import statelog, sys
with statelog.open(sys.argv[1]) as store:
    store.thread("other").commit({"y": 1})
"""
KILLED = """
import os, signal, statelog, sys, time
from statelog.storage.wal import background_flusher
background_flusher.IDLE_S = 0.02
store = statelog.open(sys.argv[1])
thread = store.thread("t")
for number in range(10):
    thread.commit({"x": number})
    while store._engine.environment.checkpointer.pins:
        time.sleep(0.001)
thread.commit({"x": "after a rest"})
os.kill(os.getpid(), signal.SIGKILL)
"""


PAUSING = """
import statelog, sys, time
store = statelog.open(sys.argv[1])
thread = store.thread("t")
for number in range(4000):
    thread.commit({"x": "y" * 600, "n": number})
    print(number, flush=True)
    if number % 10 == 9:
        time.sleep(0.06)
"""


@pytest.fixture(autouse=True)
def _rests_when_asked(monkeypatch):
    monkeypatch.setattr(background_flusher, "IDLE_S", 60)


def commit_some(thread):
    """Commit a while; return the number that was committed last."""
    for number in range(25):
        thread.commit({"x": number})
    return number


@pytest.fixture
def store(path):
    with statelog.open(path) as opened:
        yield opened
        assert opened.verify().ok


@pytest.fixture
def environment(store):
    return store._engine.environment


@pytest.fixture
def thread(store):
    found = store.thread("t")
    commit_some(found)
    return found


def rest(environment):
    background_flusher.IDLE_S = 0.05
    until(lambda: not (environment.checkpointer.pins or environment.background_flusher.is_at_work))
    background_flusher.IDLE_S = 60
    assert not environment.checkpointer.pins
    assert not environment.checkpointer.needs_checkpoint


def flushers():
    return [each.ident for each in threading.enumerate() if each.name == "statelog agent.state"]


@pytest.mark.parametrize("is_flushed", [True, False])
def test_the_first_commit_after_a_rest_is_a_flush_of_the_journal_like_any_other(store, environment, thread, is_flushed):
    for number in range(3):
        rest(environment)
        epoch = environment.wal.shared_state.epoch
        thread.commit({"x": number}, durable=None if is_flushed else False)
        assert environment.checkpointer.pins
        assert environment.checkpointer.needs_checkpoint
        assert len(environment.checkpointer.pins) == 1
        assert environment.wal.shared_state.epoch == epoch, "a checkpoint, which flushes three times"
        assert environment.background_flusher.flushes is not is_flushed
        assert not (is_flushed and environment.wal.is_dirty)
    assert store.thread("t").state["x"] == number


def test_a_commit_of_many_threads_of_an_idle_store_needs_no_checkpoint_either(store, environment, thread):
    rest(environment)
    epoch = environment.wal.shared_state.epoch
    with store.transaction() as together:
        together.thread("t").commit({"x": "t"})
        together.thread("new").commit({"x": "new"})
    assert environment.wal.shared_state.epoch == epoch
    assert thread.state["x"] == "t"


def test_what_another_process_has_written_meanwhile_is_in_a_durable_snapshot_first(store, environment, thread, path):
    rest(environment)
    epoch = environment.wal.shared_state.epoch
    forks.run([sys.executable, "-c", COMMIT, path], check=True)
    thread.commit({"x": "after another"})
    assert environment.wal.shared_state.epoch > epoch
    assert len(environment.checkpointer.pins) == 1
    assert (thread.state["x"], store.thread("other").state["y"]) == ("after another", 1)


def test_a_transaction_of_lmdb_s_meanwhile_is_seen_whoever_made_it(environment, thread):
    rest(environment)
    epoch = environment.wal.shared_state.epoch
    environment.wal.shared_state.durable_number -= 1
    thread.commit({"x": "after another"})
    assert environment.wal.shared_state.epoch == epoch + 1
    assert len(environment.checkpointer.pins) == 1


def test_who_rests_twice_may_still_take_the_pin_again(environment, thread):
    rest(environment)
    with environment.write_lock, environment.locks.writing(0.0):
        environment.checkpointer.checkpoint_when_idle()
    epoch = environment.wal.shared_state.epoch
    thread.commit({"x": 1})
    assert environment.wal.shared_state.epoch == epoch


def test_a_journal_that_was_removed_at_rest_is_missed_at_once(path):
    with statelog.open(path) as store:
        thread = store.thread("t")
        before = commit_some(thread)
        rest(store._engine.environment)
        journal_path(path).unlink()
        with pytest.raises(JournalMissingError):
            thread.commit({"x": "lost"})
    with statelog.open(path) as store:
        assert store.thread("t").state["x"] == before
        assert store.verify().ok


def test_who_commits_again_and_again_does_not_rest(environment, thread, monkeypatch):
    """A machine that is busy may keep this thread from its next commit for so long that the store is idle."""
    monkeypatch.setattr(background_flusher, "IDLE_S", 0.2)
    rests, idle = [], 0
    kind = type(environment.checkpointer)
    monkeypatch.setattr(kind, "checkpoint_when_idle", lambda _self: rests.append(time.monotonic()))
    begun_s = committed_s = time.monotonic()
    while committed_s < begun_s + 1:
        thread.commit({"x": 1})
        time.sleep(0.005)
        before_s, committed_s = committed_s, time.monotonic()
        idle += (committed_s - before_s) // 0.19
    assert len(rests) <= idle
    rests.clear()
    until(lambda: rests)


def test_a_process_killed_after_a_rest_loses_nothing(path):
    child = forks.run([sys.executable, "-c", KILLED, path], check=False)
    assert child.returncode == -9
    with statelog.open(path) as store:
        assert store.thread("t").state["x"] == "after a rest"
        assert store.thread("t").version == 10
        assert store.verify().ok


def test_one_thread_looks_after_a_store_that_rests_again_and_again(environment, thread):
    first = flushers()
    for number in range(5):
        rest(environment)
        thread.commit({"x": number})
        assert environment.background_flusher.is_at_work
    assert flushers() == first
    assert len(first) == 1


def test_closing_a_store_at_rest_ends_its_thread(path):
    with statelog.open(path) as store:
        store.thread("t").commit({"x": 1})
        rest(store._engine.environment)
        assert len(flushers()) == 1
    until(lambda: not flushers())


@pytest.mark.parametrize(
    "point", ["checkpoint.before_sync", "checkpoint.after_sync", "checkpoint.after_slot", "checkpoint.after_pin"]
)
def test_who_is_killed_as_an_epoch_ends_in_a_pause_loses_nothing(path, point):
    command = [sys.executable, "-c", PAUSING, str(path)]
    fault = {**os.environ, "STATELOG_FAULT": f"{point}:3:kill"}
    child = forks.run(command, env=fault, capture_output=True, text=True, timeout=600, check=False)
    assert child.returncode == -signal.SIGKILL
    last = int(child.stdout.split()[-1])
    with statelog.open(path) as store:
        assert store.thread("t").state["n"] in (last, last + 1)  # killed in a commit, it may be there, too
        assert store.verify().ok
