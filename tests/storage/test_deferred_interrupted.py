"""What comes upon a thread as commits wait, or are given to LMDB: forks, reads, signal handlers, interrupts."""

import os
import signal
import sys
import threading
from contextlib import ExitStack, suppress

import pytest
from deferring import commit_until_waiting, waits

import statelog
from statelog.errors import AlreadyExistsError, ForkedError, LimitError, UsageError
from statelog.storage import faults
from statelog.storage.commit import keeper


@pytest.fixture(autouse=True)
def never_settled_by_time(monkeypatch):
    monkeypatch.setattr(keeper, "_SETTLE_S", 60)


@pytest.fixture
def store(path):
    with statelog.open(path) as opened:
        yield opened


@pytest.fixture
def on_signal():
    """Have a function called by a signal, and return what it returned, or raised."""
    answers = []

    def install(function):
        def handle(_number, _frame):
            try:
                answers.append(function())
            except statelog.StatelogError as error:
                answers.append(error)

        signal.signal(signal.SIGUSR1, handle)
        return answers

    before = signal.getsignal(signal.SIGUSR1)
    yield install
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("point", ["deferred.before_lmdb_commit", "deferred.after_settling"])
def test_a_signal_handler_that_commits_as_commits_are_settled_loses_nothing(store, path, on_signal, point):
    thread, other = store.thread("t"), store.thread("u")
    other.commit({"n": 0})
    number = commit_until_waiting(thread, store)
    answers = on_signal(lambda: other.commit({"n": 1}).version)
    faults.arm(point, action=lambda: signal.raise_signal(signal.SIGUSR1))
    assert thread.state["x"] == number
    (answer,) = answers
    assert isinstance(answer, UsageError) or answer == 1
    assert other.version == (1 if answer == 1 else 0)
    store.close()
    with statelog.open(path) as again:
        assert again.thread("u").version == (1 if answer == 1 else 0)
        assert again.verify().ok


@pytest.mark.parametrize("place", ["deferred.before_lmdb_commit", "deferred.after_settling"])
def test_a_signal_handler_that_commits_right_behind_what_is_settled_loses_nothing(store, path, on_signal, place):
    """As the test above; but what it goes on from is remembered, so that nothing has to be looked up."""
    thread, other = store.thread("t"), store.thread("u")
    other.commit({"n": 0})
    commit_until_waiting(thread, store)
    for number in range(3):
        other.commit({"n": number})
        thread.commit({"x": number})
    assert waits(store)
    answers = on_signal(lambda: other.commit({"n": "mine"}).version)
    faults.arm(place, action=lambda: signal.raise_signal(signal.SIGUSR1))
    assert thread.state["x"] == 2
    (answer,) = answers
    assert isinstance(answer, UsageError) or answer == 4
    expected = 4 if answer == 4 else 3
    assert other.version == expected
    thread.commit({"x": -1})
    assert store.verify().ok
    store.close()
    with statelog.open(path) as again:
        assert again.thread("u").version == expected
        assert again.verify().ok


def test_a_signal_handler_that_commits_does_not_wait_for_a_leader_that_waits_for_its_thread(store, on_signal):
    thread, other = store.thread("t"), store.thread("u")
    other.commit({"n": 0})
    commit_until_waiting(thread, store)
    beside = threading.Thread(target=thread.commit, args=({"x": "beside"},), daemon=True)

    def handle():
        beside.start()
        beside.join(0.3)  # it leads now, and is to let its commit wait
        return other.commit({"n": 1})

    answers = on_signal(handle)
    faults.arm("deferred.before_lmdb_commit", action=lambda: signal.raise_signal(signal.SIGUSR1))
    reader = store.thread("t")
    assert isinstance(answers[0], UsageError)
    beside.join(20)
    assert not beside.is_alive()
    assert reader.state["x"] == "beside"
    assert store.verify().ok


@pytest.mark.parametrize("caller", ["_turn_on", "_settle"])
def test_an_interrupt_as_a_lock_is_taken_leaves_it_free(store, caller):
    thread, other = store.thread("t"), store.thread("u")
    struck = []

    def watch(frame, event, function):
        names = frame.f_code.co_name, frame.f_back and frame.f_back.f_code.co_name
        if not struck and event == "c_return" and names == ("call_if_free", caller) and function.__name__ == "acquire":
            struck.append(names)
            raise KeyboardInterrupt

    for number in range(200):
        sys.setprofile(watch)
        try:
            thread.commit({"x": number})
            if number > 60:
                store._engine.environment.deferred.settle()
        except KeyboardInterrupt:
            break
        finally:
            sys.setprofile(None)
    assert struck
    beside = threading.Thread(target=other.commit, args=({"n": 1},), daemon=True)
    beside.start()
    beside.join(20)
    assert not beside.is_alive()
    assert other.state["n"] == 1
    assert store.verify().ok


def test_a_signal_handler_that_reads_as_commits_are_settled_is_not_told_what_was(store, on_signal):
    thread = store.thread("t")
    number = commit_until_waiting(thread, store)
    answers = on_signal(lambda: store.thread("t").state["x"])
    faults.arm("deferred.before_lmdb_commit", action=lambda: signal.raise_signal(signal.SIGUSR1))
    assert thread.state["x"] == number
    assert isinstance(answers[0], UsageError)


