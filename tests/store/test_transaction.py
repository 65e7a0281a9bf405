"""Transactions: commits to several threads happen together, or not at all."""

# ruff: noqa: PT012 - a transaction is a block, and it is the block that raises

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import forks
import pytest
from elsewhere import elsewhere

import statelog
import statelog.aio
from statelog import reducers
from statelog.errors import (
    AlreadyExistsError,
    ConflictError,
    ReducerTypeError,
    ThreadDeletedError,
    ThreadNotFoundError,
    UsageError,
)
from statelog.log import operations as writer
from statelog.storage import faults

SCHEMA = {"total": reducers.add, "log": reducers.append, "items": reducers.upsert("id")}


@pytest.fixture
def threads(store):
    """Two threads with commits."""
    for name in ("a", "b"):
        store.thread(name, schema=SCHEMA).commit({"total": 1, "log": "start"})
    return store


def states(store):
    return {info.id: store.thread(info.id).state.to_python() for info in store.threads()}


def test_commits_to_several_threads_are_one_transaction(store):
    with store.transaction() as transaction:
        first = transaction.thread("a", schema=SCHEMA).commit({"total": 1})
        second = transaction.thread("b").commit({"free": [1, 2]})
        third = transaction.thread("a", schema=SCHEMA).commit({"total": 2})
    assert store.thread("a").state == {"total": 3}
    assert store.thread("b").state == {"free": [1, 2]}
    assert (first, third) == (store.thread("a").at(0), store.thread("a").at(1))
    assert second == store.thread("b").head
    assert [record.continues for record in store.log()] == [True, True, True, True, False]


def test_an_exception_undoes_the_whole_transaction(threads):
    before = states(threads)
    lsn = threads.last_lsn
    with pytest.raises(ZeroDivisionError), threads.transaction() as transaction:
        transaction.thread("a", schema=SCHEMA).commit({"total": 1})
        transaction.thread("b", schema=SCHEMA).fork("branch")
        transaction.thread("new").commit({"x": 1})
        _ = 1 / 0
    assert (states(threads), threads.last_lsn) == (before, lsn)
    assert [branch.name for branch in threads.thread("b").branches()] == ["main"]


def test_an_empty_transaction_writes_nothing(store):
    with store.transaction():
        pass
    with store.transaction() as transaction:
        assert transaction.thread("t").head is None
    assert store.last_lsn == 0


def test_changes_of_a_transaction_are_visible_only_in_it_before_its_end(threads):
    with threads.transaction() as transaction:
        thread = transaction.thread("a", schema=SCHEMA)
        made = thread.commit({"total": 1, "log": ["x" * 100] * 50})
        assert thread.state["total"] == 2
        assert thread.version == 1
        assert thread.head == made
        assert thread.at(1) == made
        assert [checkpoint.version for checkpoint in thread.history()] == [1, 0]
        assert made.state["log"] == ["start", ["x" * 100] * 50]
        assert made.parent == thread.at(0)
        assert threads.thread("a").state["total"] == 1
        assert threads.thread("a").version == 0
    assert threads.thread("a").state["total"] == 2


def test_every_operation_of_a_thread_works_in_a_transaction(threads):
    with threads.transaction() as transaction:
        thread = transaction.thread("a", schema=SCHEMA)
        thread.commit({"total": 1}, id="mine", metadata={"k": 1})
        thread.tag("here")
        thread.rollback(0)
        branch = thread.fork("branch", at="here", update={"total": 10})
        branch.commit({"total": 1})
        thread.tag("gone")
        thread.untag("gone")
        assert branch.state["total"] == 13
        assert [each.name for each in thread.branches()] == ["main", "branch"]
        assert thread.tags() == {"here": thread.at("mine")}
    thread = threads.thread("a")
    assert [checkpoint.kind for checkpoint in thread.history()] == ["rollback", "commit", "commit"]
    assert thread.state["total"] == 1
    assert thread.checkout("branch").state["total"] == 13
    assert thread.at("here").metadata == {"k": 1}


