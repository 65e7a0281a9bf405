"""Deletion of a thread: it is gone, its bytes with it, and no late write brings it back."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import pytest

import statelog
from statelog import reducers
from statelog.errors import ThreadDeletedError, ThreadNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA = {"log": operator.add, "value": reducers.replace}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[statelog.Store]:
    with statelog.open(tmp_path / "a.state", durability="interval") as opened:
        yield opened
        assert opened.verify().problems == []


def fill(thread: statelog.Thread, count: int) -> None:
    for number in range(count):
        thread.commit({"log": [f"entry {number}"], "value": f"{number} " + "y" * 3000})


def test_deleted_thread_is_gone_and_late_writes_do_not_bring_it_back(store: statelog.Store) -> None:
    thread = store.thread("t", schema=SCHEMA)
    fill(thread, 10)
    thread.tag("here")
    thread.fork("side", update={"value": 1})
    late = store.thread("t", schema=SCHEMA)
    store.delete_thread("t")
    acts: list[Any] = [
        lambda: thread.commit({"value": 1}),
        lambda: late.commit({"value": 1}),
        lambda: store.thread("t").commit({"value": 1}),
        lambda: thread.rollback(0),
        lambda: thread.fork("again"),
        lambda: thread.tag("again"),
        lambda: thread.at(0),
        lambda: store.delete_thread("t"),
    ]
    for act in acts:
        with pytest.raises(ThreadDeletedError):
            act()
    assert thread.head is None
    assert not thread.state
    assert list(late.history()) == []
    assert list(store.threads()) == []


@pytest.mark.parametrize("update", [None, {"value": 1}])
def test_a_branch_goes_with_its_thread(store: statelog.Store, update: dict[str, Any] | None) -> None:
    """Also one that has no version of its own, and is known by its thread alone."""
    thread = store.thread("t", schema=SCHEMA)
    fill(thread, 3)
    branch = thread.fork("side", update=update)
    store.delete_thread("t")
    acts: list[Any] = [
        lambda: branch.commit({"value": 1}),
        lambda: branch.commit({"value": 1}, {"log": ["x"]}, id="again", expected_version=2),
        lambda: branch.edit(lambda state: state.update(value=2)),
        lambda: branch.rollback(0),
        lambda: branch.fork("again"),
        lambda: branch.tag("again"),
        lambda: branch.at(0),
    ]
    for act in acts:
        with pytest.raises(ThreadDeletedError):
            act()
    assert branch.head is None
    assert branch.version == -1
    assert not branch.state
    assert list(branch.history()) == []


def test_a_deletion_tells_how_many_versions_went(store: statelog.Store) -> None:
    thread = store.thread("t", schema=SCHEMA)
    fill(thread, 10)
    thread.fork("side", at=8, update={"value": 1})
    store.prune(keep_last=4)
    left = 4 + 1  # on main, one of them where the branch leaves it, and on the branch
    report = store.delete_thread("t")
    assert (report.threads, report.expired_versions, report.pending_records) == (1, left, 0)
    assert report.freed_bytes > 0


def test_deleting_an_unknown_thread_is_refused(store: statelog.Store) -> None:
    with pytest.raises(ThreadNotFoundError):
        store.delete_thread("nobody")


def test_deleted_after_retention_and_rebuild(store: statelog.Store) -> None:
    thread = store.thread("t", schema=SCHEMA)
    fill(thread, 30)
    store.prune(keep_last=2)
    store.delete_thread("t")
    store.rebuild_index()
    with pytest.raises(ThreadDeletedError):
        thread.commit({"value": 1})


def test_borrowed_nodes_outlive_their_owner(store: statelog.Store) -> None:
    blob = bytes(range(256)) * 400
    leaf = "q" * 9000
    store.thread("owner").commit({"blob": blob, "leaf": leaf})
    store.thread("other").commit({"copy": blob, "leaf": leaf})
    store.prune(keep_last=1)
    store.delete_thread("owner")
    store._engine.cache.clear()
    assert store.thread("other").state.to_python() == {"copy": blob, "leaf": leaf}


def test_nothing_of_a_deleted_thread_is_in_the_records_that_are_left(store: statelog.Store) -> None:
    thread = store.thread("secret-name", schema=SCHEMA)
    thread.commit({"value": "secret-value " + "v" * 5000, "log": ["secret-item"]}, metadata={"k": "secret-metadata"})
    thread.tag("secret-tag")
    store.delete_thread("secret-name")
    with store._engine.read() as view:
        for lsn in range(1, store.last_lsn + 1):
            record = view.transaction.get_log(lsn)
            assert record is not None
            assert b"secret" not in bytes(record)
