"""Files made of what is outside: as it is now, or as it was."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import statelog
from statelog.errors import AlreadyExistsError, ExpiredError, UsageError


def say(store, n, **how):
    return store.thread("chat").commit({"n": n}, **how)


def heard(store):
    return store.thread("chat").state.get("n")


def test_restored_to_an_lsn_or_a_time_it_is_what_it_was_then(machine, tmp_path):
    fleet = machine("a")
    moments = []
    with fleet.open("t", ship_ms=1) as store:
        for n in range(12):
            made = say(store, n, durable="remote")
            moments.append((made.lsn, made.time))
            if n in (4, 8):
                store.remote.base()
    for n, (lsn, at) in enumerate(moments):
        for number, target in enumerate((lsn, at)):
            path = tmp_path / f"{n}-{number}.state"
            fleet.restore("t", path, at=target)
            with statelog.open(path) as store:
                assert heard(store) == n
                assert store.verify().problems == []
    with pytest.raises(AlreadyExistsError):
        fleet.restore("t", path)
    assert fleet.gc("t", keep_s=0, grace_s=0)
    with pytest.raises(ExpiredError) as caught:
        fleet.restore("t", tmp_path / "old.state", at=moments[0][0])
    assert caught.value.facts["oldest"] > moments[4][0]
    fleet.restore("t", tmp_path / "new.state", at=datetime.now(UTC))


def test_a_restore_leaves_alone_what_lies_at_its_path(machine, tmp_path):
    """Also of a store that has no base yet, and so begins with an empty file."""
    fleet = machine("a")
    with fleet.open("t") as store:
        say(store, 1)
    path = tmp_path / "mine.state"
    with statelog.open(path) as store:
        say(store, "mine")
    for target in (path, tmp_path):
        with pytest.raises(AlreadyExistsError, match="already"):
            fleet.restore("t", target)
    with statelog.open(path) as store:
        assert heard(store) == "mine"


def test_a_moment_that_never_was_is_refused(machine, tmp_path):
    fleet = machine("a")
    with fleet.open("t") as store, store.transaction() as tx:
        for n in range(3):
            tx.thread("chat").commit({"n": n})
    last = fleet.status("t").lsn
    for at in (-1, True, "yesterday", 1.5, datetime.now()):  # noqa: DTZ005 - a time without a zone
        with pytest.raises(UsageError, match="zone"):
            fleet.restore("t", tmp_path / "r.state", at=at)
    with pytest.raises(UsageError, match=f"the last one is {last}"):
        fleet.restore("t", tmp_path / "r.state", at=last + 1)
    fleet.restore("t", tmp_path / "r.state", at=last - 1)  # amid the transaction
    with statelog.open(tmp_path / "r.state") as store:
        assert heard(store) is None
