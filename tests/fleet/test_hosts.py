"""Owners in processes that are killed, or stopped and continued later, at each request and at any time."""

from __future__ import annotations

import random
import secrets
import shutil
import signal
import time
from itertools import cycle

import pytest
from chaos import Ledger
from hosts import AFTER, BEFORE, DIED, NAME, STOPPED, Host, Refused, Strike, said

import statelog
from statelog.fleet.fleet import Fleet
from statelog.fleet.storage_urls import open_archive

STEPS = [
    ("open", {"takeover": "wait", "ttl_s": 1000, "ship_ms": 10_000, "keep_s": 0, "grace_s": 0}),
    ("commit", "1", "remote"),
    ("commit", "2"),
    ("base",),
    ("commit", "3", "remote"),
    ("commit", "4"),
    ("close",),
]
"""What is shipped is asked for, but that the commit behind one to be outside may go with it, or by itself."""

FENCED = Refused("FencedError")
LOCAL = ("commit", "open")
"""After other steps, and a remote commit, all is outside."""


@pytest.fixture(params=[pytest.param("bucket", marks=pytest.mark.soak), "postgres"])
def empty(request, buckets, postgres_url):
    """Return a function that creates an empty storage, and returns its URL and options."""
    import psycopg

    def make():
        if request.param == "bucket":
            return f"s3://tests/{secrets.token_hex(8)}", buckets
        with psycopg.connect(postgres_url) as connection:
            connection.execute("TRUNCATE statelog_fleet_heads, statelog_fleet_objects")
        return postgres_url, {}

    return make


class Struck:
    """A host that kills or stops itself, another that takes over, and the faults then.

    Attributes:
        faults: descriptions of the faults.
        is_struck: whether the host reached the chosen request.
    """

    def __init__(self, storage, folder, strike, *, is_wrong=False):
        folder.mkdir()
        url, options = storage
        self._ledger, self._local = Ledger(), []
        self._elsewhere = Fleet(open_archive(url, **options), folder)
        self.faults = []
        with Host(storage, folder / "host", strike, is_wrong=is_wrong) as host:
            step = self._go(host)
            self.is_struck = step is not None
            is_stopped = self.is_struck and strike.signal == signal.SIGSTOP
            with self._elsewhere.open(NAME, takeover="now") as store:
                self._ledger.served.append(said(store))
                self._ledger.tried.append("elsewhere")
                store.thread("chat").commit({"token": "elsewhere"}, durable="remote")
                self._ledger.acknowledged.append("elsewhere")
                if is_stopped and step[0] != "open":
                    self._go_on(host, step)
            if is_stopped and step[0] == "open":
                self._open_late(host)
        self._look(Fleet(self._elsewhere._archive, folder / "host"))
        self._elsewhere.close()

    def _go(self, host):
        """Let a host make its steps. Return the step that it did not end, or None."""
        for step in STEPS:
            self._ledger.tried += step[1:2] if step[0] == "commit" else []
            told = host.do(*step)
            if told in (DIED, STOPPED):
                return step
            assert not isinstance(told, Refused), told
            self._local += step[1:2] if step[0] == "commit" else []
            if step[-1] == "remote" or step[0] not in LOCAL:
                self._ledger.acknowledged[:] = self._local
        return None

    def _go_on(self, host, step):
        """Continue a stopped host. It must not acknowledge further commits."""
        host.signal(signal.SIGCONT)
        told = host.hear()
        is_over = step[0] == "close"  # The store is closed afterwards, whatever the call raises.
        if not isinstance(told, Refused):
            self._local += step[1:2] if step[0] == "commit" else []
            is_acknowledged = step[-1] == "remote" or step[0] not in LOCAL
            if is_acknowledged and not set(self._local) <= set(self._ledger.served[-1]):
                self.faults.append(f"{step} was acknowledged in vain")
        told = host.do("commit", "late", "remote")
        if told != (Refused("ClosedError") if is_over else FENCED):
            self.faults.append(f"it goes on after {step}: {told}")
        told = host.do("close")
        if told != (None if is_over else FENCED):
            self.faults.append(f"it ends well: {told}")

    def _open_late(self, host):
        """Continue a host that was stopped while it opened the store. It owns the store next, or gets an error."""
        host.signal(signal.SIGCONT)
        served = host.hear()
        self._ledger.served.append(served)
        told = host.do("commit", "late", "remote")
        if "elsewhere" in served:
            self._ledger.tried.append("late")
            self._ledger.acknowledged.append("late")
        if (told, host.do("close")) != (("late", None) if "elsewhere" in served else (FENCED, FENCED)):
            self.faults.append(f"it opens with {served}, and is told {told}")

    def _look(self, again):
        """Check what is on the machine of the host, and whether its file with further commits was kept."""
        with again.open(NAME, takeover="now") as store:
            final = said(store)
            self.faults += [problem.message for problem in store.verify().problems]
        kept = set()
        for each in again.stranded():
            with statelog.open(each.path, read_only=True) as store:
                kept |= set(said(store))
        if not set(self._local) <= set(final) | kept:
            self.faults.append("what was committed there is neither shipped nor kept")
        self.faults += filter(None, [self._ledger.faults(final)])


