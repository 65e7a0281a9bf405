"""A fleet with a key refuses objects that others put into its storage."""

from __future__ import annotations

import pytest

import statelog
from statelog.errors import ForgeryError, KeyMissingError, StatelogError, UsageError, WrongKeyError
from statelog.fleet import connect

KEY = "the key of this fleet"
OTHER_KEY = "another key of this fleet"


@pytest.fixture
def url(tmp_path):
    (tmp_path / "storage").mkdir()
    return f"file://{tmp_path}/storage"


def fill(url, cache, key=KEY, count=3):
    with connect(url, cache, key=key) as fleet, fleet.open("s") as store:
        for number in range(count):
            store.thread("t").commit({"n": number, "text": f"text {number} " * 300})
        store.remote.wait(timeout_s=10)
        return store.anchor()


def segments_in(tmp_path):
    return sorted(
        path for path in (tmp_path / "storage").rglob("*") if path.is_file() and path.read_bytes()[:8] == b"stlgsegk"
    )


@pytest.mark.slow
def test_a_store_is_shipped_restored_and_followed_with_its_key(url, tmp_path):
    anchor = fill(url, tmp_path / "one")
    assert segments_in(tmp_path)
    with connect(url, tmp_path / "two", key=KEY) as fleet:
        fleet.restore("s", tmp_path / "copy.state")
        with statelog.open(tmp_path / "copy.state", key=KEY, expect=anchor) as store:
            assert store.thread("t").state["n"] == 2
            assert store.verify(expect=anchor).ok
        with fleet.follow("s") as copy:
            assert copy.thread("t").state["n"] == 2
        assert fleet.check() == []
        with fleet.open("s", expect=anchor) as store:
            store.thread("t").commit({"n": 99})
            store.remote.base()
    with connect(url, tmp_path / "three", key=KEY) as fleet, fleet.open("s") as store:
        assert store.thread("t").state["n"] == 99


@pytest.mark.parametrize(("key", "kinds"), [(None, KeyMissingError), (OTHER_KEY, (ForgeryError, WrongKeyError))])
def test_a_fleet_cannot_be_restored_without_its_key(url, tmp_path, key, kinds):
    fill(url, tmp_path / "one")
    with connect(url, tmp_path / "two", key=key) as fleet, pytest.raises(kinds):
        fleet.restore("s", tmp_path / "copy.state")
    assert not (tmp_path / "copy.state").exists()
    with connect(url, tmp_path / "two", key=key) as fleet, pytest.raises(kinds):
        fleet.open("s", takeover="now")
    with connect(url, tmp_path / "three", key=KEY) as fleet, fleet.open("s") as store:  # The store is unchanged.
        assert store.thread("t").state["n"] == 2


def test_a_segment_without_the_key_is_refused(url, tmp_path):
    """The attacker makes a separate fleet without a key, and replaces the segments by those of that fleet."""
    fill(url, tmp_path / "one")
    (tmp_path / "theirs" / "storage").mkdir(parents=True)
    fill(f"file://{tmp_path}/theirs/storage", tmp_path / "four", key=None)
    theirs = [path for path in (tmp_path / "theirs").rglob("*") if path.is_file()]
    plain = [path.read_bytes() for path in theirs if path.read_bytes()[:8] == b"stlgseg1"]
    [first, *_rest] = segments_in(tmp_path)
    for forged in (plain[0], first.read_bytes()[:24] + plain[0], first.read_bytes()[:-1] + b"x"):
        first.write_bytes(forged)
        with connect(url, tmp_path / "two", key=KEY) as fleet, pytest.raises(ForgeryError) as caught:
            fleet.restore("s", tmp_path / "copy.state")
        assert caught.value.object
        assert not (tmp_path / "copy.state").exists()


def test_negative_control_a_fleet_without_a_key_accepts_foreign_segments(url, tmp_path):
    fill(url, tmp_path / "one", key=None)
    with connect(url, tmp_path / "two") as fleet:
        fleet.restore("s", tmp_path / "copy.state")
    with statelog.open(tmp_path / "copy.state") as store:
        assert store.thread("t").state["n"] == 2


def test_the_key_of_one_store_cannot_be_given_or_changed(url, tmp_path):
    with connect(url, tmp_path / "one", key=KEY) as fleet:
        with pytest.raises(UsageError):
            fleet.open("s", key=OTHER_KEY)
        with fleet.open("s") as store, pytest.raises(UsageError):
            store.rekey(OTHER_KEY)


@pytest.mark.slow
def test_the_stranded_file_of_a_taken_over_store_has_the_key(url, tmp_path):
    fill(url, tmp_path / "one")
    with connect(url, tmp_path / "one", key=KEY) as former:
        stranded = former.open("s", ship_ms=60_000)
        stranded.thread("mine").commit({"n": 1})
        with connect(url, tmp_path / "two", key=KEY) as fleet, fleet.open("s", takeover="now") as store:
            store.thread("t").commit({"n": 7})
        with pytest.raises(StatelogError):
            stranded.close()
    with connect(url, tmp_path / "one", key=KEY) as fleet, fleet.open("s") as store:
        assert store.thread("t").state["n"] == 7
        [found] = fleet.stranded()
        with (tmp_path / "lost").open("wb") as target:
            assert fleet.export_stranded(found, target) == {"mine": "mine"}
        with (tmp_path / "lost").open("rb") as source:
            store.import_(source)
        assert store.thread("mine").state["n"] == 1
