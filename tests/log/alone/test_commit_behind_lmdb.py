"""A commit in one kernel call where nothing waits: LMDB has got it, for a reader or because nobody committed."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from kernel_ways import changed, commit_until_made, put_off_looks

import statelog
from statelog.errors import StorageError, UsageError
from statelog.log.engine import Engine
from statelog.storage.commit.deferred import Deferred
from statelog.storage.journal.checkpointing import Steady

pytestmark = pytest.mark.usefixtures("never_settled_by_time")


@pytest.fixture
def environment(store):
    return store._engine.environment


@pytest.fixture
def read(environment, thread):
    """Have LMDB get what waits, as who reads does."""

    def read():
        for _ in range(3):  # at times an advance is due, or there is no room
            environment.deferred.apart = 0
            while environment.deferred.waiting.count < 2:  # after a single one the next ones are not made to wait
                thread.commit({"x": "one more"})
                put_off_looks(thread)
            environment.deferred.settle(goes_on=True)
            if environment.deferred.is_on and environment.deferred.has_room:
                break
        assert environment.deferred.has_room
        assert environment.deferred.waiting.last is None
        assert environment.deferred.applied is not None

    read()
    return read


@pytest.fixture
def rest(environment, read):
    """The same, and give the writer lock back, as after a while."""

    def rest():
        read()
        environment.deferred.settle()
        assert not environment.deferred.is_on

    rest()
    return rest


def test_the_next_commit_is_made_by_the_kernel(environment, store, thread, way, read):
    for number in range(20):
        read()
        made = way.made
        checkpoint = thread.commit({"x": number})
        assert way.made == made + 1
        waiting = environment.deferred.waiting
        assert (waiting.count, len(waiting.records), waiting.last) == (1, 1, store._engine.last.transaction)
        assert waiting.first_lsn == checkpoint.lsn == store.last_lsn
        assert checkpoint.state["x"] == number
    versions = [each.version for each in thread.history()]
    assert versions == [*range(len(versions) - 1, -1, -1)]


def test_others_that_follow_are_in_order(store, thread, way, read):
    other = store.thread("other")
    for number in range(30):
        read()
        thread.commit({"x": number})
        other.commit({"x": -number})
        store.delete_thread("gone") if number == 17 and store.thread("gone").commit({"x": 1}) else None
        thread.commit({"x": number, "y": number})
        assert (thread.state["x"], thread.state["y"], other.state["x"]) == (number, number, -number)
    assert way.made > 30


SIGNS = {
    "another transaction of LMDB's": lambda of: changed(of.deferred, number=of.deferred.number + 1),
    "nothing that LMDB has got": lambda of: changed(of.deferred, applied=None),
    "a writer lock that was given back": lambda of: changed(of.deferred, is_on=False, apart=1),
    "another end of the log": lambda of: changed(of.deferred.applied, first_lsn=of.deferred.applied.first_lsn - 1),
    "what is not known to be appended": lambda of: changed(of.deferred.applied, appended=None),
    "something that waits all the same": lambda of: changed(of.deferred.waiting, records=[b"something"]),
    "another's changes": lambda of: changed(of.deferred.applied, changes=10**6),
}


@pytest.mark.parametrize("sign", SIGNS)
def test_nothing_is_done_where_it_does_not_follow(environment, store, way, read, sign):
    arguments = way.last
    read()
    last, lsn = store._engine.last, store.last_lsn
    with SIGNS[sign](environment):
        assert way.kernel(*arguments) is None
    assert environment.deferred.waiting.last is None
    assert (store._engine.last, store.last_lsn) == (last, lsn)
    assert way.kernel(*arguments) is not None  # the negative control
    assert store.last_lsn == lsn + 1


def test_after_a_rest_commits_are_made_to_wait_again(environment, thread, way, rest):
    for number in range(10):
        rest()
        made = way.made
        thread.commit({"x": number})
        assert way.made == made + 1
        assert environment.deferred.is_on
        assert environment.deferred.waiting.count == 1
    assert thread.state["x"] == 9


@pytest.mark.usefixtures("read")
def test_where_no_more_may_wait_lmdb_gets_what_does(environment, thread, way):
    turns, others = 0, 0
    for number in range(5000):
        is_full = not environment.deferred.has_room and environment.deferred.waiting.count > 1
        made, epoch = way.made, environment.steady._epoch
        thread.commit({"x": number})
        if is_full and environment.steady._epoch == epoch:
            turns += way.made == made + 1 and environment.deferred.waiting.count == 1
            others += way.made == made
        put_off_looks(thread)
    assert turns > 3
    assert others < 3  # the last one of an epoch
    assert thread.state["x"] == 4999


def test_a_disk_that_refuses_lmdb_there_is_met_as_elsewhere(path, way, durability, monkeypatch):
    """What waits is in the journal: nothing is lost, and nothing is written until the store was reopened."""
    with statelog.open(path, durability=durability, interval_ms=60_000) as store:
        thread = store.thread("t")
        commit_until_made(thread, way)
        deferred = store._engine.environment.deferred
        while deferred.waiting.count < 2:
            thread.commit({"x": "more"})
        before = thread.commit({"x": "acknowledged"}).version

        def refuse(_self, _waiting):
            message = "refused"
            raise StorageError(message)

        monkeypatch.setattr(Deferred, "_put_all", refuse)
        deferred.has_room = False
        with pytest.raises(StorageError):
            thread.commit({"x": "not"})
        with pytest.raises(StorageError):
            thread.commit({"x": "not either"})
        monkeypatch.undo()
    with statelog.open(path) as store:
        assert (store.thread("t").version, store.thread("t").state["x"]) == (before, "acknowledged")
        assert store.verify().ok


def test_who_waits_for_commits_is_told_of_them_after_a_rest(environment, store, thread, rest):
    for number in range(3):
        rest()
        environment.wake.look_at_s = 0.0
        with ThreadPoolExecutor(1) as pool:
            told = pool.submit(store.wait, store.last_lsn, timeout_s=20)
            time.sleep(0.05)
            thread.commit({"x": number})
            assert told.result() is True


@pytest.mark.usefixtures("rest")
def test_not_while_another_process_has_the_store_open(environment, path, thread, way):
    command = "import statelog, sys\nwith statelog.open(sys.argv[1]): print('open', flush=True); sys.stdin.readline()"
    arguments = [sys.executable, "-c", command, path]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as other:
        assert other.stdout.readline() == b"open\n"
        made = way.made
        for number in range(30):
            thread.commit({"x": number})
            assert not environment.deferred.is_on
        assert way.made == made
        other.communicate(b"\n")
    commit_until_made(thread, way)
    assert thread.state["x"] > 0


def test_who_interrupts_it_cannot_commit_and_does_no_harm(store, thread, rest, monkeypatch):
    refused = []

    def interrupt(*_):
        with pytest.raises(UsageError):
            thread.commit({"x": "from a handler"})
        refused.append(1)

    turn_on = Deferred._turn_on

    def interrupted(self, *, is_flushed):
        os.kill(os.getpid(), signal.SIGALRM)
        for _ in range(1000):
            if refused:
                break
        return turn_on(self, is_flushed=is_flushed)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        monkeypatch.setattr(Deferred, "_turn_on", interrupted)
        version = thread.version
        rest()
        refused.clear()
        thread.commit({"x": "interrupted"})
    finally:
        signal.signal(signal.SIGALRM, before)
    assert refused
    assert thread.state["x"] == "interrupted"
    assert thread.version == version + 3
    assert store._engine._committer.inside == set()


class Interrupt(BaseException):
    pass


@pytest.mark.usefixtures("rest")
@pytest.mark.parametrize("where", ["_turn_on", "_turn_on_alone", "_lengthen", "_measure"])
def test_an_interrupt_leaves_the_locks_free(environment, path, thread, monkeypatch, where):
    original = getattr(Deferred, where)

    def interrupted(self, **arguments):
        original(self, **arguments)
        raise Interrupt

    monkeypatch.setattr(Deferred, where, interrupted)
    with pytest.raises(Interrupt):
        thread.commit({"x": "interrupted"})
    monkeypatch.undo()
    assert thread._session._engine._committer.inside == set()
    environment.deferred.settle()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(environment.write_lock.acquire, blocking=False).result() is True
        pool.submit(environment.write_lock.release).result()
    opened = "statelog.open(sys.argv[1], lock_timeout_s=5)"
    look = f"import statelog, sys\nwith {opened} as store: store.thread('u').commit({{'x': 1}})"
    subprocess.run([sys.executable, "-c", look, path], check=True, timeout=30)


@pytest.mark.parametrize("kernel", ["commit_flushed"])
def test_a_flush_that_fails_there_ends_the_environment(path, way, monkeypatch):
    monkeypatch.setattr(Steady, "look_for_journal", lambda _self: None)  # what takes its place here is another file
    with statelog.open(path) as store:
        thread = store.thread("t")
        environment = store._engine.environment
        commit_until_made(thread, way)
        environment.deferred.settle(goes_on=True)
        assert environment.deferred.waiting.last is None
        before = thread.version

        @contextmanager
        def unflushable():
            descriptor = os.open("/dev/zero", os.O_RDWR)
            try:
                with changed(environment.steady, _descriptor=descriptor):
                    yield
            finally:
                os.close(descriptor)

        made = way.made
        way.around = unflushable
        with pytest.raises(StorageError):
            thread.commit({"x": "not flushed"})
        assert way.made == made
        with pytest.raises(StorageError, match="close the store"):
            thread.commit({"x": "after"})
    with statelog.open(path) as store:
        assert store.thread("t").version == before
        assert store.thread("t").commit({"x": "after"}).version == before + 1
        assert store.verify().ok


def test_no_few_are_left_over_before_an_advance(thread, monkeypatch):
    """The pages that they may take at the most do not count as held: see `HeldPages`."""
    batches = []
    apply = Deferred._apply
    for number in range(4000):
        if number == 2000:
            monkeypatch.setattr(Deferred, "_apply", lambda self: (batches.append(self.waiting.count), apply(self)))
        thread.commit({"x": number}, id=f"{number:08}")
    large = sorted(count for count in batches if count)
    assert large[2] >= 10
    assert 2000 / len(large) > 22


@pytest.mark.parametrize("kernel", ["commit_alone"], indirect=True)
def test_a_commit_without_a_flush_waits_for_those_of_others_one_after_another(environment, thread, way, monkeypatch):
    """Who comes after the first flush may begin another before this one is there."""
    committer, tried, made = environment.committer, [], way.made
    plain = Engine._try_kernel

    def behind(self, direct, *, is_flushed):
        tried.append(direct)
        committer.leader = object() if len(tried) < 4 else None
        return plain(self, direct, is_flushed=is_flushed)

    monkeypatch.setattr(Engine, "_try_kernel", behind)
    thread.commit({"x": "behind three"}, durable=False)
    assert len(tried) == 4
    assert way.made == made + 1
