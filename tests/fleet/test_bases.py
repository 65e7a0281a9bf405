"""The parts of a base: an image, and the later segments, which are merged when there are many."""

from __future__ import annotations

import threading
import time

import pytest
from waiting import until

from statelog.errors import CorruptionError, RemoteError
from statelog.fleet import bases, owner
from statelog.fleet.head import decode

MANY = 4


@pytest.fixture(autouse=True)
def few_segments(monkeypatch):
    """Lower the number of segments that counts as many."""
    monkeypatch.setattr(owner, "_SEGMENTS_MAX", MANY)


def head_of(memory):
    return decode("t/head", memory.objects["t/head"].data)


def listed(memory):
    base = head_of(memory).base
    return bases.decode("list", memory.objects[f"t/{bases.list_name(base)}"].data)


def pieces_of(memory):
    return [name for name in memory.objects if "/base/" in name and name.rpartition("/")[2].isdigit()]


def say_until_based(store, memory, start):
    """Commit segments until there is a new base. Return the next text to commit."""
    before = head_of(memory).base
    for n in range(start, start + MANY):
        store.thread("chat").commit({"n": n}, durable="remote")
    until(lambda: head_of(memory).base != before)
    return start + MANY


def heard(store):
    assert store.verify().problems == []
    return store.thread("chat").state.get("n")


@pytest.mark.slow
def test_many_segments_are_merged_without_sending_an_image(machine, memory):
    with machine("a").open("t") as store:
        n = say_until_based(store, memory, 0)
        say_until_based(store, memory, n)
        found = listed(memory)
        lsn = store.last_lsn
    assert (found.size_bytes, found.pieces, pieces_of(memory)) == (0, (), [])
    assert [log.since < lsn for log in found.logs] == [True, True]
    assert sum("/base/" in name and name.endswith("/log") for name in memory.objects) == 2
    memory.requests.clear()
    with machine("b").open("t") as store:
        assert (heard(store), store.last_lsn) == (2 * MANY - 1, lsn)
    assert not [name for request, name in memory.requests if request == "read" and name.startswith("t/log/")]


def test_a_log_far_beyond_the_image_is_replaced_by_an_image_with_shared_pieces(machine, memory, monkeypatch):
    monkeypatch.setattr(owner, "_RECORDS_MAX", 2 * MANY - 1)
    with machine("a").open("t") as store:
        n = say_until_based(store, memory, 0)
        assert not listed(memory).pieces
        n = say_until_based(store, memory, n)
        first = listed(memory)
        assert (bool(first.pieces), first.logs) == (True, ())
        say_until_based(store, memory, n)
        assert (listed(memory).pieces, len(listed(memory).logs)) == (first.pieces, 1)
    with machine("b").open("t") as store:
        assert heard(store) == 3 * MANY - 1


@pytest.mark.slow
def test_the_next_owner_reuses_the_logs_and_pieces_of_the_previous_owner(machine, memory):
    with machine("a").open("t") as store:
        n = say_until_based(store, memory, 0)
        store.thread("more").commit({"n": n})
        store.remote.base()
        image = listed(memory)
        assert image.pieces
        n = say_until_based(store, memory, n)
    with machine("b").open("t") as store:
        say_until_based(store, memory, n)
        assert (listed(memory).pieces, len(listed(memory).logs)) == (image.pieces, 2)
    with machine("c").open("t") as store:
        assert heard(store) == 3 * MANY - 1


@pytest.mark.slow
def test_a_moment_within_a_merged_log_can_be_restored(machine, memory, tmp_path):
    fleet = machine("a")
    made = []
    with fleet.open("t") as store:
        n = 0
        for _ in range(2):
            n = say_until_based(store, memory, n)
        made += [(each.lsn, each.time) for each in store.thread("chat").history()]
    import statelog

    for lsn, at in made:
        for moment in (lsn, at):
            path = tmp_path / f"{lsn} {type(moment).__name__}"
            fleet.restore("t", path, at=moment)
            with statelog.open(path) as store:
                assert store.last_lsn == lsn
                assert store.verify().problems == []


