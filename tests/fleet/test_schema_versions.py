"""Schema versions of threads, entries and items are shipped, restored and taken over with their data."""

from __future__ import annotations

import pytest

import statelog
from statelog import reducers, versioned
from statelog.errors import SchemaVersionError
from statelog.fleet import connect
from statelog.testing import observe

OLD, NEW = {"notes": ["tea"]}, {"memories": ["tea"], "count": 0}


def schema():
    made = versioned({"memories": reducers.append, "count": int}, name="s", version=3)
    made.rename(1, "notes", "memories")
    made.add(2, "count", 0)
    return made


def fill(store):
    """Write old versions with a branch, followed by new versions."""
    thread = store.thread("t", schema={"notes": reducers.append})
    thread.commit({"notes": "tea"})
    thread.fork("old")
    store.thread("t", schema=schema()).commit({})
    for number in range(3):
        store.board().set(f"tasks/{number}", OLD)
    store.board().schema("tasks/*", schema())
    store.board().update("tasks/0", reducers.merge, {})
    store.board().claim("tasks/1", lease_s=1000)
    store.board().migrate("tasks/1")


def check(store):
    assert store.verify().problems == []
    thread = store.thread("t", schema=schema())
    assert (thread.state, thread.head.schema_version, thread.at(0).schema_version) == (NEW, 3, 1)
    assert store.thread("t", schema=schema(), branch="old").state == NEW
    entries = {entry.key: entry for entry in store.board().list("tasks/*")}
    assert [entry.schema_version for entry in entries.values()] == [3, 3, 1]
    assert [entry.value for entry in entries.values()] == [NEW, NEW, OLD]
    with pytest.raises(SchemaVersionError):
        store.board().set("tasks/0", OLD)
    store.board().schema("tasks/*", schema())
    assert [entry.value for entry in store.board().list("tasks/*")] == [NEW] * 3
    assert [entry.schema_version for entry in store.board().history("tasks/0")] == [3, 1]


@pytest.mark.slow
@pytest.mark.parametrize("has_base", [False, True])
def test_versions_survive_shipping_restoring_and_a_takeover(tmp_path, has_base):
    (tmp_path / "bucket").mkdir()
    url = (tmp_path / "bucket").as_uri()
    with connect(url, cache=tmp_path / "here") as fleet, fleet.open("s", durability="interval") as store:
        fill(store)
        if has_base:
            store.remote.base()
        store.remote.wait()
        with statelog.open(store.path, durability="interval") as stored:  # Without a schema.
            seen = observe(stored)
    with connect(url, cache=tmp_path / "there") as fleet:
        fleet.restore("s", tmp_path / "restored.state")
        with statelog.open(tmp_path / "restored.state") as restored:
            assert observe(restored) == seen
            check(restored)
        with fleet.open("s") as taken_over:
            check(taken_over)
