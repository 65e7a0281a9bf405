"""Requests that a fleet refuses. Each has its own error, whose message says what to do."""

from __future__ import annotations

import io
import math
import os

import pytest
from memory import MemoryArchive

import statelog
from statelog.errors import (
    AccessError,
    AlreadyExistsError,
    ClosedError,
    ConflictError,
    CorruptionError,
    FencedError,
    NewerFormatError,
    RemoteError,
    StoreLockedError,
    StoreNotFoundError,
    UsageError,
)
from statelog.fleet import connect
from statelog.format import cbor

NAMES = ["", ".", "..", "a/../b", "../x", 7, None, b"x", "x" * 201, "é" * 34, "\ud800"]


def say(store, n, **how):
    return store.thread("chat").commit({"n": n}, **how)


def heard(store):
    return store.thread("chat").state.get("n")


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:12])
def test_an_invalid_store_name_is_refused(machine, tmp_path, name):
    fleet = machine("a")
    for call in (fleet.open, fleet.status, fleet.gc, fleet.purge, fleet.delete, fleet.path):
        with pytest.raises(UsageError) as caught:
            call(name)
        assert caught.value.facts["argument"] == "name"
        assert len(caught.value.message) < 200
    with pytest.raises(UsageError):
        fleet.restore(name, tmp_path / "x")


@pytest.mark.slow
def test_unusual_but_valid_names_are_accepted(machine):
    fleet = machine("a")
    names = ["x" * 200, "é" * 33, "a/b", "/", "@new", "head", ".t", " ", "a\0b", "%probe"]
    for name in names:
        with fleet.open(name) as store:
            say(store, name)
    fleet.purge("x" * 200)
    assert [each.name for each in fleet.stores()] == sorted(names)
    for name in names:
        with machine("b").open(name) as store:
            assert heard(store) == name


OPTIONS = [
    ("takeover", "soon"), ("acknowledge", "both"), ("ttl_s", 0), ("ttl_s", True), ("ship_ms", -1), ("ship_ms", None),
    ("park_after_s", 0), ("lag_max_s", math.nan), ("lag_max_bytes", "1G"), ("keep_s", -1), ("grace_s", "1 day"),
    ("timeout_s", -1), ("read_only", True), ("create", False),
]  # fmt: skip


@pytest.mark.parametrize(("option", "value"), OPTIONS)
def test_an_invalid_option_does_not_take_over_the_store(machine, memory, option, value):
    with pytest.raises(UsageError, match=option) as caught:
        machine("a").open("t", **{option: value})
    assert caught.value.facts["argument"] == option
    assert memory.requests == []


def test_a_second_opening_in_one_process_is_refused_even_by_another_fleet(machine):
    fleet = machine("a")
    with fleet.open("t") as store:
        for again in (fleet, machine("a")):
            for takeover in ("wait", "now"):
                with pytest.raises(UsageError, match="use the open store, or close it first"):
                    again.open("t", takeover=takeover)
        say(store, 1)
        with pytest.raises(StoreLockedError, match="'now' if it is dead"):
            machine("b").open("t", timeout_s=0)
    with machine("a").open("t") as store:
        assert heard(store) == 1


@pytest.mark.slow
def test_closing_a_fleet_ships_the_commits_of_its_open_stores(machine):
    fleet = machine("a")
    stores = [fleet.open(name, ship_ms=60_000) for name in ("t", "u")]
    fleet.open("v").close()
    for store in stores:
        say(store, 1)
    taken = machine("b").open("t", takeover="now")
    with pytest.raises(FencedError):
        fleet.close()
    taken.close()
    for store in stores:
        assert store.closed
    with machine("b").open("u", timeout_s=0) as store:
        assert heard(store) == 1
    fleet.close()
    for call in (lambda: fleet.open("u"), fleet.stores, lambda: fleet.gc("u")):
        with pytest.raises(ClosedError, match="connect again"):
            call()


def test_remote_durability_without_a_fleet_is_refused(tmp_path):
    with statelog.open(tmp_path / "alone.state") as alone:
        with pytest.raises(UsageError, match="not shipped by a fleet"):
            say(alone, 1, durable="remote")
        with pytest.raises(UsageError, match="not shipped by a fleet"):
            _ = alone.remote
        with pytest.raises(UsageError, match="durable must be"):
            say(alone, 1, durable="far away")


def test_remote_durability_of_a_closed_store_is_refused(machine):
    store = machine("a").open("t")
    say(store, 1)
    store.close()
    store.close()
    with pytest.raises(ClosedError):
        store.remote.status()
    for call in (lambda: store.remote.wait(99), store.remote.base):
        with pytest.raises(RemoteError, match="it was closed"):
            call()


def test_a_local_file_that_is_another_store_or_not_a_store_is_refused(machine):
    with machine("a").open("t") as store:
        say(store, 1)
    other = machine("b")
    with statelog.open(other.path("t")) as foreign:
        say(foreign, 9)
    with pytest.raises(ConflictError, match=r"not the store.*move it away"):
        other.open("t")
    with machine("a").open("t", timeout_s=0) as store:  # The store was released.
        assert heard(store) == 1
    with statelog.open(other.path("t")) as foreign:
        assert heard(foreign) == 9


