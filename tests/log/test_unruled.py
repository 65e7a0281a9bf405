"""That a thread has no policy is remembered, and only as long as it is so, whoever gives it one."""

import subprocess
import sys

import pytest

import statelog
from statelog.log import operations as writer
from statelog.storage.commit import keeper

TURN = 64
"""Versions between two looks for a policy."""

GIVE = "import statelog, sys\nwith statelog.open(sys.argv[1]) as store: store.retain(keep_last=3, as_policy=True)"


def fill(thread, count=3 * TURN):
    for number in range(count):
        thread.commit({"x": number})


def kept(thread):
    return len(list(thread.history()))


@pytest.fixture(params=["commit", "interval"])
def durability(request):
    return request.param


@pytest.fixture
def store(path, durability):
    with statelog.open(path, durability=durability) as opened:
        yield opened
        assert opened.verify().ok


def test_who_has_none_is_not_looked_at_twice(store, monkeypatch):
    monkeypatch.setattr(keeper, "_SETTLE_S", 60)
    thread, engine = store.thread("t"), store._engine
    fill(thread)
    assert engine.is_unruled(thread._lsn)
    looked, read = [], engine.read
    monkeypatch.setattr(engine, "read", lambda: looked.append(1) or read())
    fill(thread)
    assert not looked


def test_a_policy_of_this_process_is_applied_at_the_next_turn(store):
    thread, other = store.thread("t"), store.thread("u")
    fill(thread), fill(other)
    store.retain(keep_last=3, threads="t", as_policy=True)
    assert not store._engine.is_unruled(thread._lsn)
    fill(thread), fill(other)
    assert kept(thread) <= 3 + TURN
    assert kept(other) == 6 * TURN
    store.retain(threads="t", as_policy=True)
    fill(thread)
    assert kept(thread) > 3 * TURN


def test_a_policy_given_through_another_object_is_applied(path, durability):
    with statelog.open(path, durability=durability) as one, statelog.open(path, durability=durability) as other:
        thread = one.thread("t")
        fill(thread)
        assert one._engine.is_unruled(thread._lsn)
        other.retain(keep_last=3, as_policy=True)
        fill(thread)
        assert kept(thread) <= 3 + TURN


def test_a_policy_of_another_process_is_applied(store, path):
    thread = store.thread("t")
    fill(thread)
    assert store._engine.is_unruled(thread._lsn)
    subprocess.run([sys.executable, "-c", GIVE, str(path)], check=True)
    fill(thread)
    assert kept(thread) <= 3 + TURN


def test_a_policy_in_a_commit_that_fails_is_none(store):
    thread = store.thread("t")
    fill(thread)
    with pytest.raises(statelog.errors.UsageError):
        store.retain(keep_last=-1, as_policy=True)
    fill(thread)
    assert kept(thread) == 6 * TURN


def test_a_policy_in_any_commit_makes_it_forgotten(store):
    thread, engine = store.thread("t"), store._engine
    fill(thread)
    engine.write(lambda batch: writer.set_policy(batch, thread._lsn, {"keep_last": 3}))
    assert not engine.is_unruled(thread._lsn)
    fill(thread)
    assert kept(thread) <= 3 + TURN
