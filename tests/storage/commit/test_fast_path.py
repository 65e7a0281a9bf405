"""The way past the committer: taken where it may be, and nothing that the committer would not have made."""

import errno
import os
import random
import sys
import threading
from unittest import mock

import pytest
from deferring import commit_until_waiting

import statelog
from statelog import reducers
from statelog.errors import ConflictError, ReducerTypeError, StatelogError, StorageError, StoreFullError
from statelog.log import engine
from statelog.storage.commit import commit, deferred, fast_path, keeper, requests
from statelog.storage.commit import transaction as writing
from statelog.storage.commit.fast_path import FastPath
from statelog.storage.journal import checkpointing as steady
from statelog.storage.journal import journal

SCHEMA = {
    "x": reducers.replace,
    "sum": reducers.add,
    "log": reducers.extend,
    "messages": reducers.upsert("id"),
    "notes": reducers.merge,
}
KERNELS = ("commit_alone", "commit_flushed")
WATCHED = {module.__file__ for module in (fast_path, deferred, journal, steady, commit, requests, writing)}


@pytest.fixture(autouse=True)
def never_settled_by_time(monkeypatch):
    monkeypatch.setattr(keeper, "_SETTLE_S", 60)


def only_in_python(monkeypatch):
    for kernel in KERNELS:
        monkeypatch.setattr(engine, kernel, lambda *_: None)


@pytest.fixture(params=["commit", "commit in Python", "interval", "interval in Python"])
def store(path, request, monkeypatch):
    durability, *in_python = request.param.split(" ", 1)
    if in_python:
        only_in_python(monkeypatch)
    with statelog.open(path, durability=durability) as opened:
        yield opened


@pytest.fixture
def taken(monkeypatch):
    """A list that gets what was made this way, in C or in Python."""
    made = []

    def watched(owner, name):
        way = getattr(owner, name)

        def watch(*arguments, **keywords):
            found = way(*arguments, **keywords)
            if found is not None:
                made.append(found)
            return found

        monkeypatch.setattr(owner, name, watch)

    watched(FastPath, "commit")
    for kernel in KERNELS:
        watched(engine, kernel)
    return made


def check_at_rest(environment):
    assert environment.writer_thread == 0
    assert environment.deferred.transaction is None
    assert not environment.active_transactions
    assert environment.committer.leader is None
    assert not environment.committer.inside


ACTS = {
    "put": lambda thread, number: thread.commit({"x": number}),
    "add": lambda thread, number: thread.commit({"sum": number}, metadata={"n": number}),
    "append": lambda thread, number: thread.commit({"log": [f"entry {number}"]}),
    "upsert": lambda thread, number: thread.commit({"messages": [{"id": f"m{number}", "text": "t" * 30}]}),
    "several": lambda thread, number: thread.commit({"x": number}, {"sum": 1, "log": [number]}),
    "expected": lambda thread, number: thread.commit({"x": number}, expected_version=thread_version(thread)),
    "rollback": lambda thread, number: thread.rollback(number % 20),
}


def thread_version(thread):
    """Return a head's version without reading."""
    return next(iter(thread._session._engine.last.memory.heads.values())).event.version


@pytest.mark.parametrize("act", ACTS)
def test_nearly_all_common_commits_take_it(store, taken, act):
    thread = store.thread("t", schema=SCHEMA)
    thread.commit({"x": 0, "log": ["entry" * 20], "messages": [{"id": "first", "text": "t" * 100}]})
    for number in range(40):
        thread.commit({"x": number})
    assert thread.version == 40  # what it goes back to is in LMDB
    commit_until_waiting(thread, store)
    before = len(taken)
    for number in range(200):
        ACTS[act](thread, number)
    assert len(taken) - before > 150
    check_at_rest(store._engine.environment)
    assert store.verify().ok