def test_collecting_keeps_objects_that_the_logs_of_a_base_need(machine, memory):
    with machine("a").open("t", keep_s=0, grace_s=0) as store:
        n = say_until_based(store, memory, 0)
        say_until_based(store, memory, n)
    machine("a").gc("t", keep_s=0, grace_s=0)
    assert len([name for name in memory.objects if name.endswith("/log")]) == 2
    with machine("b").open("t") as store:
        assert heard(store) == 2 * MANY - 1


def test_the_deletion_of_a_thread_reaches_other_machines(machine, memory):
    with machine("a").open("t") as store:
        store.thread("gone").commit({"said": "a secret"}, durable="remote")
        store.delete_thread("gone")
        say_until_based(store, memory, 0)
        threads = list(store.threads())
        lsn = store.last_lsn
    with machine("b").open("t") as store:
        assert (heard(store), list(store.threads()), store.last_lsn) == (MANY - 1, threads, lsn)


def test_a_missing_or_damaged_log_is_named(machine, memory):
    with machine("a").open("t") as store:
        say_until_based(store, memory, 0)
    name = next(name for name in memory.objects if name.endswith("/log"))
    whole = memory.objects[name]
    for damage in (None, whole._replace(data=whole.data[:-9] + b"x" + whole.data[-8:])):
        del memory.objects[name]
        if damage is not None:
            memory.objects[name] = damage
        [problem] = machine("b").check("t")
        assert isinstance(problem.error, CorruptionError)
        assert problem.error.facts["object"] == name
        memory.objects[name] = whole
    assert machine("b").check("t") == []


@pytest.mark.slow
def test_after_an_outage_between_a_log_and_its_list_the_same_objects_are_sent_again(machine, memory):
    failed = []

    def fail(request, name):
        if request == "create" and name.endswith("/list") and len(failed) < 2:
            failed.append(name)
            raise RemoteError("away")

    memory.fail = fail
    with machine("a").open("t") as store:
        say_until_based(store, memory, 0)
    assert (len(failed), len(set(failed))) == (2, 1)
    assert len([name for name in memory.objects if name.endswith("/log")]) == 1
    with machine("b").open("t") as store:
        assert heard(store) == MANY - 1


def test_an_owner_reads_the_list_of_a_base_once_and_rarely_lists_all_objects(machine, memory):
    with machine("a").open("t", grace_s=0) as store:
        n = 0
        for _ in range(4):
            n = say_until_based(store, memory, n)
    lists = [name for request, name in memory.requests if request == "read" and name.endswith("/list")]
    assert len(lists) == len(set(lists))
    memory.requests.clear()
    with machine("b").open("t") as store:
        for _ in range(4):
            n = say_until_based(store, memory, n)
    assert memory.requests.count(("names", "t/")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("is_fresh", [False, True])
def test_a_requested_image_is_made_even_if_the_base_is_current(machine, memory, is_fresh):
    with machine("a").open("t") as store:
        store.remote.base()
        first = set(memory.objects)
        if not is_fresh:
            say_until_based(store, memory, 0)
            assert listed(memory).logs
        store.remote.base(is_fresh=is_fresh)
        found = listed(memory)
        assert (bool(found.pieces), found.logs) == (True, ())
        if is_fresh:
            assert not {f"t/{piece.name}" for piece in found.pieces} & first
        n = say_until_based(store, memory, MANY)
    with machine("b").open("t") as store:
        assert heard(store) == n - 1


def test_an_image_requested_during_a_base_is_made_after_it(machine, memory):
    asking = []

    def fail(request, name):
        if request == "create" and name.endswith("/log") and not asking:
            asking.append(threading.Thread(target=store.remote.base, kwargs={"is_fresh": True}))
            asking[0].start()
            while not store.remote._asked:
                time.sleep(0.001)

    with machine("a").open("t") as store:
        store.thread("chat").commit({"n": -1})
        store.remote.base()
        before = listed(memory).pieces
        store.remote._asked = store.remote._answered = 0
        memory.fail = fail
        say_until_based(store, memory, 0)
        while not asking:
            time.sleep(0.001)
        asking[0].join()
        assert not {piece.name for piece in listed(memory).pieces} & {piece.name for piece in before}
        assert listed(memory).pieces
    with machine("b").open("t") as store:
        assert heard(store) == MANY - 1
