"""Resizing LMDB's map ends every transaction, including the pin of the durable snapshot."""

import os
import random
import signal
import sys

import forks
import pytest

import statelog
from statelog.errors import CommitOutcomeUnknownError, StoreFullError

QUOTA_BYTES = 3 << 20

FILL = """
import os, random, sys
sys.path[:0] = sys.argv[3:]
from test_map_size import fill
fill(sys.argv[1], int(sys.argv[2]))
os.kill(os.getpid(), 9)
"""


def fill(path, seed):
    """Commit to a store until it is full, several times."""
    rng = random.Random(seed)
    thread = statelog.open(path, max_size_bytes=QUOTA_BYTES, durability="interval").thread("t")
    refused = 0
    for number in range(6000):
        update = {"n": number}
        for _ in range(rng.choice([0, 0, 1, 3, 8])):
            update[f"k{rng.randrange(6)}"] = rng.choice([number, "x" * rng.randrange(300), b"z" * rng.randrange(3000)])
        if rng.random() < 0.03:
            update["big"] = os.urandom(rng.choice([5000, 20_000, 70_000]))
        try:
            thread.commit(update, durable=rng.random() < 0.7)
        except (StoreFullError, CommitOutcomeUnknownError):
            refused += 1
            if refused > rng.randrange(1, 8):
                return


def test_the_pin_is_released_and_acquired_again(path):
    with statelog.open(path, max_size_bytes=QUOTA_BYTES) as store:
        thread = store.thread("t")
        for number in range(20):
            thread.commit({"n": number})
        store_file = store._engine.store_file
        assert store_file.checkpointer.pins
        with store_file.disk_reserve.in_use():
            assert not store_file.checkpointer.pins
        thread.commit({"n": -1})
        assert store_file.checkpointer.pins
        assert thread.state["n"] == -1
        assert store.verify().ok


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_killed_full_store_is_complete(path, seed):
    """Without its pin, a process would overwrite the durable snapshot with which the next one begins."""
    folders = [os.path.dirname(each) for each in (__file__, forks.__file__)]  # noqa: PTH120
    command = [sys.executable, "-c", FILL, path, str(seed), *folders]
    for turn in range(2):
        child = forks.run([*command[:4], str(seed + 100 * turn), *command[5:]], capture_output=True, check=False)
        assert child.returncode == -signal.SIGKILL, child.stderr.decode()
        with statelog.open(path, max_size_bytes=QUOTA_BYTES) as store:
            assert store.verify().ok
            assert store.thread("t").state["n"] >= 0
