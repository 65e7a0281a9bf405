"""An exception from an application's signal handler is raised unchanged, whatever it has interrupted."""

import sys

import forks
import pytest

import statelog
from statelog.storage.wal import wal


class TimeLimit(Exception):  # noqa: N818 - as of task queues
    pass


def _commit_flushed(store, thread):
    thread.commit({"n": 1})
    store.flush()


@pytest.fixture(params=[TimeLimit, TimeoutError])
def error(request):
    return request.param


@pytest.mark.parametrize("durability", ["commit", "interval"])
def test_an_interrupted_flush_does_not_count_as_a_failure_of_the_disk(tmp_path, monkeypatch, error, durability):
    def interrupted(_descriptor):
        raise error("of the application")

    with statelog.open(tmp_path / "s.state", durability=durability) as store:
        thread = store.thread("t")
        thread.commit({"n": 0})
        with monkeypatch.context() as patch:
            patch.setattr(wal, "flush_file", interrupted)
            with pytest.raises(error, match="of the application"):
                _commit_flushed(store, thread)
        thread.commit({"n": 2})
        store.flush()
        assert thread.state["n"] == 2
        assert store.verify().ok


AT_ANY_MOMENT = """
import random, signal, sys, time
import statelog

error = {"TimeLimit": type("TimeLimit", (Exception,), {}), "TimeoutError": TimeoutError}[sys.argv[2]]
rng = random.Random(3)

def raise_it(*_args):
    raise error

thread = statelog.open(sys.argv[1]).thread("t")
thread.commit({"n": 0, "a": [1]})
signal.signal(signal.SIGALRM, raise_it)
hits, ends_at_s = 0, time.monotonic() + 1
while time.monotonic() < ends_at_s or hits <= 100:
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(5e-6, 3e-4))
            with thread.mount() as state:
                state["n"] += 1
                state["a"] = [2] * 20
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except error:
        hits += 1
"""


@pytest.mark.slow
def test_a_timeout_at_any_moment_is_a_timeout(tmp_path, error):
    """Runs in another process, because a signal may also arrive in finalizers of the test runner."""
    command = [sys.executable, "-c", AT_ANY_MOMENT, str(tmp_path / "s.state"), error.__name__]
    ended = forks.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
