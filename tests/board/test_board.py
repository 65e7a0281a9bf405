"""The board beyond its model: bad input, several processes, maintenance and copies."""

from __future__ import annotations

import asyncio
import io
import sys
import time
from datetime import UTC, datetime, timedelta

import forks
import pytest

import statelog
from statelog import aio, reducers
from statelog.errors import (
    AlreadyExistsError,
    ConflictError,
    LimitError,
    ReducerTypeError,
    ThreadDeletedError,
    UsageError,
    ValueTypeError,
)

LARGE = {f"file {number}": f"line {number}\n" * 500 for number in range(12)}


@pytest.fixture
def store(tmp_path):
    with statelog.open(tmp_path / "a.state", durability="interval") as store:
        yield store
        assert store.closed or store.verify().problems == []


BAD_KEYS = [
    "",
    "/",
    "a//b",
    "a/",
    "/a",
    ".",
    "a/..",
    "a/./b",
    "a*",
    "a?",
    "[a]",
    "a\\b",
    "e\u0301",
    "\ud800",
    3,
]


@pytest.mark.parametrize("key", BAD_KEYS, ids=repr)
def test_invalid_keys_are_refused(store, key):
    before = store.last_lsn
    for call in (
        lambda board: board.get(key),
        lambda board: board.history(key),
        lambda board: board.set(key, 1),
        lambda board: board.create(key, 1),
        lambda board: board.cas(key, 1, expected_version=0),
        lambda board: board.update(key, reducers.add, 1),
        lambda board: board.delete(key),
    ):
        with pytest.raises(UsageError) as caught:
            call(store.board())
        assert caught.value.facts["value"] == key
    assert store.last_lsn == before


@pytest.mark.parametrize("pattern", ["", "a//b", "a**", "**b/c", "[a]", "a\\", "..", "x/", 3], ids=repr)
def test_invalid_patterns_are_refused(store, pattern):
    with pytest.raises(UsageError):
        store.board().list(pattern)


def test_other_bad_input_is_refused_with_its_facts_and_writes_nothing(store):
    board = store.board()
    board.set("text", "x")
    before = store.last_lsn
    for error, call in (
        (LimitError, lambda: board.set("k" * 401, 1)),
        (LimitError, lambda: board.list("k" * 401)),
        (ValueTypeError, lambda: board.set("a", object())),
        (ValueTypeError, lambda: board.set("a", {"deep": [object()]})),
        (UsageError, lambda: board.set("a", 1, ttl_s=0)),
        (UsageError, lambda: board.set("a", 1, ttl_s=-1)),
        (UsageError, lambda: board.set("a", 1, ttl_s=float("nan"))),
        (UsageError, lambda: board.set("a", 1, ttl_s="1")),
        (UsageError, lambda: board.set("a", 1, ttl_s=True)),
        (UsageError, lambda: board.cas("a", 1, expected_version=-1)),
        (UsageError, lambda: board.cas("a", 1, expected_version=True)),
        (ConflictError, lambda: board.cas("a", 1, expected_version=3)),
        (ConflictError, lambda: board.cas("text", 1, expected_version=0)),
        (ConflictError, lambda: board.delete("text", expected_version=1)),
        (AlreadyExistsError, lambda: board.create("text", 1)),
        (ReducerTypeError, lambda: board.update("text", reducers.add, 1)),
        (UsageError, lambda: board.update("text", 3, 1)),
        (ZeroDivisionError, lambda: board.update("text", lambda _old, _new: 1 / 0, 1)),
        (UsageError, lambda: board.rollback("", to=before + 1)),
        (UsageError, lambda: board.rollback("", to=-1)),
        (UsageError, lambda: board.rollback("a*", to=1)),
        (UsageError, lambda: board.get("a", at=before + 1)),
        (UsageError, lambda: board.list(limit=-1)),
        (UsageError, lambda: board.list(after="a/")),
        (UsageError, lambda: board.history("a", limit="x")),
        (UsageError, lambda: board.children("tasks")),
        (UsageError, lambda: store.board(agent="")),
        (UsageError, lambda: store.board(agent=3)),
        (UsageError, lambda: store.thread("statelog:board")),
        (UsageError, lambda: store.copy_thread("statelog:board", "x")),
    ):
        with pytest.raises(error):
            call()
    assert store.last_lsn == before


