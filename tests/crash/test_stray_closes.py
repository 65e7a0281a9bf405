"""Short processes on one store, each of which reads all files of its folder, as agents and their tools do."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import forks
import pytest

import statelog
from statelog import reducers

PROCESS = """
import os, random, sys, time
from pathlib import Path

if sys.argv[4] == "without":
    from statelog.storage.file.lock_file import LockFile
    LockFile._take_locks = lambda self: True
import statelog
from statelog import reducers

path, name = Path(sys.argv[1]), sys.argv[2]
acknowledged = os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
rng = random.Random(name)

def read_all():
    for entry in path.parent.iterdir():
        try:
            entry.read_bytes()
        except OSError:
            pass

with statelog.open(path, durability=rng.choice(["commit", "interval"])) as store:
    shared = store.thread("shared", schema={"total": reducers.add})
    own = store.thread(name)
    for number in range(1, 13):
        read_all()
        with store.snapshot() as snapshot:
            before = snapshot.thread("shared").state.get("total", 0) if number > 1 else 0
            read_all()
            shared.commit({"total": 1})
            os.write(acknowledged, f"shared 1\\n".encode())
            own.commit({"n": number})
            os.write(acknowledged, f"{name} {number}\\n".encode())
            assert number == 1 or snapshot.thread("shared").state["total"] == before
        assert own.state["n"] == number
        assert shared.state["total"] > before
        time.sleep(rng.random() * 0.02)
    read_all()
read_all()
"""

AT_ONCE = 4
KILLED_SHARE = 0.2


def run_gateway(directory, *, processes, seconds, guard="with", seed=1):
    """Keep `AT_ONCE` processes running and kill some. Return the faults, and the number of started processes.

    Args:
        directory: an empty directory.
        processes: the number of processes to start.
        seconds: the time over which the starts are spread.
        guard: "without" leaves only the locks of LMDB.
        seed: the seed of random choices.
    """
    rng = random.Random(seed)
    folder = directory / "folder"
    folder.mkdir()
    path, acknowledged = folder / "agent.state", directory / "acknowledged"
    began_s, started, wrong = time.monotonic(), 0, []
    live = {}
    while started < processes or live:
        for child in [child for child in live if child.poll() is not None]:
            is_killed = live.pop(child)
            errors = child.stderr.read()
            child.stderr.close()
            if child.returncode != 0 and not (is_killed and child.returncode == -9):
                wrong.append(f"exit {child.returncode}: {errors[-500:]}")
        if wrong and guard == "without":
            break
        if started < processes and len(live) < AT_ONCE and time.monotonic() >= began_s + seconds * started / processes:
            command = [sys.executable, "-c", PROCESS, str(path), f"p{started}", str(acknowledged), guard]
            live[forks.Popen(command, stderr=subprocess.PIPE, text=True)] = False
            started += 1
        elif live and rng.random() < KILLED_SHARE / 50:
            child = rng.choice(list(live))
            live[child] = True
            child.kill()
        time.sleep(0.02)
    for child in live:
        child.kill()
        child.communicate()
    with contextlib.suppress(FileNotFoundError):
        wrong += find_lost(path, acknowledged)
    return wrong, started


def find_lost(path, acknowledged):
    """Return the faults of the store at the end, from what its processes have acknowledged."""
    totals, numbers = Counter(), Counter()
    for line in acknowledged.read_text().splitlines():
        name, number = line.split()
        totals[name] += 1
        numbers[name] = max(numbers[name], int(number))
    try:
        with statelog.open(path) as store:
            wrong = [str(problem) for problem in store.verify(deep=True).problems]
            total = store.thread("shared", schema={"total": reducers.add}).state["total"]
            if total < totals.pop("shared"):
                wrong.append(f"{total} of the shared thread's commits are there, and more were acknowledged")
            lost = [name for name in totals if store.thread(name).state["n"] < numbers[name]]
            wrong += [f"{name} has lost what was acknowledged" for name in lost]
    except (statelog.StatelogError, TypeError, KeyError) as error:
        wrong = [f"{type(error).__name__}: {error}"]
    return wrong


@pytest.mark.slow
def test_short_processes_that_read_all_files_lose_nothing(tmp_path):
    wrong, started = run_gateway(tmp_path, processes=16, seconds=2)
    assert wrong == []
    assert started == 16


@pytest.mark.soak
def test_three_hundred_processes_in_three_minutes_lose_nothing(tmp_path, soak_scale):
    processes = max(int(300 * soak_scale), 16)
    wrong, started = run_gateway(tmp_path, processes=processes, seconds=0.6 * processes)
    assert wrong == []
    assert started == processes


@pytest.mark.soak
def test_with_the_locks_of_lmdb_alone_they_do(tmp_path):
    """Negative control; `tests/storage/file/test_lock_file.py` has one that asks the kernel."""
    for seed in range(5):
        (directory := Path(tmp_path / f"{seed}")).mkdir()
        wrong, _started = run_gateway(directory, processes=100, seconds=20, guard="without", seed=seed)
        if wrong:
            return
    pytest.fail("nothing went wrong")
