"""A compaction and the opening of the same file take their locks in one order."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import forks
import pytest

import statelog

OPEN_AND_CLOSE = """
import statelog, sys
for number in range(40):
    with statelog.open(sys.argv[1], lock_timeout_s=5) as store:
        store.thread("t").commit({"n": number})
"""


@pytest.mark.slow
def test_compactions_and_openings_do_not_deadlock(tmp_path):
    path = tmp_path / "a.state"
    with statelog.open(path, lock_timeout_s=5) as store:
        store.thread("t").commit({"n": 0})
        others = [forks.Popen([sys.executable, "-c", OPEN_AND_CLOSE, str(path)]) for _ in range(3)]
        try:
            while any(other.poll() is None for other in others):
                store.compact()
        finally:
            codes = [other.wait() for other in others]
    assert codes == [0, 0, 0]


@pytest.mark.slow
def test_a_waiter_continues_after_a_compaction(tmp_path):
    """If nobody has written since the opening, a wait reads a mark in the file, which a compaction removes."""
    with statelog.open(tmp_path / "agent.state") as store:
        store.thread("t").commit({"n": 0})
    for _ in range(40):
        with statelog.open(tmp_path / "agent.state") as store, ThreadPoolExecutor(2) as pool:
            ended = threading.Event()

            def look(store=store, ended=ended):
                while not ended.is_set():
                    store.wait(store.last_lsn, 0)

            looks = [pool.submit(look) for _ in range(2)]
            store.compact()
            ended.set()
            for each in looks:
                each.result()
