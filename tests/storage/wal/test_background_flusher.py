"""Stores that were idle and are used again: the pin, and the waiting thread."""

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
from statelog.storage.wal.background_flusher import Alarm

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
    while store._engine.store_file.checkpointer.pins:
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
    """Commit for a while. Return the last committed number."""
    for number in range(25):
        thread.commit({"x": number})
    return number


@pytest.fixture
def store(path):
    with statelog.open(path) as opened:
        yield opened
        assert opened.verify().ok


@pytest.fixture
def store_file(store):
    return store._engine.store_file


@pytest.fixture
def thread(store):
    found = store.thread("t")
    commit_some(found)
    return found


def rest(store_file):
    background_flusher.IDLE_S = 0.05
    until(lambda: not (store_file.checkpointer.pins or store_file.background_flusher.is_at_work))
    background_flusher.IDLE_S = 60
    assert not store_file.checkpointer.pins
    assert not store_file.checkpointer.needs_checkpoint


def flushers():
    return [each.ident for each in threading.enumerate() if each.name == "statelog agent.state"]


@pytest.mark.parametrize("is_flushed", [True, False])
def test_the_first_commit_after_an_idle_time_only_flushes_the_journal(store, store_file, thread, is_flushed):
    for number in range(3):
        rest(store_file)
        epoch = store_file.wal.shared_state.epoch
        thread.commit({"x": number}, durable=None if is_flushed else False)
        assert store_file.checkpointer.pins
        assert store_file.checkpointer.needs_checkpoint
        assert len(store_file.checkpointer.pins) == 1
        assert store_file.wal.shared_state.epoch == epoch, "a checkpoint, which flushes three times"
        assert store_file.background_flusher.flushes is not is_flushed
        assert not (is_flushed and store_file.wal.is_dirty)
    assert store.thread("t").state["x"] == number


def test_a_commit_of_many_threads_of_an_idle_store_needs_no_checkpoint(store, store_file, thread):
    rest(store_file)
    epoch = store_file.wal.shared_state.epoch
    with store.transaction() as together:
        together.thread("t").commit({"x": "t"})
        together.thread("new").commit({"x": "new"})
    assert store_file.wal.shared_state.epoch == epoch
    assert thread.state["x"] == "t"


def test_writes_of_another_process_become_durable_first(store, store_file, thread, path):
    rest(store_file)
    epoch = store_file.wal.shared_state.epoch
    forks.run([sys.executable, "-c", COMMIT, path], check=True)
    thread.commit({"x": "after another"})
    assert store_file.wal.shared_state.epoch > epoch
    assert len(store_file.checkpointer.pins) == 1
    assert (thread.state["x"], store.thread("other").state["y"]) == ("after another", 1)


def test_any_intermediate_transaction_of_lmdb_is_noticed(store_file, thread):
    rest(store_file)
    epoch = store_file.wal.shared_state.epoch
    store_file.wal.shared_state.durable_number -= 1
    thread.commit({"x": "after another"})
    assert store_file.wal.shared_state.epoch == epoch + 1
    assert len(store_file.checkpointer.pins) == 1


def test_a_process_that_was_idle_twice_can_still_pin_again(store_file, thread):
    rest(store_file)
    with store_file.lmdb_file.write_lock, store_file.lmdb_file.locks.writing(0.0):
        store_file.checkpointer.checkpoint_when_idle()
    epoch = store_file.wal.shared_state.epoch
    thread.commit({"x": 1})
    assert store_file.wal.shared_state.epoch == epoch


def test_a_journal_removed_during_an_idle_time_is_noticed_at_once(path):
    with statelog.open(path) as store:
        thread = store.thread("t")
        before = commit_some(thread)
        rest(store._engine.store_file)
        journal_path(path).unlink()
        with pytest.raises(JournalMissingError):
            thread.commit({"x": "lost"})
    with statelog.open(path) as store:
        assert store.thread("t").state["x"] == before
        assert store.verify().ok


@pytest.mark.slow
def test_a_store_with_continuous_commits_is_never_idle(store_file, thread, monkeypatch):
    """On a busy machine, this thread may make its next commit so late that the store is idle."""
    monkeypatch.setattr(background_flusher, "IDLE_S", 0.2)
    rests, idle = [], 0
    kind = type(store_file.checkpointer)
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


@pytest.mark.slow
def test_a_process_killed_after_an_idle_time_loses_no_commit(path):
    child = forks.run([sys.executable, "-c", KILLED, path], check=False)
    assert child.returncode == -9
    with statelog.open(path) as store:
        assert store.thread("t").state["x"] == "after a rest"
        assert store.thread("t").version == 10
        assert store.verify().ok


@pytest.mark.slow
def test_one_thread_serves_a_store_that_is_repeatedly_idle(store_file, thread):
    first = flushers()
    for number in range(5):
        rest(store_file)
        thread.commit({"x": number})
        assert store_file.background_flusher.is_at_work
    assert flushers() == first
    assert len(first) == 1


def test_closing_an_idle_store_ends_its_thread(path):
    with statelog.open(path) as store:
        store.thread("t").commit({"x": 1})
        rest(store._engine.store_file)
        assert len(flushers()) == 1
    until(lambda: not flushers())


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", ["checkpoint.before_sync", "checkpoint.after_sync", "checkpoint.after_slot", "checkpoint.after_pin"]
)
def test_a_kill_at_the_end_of_an_epoch_during_a_pause_loses_no_commit(path, point):
    command = [sys.executable, "-c", PAUSING, str(path)]
    fault = {**os.environ, "STATELOG_FAULT": f"{point}:3:kill"}
    child = forks.run(command, env=fault, capture_output=True, text=True, timeout=600, check=False)
    assert child.returncode == -signal.SIGKILL
    last = int(child.stdout.split()[-1])
    with statelog.open(path) as store:
        assert store.thread("t").state["n"] in (last, last + 1)  # A commit during the kill may also exist.
        assert store.verify().ok


def _interrupted_at(opcode, call):
    """Call `call`, and raise KeyboardInterrupt before the bytecode with this number. Return False if it has fewer."""
    left = opcode

    def trace(frame, event, _argument):
        nonlocal left
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def _is_usable_after_interrupts(make):
    """Interrupt `set` at each of its bytecodes in turn. Return False if a later `set` blocks."""
    for opcode in range(1000):
        alarm = make()
        was_interrupted = _interrupted_at(opcode, alarm.set)
        setter = threading.Thread(target=alarm.set, daemon=True)
        setter.start()
        setter.join(1)
        if setter.is_alive() or not alarm.wait(1):
            return False
        if not was_interrupted:
            return opcode > 5  # Otherwise, nothing was traced.
    return False


@pytest.mark.slow
def test_an_alarm_stays_usable_if_a_signal_handler_raises_in_it():
    assert _is_usable_after_interrupts(Alarm)
    assert not _is_usable_after_interrupts(threading.Event)


def test_an_alarm_set_twice_wakes_once():
    alarm = Alarm()
    alarm.set()
    alarm.set()
    assert alarm.wait(1)
    assert not alarm.wait(0)
