"""Another process deletes a thread in the middle of a call: the store is not called damaged, and care goes on."""

from contextlib import contextmanager
from itertools import count

import pytest
from meanwhile import deletions, interrupted_before_each_read

import statelog
from statelog.errors import NotFoundError, ThreadDeletedError

DELETIONS = deletions("a")
LONG = "x" * 5000

CARE = {
    "prune": lambda store, _held: store.prune(keep_last=1),
    "expire": lambda store, held: store.expire(held),
    "set_retention": lambda store, _held: store.set_retention(keep_last=2),
    "threads": lambda store, _held: list(store.threads()),
    "log": lambda store, _held: list(store.log()),
    "statistics": lambda store, _held: store.statistics(),
    "compact": lambda store, _held: store.compact(),
    "find_secrets": lambda store, _held: store.find_secrets(),
    "image": lambda store, _held: store.image(store.path.with_suffix(".image")),
}
"""Calls that concern the whole store."""

OF_THE_THREAD = {
    "history": lambda store, _held: list(store.thread("a", branch="g").history()),
    "branches": lambda store, _held: store.thread("a").branches(),
    "tags": lambda store, _held: store.thread("a").tags(),
    "tag": lambda store, _held: store.thread("a", branch="g").tag("new"),
    "at": lambda store, _held: store.thread("a", branch="g").at(2).state["m"][0],
    "copy_thread": lambda store, _held: store.copy_thread("a", "c"),
    "fork": lambda store, _held: store.thread("a", branch="f").fork("h"),
    "rollback": lambda store, _held: store.thread("a", branch="g").rollback(1),
    "branch": lambda _store, held: [each.branch for each in held],
    "parent": lambda _store, held: [each.parent for each in held],
    "ancestor": lambda _store, held: [each.ancestor(2) for each in held],
    "common_ancestor": lambda _store, held: [each.common_ancestor(held[0]) for each in held],
    "state": lambda _store, held: [dict(each.state) for each in held],
}
"""Calls that concern the thread that is deleted."""


def fill(store):
    for name in ("a", "b"):
        thread = store.thread(name)
        for number in range(5):
            thread.commit({"m": [LONG] * (number + 1), "n": number}, metadata={"n": number})
        branch = thread.fork("f", at=3)
        branch.commit({"k": 1})
        branch = branch.fork("g")
        branch.commit({"k": 2})
        branch.tag("here")
        thread.rollback(2)


@pytest.fixture
def prepared(tmp_path):
    numbers = count()

    @contextmanager
    def prepare():
        with statelog.open(tmp_path / f"{next(numbers)}.state", durability="interval") as store:
            fill(store)
            yield store, [*store.thread("a", branch="g").history(), *store.thread("a").history()]

    return prepare


@pytest.mark.parametrize("delete", DELETIONS.values(), ids=DELETIONS)
@pytest.mark.parametrize("act", CARE.values(), ids=CARE)
def test_care_of_the_store_does_not_mind(prepared, act, delete):
    assert set(interrupted_before_each_read(prepared, act, delete)) == {None}


@pytest.mark.parametrize("delete", DELETIONS.values(), ids=DELETIONS)
@pytest.mark.parametrize("act", OF_THE_THREAD.values(), ids=OF_THE_THREAD)
def test_a_call_finds_the_thread_or_says_that_it_is_gone(prepared, act, delete):
    for error in interrupted_before_each_read(prepared, act, delete):
        assert error is None or isinstance(error, NotFoundError), error


def test_a_checkpoint_of_a_deleted_thread_has_no_branch_and_no_ancestors(prepared):
    with prepared() as (store, held):
        store.delete_thread("a")
        with pytest.raises(ThreadDeletedError, match="thread 'a' was deleted"):
            _ = held[0].branch
        assert [each.parent or each.ancestor(1) for each in held] == [None] * len(held)
        assert "ThreadDeletedError" in repr(held[0])


def test_expiry_of_versions_of_an_earlier_thread_removes_nothing_of_the_new_one(prepared):
    with prepared() as (store, held):
        DELETIONS["re_create"](store)
        assert store.expire(held).expired_versions == 0
        assert dict(store.thread("a").head.state) == {"again": 1}


def test_the_harness_finds_what_is_raised(prepared):
    def act(store, _held):
        assert store.thread_ids() == ["a", "b"]

    errors = list(interrupted_before_each_read(prepared, act, DELETIONS["delete_only"]))
    assert [type(error) for error in errors] == [AssertionError, type(None)]