def numbers_of(storage, folder, *, is_wrong=False):
    """Return the number of requests that a host has made after each of its steps."""
    with Host(storage, folder, is_wrong=is_wrong) as host:
        counts = []
        for step in STEPS:
            told = host.do(*step)
            assert not isinstance(told, Refused), told
            counts.append(host.do("requests"))
    return counts


def strike_all(empty, folder, *, step):
    """Kill or stop hosts at each of their requests, or at some of them."""
    requests = numbers_of(empty(), folder / "whole")[-1]
    assert requests > 8
    kinds = [(when, number) for number in (signal.SIGSTOP, signal.SIGKILL) for when in (BEFORE, AFTER)]
    turn, missed = cycle(kinds), []
    for number in range(1, requests + 1, step):
        for when, what in kinds if step == 1 else [next(turn)]:
            strike = Strike(number, when, what)
            found = Struck(empty(), folder / f"{number}-{when}-{what}", strike)
            assert found.faults == [], strike
            missed += [] if found.is_struck else [number]
    assert len(set(missed)) <= 3, missed


@pytest.mark.slow
def test_a_host_killed_or_stopped_at_a_request_loses_no_acknowledged_commit(empty, tmp_path):
    strike_all(empty, tmp_path, step=4)


@pytest.mark.soak
def test_a_host_killed_or_stopped_at_any_request_loses_no_acknowledged_commit(empty, tmp_path):
    strike_all(empty, tmp_path, step=1)


@pytest.mark.slow
def test_an_owner_that_does_not_check_the_head_is_detected(empty, tmp_path):
    for is_wrong in (False, True):
        folder = tmp_path / f"{is_wrong}"
        counts = numbers_of(empty(), folder, is_wrong=is_wrong)
        strike = Strike(counts[STEPS.index(("base",))] + 1, BEFORE, signal.SIGSTOP)
        found = Struck(empty(), tmp_path / f"struck {is_wrong}", strike, is_wrong=is_wrong)
        assert bool(found.faults) == is_wrong


# --- at any time ----------------------------------------------------------------------------


def strike_at_random(empty, folder, *, rounds, seed):
    """Let two hosts commit in turn until each is killed or stopped. Return the faults at the end."""
    chosen, storage, ledger = random.Random(seed), empty(), Ledger()
    url, options = storage
    stopped, faults = None, []
    for number in range(rounds):
        host = Host(storage, folder / f"{seed}-{number % 2}")
        how = {"takeover": chosen.choice(["now", "wait"]), "ttl_s": 0.3, "ship_ms": 1, "keep_s": 0, "grace_s": 0}
        served = host.do("open", how)
        assert not isinstance(served, Refused), served
        ledger.served.append(served)
        host.send("go_on", f"{number}")
        ledger.acknowledged.append(host.hear())
        time.sleep(chosen.random() * 0.2)
        if stopped is not None:
            faults += late(stopped, set(served))
        what = chosen.choice([signal.SIGKILL, signal.SIGSTOP])
        host.signal(what)
        ledger.acknowledged += host.heard()
        if what == signal.SIGKILL:
            host.__exit__()
        stopped = host if what == signal.SIGSTOP else None
    if stopped is not None:
        stopped.__exit__()
    (folder / f"{seed}-last").mkdir()
    fleet = Fleet(open_archive(url, **options), folder / f"{seed}-last")
    with fleet.open(NAME, takeover="now") as store:
        final = said(store)
        assert store.verify().problems == []
    fleet.close()
    ledger.tried = final
    assert len(ledger.acknowledged) > rounds
    return [*faults, *filter(None, [ledger.faults(final)])]


