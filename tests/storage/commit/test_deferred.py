"""Commits that wait for LMDB's transaction: nobody can tell (D1 to D4), but by the time they take."""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import lmdb
import pytest
from deferring import commit_until_waiting, waits

import statelog
from statelog import reducers
from statelog.errors import ConflictError, StorageError, StoreLockedError
from statelog.log import engine
from statelog.storage import faults
from statelog.storage.commit import deferred, keeper
from statelog.storage.file.locks import _WAITING_ANY, FileLocks
from statelog.storage.journal import checkpointing as steady

LOOK = """
import json, sys, statelog
with statelog.open(sys.argv[1], read_only=sys.argv[2] == "read", lock_timeout_s=5) as store:
    thread = store.thread("t")
    print(json.dumps([thread.version, thread.state["x"]]), flush=True)
"""

COMMIT_FOR_EVER = """
import sys, statelog
from statelog.storage.commit import keeper
keeper._SETTLE_S = 60
store = statelog.open(sys.argv[1], durability=sys.argv[2])
thread = store.thread("t")
deferred = store._engine.environment.deferred
made = 0
while made < 30 or (deferred.waiting.last is None and made < 40):  # the last one's policy may have been looked for
    thread.commit({"x": made})
    made += 1
print(deferred.waiting.last is not None, flush=True)
sys.stdin.readline()
for number in range(made, 10**9):
    thread.commit({"x": number})
    print(number, flush=True)
"""


@pytest.fixture(autouse=True)
def never_settled_by_time(monkeypatch):
    monkeypatch.setattr(keeper, "_SETTLE_S", 60)


@pytest.fixture(params=["commit", "interval"])
def store(request, path):
    with statelog.open(path, durability=request.param, interval_ms=60_000, max_size_bytes=1 << 28) as opened:
        yield opened


@contextmanager
def holder_of(path, durability="commit"):
    """A process that commits until something waits, and more when it is told to."""
    arguments = [sys.executable, "-c", COMMIT_FOR_EVER, path, durability]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as holder:
        try:
            assert holder.stdout.readline() == b"True\n"
            yield holder
        finally:
            holder.kill()


