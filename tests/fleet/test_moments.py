"""Files restored from the storage, at the present or an earlier time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import statelog
from statelog.errors import AlreadyExistsError, ExpiredError, FencedError, UsageError
from statelog.fleet import garbage, owner


def say(store, n, **how):
    return store.thread("chat").commit({"n": n}, **how)


def heard(store):
    return store.thread("chat").state.get("n")


@pytest.mark.slow
def test_a_restore_to_an_lsn_or_time_equals_the_store_at_that_moment(machine, tmp_path):
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


def test_a_restore_keeps_an_existing_file_at_its_path(machine, tmp_path):
    """Also of a store that has no base yet, and so begins with an empty file."""
    fleet = machine("a")
    with fleet.open("t") as store:
        say(store, 1)
    path = tmp_path / "mine.state"
    with statelog.open(path) as store:
        say(store, "mine")
    for target in (path, tmp_path):
        with pytest.raises(AlreadyExistsError, match="exists at"):
            fleet.restore("t", target)
    with statelog.open(path) as store:
        assert heard(store) == "mine"


def test_a_moment_that_never_existed_is_refused(machine, tmp_path):
    fleet = machine("a")
    with fleet.open("t") as store, store.transaction() as tx:
        for n in range(3):
            tx.thread("chat").commit({"n": n})
    last = fleet.status("t").lsn
    for at in (-1, True, "yesterday", 1.5, datetime.now()):  # noqa: DTZ005 - a time without a zone
        with pytest.raises(UsageError, match="zone"):
            fleet.restore("t", tmp_path / "r.state", at=at)
    with pytest.raises(UsageError, match=f"the last shipped LSN is {last}"):
        fleet.restore("t", tmp_path / "r.state", at=last + 1)
    fleet.restore("t", tmp_path / "r.state", at=last - 1)  # In the middle of the transaction.
    with statelog.open(tmp_path / "r.state") as store:
        assert heard(store) is None


@pytest.mark.slow
def test_any_moment_is_restored_across_bases_and_owners(machine, tmp_path):
    """Commits that owners had shipped before a takeover are restored, and others never are."""
    moments, late = [], []
    for turn in range(4):
        fleet = machine(f"m{turn}")
        store = fleet.open("t", takeover="now", ship_ms=1)
        for n in range(4):
            made = say(store, (turn, n), durable="remote")
            moments.append((made.lsn, made.time, (turn, n)))
            if (turn + n) % 3 == 0:
                store.remote.base()
        late.append(store)
    for store in late[:-1]:
        with pytest.raises(FencedError):
            say(store, "late", durable="remote")
        with pytest.raises(FencedError):
            store.close()
    assert late[-1].thread("chat").version == len(moments) - 1
    for lsn, at, what in moments:
        for number, target in enumerate((lsn, at)):
            path = tmp_path / f"{lsn}-{number}.state"
            fleet.restore("t", path, at=target)
            with statelog.open(path) as store:
                assert heard(store) == what
                assert store.last_lsn == lsn
                assert store.verify().problems == []
                assert list(store.log()) == [record for record in late[-1].log() if record.lsn <= lsn]
    late[-1].close()


@pytest.mark.slow
def test_a_removed_moment_is_refused_with_the_oldest_one_and_all_later_ones_are_restored(
    machine, tmp_path, monkeypatch
):
    hour = [0]
    for module in (owner, garbage):
        monkeypatch.setattr(module, "now_us", lambda: hour[0] * 3_600_000_000)
    fleet, ends = machine("a"), []
    with fleet.open("t", keep_s=5 * 3600, grace_s=0) as store:
        for hour[0] in range(12):
            ends.append(say(store, hour[0], durable="remote").lsn)
            store.remote.base()
    for n, lsn in enumerate(ends):
        path = tmp_path / f"{n}.state"
        if n >= 11 - 5:
            fleet.restore("t", path, at=lsn)
            with statelog.open(path) as store:
                assert heard(store) == n
    oldest = min(n for n in range(12) if (tmp_path / f"{n}.state").exists())
    for at in (0, ends[oldest - 2], datetime(1969, 1, 1, tzinfo=UTC)):
        with pytest.raises(ExpiredError, match="the oldest state is LSN") as caught:
            fleet.restore("t", tmp_path / "x.state", at=at)
        fleet.restore("t", tmp_path / f"oldest-{at}.state", at=caught.value.facts["oldest"])


@pytest.mark.slow
def test_a_restore_that_a_purge_overtakes_starts_again(machine, memory, tmp_path):
    fleet = machine("a")
    with fleet.open("t") as store:
        say(store, 1)
        store.remote.base()
    overtaken = []

    def overtake(request, name):
        if request == "read" and "/base/" in name and not overtaken:
            overtaken.append(name)
            machine("b").purge("t")

    memory.fail = overtake
    fleet.restore("t", tmp_path / "r.state")
    assert overtaken
    assert overtaken[0] not in memory.objects
    with statelog.open(tmp_path / "r.state") as store:
        assert heard(store) == 1