def test_a_checkpoint_made_in_a_transaction_is_final_after_it(threads):
    with threads.transaction() as transaction:
        made = transaction.thread("a", schema=SCHEMA).commit({"total": 1})
    again = threads.thread("a").head
    assert (made, made.id, made.lsn, made.time, made.digest) == (again, again.id, again.lsn, again.time, again.digest)
    assert made.state == again.state
    assert made.parent == again.parent
    assert threads.thread("a").at(made.id) == made


def test_a_checkpoint_of_an_aborted_transaction_raises(threads):
    with pytest.raises(ZeroDivisionError), threads.transaction() as transaction:
        made = transaction.thread("a", schema=SCHEMA).commit({"log": ["x" * 100] * 50})
        _ = 1 / 0
    for look in (lambda: made.state, lambda: made.id, lambda: made.version, lambda: made.parent):
        with pytest.raises(UsageError, match="not committed"):
            look()


def test_an_ended_transaction_refuses_operations(threads):
    with threads.transaction() as transaction:
        thread = transaction.thread("a", schema=SCHEMA)
    for act in (lambda: transaction.thread("a"), lambda: thread.commit({"total": 1}), lambda: thread.rollback(0)):
        with pytest.raises(UsageError, match="ended"):
            act()
    assert thread.state["total"] == 1


def test_an_error_caught_in_a_transaction_refuses_only_that_commit(threads):
    with threads.transaction() as transaction:
        thread = transaction.thread("a", schema=SCHEMA)
        thread.commit({"total": 1})
        with pytest.raises(ReducerTypeError):
            thread.commit({"log": "x"}, {"total": "text"})
        thread.commit({"total": 1})
    assert threads.thread("a").state == {"total": 3, "log": ["start"]}


# --- concurrent writers -------------------------------------------------------------------


def test_concurrent_commits_are_merged(threads):
    with threads.transaction() as transaction:
        transaction.thread("a", schema=SCHEMA).commit({"total": 1})
        elsewhere(threads.thread("a").commit, {"total": 10, "log": "outside"})
        transaction.thread("a", schema=SCHEMA).commit({"log": "inside"})
    assert threads.thread("a").state == {"total": 12, "log": ["start", "outside", "inside"]}
    assert threads.thread("a").version == 3


def test_commits_of_others_do_not_confuse_the_reads_of_a_transaction(threads):
    with threads.transaction() as transaction:
        transaction.thread("a", schema=SCHEMA).commit({"total": 1})
        for number in range(5):
            elsewhere(threads.thread("b").commit, {"log": number})
            elsewhere(threads.thread("other").commit, {"n": list(range(100))})
        seen = transaction.thread("b", schema=SCHEMA).state
        assert seen["total"] == 1
        assert transaction.thread("a", schema=SCHEMA).state["total"] == 2
        transaction.thread("b", schema=SCHEMA).commit({"log": "inside"})
    assert threads.thread("b").state["log"] == ["start", 0, 1, 2, 3, 4, "inside"]


def test_an_expected_version_is_checked_at_the_end(threads):
    before = states(threads)
    with pytest.raises(ConflictError) as caught, threads.transaction() as transaction:
        transaction.thread("b", schema=SCHEMA).commit({"total": 5})
        transaction.thread("a", schema=SCHEMA).commit({"total": 1}, expected_version=0)
        elsewhere(threads.thread("a").commit, {"total": 100})
    assert (caught.value.thread, caught.value.expected_version, caught.value.actual_version) == ("a", 0, 1)
    assert states(threads)["b"] == before["b"]
    assert threads.thread("a").state["total"] == 101


def test_a_name_taken_by_others_in_the_meantime_refuses_the_transaction(threads):
    with pytest.raises(statelog.errors.AlreadyExistsError), threads.transaction() as transaction:
        transaction.thread("b", schema=SCHEMA).commit({"total": 5})
        transaction.thread("a", schema=SCHEMA).fork("branch")
        elsewhere(threads.thread("a").fork, "branch")
    assert threads.thread("b").state["total"] == 1


