"""Hosts that are killed or sleep at every point of a turn. The log has each acknowledged commit once."""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import forks
import pytest
from waiting import until

import statelog
from statelog.fleet import share

SCHEMA = {"said": statelog.reducers.append}
AT = [12, 14, *(pytest.param(number, marks=pytest.mark.soak) for number in (*range(4, 12), 13, *range(15, 30)))]
"""Requests, at which it is struck before and after: of the opening, and of turns."""

SAYING = """
import os, signal, sys
import statelog
from statelog.fleet import share, turns

url, name, cache, who, how, number, many = sys.argv[1:]
turns._IDLE_MS = 1000
signal_, count = getattr(signal, how, None), int(number)

def strike():
    global count
    count -= 1
    if count == 0:
        os.kill(os.getpid(), signal_)

if signal_:
    real_execute = turns.psycopg.Connection.execute

    def execute(self, *args, **options):
        strike()
        result = real_execute(self, *args, **options)
        strike()
        return result

    turns.psycopg.Connection.execute = execute
with share(url, name, cache) as store:
    print("open", flush=True)
    for n in range(int(many)):
        store.thread("t", schema={"said": statelog.reducers.append}).commit({"said": f"{who}-{n}"})
        print(f"{who}-{n}", flush=True)
"""


class Host:
    """A process that reports what it has acknowledged."""

    def __init__(self, url, name, cache, who, how="", number=0, many=20):
        arguments = [url, name, str(cache), who, how, str(number), str(many)]
        self.process = forks.Popen(
            [sys.executable, "-c", SAYING, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def end(self):
        with self.process:
            return [line for line in self.process.stdout.read().split() if line != "open"]

    def is_stopped(self):
        state = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "T"


@pytest.fixture
def name():
    return f"board-{secrets.token_hex(4)}"


def said(url, name, cache):
    with share(url, name, cache) as store:
        assert store.verify().problems == []
        return list(store.thread("t", schema=SCHEMA).state.get("said", []))


def check(found, acknowledged, hosts):
    """Check that acknowledged commits exist once, in the order of their hosts, with at most one more per host."""
    assert len(set(found)) == len(found)
    for who, mine in zip(hosts, acknowledged, strict=True):
        here = [each for each in found if each.startswith(f"{who}-")]
        assert here == [f"{who}-{n}" for n in range(len(here))]
        assert here[: len(mine)] == mine
        assert len(here) <= len(mine) + 1


@pytest.mark.slow
@pytest.mark.parametrize("number", AT)
def test_a_host_killed_at_a_request_loses_no_acknowledged_commit(postgres_url, name, tmp_path, number):
    killed = Host(postgres_url, name, tmp_path / "a", "a", "SIGKILL", number)
    other = Host(postgres_url, name, tmp_path / "b", "b", many=5)
    mine = killed.end()
    others = other.end()
    assert killed.process.returncode == -signal.SIGKILL
    assert len(others) == 5
    check(said(postgres_url, name, tmp_path / "c"), [mine, others], "ab")
    check(said(postgres_url, name, tmp_path / "a"), [mine, others], "ab")  # Its own copy is current.


@pytest.mark.slow
@pytest.mark.parametrize("number", AT[1:])
def test_a_host_that_sleeps_at_a_request_delays_the_others_for_a_limited_time(postgres_url, name, tmp_path, number):
    sleeper = Host(postgres_url, name, tmp_path / "a", "a", "SIGSTOP", number)
    until(sleeper.is_stopped)
    other = Host(postgres_url, name, tmp_path / "b", "b", many=3)
    others = other.end()
    assert len(others) == 3
    os.kill(sleeper.process.pid, signal.SIGCONT)
    mine = sleeper.end()
    check(said(postgres_url, name, tmp_path / "c"), [mine, others], "ab")


def test_the_check_detects_lost_and_repeated_commits():
    check(["a-0", "b-0", "a-1"], [["a-0"], ["b-0"]], "ab")
    for found in (["b-0"], ["a-0", "a-0", "b-0"], ["a-1", "a-0", "b-0"], ["a-0", "a-1", "a-2", "b-0"]):
        with pytest.raises(AssertionError):
            check(found, [["a-0"], ["b-0"]], "ab")


@pytest.mark.soak
def test_hosts_killed_at_random_lose_no_acknowledged_commit(postgres_url, name, tmp_path, soak_scale):
    rng = random.Random(7)
    acknowledged, hosts = [], []
    until_s = time.monotonic() + 60 * soak_scale
    while time.monotonic() < until_s:
        some = [Host(postgres_url, name, tmp_path / f"{of}", f"{of}.{len(hosts)}", many=10_000) for of in "xyz"]
        hosts += [f"{of}.{len(hosts)}" for of in "xyz"]
        for each in some:
            assert each.process.stdout.readline() == "open\n"
        time.sleep(rng.uniform(0.5, 2.0))
        for each in some:
            each.process.send_signal(rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP]))
        time.sleep(rng.uniform(0, 0.3))
        for each in some:
            each.process.kill()
        acknowledged += [each.end() for each in some]
    assert sum(len(each) for each in acknowledged) > 100 * soak_scale
    check(said(postgres_url, name, tmp_path / "c"), acknowledged, hosts)
