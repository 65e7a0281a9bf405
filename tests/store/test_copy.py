"""Copies of threads: the same history under another id, complete whatever happens to the source."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import string
from typing import TYPE_CHECKING, Any

import pytest

import statelog
from statelog import aio, reducers
from statelog.errors import (
    AlreadyExistsError,
    CheckpointNotFoundError,
    StatelogError,
    StoreFullError,
    ThreadDeletedError,
    ThreadNotFoundError,
    UsageError,
)
from statelog.format import keys
from statelog.log.care import vacuum
from statelog.log.care.kept_versions import Policy
from statelog.log.care.retention import Collector
from statelog.log.view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SCHEMA = {"log": reducers.extend, "text": reducers.add, "n": reducers.add}


def text(seed: int, size: int) -> str:
    return "secret-" + "".join(random.Random(seed).choices(string.ascii_letters, k=size))


LONG = text(1, 60_000)


def is_in_file(path: Path, value: str) -> bool:
    data = path.read_bytes()
    return any(value[at : at + 12].encode() in data for at in range(0, len(value) - 12, max(len(value) // 40, 1)))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[statelog.Store]:
    with statelog.open(tmp_path / "a.state", durability="interval") as opened:
        yield opened
        assert opened.verify().problems == []
        opened.rebuild_index()
        assert opened.verify().problems == []


def fill(store: statelog.Store, name: str, count: int, size: int = 900) -> statelog.Thread:
    thread = store.thread(name, schema=SCHEMA)
    for number in range(count):
        thread.commit({"log": [text(number, size)], "n": 1}, metadata={"step": number}, id=f"step {number}")
    return thread


def described(thread: statelog.Thread) -> list[Any]:
    """Return all facts of a thread that a copy must also have."""
    lines = []
    for branch in thread.branches():
        for each in thread.checkout(branch.name).history():
            parent = each.parent
            lines.append(
                [
                    branch,
                    (each.branch, each.version, each.kind, each.metadata, each.channels_written, each.state_digest),
                    None if "~" in each.id else each.id,
                    None if parent is None else (parent.branch, parent.version),
                    each.state.to_python(),
                ]
            )
    return [lines, {name: (each.branch, each.version) for name, each in thread.tags().items()}]


def loans(store: statelog.Store) -> int:
    with store._engine.read() as view:
        return sum(1 for _entry in view.transaction.scan_index(b"l"))


def nodes_of(store: statelog.Store, after: int) -> int:
    with store._engine.read() as view:
        return sum(view.record(lsn).node_count for lsn in range(after + 1, view.transaction.last_lsn() + 1))


@pytest.fixture
def branched(store: statelog.Store) -> statelog.Thread:
    thread = fill(store, "a", 40)
    thread.tag("good", 7)
    thread.rollback(5, metadata={"why": "try again"})
    side = thread.fork("side", at=3, update={"n": 100})
    side.fork("further", update={"text": LONG})
    thread.rollback("step 30")
    side.tag("on side")
    thread.rollback("on side")
    return thread


# --- properties of copies -----------------------------------------------------------------


def test_a_copy_has_everything_that_its_source_has(store: statelog.Store, branched: statelog.Thread) -> None:
    copied = store.copy_thread("a", "b")
    assert copied.id == "b"
    assert described(copied) == described(branched)
    assert next(info for info in store.threads() if info.id == "b").channels == {
        "log": "extend",
        "n": "add",
        "text": "add",
    }
    copied.commit({"n": 1})  # With the reducers of the source.
    assert copied.state["n"] == branched.state["n"] + 1
    assert copied.head.ancestor(3) is not None


@pytest.mark.parametrize("keep_last", [1, 3])
def test_a_copy_has_only_versions_that_retention_has_kept(
    store: statelog.Store, branched: statelog.Thread, keep_last: int
) -> None:
    store.prune(keep_last=keep_last, threads="a")
    before = described(branched)
    copied = store.copy_thread("a", "b")
    assert described(copied) == before
    with pytest.raises(CheckpointNotFoundError):
        copied.at(10)
    copied.rollback("good")
    store.delete_thread("a")
    store.compact()
    assert described(store.copy_thread("b", "c"))[1] == before[1]


@pytest.mark.slow
def test_copies_can_be_copied(store: statelog.Store, branched: statelog.Thread) -> None:
    expected = described(branched)
    for source, target in itertools.pairwise("abcd"):
        assert described(store.copy_thread(source, target)) == expected
        store.delete_thread(source)
        store.compact()
        assert store.verify().problems == []
    assert described(store.thread("d")) == expected


def test_a_copy_gets_the_policy_of_a_new_thread(store: statelog.Store) -> None:
    fill(store, "a", 3)
    store.set_retention(keep_last=5, threads="b*")
    store.copy_thread("a", "b")
    assert {info.id: info.policy.get("keep_last") for info in store.threads()} == {"a": None, "b": 5}


@pytest.mark.slow
def test_a_copy_is_one_commit_of_small_records_without_nodes(store: statelog.Store) -> None:
    fill(store, "a", 1000, 5000)
    store.compact()
    last, size = store.last_lsn, store.path.stat().st_size
    number = store._engine.store_file.last_transaction_id()
    store.copy_thread("a", "b")
    assert store._engine.store_file.last_transaction_id() == number + 1
    made = list(store.log(after=last))
    assert [record.continues for record in made] == [True] * (len(made) - 1) + [False]
    assert nodes_of(store, last) == 0
    assert sum(record.size_bytes for record in made) < 300 * 1000
    store.compact()
    assert store.path.stat().st_size - size < 400 * 1000  # With the index: 1,000 ids, and 32 version pages.


# --- refusals ----------------------------------------------------------------


def test_invalid_copies_are_refused(store: statelog.Store, refused: Any) -> None:
    for name in ("a", "b", "dead"):
        fill(store, name, 2)
    store.delete_thread("dead")
    cases: list[tuple[str, str, type[StatelogError], dict[str, Any]]] = [
        ("none", "new", ThreadNotFoundError, {"thread": "none"}),
        ("dead", "new", ThreadDeletedError, {"thread": "dead"}),
        ("a", "b", AlreadyExistsError, {"thread": "b", "name": "b"}),
        ("a", "a", AlreadyExistsError, {"thread": "a", "name": "a"}),
        ("a", "dead", ThreadDeletedError, {"thread": "dead"}),
    ]
    for source, target, kind, facts in cases:
        with refused(store, kind, **facts):
            store.copy_thread(source, target)
        with refused(store, kind, **facts), store.transaction() as transaction:
            transaction.thread("a").commit({"n": 1})
            transaction.copy_thread(source, target)
    for bad in ("", "x" * 401, None, 7):
        for pair in ((bad, "new"), ("a", bad)):
            with pytest.raises(StatelogError):
                store.copy_thread(*pair)  # type: ignore[arg-type]
    assert loans(store) == 0


@pytest.mark.slow
def test_a_copy_that_does_not_fit_is_refused_completely(tmp_path: Path) -> None:
    path = tmp_path / "small.state"
    with statelog.open(path, durability="interval", max_size_bytes=1 << 20) as store:
        fill(store, "a", 450, 200)
        before = described(store.thread("a"))
        copies = 0
        with contextlib.suppress(StoreFullError):
            for copies in range(1000):
                store.copy_thread("a", f"copy {copies}")
        assert 0 < copies < 999
        assert [info.id for info in store.threads()] == ["a", *(f"copy {number}" for number in range(copies))]
        assert store.verify().problems == []
        for number in range(copies):
            store.delete_thread(f"copy {number}")
        assert loans(store) == 0
        assert described(store.copy_thread("a", "last")) == before
        assert store.verify().problems == []


# --- transactions -------------------------------------------------------------------


def test_a_transaction_copies_a_thread_that_it_has_created(store: statelog.Store) -> None:
    fill(store, "a", 3)
    with store.transaction() as transaction:
        transaction.thread("a").commit({"n": 10, "text": LONG})
        copied = transaction.copy_thread("a", "b")
        assert copied.state["n"] == 13
        copied.commit({"n": 100, "text": "more"})
        transaction.thread("new").commit({"n": 1})
        transaction.copy_thread("new", "newer").fork("side", update={"n": 5})
        transaction.copy_thread("newer", "newest")
        assert store.thread("b").head is None
    assert (store.thread("a").state["n"], store.thread("b").state["n"]) == (13, 113)
    assert store.thread("b").state["text"] == LONG + "more"
    assert store.thread("newest", branch="side").state["n"] == 5
    store.delete_thread("a")
    store.compact()
    assert store.thread("b").at(3).state["text"] == LONG


def test_a_failed_transaction_copies_nothing(store: statelog.Store) -> None:
    fill(store, "a", 3)
    last = store.last_lsn
    with contextlib.suppress(UsageError), store.transaction() as transaction:
        transaction.copy_thread("a", "b")
        raise UsageError("as if")
    assert (store.last_lsn, store.thread("b").head) == (last, None)


def test_asyncio_can_copy_threads(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.open(tmp_path / "a.state") as store:
            await store.thread("a").commit({"n": 1})
            copied = await store.copy_thread("a", "b")
            await copied.commit({"n": 2})
            async with store.transaction() as transaction:
                again = await transaction.copy_thread("b", "c")
                await again.commit({"n": 3})
            assert [await store.thread(name).state["n"] for name in "abc"] == [1, 2, 3]

    asyncio.run(main())


# --- independence of source and copy ------------------------------------------------------------


ACTS: dict[str, Callable[[statelog.Store], object]] = {
    "source forgets": lambda store: store.prune(keep_last=1, threads="a"),
    "copy forgets": lambda store: store.prune(keep_last=1, threads="b"),
    "source goes": lambda store: store.delete_thread("a"),
    "copy goes": lambda store: store.delete_thread("b"),
    "compact": lambda store: store.compact(),
}


@pytest.mark.slow
@pytest.mark.parametrize("order", list(itertools.permutations(ACTS)), ids="-".join)
def test_kept_parts_are_complete_and_removed_parts_are_erased_in_any_order(
    store: statelog.Store, order: tuple[str, ...]
) -> None:
    thread = store.thread("a", schema=SCHEMA)
    for number in range(6):
        thread.commit({"log": [text(number, 900)], "text": LONG if number == 2 else "x", "n": 1})
    copied = store.copy_thread("a", "b")
    for number in range(3):
        thread.commit({"log": [text(10 + number, 900)], "text": "source"})
        copied.commit({"log": [text(20 + number, 900)], "text": "copy"})
    states = {each.id: [(it.version, it.state.to_python()) for it in each.history()] for each in (thread, copied)}
    for act in order:
        ACTS[act](store)
        for name, was in {"a": "source", "b": "copy"}.items():
            done = order[: order.index(act) + 1]
            if f"{was} goes" in done:
                continue
            expected = states[name][:1] if f"{was} forgets" in done else states[name]
            assert [(it.version, it.state.to_python()) for it in store.thread(name).history()] == expected
        assert store.verify().problems == []
    store.compact()
    for value in (LONG, *(text(number, 900) for number in (*range(6), 10, 11, 12, 20, 21, 22))):
        assert not is_in_file(store.path, value)


def test_negative_control_without_its_copy_reference_a_copy_loses_nodes(
    store: statelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control."""
    fill(store, "a", 5)
    copied = store.copy_thread("a", "b")
    fork = store.copy_thread("a", "c")
    with monkeypatch.context() as patched:
        patched.setattr(View, "lent_below", lambda _view, _thread: 0)
        store.delete_thread("a")
    assert [problem.invariant for problem in store.verify().problems][:1] == ["T5"]
    for thread in (copied, fork):
        store.delete_thread(thread.id)
    store.compact()


