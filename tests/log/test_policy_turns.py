"""A policy is applied to a thread that had none, whichever process sets it."""

import sys

import forks
import pytest

import statelog

TURN = 64
"""Versions between two looks for a policy."""

GIVE = "import statelog, sys\nwith statelog.open(sys.argv[1]) as store: store.set_retention(keep_last=3)"


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


@pytest.mark.slow
def test_a_policy_of_this_process_is_applied_at_the_next_turn(store):
    thread, other = store.thread("t"), store.thread("u")
    fill(thread), fill(other)
    store.set_retention(keep_last=3, threads="t")
    fill(thread), fill(other)
    assert kept(thread) <= 3 + TURN
    assert kept(other) == 6 * TURN
    store.set_retention(threads="t")
    fill(thread)
    assert kept(thread) > 3 * TURN


def test_a_policy_given_through_another_object_is_applied(path, durability):
    with statelog.open(path, durability=durability) as one, statelog.open(path, durability=durability) as other:
        thread = one.thread("t")
        fill(thread)
        other.set_retention(keep_last=3)
        fill(thread)
        assert kept(thread) <= 3 + TURN


@pytest.mark.slow
def test_a_policy_of_another_process_is_applied(store, path):
    thread = store.thread("t")
    fill(thread)
    forks.run([sys.executable, "-c", GIVE, str(path)], check=True)
    fill(thread)
    assert kept(thread) <= 3 + TURN


@pytest.mark.slow
def test_a_policy_in_a_failed_commit_has_no_effect(store):
    thread = store.thread("t")
    fill(thread)
    with pytest.raises(statelog.errors.UsageError):
        store.set_retention(keep_last=-1)
    fill(thread)
    assert kept(thread) == 6 * TURN