def look(path, how="write"):
    return subprocess.Popen([sys.executable, "-c", LOOK, path, how], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def looked(child):
    out, err = child.communicate(timeout=30)
    assert child.returncode == 0, err.decode()
    return json.loads(out)


def last_transaction(store):
    return store._engine.environment.handles.raw.info()["last_txnid"]


def test_commits_wait_and_lmdb_gets_many_in_one_transaction(store):
    thread = store.thread("t")
    commit_until_waiting(thread, store)
    before = last_transaction(store)
    for number in range(200):
        thread.commit({"x": number})
    assert last_transaction(store) - before <= 12
    assert thread.state["x"] == 199
    assert not waits(store)


def test_whoever_reads_sees_what_waits(store):
    thread = store.thread("t", schema=None)
    number = commit_until_waiting(thread, store)
    seen = []
    reader = threading.Thread(target=lambda: seen.append(store.thread("t").state["x"]))
    reader.start()
    reader.join()
    assert seen == [number]
    assert [record.lsn for record in store.log()][-1] == thread.head.lsn
    assert store.verify().ok


def test_whoever_reads_does_not_wait_for_the_flush_of_a_commit_under_way(path, monkeypatch):
    begun, goes_on = threading.Event(), threading.Event()

    def slow(descriptor):
        begun.set()
        assert goes_on.wait(30)
        os.fdatasync(descriptor)

    with statelog.open(path) as store:
        thread = store.thread("t")
        number = commit_until_waiting(thread, store)
        monkeypatch.setattr(steady, "flush_file", slow)
        monkeypatch.setattr(engine, "commit_flushed", lambda *_: None)
        writer = threading.Thread(target=thread.commit, args=({"x": -1},))
        writer.start()
        assert begun.wait(30)
        assert thread.state["x"] == number
        assert store.verify().ok
        goes_on.set()
        writer.join()
        assert thread.state["x"] == -1
        commit_until_waiting(thread, store)
        assert store.verify().ok


def test_after_a_read_the_next_commit_waits_at_once_and_is_read(store, monkeypatch):
    thread = store.thread("t")
    number = commit_until_waiting(thread, store)
    environment = store._engine.environment
    turned_on = []
    turn_on = deferred.Deferred._turn_on
    monkeypatch.setattr(deferred.Deferred, "_turn_on", lambda self, **how: turned_on.append(1) or turn_on(self, **how))
    before = environment.deferred.commits
    for _ in range(20):
        for _ in range(12):
            thread.commit({"x": (number := number + 1)})
        assert thread.state["x"] == number
        assert last_transaction(store) == environment.last_transaction_id()
        assert not waits(store)
    assert environment.deferred.commits - before >= 200  # once its policy is looked for, perhaps when few wait
    assert len(turned_on) <= 3


def test_who_reads_for_as_long_as_he_likes_keeps_no_other_process_out(path, monkeypatch):
    monkeypatch.setattr(keeper, "_SETTLE_S", 0.02)
    with statelog.open(path) as store:
        thread = store.thread("t")
        number = commit_until_waiting(thread, store)
        child = look(path)
        deadline = time.monotonic() + 20
        while child.poll() is None and time.monotonic() < deadline:
            assert thread.state["x"] == number
        assert looked(child) == [number, number]


def test_whoever_reads_after_each_commit_does_not_pay_for_waiting(store):
    thread = store.thread("t")
    commit_until_waiting(thread, store)
    environment = store._engine.environment
    before = environment.deferred.commits
    for number in range(170):
        thread.commit({"x": number})
        with environment.read():
            pass
    assert environment.deferred.commits - before <= 20


@pytest.mark.parametrize("how", ["read", "write"])
def test_another_process_sees_what_waits(store, path, how):
    thread = store.thread("t")
    number = commit_until_waiting(thread, store)
    environment = store._engine.environment
    child = look(path, how)
    deadline = time.monotonic() + 20
    while not environment.locks._is_held(_WAITING_ANY) and time.monotonic() < deadline:
        time.sleep(0.001)
    thread.commit({"x": -1})  # whoever commits looks whether others wait
    assert looked(child) in ([number + 1, -1], [number, number])
    assert looked(look(path, how)) == [number + 1, -1]


def test_without_waiting_for_the_writer_another_process_would_miss_it(store, path):
    """The control of the test above."""
    thread = store.thread("t")
    number = commit_until_waiting(thread, store)
    blind = "from statelog.storage.file.locks import FileLocks\nFileLocks.pass_writer = lambda *_: None\n" + LOOK
    child = subprocess.Popen(
        [sys.executable, "-c", blind, path, "read"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert looked(child)[1] < number
    assert thread.state["x"] == number


def test_what_waits_is_put_when_nothing_else_comes(path, monkeypatch):
    monkeypatch.setattr(keeper, "_SETTLE_S", 0.02)
    with statelog.open(path) as store:
        thread = store.thread("t")
        for number in range(30):
            thread.commit({"x": number})
        deadline = time.monotonic() + 10
        while waits(store) and time.monotonic() < deadline:
            time.sleep(0.005)
        assert not waits(store)
        assert store._engine.environment.locks.try_writer()


@pytest.mark.parametrize("durability", ["commit", "interval"])
@pytest.mark.parametrize("readers", [("write",), ("read",), ("read", "read", "read"), ("read", "write", "read")])
def test_a_process_killed_while_commits_wait_loses_none(path, durability, readers):
    with holder_of(path, durability) as holder:
        holder.send_signal(signal.SIGSTOP)
        children = [look(path, how) for how in readers]
        time.sleep(1.0)
        assert all(child.poll() is None for child in children)  # they wait for it
    assert [looked(child) for child in children] == [[29, 29]] * len(readers)
    with statelog.open(path) as store:
        assert store.thread("t").version == 29
        assert store.verify().ok


def test_a_process_killed_at_any_time_loses_nothing_it_has_acknowledged(path):
    expected = 0
    for round_ in range(6):
        with holder_of(path) as holder:
            holder.stdin.write(b"\n")
            time.sleep(0.05 * round_)
            holder.kill()
            said = holder.stdout.read().split(b"\n")[:-1]
        with statelog.open(path) as store:
            version, value = store.thread("t").version, store.thread("t").state["x"]
            assert value >= int(said[-1] if said else 29)
            expected += value + 1
            assert version == expected - 1
            assert store.verify().ok


def test_a_stopped_process_keeps_others_out_for_their_time(path):
    with holder_of(path) as holder:
        holder.send_signal(signal.SIGSTOP)
        with pytest.raises(StoreLockedError) as caught:
            statelog.open(path, lock_timeout_s=0.3)
        assert caught.value.facts["timeout_s"] == 0.3


def test_nothing_waits_while_another_process_has_the_store_open(store, path):
    thread = store.thread("t")
    thread.commit({"x": 0})
    arguments = [sys.executable, "-c", LOOK + "    sys.stdin.readline()", path, "read"]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        for number in range(100):
            thread.commit({"x": number})
            assert not waits(store)
        child.communicate(b"\n", timeout=30)
    commit_until_waiting(thread, store)


def test_a_child_sees_what_waits_and_its_parent_goes_on(store, path):
    thread = store.thread("t")
    number = commit_until_waiting(thread, store)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with statelog.open(path, durability=store._engine.environment.options.durability) as mine:
                status = 0 if mine.thread("t").state["x"] == number else 2
                mine.thread("t").commit({"y": 1})
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    thread.commit({"x": -1})
    assert dict(thread.state) == {"x": -1, "y": 1}
    assert store.verify().ok


def test_a_closed_store_is_one_file_with_all_of_it(store, path):
    thread = store.thread("t")
    number = commit_until_waiting(thread, store)
    store.close()
    assert sorted(entry.name for entry in path.parent.iterdir()) == [path.name, f"{path.name}-lock"]
    with statelog.open(path) as again:
        assert again.thread("t").state["x"] == number


def test_compaction_takes_what_waits(store):
    thread = store.thread("t")
    number = commit_until_waiting(thread, store)
    store.compact()
    assert thread.state["x"] == number
    assert store.verify().ok


def test_a_refused_commit_leaves_what_waits_alone(store):
    thread = store.thread("t")
    number = commit_until_waiting(thread, store)
    with pytest.raises(ConflictError):
        thread.commit({"x": 0}, expected_version=3)
    assert thread.state["x"] == number
    assert store.verify().ok


def test_commits_of_other_kinds_see_what_waits(store):
    thread = store.thread("t")
    number = commit_until_waiting(thread, store)
    version = thread.version
    commit_until_waiting(thread, store)
    branch = thread.fork("b", at=version)
    assert branch.state["x"] == number
    commit_until_waiting(thread, store)
    thread.tag("here")
    commit_until_waiting(thread, store)
    thread.rollback("here")
    assert thread.state["x"] == thread.at("here").state["x"]
    commit_until_waiting(thread, store)
    thread.rollback(thread.version - 1)
    with store.transaction() as tx:
        tx.thread("t").commit({"y": 1})
        tx.thread("u").commit({"z": 1})
    assert store.thread("u").state["z"] == 1
    assert store.verify().ok


def test_two_stores_of_one_process_see_each_others(store, path):
    environment = store._engine.environment
    with statelog.open(path, durability=environment.options.durability, max_size_bytes=1 << 28) as other:
        one, two = store.thread("t"), other.thread("t")
        for number in range(300):
            thread = (one, two)[number // 37 % 2]
            thread.commit({"x": number})
            assert thread.head.version == number
        assert one.state["x"] == two.state["x"] == 299
        assert store.verify().ok


def test_threads_commit_together_and_read_between(store):
    schema = {"log": reducers.append, "total": reducers.add}
    store.thread("t", schema=schema).commit({"total": 0})
    errors = []

    def write(name):
        try:
            thread = store.thread("t", schema=schema)
            for number in range(120):
                made = thread.commit({"total": 1, "log": f"{name}:{number}"})
                if number % 29 == name:
                    assert thread.at(made.version).state["log"][-1] == f"{name}:{number}"
        except BaseException as error:  # noqa: BLE001 - kept for the test to judge
            errors.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert errors == []
    thread = store.thread("t", schema=schema)
    assert thread.state["total"] == 720
    for name in range(6):
        assert [said for said in thread.state["log"] if said.startswith(f"{name}:")] == [
            f"{name}:{number}" for number in range(120)
        ]
    assert store.verify().ok


@pytest.mark.parametrize("point", [name for name in faults.POINTS if name.startswith(("deferred.", "journal."))])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, lmdb.Error, MemoryError])
def test_whatever_strikes_wherever_nothing_acknowledged_is_lost_and_nothing_refused_appears(path, point, error):
    def strike():
        raise error

    acknowledged = []
    store = statelog.open(path)
    try:
        thread = store.thread("t")
        acknowledged.append(commit_until_waiting(thread, store))
        faults.arm(point, action=strike)
        try:
            for number in range(1000, 1200):
                thread.commit({"x": number})
                acknowledged.append(number)
        except (KeyboardInterrupt, OSError, lmdb.Error, MemoryError, statelog.StatelogError):
            pass
        finally:
            faults.disarm()
        gc.collect()
    finally:
        store.close()
    with statelog.open(path) as again:
        thread = again.thread("t")
        values = [c.state["x"] for c in thread.history() if c.state["x"] >= 1000][::-1]
        assert values[: len(acknowledged) - 1] == acknowledged[1:]
        assert len(values) <= len(acknowledged)
        thread.commit({"x": 5000})
        assert again.verify().ok


def test_lmdb_refusing_what_waits_breaks_the_store_and_opening_it_again_mends_it(path, monkeypatch):
    store = statelog.open(path)
    thread = store.thread("t")
    number = commit_until_waiting(thread, store)

    def refuse(*_arguments):
        raise lmdb.DiskError("as if")

    monkeypatch.setattr(deferred.Deferred, "_put_all", refuse)
    with pytest.raises(StorageError, match="close the store"):
        thread.state  # noqa: B018
    with pytest.raises(StorageError, match="close the store"):
        thread.commit({"x": -1})
    store.close()
    monkeypatch.undo()
    with statelog.open(path) as again:
        assert again.thread("t").state["x"] == number
        assert again.verify().ok


def test_where_there_are_no_locks_between_processes_nothing_waits(path, monkeypatch):
    monkeypatch.setattr(FileLocks, "_try", lambda *_: True)
    with statelog.open(path) as store:
        store._engine.environment.locks.supported = False
        thread = store.thread("t")
        for number in range(100):
            thread.commit({"x": number})
            assert not waits(store)