def test_running_retention_respects_a_concurrent_copy(store: statelog.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """V1: the nodes that retention has marked before do not include those of the copy."""
    monkeypatch.setattr(vacuum, "RECORDS_PER_TRANSACTION_MAX", 2)
    thread = fill(store, "a", 30)
    with store._engine.read() as view:
        collector = Collector(store._engine, view.thread_lsn("a") or 0, Policy(keep_last=1))
    collector.start()
    expected = described(thread)
    copied = store.copy_thread("a", "b")
    assert collector.expire_all().expired_versions == 29
    assert described(copied) == expected


# --- released copy references ----------------------------------------------------------


@pytest.mark.slow
def test_a_deleted_copy_releases_its_nodes(store: statelog.Store) -> None:
    thread = fill(store, "a", 10)
    for number in range(5):
        store.copy_thread("a", f"try {number}").commit({"n": 1, "log": ["one more"], "text": LONG})
        assert loans(store) == 1
        store.delete_thread(f"try {number}")
        assert loans(store) == 0
    thread.commit({"log": reducers.Overwrite([])})
    assert store.prune(keep_last=1, threads="a").vacuumed_nodes >= 10
    assert not is_in_file_after_compaction(store, text(0, 900))


def test_a_copy_of_a_partly_expired_thread_also_releases_its_nodes(store: statelog.Store) -> None:
    fill(store, "a", 10)
    store.prune(keep_last=3)
    store.copy_thread("a", "b").commit({"n": 1})
    store.delete_thread("b")
    assert loans(store) == 0


def is_in_file_after_compaction(store: statelog.Store, value: str) -> bool:
    store.compact()
    return is_in_file(store.path, value)


def test_deleting_the_last_copy_removes_the_remains_of_a_deleted_source(store: statelog.Store) -> None:
    fill(store, "a", 10)
    store.copy_thread("a", "b")
    store.copy_thread("a", "c")
    assert store.delete_thread("a").vacuumed_nodes == 0
    assert store.delete_thread("b").vacuumed_nodes == 0
    assert store.delete_thread("c").vacuumed_nodes > 10
    with store._engine.read() as view:
        assert next(view.transaction.scan_index(b"r"), None) is None


def test_a_copied_copy_keeps_its_copy_reference(store: statelog.Store) -> None:
    thread = fill(store, "a", 10)
    store.copy_thread("a", "b")
    expected = described(store.copy_thread("b", "c"))
    store.delete_thread("b")
    thread.commit({"log": reducers.Overwrite([])})
    store.prune(keep_last=1, threads="a")
    assert described(store.thread("c")) == expected
    store.delete_thread("a")
    store.compact()
    assert described(store.thread("c")) == expected


@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize("compacts", [False, True])
def test_a_string_shared_with_a_copy_keeps_its_copy_reference(
    store: statelog.Store, *, forgets: bool, compacts: bool
) -> None:
    """The string begins with borrowed pieces.

    A longer string uses them even after the string and the copy are deleted.
    """
    store.thread("a", schema=SCHEMA).commit({"text": LONG})
    copied = store.copy_thread("a", "b")
    copied.commit({"text": "and more"})
    other = store.thread("other", schema=SCHEMA)
    other.commit({"text": LONG + "and more"})
    with store._engine.read() as view:
        notes = view.transaction.scan_index(keys.encode_borrowed_prefix(view.thread_lsn("b") or 0))
        assert next(notes, None) is not None, "the string was found in the copy"
    other.commit({"text": " and more"})
    store.prune(keep_last=1, threads="other")
    if forgets:
        copied.commit({"text": reducers.Overwrite("short")})
        store.prune(keep_last=1, threads="b")
    if compacts:
        store.compact()
    store.delete_thread("b")
    store.compact()
    store.thread("a").commit({"text": reducers.Overwrite("short")})
    store.prune(keep_last=1, threads="a")
    assert other.state["text"] == LONG + "and more and more"
    store.delete_thread("a")
    store.compact()
    assert store.verify().problems == []
    assert other.state["text"] == LONG + "and more and more"
    store.delete_thread("other")
    assert not is_in_file_after_compaction(store, LONG)


def test_metadata_that_names_the_thread_names_the_copy(store: statelog.Store) -> None:
    source = store.thread("source")
    for metadata in ({"thread_id": "source", "x": 1}, {"thread_id": "other"}, {"x": {"thread_id": "source"}}, None):
        source.commit({"n": 1}, metadata=metadata)
    copy = store.copy_thread("source", "copy")
    assert [checkpoint.metadata for checkpoint in copy.history()][::-1] == [
        {"thread_id": "copy", "x": 1},
        {"thread_id": "other"},
        {"x": {"thread_id": "source"}},
        {},
    ]
    again = store.copy_thread("copy", "again")
    assert again.at(0).metadata["thread_id"] == "again"
    assert source.at(0).metadata["thread_id"] == "source"
    store.rebuild_index()
    assert store.verify().ok


@pytest.mark.parametrize("how", ["expire", "policy"])
def test_a_source_is_usable_although_the_deletion_of_its_copy_was_interrupted(store, monkeypatch, how):
    """The rest of the copy, which is still to be erased, has no effect any more (T5)."""
    thread = store.thread("source")
    store.set_retention(keep_last=1, threads="source")
    for number in range(5):
        thread.commit({"x": f"{number} " * 50, "l": [f"{each} " * 40 for each in range(number)]})
    store.copy_thread("source", "copy")

    def cut(_work):
        raise RuntimeError

    monkeypatch.setattr(store._engine, "care", cut)
    with pytest.raises(RuntimeError):
        store.delete_thread("copy")
    monkeypatch.undo()
    if how == "expire":
        store.expire([checkpoint for checkpoint in thread.history() if checkpoint.version < 3])
    else:
        for number in range(64):
            thread.commit({"x": number, "l": []})
    assert store.verify().problems == []
    store.prune()
    assert store.verify().problems == []


def test_a_copy_re_creates_a_deleted_id_if_allowed(store: statelog.Store) -> None:
    store.thread("t").commit({"value": 1})
    store.thread("copy").commit({"value": 2})
    store.delete_thread("copy")
    with pytest.raises(ThreadDeletedError):
        store.copy_thread("t", "copy")
    assert store.copy_thread("t", "copy", recreate=True).state == {"value": 1}
    with pytest.raises(AlreadyExistsError):
        store.copy_thread("t", "copy", recreate=True)
