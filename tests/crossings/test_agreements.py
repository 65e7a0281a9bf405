"""Each agreement holds of a sound store, and tells a copy that was made wrong: these are the negative controls."""

from __future__ import annotations

import pytest

import statelog
from statelog.fleet import connect
from statelog.testing.crossings import ROADS, Agreements

FILL = {
    "a thread": lambda store: store.thread("chat").commit({"x": 1}),
    "an entry": lambda store: store.board().set("tasks/1", 1),
    "a lease": lambda store: store.board().lease("name", auto_renew=False),
}
SPOIL = {
    "a version more": lambda copy: copy.thread("chat").commit({"x": 2}),
    "an entry less": lambda copy: copy.board().delete("tasks/1"),
    "a lease more": lambda copy: copy.board().lease("another", auto_renew=False),
    "a version less": lambda copy: copy.expire([copy.thread("chat").at(0)]),
}


@pytest.fixture
def shipped(tmp_path):
    """A store of a fleet, and the fleet."""
    (tmp_path / "bucket").mkdir()
    with connect((tmp_path / "bucket").as_uri(), cache=tmp_path / "cache") as fleet:
        yield fleet.open("s", durability="interval", interval_ms=1, ship_ms=0), fleet


def agreements(tmp_path, fleet, **options):
    (tmp_path / "copies").mkdir(exist_ok=True)
    return Agreements(tmp_path / "copies", fleet, **options)


def fill(store):
    for act in FILL.values():
        act(store)
    store.thread("chat").commit({"x": 3})


@pytest.mark.slow
def test_all_agree_of_a_store_that_grows(shipped, tmp_path):
    store, fleet = shipped
    with agreements(tmp_path, fleet) as checked:
        for name, act in FILL.items():
            act(store)
            assert checked.check(store) == [], name


def test_an_empty_store_agrees(tmp_path):
    with statelog.open(tmp_path / "s.state") as store, agreements(tmp_path, None) as checked:
        assert checked.check(store) == []


@pytest.mark.parametrize(
    ("road", "spoiled"),
    [(road, spoiled) for road in ROADS for spoiled in SPOIL if road != "threads" or "version" in spoiled],
)
def test_a_copy_that_was_made_wrong_is_told(shipped, tmp_path, road, spoiled):
    store, fleet = shipped
    fill(store)
    with agreements(tmp_path, fleet, spoil=SPOIL[spoiled]) as checked:
        checked.check(store, roads=["increments"] if road == "copied on" else ())  # and a moment to go back to
        found = [each for _turn in range(3) for each in checked.check(store, roads=[road])]
    assert {each.road for each in found} == {road}
    assert all(each.lines for each in found)


@pytest.mark.slow
def test_a_restore_to_an_earlier_moment_is_compared_with_that_moment(shipped, tmp_path):
    store, fleet = shipped
    fill(store)
    with agreements(tmp_path, fleet) as checked:
        checked.check(store, roads=())
        for number in range(9):
            store.thread("chat").commit({"x": number})
            assert checked.check(store, roads=["restored at"]) == []


def test_a_copy_that_cannot_be_made_is_told_with_its_error(shipped, tmp_path):
    store, fleet = shipped
    fill(store)
    store.remote.wait()
    for each in (tmp_path / "bucket").rglob("*"):
        if each.is_file() and "head" not in each.name:
            each.write_bytes(b"damaged")
    with agreements(tmp_path, fleet) as checked:
        [found] = checked.check(store, roads=["restored"])
    assert found.error == "CorruptionError"
    assert found.kind == "restored: CorruptionError"
