"""Copies of a store that another machine owns, kept up to date."""

from __future__ import annotations

import signal
import sys

import forks
import pytest

from statelog.errors import CorruptionError, ExpiredError, FencedError, ReadOnlyError, StoreNotFoundError
from statelog.fleet import connect


def say(store, n, **how):
    return store.thread("chat").commit({"n": n}, **how)


def heard(store):
    return store.thread("chat").state.get("n")


def test_a_copy_follows_the_store_and_is_read_only(machine):
    with machine("a").open("t") as store:
        say(store, 1, durable="remote")
        with machine("b").follow("t", poll_s=0.05) as copy:
            assert heard(copy) == 1
            made = say(store, 2, durable="remote")
            assert copy.remote.wait(made.lsn, timeout_s=10)
            assert heard(copy) == 2
            with pytest.raises(ReadOnlyError):
                say(copy, 3)
            store.remote.base()
            made = say(store, 4, durable="remote")
            assert copy.remote.wait(made.lsn, timeout_s=10)


def test_copy_of_a_store_without_commits_waits_for_the_first(machine):
    with machine("a").open("t") as store, machine("b").follow("t", poll_s=0.05) as copy:
        assert copy.remote.wait()
        made = say(store, 1, durable="remote")
        assert copy.remote.wait(made.lsn, timeout_s=10)
        assert heard(copy) == 1


def test_a_copy_loses_records_that_retention_removes(machine):
    with machine("a").open("t") as store:
        for n in range(4):
            say(store, n, durable="remote")
        store.board().set("k", 1)
        store.board().delete("k")
        with store.board(agent="a").lease("turn"), machine("b").follow("t", poll_s=60) as copy:
            store.remote.wait()
            assert copy.remote.wait()
            store.prune(keep_last=1)
            store.board().prune("**", max_age=0)
            store.remote.base()
            store.remote.wait()
            assert copy.remote.wait()
            assert [each.version for each in copy.thread("chat").history()] == [3]
            assert list(copy.board().history("k")) == list(store.board().history("k"))
            assert copy.board().leases() == store.board().leases()
            assert copy.verify().problems == []


def test_a_copy_continues_across_bases_that_it_has_missed(machine):
    with machine("a").open("t") as store:
        say(store, 0, durable="remote")
        with machine("b").follow("t", poll_s=60) as copy:
            for n in range(3):
                say(store, n, durable="remote")
                store.remote.base()
            say(store, "last", durable="remote")
            assert copy.remote.wait()
            assert heard(copy) == "last"
            assert list(copy.log()) == list(store.log())
            assert copy.verify().problems == []


def test_a_copy_that_fell_too_far_behind_raises(machine):
    fleet = machine("a")
    with fleet.open("t") as store:
        say(store, 0)
    with machine("b").follow("t", poll_s=60) as copy:
        with fleet.open("t") as store:
            say(store, 1)
        fleet.purge("t")
        with fleet.open("t") as store:
            say(store, 2)
        with pytest.raises(ExpiredError, match="follow the store again"):
            copy.remote.wait()


def test_a_copy_of_a_deleted_store_raises_even_if_the_name_is_used_again(machine):
    fleet = machine("a")
    with fleet.open("t") as store:
        say(store, 0)
    with machine("b").follow("t", poll_s=0.05) as copy:
        fleet.delete("t")
        with pytest.raises(StoreNotFoundError, match="deleted"):
            copy.remote.wait(copy.last_lsn + 1, timeout_s=10)
        with fleet.open("t") as store:
            say(store, 1)
        with pytest.raises(StoreNotFoundError, match="deleted"):
            copy.remote.wait()
        assert heard(copy) == 0


def test_a_missing_segment_is_named_to_followers_and_new_owners(machine, memory):
    """The tail is open, so no head has the number of segments."""
    store = machine("a").open("t")
    say(store, 0, durable="remote")
    with machine("b").follow("t", poll_s=60) as copy:
        for n in range(3):
            say(store, n, durable="remote")
        del memory.objects["t/log/000000000001/000000000003"]
        with pytest.raises(CorruptionError, match="000000000003 is missing"):
            copy.remote.wait()
    with pytest.raises(CorruptionError, match="000000000003 is missing"):
        machine("c").open("t", takeover="now")
    with pytest.raises(FencedError):
        store.close()


KILLED = """
import os, signal
from statelog.fleet import connect
with connect("file://{bucket}", "{cache}").follow("t"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_next_follower_removes_the_copy_of_a_killed_one_and_no_other_copy(tmp_path):
    (tmp_path / "bucket").mkdir()
    fleet = connect(f"file://{tmp_path}/bucket", tmp_path / "cache")
    with fleet.open("t") as store:
        say(store, 1)
    code = KILLED.format(bucket=tmp_path / "bucket", cache=tmp_path / "cache")
    assert forks.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    left = list((tmp_path / "cache").glob(".scratch-*/copy.state"))
    assert len(left) == 1
    with fleet.follow("t") as one, fleet.follow("t") as other:
        assert not left[0].exists()
        assert heard(one) == heard(other) == 1
    assert not list((tmp_path / "cache").glob(".scratch-*"))