def test_transactions_of_many_os_threads_move_values_without_loss(store):
    with store.transaction() as transaction:
        for name in "abcd":
            transaction.thread(name, schema={"total": reducers.add}).commit({"total": 100})

    def move(number):
        source, target = "abcd"[number % 4], "abcd"[(number + 1) % 4]
        with store.transaction() as transaction:
            transaction.thread(source).commit({"total": -1})
            transaction.thread(target).commit({"total": 1})

    stop, sums = threading.Event(), set()

    def watch():
        while not stop.wait(0.001):
            with store._engine.read() as view:  # One moment.
                heads = [view.head_version(row.lsn, 0) for row in view.threads()]
            sums.add(sum(heads) % 2)

    with ThreadPoolExecutor(9) as pool:
        watcher = pool.submit(watch)
        try:
            list(pool.map(move, range(100)))
        finally:
            stop.set()
        watcher.result()
    assert sums == {0}, "half a transaction was seen"
    assert sum(store.thread(name).state["total"] for name in "abcd") == 400


def test_a_transaction_refused_by_storage_writes_nothing(threads):
    before = states(threads)

    def fail():
        raise OSError(28, "no space left")

    faults.arm("commit.before_lmdb_commit", action=fail)
    try:
        with pytest.raises(statelog.errors.StoreFullError), threads.transaction() as transaction:
            made = transaction.thread("a", schema=SCHEMA).commit({"total": 1})
            transaction.thread("b", schema=SCHEMA).commit({"total": 1})
    finally:
        faults.disarm()
    assert states(threads) == before
    with pytest.raises(UsageError):
        _ = made.id
    assert threads.thread("a").commit({"total": 1}).version == 1


def test_large_values_can_be_written_in_a_transaction(store):
    items = [{"id": number, "text": "x" * (number % 200)} for number in range(2000)]
    with store.transaction() as transaction:
        thread = transaction.thread("a", schema=SCHEMA)
        thread.commit({"items": items})
        thread.commit({"items": {"id": 1000, "text": "changed"}})
        thread.commit({"items": reducers.Remove(5)})
        assert thread.state["items"][999] == {"id": 1000, "text": "changed"}
        assert len(thread.state["items"]) == 1999
    items[1000] = {"id": 1000, "text": "changed"}
    del items[5]
    assert store.thread("a").state["items"] == items


def test_a_mount_in_a_transaction_belongs_to_it(threads):
    with pytest.raises(ZeroDivisionError), threads.transaction() as transaction:
        with transaction.thread("a", schema=SCHEMA).mount() as state:
            state["total"] = 50
        assert transaction.thread("a", schema=SCHEMA).state["total"] == 50
        _ = 1 / 0
    assert threads.thread("a").state["total"] == 1
    with threads.transaction() as transaction, transaction.thread("a", schema=SCHEMA).mount() as state:
        state["total"] = 50
    assert threads.thread("a").state["total"] == 50


def count_stagings(store, monkeypatch, beside=lambda: None):
    """Commit to two threads in a transaction, and call `beside`. Return how often the first commit was staged."""
    staged = []
    commit = writer.commit

    def counted(batch, thread_id, *arguments, **options):
        staged.append(thread_id)
        return commit(batch, thread_id, *arguments, **options)

    with monkeypatch.context() as patch, store.transaction() as tx:
        patch.setattr(writer, "commit", counted)
        first = tx.thread("a").commit({"x": ["y" * 100]}, id="z")
        state = first.state
        beside()
        assert state["x"] == ["y" * 100], "what was handed out before is read as it was"
        tx.thread("b").commit({"x": 2})
        assert tx.thread("a").state["x"] == ["y" * 100]
        tx.thread("b").tag("end")
        tx.thread("a").fork("line")
        staged_before = staged.count("a")
    assert store.thread("a").at("z") == first
    assert first.state["x"] == ["y" * 100]
    assert store.thread("b").at("end").state["x"] == 2
    store.thread("a", branch="line").commit({"x": 4})
    with pytest.raises(AlreadyExistsError):
        store.thread("a").commit({"x": 3}, id="z")
    assert store.verify().ok
    return staged_before


