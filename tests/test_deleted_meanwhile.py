"""Another process deletes a thread in the middle of a call: the store is not called damaged, and care goes on."""

import io
from contextlib import nullcontext

import pytest
from click.testing import CliRunner
from meanwhile import deletions, interrupted_before_each_read, preparing, removals

import statelog
from statelog.cli import main, tree
from statelog.errors import ExpiredError, NotFoundError, ThreadDeletedError
from statelog.store.session import session_of

DELETIONS = deletions("a")
REMOVALS = removals("a")
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
    "quarantined": lambda store, _held: store.quarantined(),
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
    return store, [*store.thread("a", branch="g").history(), *store.thread("a").history()]


@pytest.fixture
def prepared(tmp_path):
    return preparing(tmp_path, fill)


@pytest.mark.slow
@pytest.mark.parametrize("delete", DELETIONS.values(), ids=DELETIONS)
@pytest.mark.parametrize("act", CARE.values(), ids=CARE)
def test_care_of_the_store_does_not_mind(prepared, act, delete):
    assert set(interrupted_before_each_read(prepared, act, delete)) == {None}


@pytest.mark.slow
@pytest.mark.parametrize("delete", DELETIONS.values(), ids=DELETIONS)
@pytest.mark.parametrize("act", OF_THE_THREAD.values(), ids=OF_THE_THREAD)
def test_a_call_finds_the_thread_or_says_that_it_is_gone(prepared, act, delete):
    for error in interrupted_before_each_read(prepared, act, delete):
        assert error is None or isinstance(error, NotFoundError), error


@pytest.fixture
def small(tmp_path):
    """Prepare two threads with three versions each. A prune removes the list of a version that it does not keep."""

    def fill_small(store):
        for name in ("a", "b"):
            thread = store.thread(name)
            for number in range(3):
                thread.commit({"m": [f"{LONG}{name}{number}{each}" for each in range(number + 2)]})
            thread.fork("f", at=1)
        session_of(store).engine.cache.clear()
        return store, [*store.thread("a").history()]

    return preparing(tmp_path, fill_small)


@pytest.mark.parametrize("remove", REMOVALS.values(), ids=REMOVALS)
def test_the_list_of_quarantined_values_skips_removed_versions(small, remove):
    assert set(interrupted_before_each_read(small, CARE["quarantined"], remove)) == {None}


@pytest.mark.parametrize("remove", REMOVALS.values(), ids=REMOVALS)
def test_the_size_of_a_removed_state_raises_expired_error(small, remove):
    def act(_store, held):
        assert [each.state_size_bytes > 0 for each in held] == [True] * 3

    for error in interrupted_before_each_read(small, act, remove):
        assert error is None or isinstance(error, ExpiredError), error


@pytest.mark.slow
@pytest.mark.parametrize("remove", REMOVALS.values(), ids=REMOVALS)
def test_an_export_of_a_thread_leaves_out_removed_versions(small, remove):
    def act(store, _held):
        exported = io.BytesIO()
        store.export(exported, threads=["a", "b"])
        exported.seek(0)
        path = store.path.with_suffix(".imported")
        with statelog.open(path, durability="interval") as imported:
            imported.import_(exported)
            assert imported.verify(deep=True).ok
            assert imported.thread("b").state["m"][2][:-1].endswith("xb2")

    for error in interrupted_before_each_read(small, act, remove, every=3):
        assert error is None or isinstance(error, ThreadDeletedError), error


@pytest.mark.parametrize("delete", DELETIONS.values(), ids=DELETIONS)
@pytest.mark.parametrize("arguments", [(), ("a",), ("--json",)], ids=["all", "one", "json"])
def test_a_tree_is_drawn_of_one_moment(prepared, delete, arguments, monkeypatch):
    def act(store, _held):
        monkeypatch.setattr(tree, "open_for_reading", lambda _path: nullcontext(store))
        answer = CliRunner().invoke(main, ["tree", str(store.path), *arguments])
        assert answer.exit_code == 0 or ("was deleted" in answer.stderr and "a" in arguments), answer.stderr

    assert set(interrupted_before_each_read(prepared, act, delete)) == {None}


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