def test_an_interrupt_as_lmdb_has_committed_what_waits_is_no_damage(store, monkeypatch):
    thread = store.thread("t")
    commit_until_waiting(thread, store)
    handles = store._engine.environment.handles

    class Interrupted:
        def __init__(self, raw):
            self._raw = raw

        def __getattr__(self, name):
            return getattr(self._raw, name)

        def commit(self):
            self._raw.commit()
            raise KeyboardInterrupt

    def begin(parent, database, write, buffers):
        raw = handles.begin(parent, database, write, buffers)
        return Interrupted(raw) if write else raw

    with monkeypatch.context() as patch:
        patch.setattr(store._engine.environment, "handles", handles._replace(begin=begin))
        with pytest.raises(KeyboardInterrupt):
            thread.version  # noqa: B018
    assert waits(store)
    made = thread.commit({"x": -1})
    assert (thread.version, thread.state["x"]) == (made.version, -1)
    assert store.verify().ok


def test_what_an_interrupted_commit_remembered_is_not_believed(path):
    with statelog.open(path) as one, statelog.open(path) as other:
        mine, theirs = one.thread("t"), other.thread("u")
        for number in range(60):
            theirs.commit({"n": number})
        commit_until_waiting(mine, one)

        def interrupted(_batch):
            raise KeyboardInterrupt

        class Direct:
            def make(self, *_arguments):
                return None

        with pytest.raises(KeyboardInterrupt):
            one._engine.commit(interrupted, direct=Direct())
        for number in range(100):
            made = theirs.commit({"n": number})
        mine.commit({"x": -1})
        assert theirs.version == made.version
        assert one.verify().ok


@pytest.mark.parametrize("reads", [False, True])
def test_a_commit_that_reads_the_store_as_it_is_made_still_sees_what_waited(store, reads):
    thread = store.thread("t")
    commit_until_waiting(thread, store)
    thread.commit({"x": -1}, id="mine")

    def change(state):
        if reads:
            assert store.thread("t").state["x"] == -1
        state["x"] = -2

    with pytest.raises(AlreadyExistsError):
        thread.edit(change, id="mine")
    assert thread.state["x"] == -1
    assert store.verify().ok


def test_another_thread_may_read_while_a_commit_waits_for_it(store):
    thread = store.thread("t")
    number = commit_until_waiting(thread, store)
    seen = []

    def change(state):
        reader = threading.Thread(target=lambda: seen.append(store.thread("t").state["x"]), daemon=True)
        reader.start()
        reader.join(30)
        state["x"] = -1

    thread.edit(change)
    assert seen == [number]
    assert thread.state["x"] == -1


def test_a_store_whose_readers_are_all_taken_goes_on_when_they_are_gone(store):
    thread = store.thread("t")
    commit_until_waiting(thread, store)
    with ExitStack() as stack:
        with suppress(LimitError):
            while True:
                stack.enter_context(store.snapshot()).thread("t").version  # noqa: B018
        for number in range(20):
            thread.commit({"x": number}, id=f"id {number}")
    environment = store._engine.environment
    assert environment.writer_thread == 0
    thread.commit({"x": -1})
    assert not [each for each in environment.active_transactions if each is not environment.deferred.transaction]
    assert thread.state["x"] == -1


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_commit_that_forks_is_refused_in_the_child_and_made_in_the_parent(store, path):
    thread = store.thread("t")
    commit_until_waiting(thread, store)
    journal = path.with_name(f"{path.name}-journal")
    descriptor = store._engine.environment.locks.descriptor
    size_bytes = journal.stat().st_size
    children = []

    def change(state):
        children.append(os.fork())
        if children[0] == 0:  # something else gets the number of the store's descriptor
            os.dup2(os.open(path.with_name("victim"), os.O_RDWR | os.O_CREAT), descriptor)
        state["x"] = -1

    try:
        thread.edit(change)
        status = 1
    except ForkedError:
        status = 0
    finally:
        if children[0] == 0:
            os._exit(status)
    assert os.waitpid(children[0], 0)[1] == 0
    assert journal.stat().st_size == size_bytes
    assert thread.state["x"] == -1
    assert store.verify().ok


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize("durability", ["interval", "commit"])
def test_a_child_forked_as_another_thread_commits_is_refused_at_once(path, durability):
    """That thread may have had the locks, which nobody lets go of in the child."""
    with statelog.open(path, durability=durability) as store:
        thread, other = store.thread("t"), store.thread("u")
        is_over = threading.Event()

        def commit():
            while not is_over.is_set():
                other.commit({"n": 1}, durable=False)

        beside = threading.Thread(target=commit)
        beside.start()
        statuses = []
        for _ in range(20):
            thread.commit({"n": 0}, durable=False)
            child = os.fork()
            if child == 0:
                signal.alarm(10)
                try:
                    thread.commit({"n": 1}, durable=False)
                except ForkedError:
                    os._exit(0)
                finally:
                    os._exit(1)
            statuses.append(os.waitpid(child, 0)[1])
        is_over.set()
        beside.join()
        assert statuses == [0] * 20
        assert store.verify().ok