def test_undisturbed_operations_are_staged_once(store, monkeypatch):
    store.thread("a").commit({"x": 0}, id="first")
    assert count_stagings(store, monkeypatch) == 1


def test_disturbed_operations_are_staged_again(store, monkeypatch):
    store.thread("a").commit({"x": 0})
    assert count_stagings(store, monkeypatch, lambda: elsewhere(store.thread("c").commit, {"x": 1})) == 2


def test_a_concurrent_retention_is_not_undone(store, monkeypatch):
    """Retention changes records and index entries that a transaction has read, and appends nothing."""
    for number in range(40):
        store.thread("a").commit({"x": number})
    assert count_stagings(store, monkeypatch, lambda: elsewhere(store.prune, threads="a", keep_last=1)) == 2
    assert len(list(store.thread("a").history())) == 2


# --- writes outside a transaction -------------------------------------------------------------------


@pytest.mark.parametrize(
    "act",
    [
        lambda store: store.thread("a").commit({"total": 9}),
        lambda store: store.thread("a").edit(lambda state: state.update(x=9)),
        lambda store: store.thread("a").rollback(0),
        lambda store: store.thread("a").fork("branch"),
        lambda store: store.thread("a").tag("name"),
        lambda store: store.copy_thread("a", "copy"),
        lambda store: store.delete_thread("a"),
        lambda store: store.prune(keep_last=1),
        lambda store: store.expire([]),
        lambda store: store.transaction().__enter__(),
    ],
)
@pytest.mark.parametrize("is_aborted", [False, True])
def test_a_write_outside_an_open_transaction_is_refused(threads, act, is_aborted):
    """Aborting the transaction would not undo the write."""
    before, last = states(threads), threads.last_lsn
    with contextlib.suppress(ZeroDivisionError), threads.transaction() as tx:
        tx.thread("b").commit({"total": 5})
        with pytest.raises(UsageError, match="would not undo this write"):
            act(threads)
        assert threads.thread("a").state == before["a"]
        if is_aborted:
            raise ZeroDivisionError
    assert threads.last_lsn == last + (not is_aborted)
    assert threads.thread("a").commit({"log": "after"}).version == 1


def test_a_mount_outside_an_open_transaction_is_refused_at_its_end(threads):
    with threads.transaction() as tx:
        with pytest.raises(UsageError, match=r"tx\.thread"), threads.thread("a").mount() as state:
            state["total"] = 9
        with tx.thread("a").mount() as state:
            state["total"] = 10
    assert threads.thread("a").state["total"] == 10


def test_writes_to_another_store_or_handle_are_allowed_during_a_transaction(threads, tmp_path):
    with statelog.open(tmp_path / "other.state") as other, threads.transaction() as tx:
        tx.thread("b").commit({"total": 5})
        other.thread("a").commit({"x": 1})
    assert threads.thread("b").state["total"] == 6


def test_a_task_can_write_during_the_transaction_of_another_task(path):
    async def main():
        async with statelog.aio.open(path) as store:

            async def together():
                async with store.transaction() as tx:
                    await tx.thread("a").commit({"x": 1})
                    with pytest.raises(UsageError, match="would not undo this write"):
                        await store.thread("a").commit({"x": 2})
                    begun.set()
                    await done.wait()
                    late.append(asyncio.create_task(after()))
                await store.thread("a").commit({"x": 3})

            async def after():
                """A task that began inside the transaction and writes after its end."""
                await ended.wait()
                await store.thread("c").commit({"x": 5})

            begun, done, ended, late = asyncio.Event(), asyncio.Event(), asyncio.Event(), []
            task = asyncio.create_task(together())
            await begun.wait()
            await store.thread("b").commit({"x": 4})
            done.set()
            await task
            ended.set()
            await late[0]
            return [(await store.thread(name).state)["x"] for name in "abc"]

    assert asyncio.run(main()) == [3, 4, 5]