def test_a_copy_of_one_fleet_is_refused_by_another(machine):
    with machine("a").open("t") as store:
        say(store, 1)
    other = machine("a", MemoryArchive())
    with pytest.raises(ConflictError, match="its own cache"):
        other.open("t")
    assert other.stores() == []
    with machine("a").open("t") as store:
        assert heard(store) == 1
    path = machine("b").path("mine")  # A store that belongs to no fleet joins one.
    with statelog.open(path) as store:
        say(store, 2)
    with machine("b").open("mine") as store:
        assert heard(store) == 2


@pytest.mark.slow
def test_waiting_needs_a_valid_lsn_and_timeout(machine):
    fleet = machine("a")
    with fleet.open("t") as store, fleet.follow("t") as replica:
        say(store, 1, durable="remote")
        for remote in (store.remote, replica.remote):
            for wrong in ({"lsn": "x"}, {"lsn": -1}, {"lsn": 1, "timeout_s": -1}):
                with pytest.raises(UsageError):
                    remote.wait(**wrong)
        assert replica.remote.wait(store.last_lsn, timeout_s=5)
        assert replica.remote.status().last_lsn == store.last_lsn


@pytest.mark.parametrize("what", ["newer", "damaged"])
def test_a_head_of_a_newer_format_or_a_damaged_head_is_refused(machine, memory, tmp_path, what):
    fleet = machine("a")
    for name in ("t", "u"):
        with fleet.open(name) as store:
            say(store, 1)
    held = memory.objects["t/head"]
    data = b"no head" if what == "damaged" else cbor.encode({**cbor.decode(held.data), "format": 2})
    memory.objects["t/head"] = held._replace(data=data)
    kind, words = {
        "damaged": (CorruptionError, "t/head is damaged"), "newer": (NewerFormatError, r"t/head.*a newer statelog"),
    }[what]  # fmt: skip
    calls = (
        machine("b").open, fleet.open, fleet.status, fleet.gc, fleet.purge, fleet.delete,
        lambda name: fleet.restore(name, tmp_path / "x"), lambda name: fleet.follow(name).__enter__(),
    )  # fmt: skip
    for call in calls:
        with pytest.raises(kind, match=words) as caught:
            call("t")
        assert caught.value.facts["object"] == "t/head"
    assert [(each.name, each.state) for each in fleet.stores()] == [("t", "unreadable"), ("u", "free")]
    assert [each.name for each in fleet.check()] == ["t"]


def test_a_missing_or_deleted_store_is_reported(machine, tmp_path):
    fleet = machine("a")
    with fleet.open("t") as store:
        say(store, 1)
    fleet.delete("t")
    calls = (
        fleet.status, fleet.purge, fleet.delete, fleet.check,
        lambda name: fleet.restore(name, tmp_path / "x"), lambda name: fleet.follow(name).__enter__(),
    )  # fmt: skip
    for name in ("none", "t"):
        for call in calls:
            with pytest.raises(StoreNotFoundError, match=f"no store '{name}'"):
                call(name)
    with pytest.raises(StoreNotFoundError):
        fleet.gc("none")
    for poll_s in (0, math.inf, 1e300):
        with pytest.raises(UsageError, match="poll_s"):
            fleet.follow("t", poll_s=poll_s).__enter__()
    with pytest.raises(UsageError, match="stranded"):
        fleet.export_stranded("t", io.BytesIO())


def test_an_invalid_postgres_url_is_refused(tmp_path):
    pytest.importorskip("psycopg")
    with pytest.raises(UsageError, match="not an address"):
        connect("postgresql://[", tmp_path)


def test_an_invalid_cache_folder_is_refused(tmp_path):
    (tmp_path / "bucket").mkdir()
    (tmp_path / "file").touch()
    url = f"file://{tmp_path}/bucket"
    for cache in (tmp_path / "file", tmp_path / "file" / "below", None, 7):
        with pytest.raises(UsageError) as caught:
            connect(url, cache)
        assert caught.value.facts["argument"] == "cache"
    with connect(url, tmp_path / "new" / "deep") as fleet, fleet.open("t") as store:
        say(store, 1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_folder_without_write_permission_is_refused(tmp_path):
    (tmp_path / "bucket").mkdir()
    (tmp_path / "cache").mkdir(mode=0o500)
    with pytest.raises(AccessError, match="no permission"):
        connect(f"file://{tmp_path}/bucket", tmp_path / "cache")


def test_a_relative_cache_path_does_not_depend_on_later_working_directories(tmp_path, monkeypatch):
    (tmp_path / "bucket").mkdir()
    monkeypatch.chdir(tmp_path)
    fleet = connect(f"file://{tmp_path}/bucket", "cache")
    monkeypatch.chdir("/")
    with fleet.open("t") as store:
        say(store, 1)
    assert fleet.path("t") == tmp_path / "cache" / "t.state"
    with pytest.raises(AlreadyExistsError):
        fleet.restore("t", fleet.path("t"))
