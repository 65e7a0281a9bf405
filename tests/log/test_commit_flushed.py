"""A commit alone that ends with a flush: what others see meanwhile, and what becomes of one whose flush fails.

What it shares with the one without is tested with that (alone/).
"""

import os
import subprocess
import sys

import pytest

import statelog
from statelog import kernels
from statelog.log import engine
from statelog.storage.commit import keeper
from statelog.storage.journal.checkpointing import Steady
from statelog.testing.powerloss.shim import find_compiler, is_supported

SLOW = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int fdatasync(int descriptor)
{
    const char *slow_ms = getenv("SLOW_MS");
    struct timespec slow = {0, slow_ms == NULL ? 0 : atol(slow_ms) * 1000 * 1000};
    nanosleep(&slow, NULL);
    return (int)syscall(SYS_fdatasync, descriptor);
}
"""

DURING_A_FLUSH = """
import os, signal, sys, threading, time
import statelog
from statelog import kernels
from statelog.log import engine
from statelog.storage.commit import keeper
keeper._SETTLE_S = 60
made, kernel = [], kernels.commit_flushed
def watched(*arguments):
    found = kernel(*arguments)
    made.append(found is not None)
    return found
engine.commit_flushed = watched
with statelog.open(sys.argv[1]) as store:
    environment = store._engine.environment
    committer, thread, other = environment.committer, store.thread("t"), store.thread("other")
    def commit_until_made():
        for number in range(60):
            thread.commit({"x": number})
            environment.locks.look_at_s = environment.wake.look_at_s = float("inf")
            waits = environment.deferred.waiting.last is not None  # not where the thread's policy was looked for
            if made[-1:] == [True] and number > 3 and waits:
                return number
    def begin(update):
        os.environ["SLOW_MS"] = "500"
        writer = threading.Thread(target=thread.commit, args=(update,))
        writer.start()
        time.sleep(0.05)
        del os.environ["SLOW_MS"]
        assert committer.leader is not None and committer.inside == {writer.ident} == {environment.writer_thread}
        assert environment.deferred.transaction in environment.active_transactions
        return writer
    def check_at_rest():
        assert committer.leader is None and not committer.inside and environment.writer_thread == 0
        assert environment.deferred.transaction is None and not environment.active_transactions
        assert environment.write_lock.acquire(blocking=False)
        environment.write_lock.release()

    number = commit_until_made()
    writer = begin({"x": -1})
    assert thread.state["x"] == number, "what is not flushed is not seen"
    assert committer.leader is not None, "who reads waits for no flush"
    assert store.thread("other").commit({"x": 1}).version == 0, "who commits follows"
    writer.join()
    assert made[-1] and thread.state["x"] == -1
    check_at_rest()

    commit_until_made()
    writer = begin({"x": -2})
    followers = [threading.Thread(target=other.commit, args=({"x": each},)) for each in range(3)]
    for each in followers:
        each.start()
    for each in (writer, *followers):
        each.join()
    check_at_rest()
    assert thread.state["x"] == -2 and other.version == 3

    class Interrupt(BaseException):
        pass
    raised = 0
    def interrupt(*_):
        raise Interrupt
    signal.signal(signal.SIGALRM, interrupt)
    for turn in range(20):
        commit_until_made()
        follower = threading.Thread(target=lambda: (time.sleep(0.02), other.commit({"x": "follows"})))
        follower.start()
        os.environ["SLOW_MS"] = "50"
        signal.setitimer(signal.ITIMER_REAL, 0.025 if turn % 2 else 0.047 + 0.0004 * turn)
        try:
            thread.commit({"x": f"interrupted {turn}"})
            signal.setitimer(signal.ITIMER_REAL, 0)
        except Interrupt:
            raised += 1
        del os.environ["SLOW_MS"]
        follower.join(20)
        assert not follower.is_alive(), "who follows is let go on"
        check_at_rest()
        assert thread.state["x"] == f"interrupted {turn}", "a handler runs when it is in"
    assert store.verify().ok
    assert raised >= 10
    print("done")
"""


def test_others_during_its_flush(tmp_path, path):
    """Readers do not see it and do not wait; who commits follows; a handler of a signal runs when it is in."""
    compiler = find_compiler()
    if not is_supported():
        pytest.skip("a flush is made slow by a preloaded library: that needs a 64-bit Linux and a C compiler")
    shim = tmp_path / "slow.so"
    (tmp_path / "slow.c").write_text(SLOW)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", shim, tmp_path / "slow.c"], check=True)
    environment = {**os.environ, "LD_PRELOAD": f"{os.environ.get('LD_PRELOAD', '')} {shim}".strip()}
    command = [sys.executable, "-c", DURING_A_FLUSH, path]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (child.returncode, child.stdout[:4]) == (0, "done"), child.stderr


def test_a_flush_that_fails_ends_the_environment(path, monkeypatch):
    """The journal takes what is written, and refuses to be flushed: nothing is in until it was reopened."""
    monkeypatch.setattr(keeper, "_SETTLE_S", 60)
    monkeypatch.setattr(Steady, "look_for_journal", lambda _self: None)  # what takes its place here is another file
    descriptor = os.open("/dev/zero", os.O_RDWR)
    made, asked = [], []

    def watched(*arguments):
        steady = environment.steady
        before = steady._descriptor
        steady._descriptor = descriptor if asked else before
        asked.clear()
        try:
            found = kernels.commit_flushed(*arguments)
        finally:
            steady._descriptor = before
        made.append(found is not None)
        return found

    monkeypatch.setattr(engine, "commit_flushed", watched)
    with statelog.open(path) as store:
        environment = store._engine.environment
        thread = store.thread("t")
        for number in range(60):
            thread.commit({"x": number})
            environment.locks.look_at_s = environment.wake.look_at_s = float("inf")
        assert made[-1]
        asked.append(True)
        with pytest.raises(statelog.errors.StorageError):
            thread.commit({"x": "not flushed"})
        with pytest.raises(statelog.errors.StorageError, match="close the store"):
            thread.commit({"x": "after"})
    with statelog.open(path) as store:
        thread = store.thread("t")
        assert [checkpoint.state["x"] for checkpoint in thread.history()] == [*range(59, -1, -1)]
        thread.commit({"x": "after"})
        assert store.verify().ok