# --- deletions ----------------------------------------------------------------------------


def test_a_thread_is_deleted_with_all_else_or_not_at_all(store):
    store.thread("t").commit({"secret": "x" * 3000})
    store.thread("list").commit({"t": True})
    with pytest.raises(ArithmeticError), store.transaction() as tx:
        tx.delete_thread("t")
        tx.thread("list").commit({"t": False})
        assert tx.thread("t").version == -1
        raise ArithmeticError
    assert store.thread("t").state["secret"] == "x" * 3000
    with store.transaction() as tx:
        tx.delete_thread("t")
        tx.thread("list").commit({"t": False})
        with pytest.raises(ThreadDeletedError):
            tx.thread("t").commit({"secret": 1})
        with pytest.raises(ThreadDeletedError):
            tx.delete_thread("t")
        with pytest.raises(ThreadNotFoundError):
            tx.delete_thread("unknown")
    assert store.thread("t").version == -1
    assert store.thread("list").state == {"t": False}
    with pytest.raises(ThreadDeletedError):
        store.delete_thread("t")
    store.flush()
    assert store.verify().ok


def test_a_deleted_id_can_be_used_again_in_the_same_transaction(store):
    store.thread("t").commit({"n": 1})
    with store.transaction() as tx:
        tx.delete_thread("t")
        tx.thread("t", recreate=True).commit({"n": 2})
    assert store.thread("t").state == {"n": 2}
    assert store.thread("t").version == 0


def test_a_deletion_includes_concurrent_commits(store):
    store.thread("t").commit({"n": 1})
    with store.transaction() as tx:
        tx.delete_thread("t")
        tx.thread("a").commit({"n": 1})
        store_commit = threading.Thread(target=lambda: store.thread("t").commit({"n": 2}))
        store_commit.start()
        store_commit.join()
    assert store.thread("t").version == -1
    assert store.thread("a").state == {"n": 1}


def test_the_bytes_of_a_deleted_thread_are_erased_at_the_end(store):
    store.thread("t").commit({"secret": "the secret of it " * 300})
    with store.transaction() as tx:
        tx.delete_thread("t")
        tx.thread("a").commit({"n": 1})
    store.compact()
    assert b"the secret of it" not in store.path.read_bytes()


DELETING = """
import sys, statelog
with statelog.open(sys.argv[1]) as store, store.transaction() as tx:
    tx.delete_thread("t")
    tx.thread("list").commit({"t": False})
    tx.thread("u", recreate=True).commit({"n": 1})
"""


@pytest.mark.parametrize("point", [point for point in faults.POINTS if point.startswith("commit.")])
def test_a_kill_leaves_a_complete_transaction_with_its_deletion_or_none(path, point):
    with statelog.open(path) as store:
        store.thread("t").commit({"secret": "the secret of it " * 300})
        store.thread("list").commit({"t": True})
    environment = {**os.environ, "STATELOG_FAULT": f"{point}:1:kill"}
    forks.run([sys.executable, "-c", DELETING, str(path)], env=environment, check=False)
    with statelog.open(path) as store:
        assert store.verify().ok
        is_deleted = store.thread("t").version == -1
        assert store.thread("list").state == {"t": not is_deleted}
        assert store.thread("u").version == (0 if is_deleted else -1)
        if is_deleted:
            store.prune(keep_last=9)  # This erases the remains of the killed process.
            store.compact()
    assert is_deleted != (b"the secret of it" in path.read_bytes())


def test_a_task_can_delete_in_a_transaction(path):
    async def main():
        async with await statelog.aio.open(path) as store:
            await store.thread("t").commit({"n": 1})
            async with store.transaction() as tx:
                await tx.delete_thread("t")
            assert await store.thread("t").version() == -1

    asyncio.run(main())