def test_what_is_made_this_way_is_what_the_committer_makes(tmp_path, taken):
    """Byte for byte: the log and the index of thousands of random commits, refused ones between them."""
    logs = []
    for name in ("in C", "in C, flushed", "fast", "slow"):
        rng = random.Random(7)
        with (
            mock.patch("time.time_ns", return_value=10**18) as clock,
            mock.patch("secrets.token_bytes", bytes),
            mock.patch.object(FastPath, "commit", (lambda *_, **__: None) if name == "slow" else FastPath.commit),
            pytest.MonkeyPatch.context() as patch,
            statelog.open(tmp_path / name, durability="commit" if "flushed" in name else "interval") as store,
        ):
            if "in C" not in name:
                only_in_python(patch)
            threads = [store.thread(f"t{number}", schema=SCHEMA) for number in range(3)]
            for number in range(2500):
                clock.return_value += 10_000
                act_at_random(rng, rng.choice(threads), number)
            assert store.verify().ok
            with store.read() as view:
                records = [bytes(view.transaction.get_log(lsn)) for lsn in range(1, view.transaction.last_lsn() + 1)]
                logs.append((records, dict(view.transaction.scan_index(b""))))
    assert logs[0] == logs[1] == logs[2] == logs[3]
    assert len(logs[0][0]) > 1900
    assert len(taken) > 2700


def act_at_random(rng, thread, number):
    kind = rng.randrange(60)
    try:
        if kind < 12 or kind >= 20:
            list(ACTS.values())[kind % 5](thread, number)
        elif kind < 14:
            thread.rollback(rng.randrange(number + 1))
        elif kind == 14:
            thread.commit({"x": 1}, expected_version=10**6)
        elif kind == 15:
            thread.commit({"sum": "text"})
        elif kind == 16:
            thread.commit({"x": 1}, id=f"id {number}")
        elif kind == 17:
            thread.commit({"messages": [{"id": f"m{rng.randrange(number + 1)}", "text": "again"}]})
        elif kind == 18:
            thread.commit({"log": ["y" * rng.randrange(9000)] * rng.randrange(1, 9)})
        elif rng.randrange(8) == 0:
            assert thread.version >= -1
    except StatelogError:
        pass


def test_two_stores_on_one_file_do_not_believe_each_other(path, taken):
    """Each remembers its own last commit, which may not be the last."""
    rng = random.Random(3)
    with statelog.open(path, durability="interval") as one, statelog.open(path, durability="interval") as other:
        threads = [(one if number % 2 else other).thread(f"t{number}") for number in range(4)]
        model = {}
        for number in range(3000):
            at = rng.randrange(4) if rng.random() < 0.1 else number // 40 % 4
            threads[at].commit({"x": number})
            model[at] = number
            if rng.random() < 0.02:
                at = rng.randrange(4)
                assert threads[at].state.get("x") == model.get(at)
        assert [thread.state["x"] for thread in threads] == [model[at] for at in range(4)]
        assert one.verify().ok
    assert len(taken) > 1000


def test_works_of_two_stores_in_one_group_are_not_believed_by_the_one_that_failed(path, taken):
    """What shared a transaction remembers it as it was then."""
    with statelog.open(path, durability="interval") as one, statelog.open(path, durability="interval") as other:
        mine, theirs = one.thread("t", schema=SCHEMA), other.thread("u", schema=SCHEMA)
        mine.commit({"sum": 1}), theirs.commit({"sum": 1})
        for number in range(60):
            commit_until_waiting(mine, one)
            barrier = threading.Barrier(2)

            def refused(barrier=barrier):
                barrier.wait()
                with pytest.raises(ReducerTypeError):
                    theirs.commit({"sum": "text"})

            beside = threading.Thread(target=refused)
            beside.start()
            barrier.wait()
            for _ in range(5):
                mine.commit({"x": -number})
            beside.join()
            for _ in range(3):
                mine.commit({"x": number})
            theirs.commit({"sum": 1})
            mine.commit({"x": number})
        assert (mine.state["x"], theirs.state["sum"]) == (59, 61)
        assert one.verify().ok
    assert taken


def test_several_threads_at_once_lose_nothing(store, taken):
    threads = [store.thread(f"t{number}", schema=SCHEMA) for number in range(5)]

    def run(thread):
        for number in range(120):
            thread.commit({"sum": 1, "x": number})

    workers = [threading.Thread(target=run, args=(thread,)) for thread in threads]
    for thread in threads[:1]:
        run(thread)
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [thread.state["sum"] for thread in threads] == [240, 120, 120, 120, 120]
    check_at_rest(store._engine.environment)
    assert store.verify().ok
    assert taken


