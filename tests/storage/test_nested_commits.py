"""A commit within another commit of the same thread is refused, because it would wait for itself."""

import gc
import signal
import sys
import threading
import time

import pytest
from committing import Holder

from statelog.errors import UsageError
from statelog.log import commit, commit_queue

WAIT_S = 60


def test_a_commit_in_a_signal_handler_is_refused_while_its_thread_waits_for_a_leader(committer, append):
    """Its commit and the interrupted one would both be in the queue, and the first one waits for the second."""
    may_go, refused = threading.Event(), []

    def slow(transaction):
        assert may_go.wait(WAIT_S)
        return append(transaction)

    def handler(_number, _frame):
        try:
            committer.submit(append)
        except UsageError:
            refused.append(1)
        may_go.set()

    leader = threading.Thread(target=committer.submit, args=(slow,), daemon=True)
    leader.start()
    before = signal.signal(signal.SIGALRM, handler)
    try:
        while not committer.queue.group:
            pass
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        assert committer.submit(append) == 2
    finally:
        signal.signal(signal.SIGALRM, before)
        may_go.set()
    leader.join(WAIT_S)
    assert refused == [1]
    assert committer.submit(append) == 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["commit", "_lead", "begin", "wait", "execute", "flush", "end", "_wake"])
def test_commits_in_finalizers_of_six_threads_are_refused_within_commits(committer, append, name):
    """Finalizers run when objects are created, even before a thread has woken the leader that it waits for."""
    outcomes = []
    stop = False

    class Late:
        def __init__(self):
            self.me = self

        def __del__(self):
            frame = sys._getframe(1)
            if frame.f_code.co_name == name and frame.f_code.co_filename in {commit.__file__, commit_queue.__file__}:
                try:
                    outcomes.append(committer.submit(append))
                except UsageError:
                    outcomes.append(None)
            if not stop:
                Late()

    def run():
        for _ in range(150):
            committer.submit(append)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(6)]
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        Late()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        stop = True
    finally:
        gc.set_threshold(*threshold)
    assert not any(thread.is_alive() for thread in threads)
    assert committer.submit(append) == 6 * 150 + sum(made is not None for made in outcomes) + 1


def test_a_follower_interrupted_at_the_end_of_its_wait_can_commit_again(committer, append):
    class Marks(set):
        """Interrupts the follower once, before its mark is removed."""

        interrupted = False

        def discard(self, mark):
            if not self.interrupted:
                self.interrupted = True
                raise KeyboardInterrupt
            super().discard(mark)

    committer.queue.waiting = Marks()
    holder, outcomes, queued = Holder(committer), [], len(committer.queue.requests)

    def run():
        try:
            committer.submit(append)
        except KeyboardInterrupt:
            outcomes.append(committer.submit(append))

    follower = threading.Thread(target=run)
    follower.start()
    while len(committer.queue.requests) == queued:
        time.sleep(0.0005)
    holder.release()
    follower.join(WAIT_S)
    assert outcomes
    assert not committer.queue.waiting
    with pytest.raises(UsageError, match="within another commit"):
        committer.submit(lambda _: committer.submit(append))