def late(host, served):
    """Continue a host when another owns the store. Return the faults in its reports."""
    with host:
        host.signal(signal.SIGCONT)
        told = []
        while not told or isinstance(told[-1], str):
            told.append(host.hear())
    *acknowledged, last = told
    faults = [] if last == FENCED else [f"it ends with {last}"]
    if len(acknowledged) > 1 or not set(acknowledged) <= served:
        faults.append(f"it acknowledges {acknowledged}")
    return faults


@pytest.mark.soak
def test_hosts_killed_or_stopped_at_any_time_lose_no_acknowledged_commit(empty, tmp_path):
    assert strike_at_random(empty, tmp_path, rounds=4, seed=1) == []


@pytest.mark.soak
def test_hosts_repeatedly_killed_or_stopped_lose_no_acknowledged_commit(empty, tmp_path, soak_scale):
    for seed in range(int(10 * soak_scale) or 1):
        assert strike_at_random(empty, tmp_path, rounds=40, seed=seed) == [], seed


# --- twins ----------------------------------------------------------------------------------


def twins(empty, folder, *before, is_wrong=False):
    """Copy the machine of an owner and continue both. Return the commits that each acknowledges, and the final content.

    The file is copied while its process is stopped, as in a snapshot of a machine.
    """
    storage = empty()
    how = {"ttl_s": 1000, "ship_ms": 1, "park_after_s": 0.1 if ("park",) in before else None}
    with (
        Host(storage, folder / "0", is_wrong=is_wrong) as first,
        Host(storage, folder / "1", is_wrong=is_wrong) as other,
    ):
        first.do("open", {"takeover": "wait", **how})
        first.do("commit", "0", "remote")
        for step in before:
            assert not isinstance(first.do(*step), Refused)
        owned = first.do("owned")
        first.signal(signal.SIGSTOP)
        shutil.copytree(folder / "0", folder / "1", dirs_exist_ok=True)
        first.signal(signal.SIGCONT)
        assert other.do("resume", owned, how) == ["0"]
        hosts = {"a": first, "b": other}
        for name, host in hosts.items():
            host.send("go_on", name)
        told = {name: [] for name in hosts}
        until_s = time.monotonic() + 30
        while not is_decided(told) and time.monotonic() < until_s:
            time.sleep(0.05)
            for name, host in hosts.items():
                told[name] += host.heard()
        for name, host in hosts.items():
            host.signal(signal.SIGKILL)
            told[name] += host.heard()
    url, options = storage
    fleet = Fleet(open_archive(url, **options), folder)
    with fleet.open(NAME, takeover="now") as store:
        final = said(store)
    fleet.close()
    return told, final


def is_decided(told):
    return any(FENCED in each for each in told.values()) and any(len(each) > 6 for each in told.values())


def are_one(told, final):
    """Return whether one of two hosts has acknowledged nothing, and all commits of the other are stored in order."""
    loser, winner = sorted(told.values(), key=len)
    return loser == [FENCED] and FENCED not in winner and len(winner) > 5 and final[1 : len(winner) + 1] == winner


@pytest.mark.slow
@pytest.mark.parametrize("before", [(), (("park",),), (("base",),)], ids=["shipping", "parked", "behind a base"])
def test_only_one_of_two_twins_continues(empty, tmp_path, before):
    told, final = twins(empty, tmp_path, *before)
    assert are_one(told, final), (told, final)


def test_two_twins_that_both_continue_are_detected():
    assert are_one({"a": [*"123456"], "b": [FENCED]}, [*"0123456"])
    assert not are_one({"a": [*"123456"], "b": [FENCED]}, [*"012345"])
    assert not are_one({"a": [*"123456"], "b": ["x", FENCED]}, [*"0123456"])
    assert not are_one({"a": [*"123456"], "b": ["x"]}, [*"0123456"])
    assert not are_one({"a": [*"123456", FENCED], "b": [FENCED]}, [*"0123456"])