class Interrupt(BaseException):
    """Stands for a signal handler that raises."""


def interrupt_at(step):
    """Raise at the so manieth place of the storage room where a signal is handled; return a list that gets where.

    Those are the beginnings of functions, and the ends of calls into C.
    """
    struck, passed = [], 0

    def watch(frame, event, _argument):
        nonlocal passed
        if frame.f_code.co_filename in WATCHED and event in ("call", "c_return") and not struck:
            passed += 1
            if passed == step:
                struck.append((frame.f_code.co_name, frame.f_lineno))
                raise Interrupt

    sys.setprofile(watch)
    return struck


@pytest.mark.parametrize("is_fast", [True, False])
def test_an_interrupt_anywhere_loses_nothing_and_leaves_nothing(path, monkeypatch, request, is_fast):
    """Whenever it comes: the commit is in or not, and the next one, of any thread, goes on."""
    places, step = set(), 0
    only_in_python(monkeypatch)  # no interrupt comes into C
    taken = request.getfixturevalue("taken")
    with statelog.open(path, durability="interval") as store:
        thread, other = store.thread("t"), store.thread("u")
        environment = store._engine.environment
        while True:
            step += 1
            number = commit_until_waiting(thread, store)
            taken.clear()
            while not taken and number < 100:
                number += 1
                thread.commit({"x": number})
            assert taken, f"after an interrupt in {places} it is not taken any more"
            struck = interrupt_at(step)
            try:
                thread.commit({"x": -step}, id=None if is_fast else f"step {step}")
                made = True
            except Interrupt:
                made = None
            finally:
                sys.setprofile(None)
            if not struck:
                break
            places.update(struck)
            beside = threading.Thread(target=other.commit, args=({"n": step},), daemon=True)
            beside.start()
            beside.join(20)
            assert not beside.is_alive(), f"after {struck} nobody commits"
            found = thread.state["x"]
            assert found == -step if made else found in (number, -step), struck
            environment.committer.inside.clear()  # which an interrupt may leave: see test_nested_commits.py
            check_at_rest(environment)
            assert other.state["n"] == step
            assert store.verify().ok
    with statelog.open(path) as again:
        assert again.verify().ok
    passed = {"commit", "_extend", "append", "take_over", "_end"} if is_fast else {"submit", "_lead", "_defer", "begin"}
    assert passed <= {name for name, _line in places}


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_disk_that_refuses_once(path, taken, monkeypatch, call, code):
    only_in_python(monkeypatch)
    with statelog.open(path) as store:
        thread = store.thread("t")
        number = commit_until_waiting(thread, store)
        while not taken:
            number += 1
            thread.commit({"x": number})
        function, calls = getattr(os, call), []

        def refuse(*arguments):
            calls.append(arguments)
            if len(calls) == 1:
                raise OSError(code, "as if the disk refused")
            return function(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, refuse)
            patch.setattr(journal, "write_held", refuse if call == "pwrite" else journal.write_held)
            try:
                thread.commit({"x": -1})
                expected = -1
            except (StorageError, StoreFullError):
                expected = number
        assert calls
        assert thread.state["x"] == expected
        thread.commit({"x": -2})
        check_at_rest(store._engine.environment)
        assert (thread.state["x"], store.verify().ok) == (-2, True)
    with statelog.open(path) as again:
        assert again.thread("t").state["x"] == -2


def test_commits_go_on_waiting_behind_one_that_is_refused(store, taken):
    thread = store.thread("t", schema=SCHEMA)
    thread.commit({"sum": 1})
    commit_until_waiting(thread, store)
    taken.clear()
    for number in range(40):
        with pytest.raises(ConflictError):
            thread.commit({"x": -1}, expected_version=0)
        with pytest.raises(ReducerTypeError):
            thread.commit({"sum": "text"})
        thread.commit({"x": number})
    assert len(taken) > 30
    check_at_rest(store._engine.environment)
    assert (thread.state["x"], thread.state["sum"]) == (39, 1)
    assert store.verify().ok
