"""Missing or damaged objects in the storage are named, and earlier data can be restored."""

from __future__ import annotations

import shutil

import pytest

import statelog
from statelog.errors import CorruptionError, ExpiredError, ForgeryError
from statelog.fleet import connect


def say(store, n, **how):
    return store.thread("chat").commit({"n": n}, **how)


def heard(store):
    return store.thread("chat").state.get("n")


def remove(memory, name):
    del memory.objects[name]


def empty(memory, name):
    memory.objects[name] = memory.objects[name]._replace(data=b"")


def flip(memory, name):
    data = bytearray(memory.objects[name].data)
    data[-20] ^= 1
    memory.objects[name] = memory.objects[name]._replace(data=bytes(data))


HARMS = [remove, empty, flip]


@pytest.fixture(params=["killed", "closed"])
def shipped(request, machine, monkeypatch):
    """The LSNs of six commits, each in its own segment. A base follows the third."""
    monkeypatch.setattr("statelog.fleet.restores._PAUSE_S", 0.001)
    store = machine("a").open("t", ship_ms=1)
    lsns = []
    for n in range(6):
        lsns.append(say(store, n, durable="remote").lsn)
        if n == 2:
            store.remote.base()
    if request.param == "killed":
        thread = store.remote._thread
        store.remote._error = RuntimeError("killed")
        thread.join()
    else:
        store.close()
    return lsns


def logged(memory):
    """Return the names of the segments in order."""
    return sorted(name for name, found in memory.objects.items() if "/log/" in name and b"ended" not in found.data)


@pytest.mark.slow
@pytest.mark.parametrize("harm", [remove, flip])
@pytest.mark.parametrize("which", [3, 4])
def test_a_damaged_segment_is_named_and_earlier_states_are_restored(machine, memory, shipped, tmp_path, harm, which):
    name = logged(memory)[which]
    held = memory.objects[name]
    harm(memory, name)
    fleet = machine("b")
    for _again in range(2):
        with pytest.raises(CorruptionError) as caught:
            fleet.open("t", takeover="now")
        assert name == caught.value.facts["object"]
    for at in (1, which - 1):
        path = tmp_path / f"{at}.state"
        fleet.restore("t", path, at=shipped[at])
        with statelog.open(path) as store:
            assert heard(store) == at
    with pytest.raises(CorruptionError) as caught:
        fleet.restore("t", tmp_path / "none.state", at=shipped[which])
    assert name == caught.value.facts["object"]
    assert not (tmp_path / "none.state").exists()
    memory.objects[name] = held
    with fleet.open("t", takeover="now") as store:
        assert heard(store) == 5


@pytest.mark.slow
def test_a_last_segment_without_a_header_is_named_and_earlier_states_are_restored(machine, memory, shipped, tmp_path):
    name = logged(memory)[-1]
    held = memory.objects[name]
    empty(memory, name)
    fleet = machine("b")
    with pytest.raises(CorruptionError) as caught:
        fleet.open("t", takeover="now")
    assert name == caught.value.facts["object"]
    fleet.restore("t", tmp_path / "r.state", at=shipped[4])
    with statelog.open(tmp_path / "r.state") as store:
        assert heard(store) == 4
    memory.objects[name] = held
    with fleet.open("t", takeover="now") as store:
        assert heard(store) == 5


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("kind", ["list", "00000000"])
def test_a_damaged_base_is_named_and_earlier_states_are_restored(machine, memory, shipped, tmp_path, harm, kind):
    [name] = [name for name in memory.objects if "/base/" in name and name.endswith(kind)]
    harm(memory, name)
    fleet = machine("b")
    with pytest.raises(CorruptionError) as caught:
        fleet.open("t", takeover="now")
    assert name == caught.value.facts["object"]
    if kind == "list":  # It has the references to earlier data.
        return
    for at in (0, 1):
        fleet.restore("t", tmp_path / f"{at}.state", at=shipped[at])
        with statelog.open(tmp_path / f"{at}.state") as store:
            assert heard(store) == at


def test_states_before_the_oldest_base_are_not_kept(machine, memory, tmp_path):
    fleet = machine("a")
    with fleet.open("t") as store:
        first = say(store, 1, durable="remote")
        say(store, 2)
        store.remote.base()
    with machine("b").open("t") as store:
        store.remote.base()
    for name in [name for name in memory.objects if "/log/000000000001" in name or "-000000000001/" in name]:
        del memory.objects[name]
    with pytest.raises(ExpiredError):
        fleet.restore("t", tmp_path / "r.state", at=first.lsn)


@pytest.mark.slow
def test_a_copy_that_lags_behind_a_base_catches_up(machine):
    with machine("a").open("t", ship_ms=1) as store:
        say(store, 1, durable="remote")
        with machine("b").follow("t", poll_s=3600) as copy:
            for n in range(2, 5):
                say(store, n, durable="remote")
                store.remote.base()
            made = say(store, 9, durable="remote")
            assert copy.remote.wait()
            assert copy.last_lsn == made.lsn
            assert heard(copy) == 9


@pytest.mark.slow
@pytest.mark.parametrize("how", ["restore", "follow"])
def test_a_restore_that_races_a_collection_starts_again(machine, memory, tmp_path, how):
    fleet = machine("a")
    with fleet.open("t") as store:
        say(store, 1)
        store.remote.base()
        say(store, 2)
    raced = []

    def collect(request, name):
        if request == "read" and name.endswith("/list") and not raced:
            raced.append(name)
            fleet.purge("t")

    memory.fail = collect
    other = machine("b")
    if how == "restore":
        other.restore("t", tmp_path / "r.state")
        with statelog.open(tmp_path / "r.state") as store:
            assert heard(store) == 2
    else:
        with other.follow("t") as copy:
            assert heard(copy) == 2
    assert raced
    assert raced[0] not in memory.objects


@pytest.mark.slow
@pytest.mark.parametrize("is_base", [False, True])
def test_a_history_that_differs_from_the_head_is_refused_as_a_forgery(tmp_path, is_base):
    for name in ("honest", "forged"):
        (tmp_path / name).mkdir()
        with connect((tmp_path / name).as_uri(), cache=tmp_path / f"{name}-cache") as fleet, fleet.open("s") as store:
            say(store, 1 if name == "honest" else 2, durable="remote")
            if is_base:
                store.remote.base(is_fresh=True)
    for folder in ("log", "base"):
        shutil.rmtree(tmp_path / "honest" / "s" / folder, ignore_errors=True)
        if (tmp_path / "forged" / "s" / folder).exists():
            shutil.copytree(tmp_path / "forged" / "s" / folder, tmp_path / "honest" / "s" / folder)
    with connect((tmp_path / "honest").as_uri(), cache=tmp_path / "elsewhere") as fleet:
        with pytest.raises(ForgeryError, match="the restored history differs from") as caught:
            fleet.restore("s", tmp_path / "restored.state")
        assert caught.value.object == "s/head"
        assert caught.value.found != caught.value.expected
        assert not (tmp_path / "restored.state").exists()
        with pytest.raises(ForgeryError):
            fleet.open("s", timeout_s=5)
    with connect((tmp_path / "forged").as_uri(), cache=tmp_path / "third") as fleet:
        fleet.restore("s", tmp_path / "restored.state")