def test_reading_does_not_create_a_board(store):
    board = store.board()
    assert (board.get("a"), board.list(), board.children(), board.history("a")) == (None, [], [], [])
    assert (board.delete("a"), board.sweep(), board.rollback("", to=0)) == (False, 0, [])
    assert store.last_lsn == 0


def test_a_read_only_store_and_a_snapshot_refuse_writes(store):
    store.board().set("a", 1)
    with store.snapshot() as snapshot, pytest.raises(UsageError, match="read-only"):
        snapshot.board().set("a", 2)
    store.close()
    with statelog.open(store.path, read_only=True) as reader:
        assert reader.board().get("a").value == 1
        with pytest.raises(statelog.errors.StatelogError, match="read"):
            reader.board().set("a", 2)


def test_a_write_outside_an_open_transaction_is_refused(store):
    with pytest.raises(UsageError, match="tx"), store.transaction():
        store.board().set("a", 1)
    assert store.board().get("a") is None


def test_get_at_returns_the_entry_at_that_time(store):
    board = store.board()
    first = board.set("a", 1)
    time.sleep(0.01)
    second = board.set("a", 2)
    assert board.get("a", at=second.time).value == 2
    assert board.get("a", at=second.time - timedelta(microseconds=1)) == first
    assert board.get("a", at=first.time - timedelta(microseconds=1)) is None
    assert board.get("a", at=datetime.now(UTC)) == second


def test_an_entry_expires_for_reads_at_once_and_in_the_log_with_a_later_write(store):
    board = store.board(agent="me")
    kept = board.set("tasks/b", 2, ttl_s=60)
    assert board.update("tasks/b", reducers.add, 1).expires == kept.expires
    board.set("tasks/a", 1, ttl_s=0.03)
    time.sleep(0.04)
    assert board.get("tasks/a") is None
    assert [entry.key for entry in board.list()] == ["tasks/b"]
    assert board.children() == ["tasks/"]
    assert [entry.kind for entry in board.history("tasks/a")] == ["set"]
    board.set("other", 1)
    assert [(entry.kind, entry.agent) for entry in board.history("tasks/a")] == [("expire", None), ("set", "me")]
    assert board.create("tasks/a", 2).value == 2


@pytest.mark.slow
def test_a_sweep_records_every_expiry(store):
    board = store.board()
    with store.transaction() as tx:
        for number in range(150):
            tx.board().set(f"a/{number}", number, ttl_s=1)
    time.sleep(1.01)
    assert board.list() == []
    assert board.sweep() == 150
    assert board.sweep() == 0


ADD = """
import sys, statelog
from statelog import reducers
with statelog.open(sys.argv[1], lock_timeout_s=30) as store:
    board = store.board(agent=sys.argv[2])
    for number in range(100):
        board.update("total", reducers.add, 1)
        while True:
            held = board.get("cas")
            try:
                board.cas("cas", (held.value if held else 0) + 1, expected_version=held.version if held else 0)
                break
            except statelog.errors.ConflictError:
                pass
        try:
            board.create(f"once/{number}", sys.argv[2])
        except statelog.errors.AlreadyExistsError:
            pass
"""


@pytest.mark.slow
def test_concurrent_processes_lose_no_write_and_one_create_wins(store):
    children = [forks.Popen([sys.executable, "-c", ADD, str(store.path), f"p{n}"]) for n in range(3)]
    assert [child.wait(300) for child in children] == [0, 0, 0]
    board = store.board()
    assert (board.get("total").value, board.get("cas").value) == (300, 300)
    once = board.list("once/*")
    assert len(once) == 100
    assert all(entry.value == entry.agent and len(board.history(entry.key)) == 1 for entry in once)


