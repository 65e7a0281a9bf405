"""Code that interrupts a thread within a store operation is refused, and leaves every lock unchanged."""

import threading

import pytest

import statelog
from statelog.errors import UsageError
from statelog.log import commit
from statelog.log.commit_queue import Request


class Interrupt(BaseException):
    pass


@pytest.fixture
def committed(path):
    """A store with a commit, and its thread."""
    with statelog.open(path, durability="interval", interval_ms=60_000) as store:
        thread = store.thread("t")
        for number in range(40):
            thread.commit({"x": number})
        yield store, thread
        assert thread.state["x"] == 39
        assert store.verify().ok


def test_a_handler_that_interrupts_the_holder_of_the_gate_cannot_commit(committed):
    store, thread = committed
    store_file = store._engine.store_file
    taken, left = threading.Event(), threading.Event()

    def lead():
        with store_file.lmdb_file.write_lock, store_file.committer.queue.turn:
            taken.set()
            left.wait(30)

    leader = threading.Thread(target=lead)
    leader.start()
    taken.wait()
    try:
        with store_file.lmdb_file.gate, pytest.raises(UsageError, match="that interrupted"):
            thread.commit({"x": "refused"})
    finally:
        left.set()
        leader.join()


def request_that_interrupts(at):
    """Return a type of requests: the leader is interrupted when it settles its `at`th request."""
    noted = []

    class Noted(Request):
        @property
        def settled(self):
            return self.__dict__.get("_settled", False)

        @settled.setter
        def settled(self, value):
            if threading.current_thread().name == "leader" and value:
                noted.append(self)
                if len(noted) == at:
                    raise Interrupt
            self.__dict__["_settled"] = value

    return Noted


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_follower_of_an_interrupted_leader_is_not_committed_twice(store_file, append, monkeypatch, at):
    committer, outcomes, may_go = store_file.committer, [], threading.Event()
    monkeypatch.setattr(commit, "Request", request_that_interrupts(at))

    def slow(transaction):
        assert may_go.wait(20)
        return append(transaction)

    def submit(work=append):
        try:
            outcomes.append(committer.submit(work))
        except Interrupt:
            outcomes.append("interrupted")

    threads = [threading.Thread(target=submit, args=(slow,))]
    threads += [threading.Thread(target=submit, name=name) for name in ("leader", "second", "third")]
    for number, thread in enumerate(threads):
        thread.start()
        while len(committer.queue.requests) < number or not committer.queue.group:
            assert thread.is_alive()
    may_go.set()
    for thread in threads:
        thread.join(20)
    assert sorted(map(str, outcomes)) == ["1", "3", "4", "interrupted"]
    with store_file.read() as transaction:
        assert transaction.last_lsn() == 4
    assert committer.submit(append) == 5