def _fill(store):
    board = store.board(agent="filler")
    for number in range(30):
        board.set(f"tasks/{number % 5}/{number}", {"n": number, "text": LARGE})
    board.set("large", LARGE)
    board.delete("tasks/0/0")
    board.update("total", reducers.add, 1)
    board.set("soon", 1, ttl_s=1e6)


def _told(store):
    board = store.board()
    return {entry.key: [entry, *map(_without_version, board.history(entry.key))] for entry in board.list()}


def _without_version(entry):
    return (entry.value, entry.kind, entry.agent, entry.time, entry.created, entry.expires)


def test_maintenance_keeps_the_whole_board(store):
    _fill(store)
    store.thread("t").commit({"text": LARGE["file 1"] * 3})
    told = _told(store)
    store.prune(keep_last=1)
    store.compact()
    assert _told(store) == told
    store.rebuild_index()
    assert _told(store) == told
    assert [info.id for info in store.threads()] == ["t"]
    store.board().set("large", "small now")
    assert store.board().history("large")[1].value == LARGE


@pytest.mark.slow
@pytest.mark.parametrize("threads", [None, ["statelog:board", "t"]])
def test_a_board_can_be_exported_to_another_store(store, tmp_path, threads):
    _fill(store)
    store.thread("t").commit({"n": 1})
    exported = io.BytesIO()
    store.export(exported, threads=threads)
    exported.seek(0)
    with statelog.open(tmp_path / "b.state") as other:
        if threads is not None:
            other.thread("before").commit({"n": 0})
        other.import_(exported)
        old, new = _told(store), _told(other)
        assert {key: each[1:] for key, each in new.items()} == {key: each[1:] for key, each in old.items()}
        assert other.verify().problems == []
        other.board().set("large", "goes on")
        other.board().rollback("", to=other.last_lsn - 1)
        assert other.board().get("large").value == LARGE


def test_a_deleted_board_leaves_nothing_and_can_be_created_again(store):
    _fill(store)
    store.delete_thread("statelog:board")
    assert store.board().list() == []
    store.compact()
    assert b"line 7" not in store.path.read_bytes()
    store.board().set("a", 1)
    assert [entry.key for entry in store.board().list()] == ["a"]


def test_the_async_board_has_the_same_calls(tmp_path):
    async def main():
        async with aio.open(tmp_path / "a.state") as store:
            board = store.board(agent="loop")
            await asyncio.gather(*[board.update("n", reducers.add, 1) for _ in range(20)])
            made = await board.create("a/b", 1, ttl_s=60)
            await board.cas("a/b", 2, expected_version=made.version)
            async with store.transaction() as tx:
                await tx.board().set("a/c", 3)
            assert [entry.value for entry in await board.list("a/*")] == [2, 3]
            assert await board.children("a/") == ["a/b", "a/c"]
            assert [entry.value for entry in await board.history("a/b", 1)] == [2]
            assert await board.delete("a/c")
            assert await board.rollback("a/", to=made.version) == ["a/b"]
            assert await board.sweep() == 0
            return (await board.get("n")).value, (await board.get("a/b")).value

    assert asyncio.run(main()) == (20, 1)


@pytest.mark.slow
def test_a_transaction_with_a_write_to_a_deleted_thread_writes_no_entry_either(store):
    store.thread("t").commit({"n": 1})

    def together():
        with store.transaction() as tx:
            tx.board().set("a", 1)
            _delete_elsewhere(store.path)
            tx.thread("t").commit({"n": 2})

    with pytest.raises(ThreadDeletedError):
        together()
    assert store.board().get("a") is None


def _delete_elsewhere(path):
    code = "import sys, statelog\nwith statelog.open(sys.argv[1]) as store: store.delete_thread('t')"
    forks.run([sys.executable, "-c", code, str(path)], check=True, timeout=600)
