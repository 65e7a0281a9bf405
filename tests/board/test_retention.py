"""Retention of the board: removed data is gone from the file, and the rest stays."""

import time

import pytest

import statelog
from statelog.board.names import compile_pattern
from statelog.board.reads import board_of
from statelog.board.retention import RetentionRule, choose
from statelog.errors import ExpiredError, LimitError, UsageError
from statelog.log.kinds.entries import records_of
from statelog.store import board_policies

SECRET = "the secret text " * 400


def versions(board, key):
    return [entry.value for entry in board.history(key)]


def check(store):
    assert store.verify().problems == []
    before = [(entry.key, entry.value, entry.version) for entry in store.board().list()]
    store.rebuild_index()
    assert [(entry.key, entry.value, entry.version) for entry in store.board().list()] == before
    assert store.verify().problems == []


def test_the_last_records_of_each_key_stay(store):
    board = store.board()
    for number in range(10):
        board.set("t/a", number)
        board.set("t/b", number)
        board.set("other", number)
    report = board.prune("t/*", keep_last=3)
    assert report.expired_versions == 14
    assert versions(board, "t/a") == versions(board, "t/b") == [9, 8, 7]
    assert len(versions(board, "other")) == 10
    check(store)


def test_young_objects_stay(store):
    board = store.board()
    board.set("t", 1)
    board.set("t", 2)
    assert board.prune("t", max_age=60).expired_versions == 0
    time.sleep(0.01)
    board.prune("t", max_age=0.005)
    assert versions(board, "t") == [2]
    check(store)


def test_a_deleted_key_is_removed_completely_when_it_is_old_enough(store):
    board = store.board()
    board.set("t", 1)
    board.set("t", 2)
    board.delete("t")
    board.set("stays", 1)
    board.prune("**", keep_last=1)
    assert [entry.kind for entry in board.history("t")] == ["delete"]
    board.prune("**", max_age=0)
    assert board.history("t") == []
    assert board.set("t", 3).version > 0
    check(store)


def test_removed_text_is_not_in_a_compacted_file(store):
    board = store.board()
    board.set("t", SECRET)
    board.set("t", "public")
    board.set("u", {"deep": [SECRET]})
    board.delete("u")
    assert SECRET.encode() in store.path.read_bytes()
    board.prune("**", keep_last=1)
    store.compact()
    check(store)
    assert SECRET.encode() not in store.path.read_bytes()


def test_values_that_are_still_shared_stay(store):
    board = store.board()
    value = {"text": SECRET, "list": list(range(3000))}
    board.set("tasks/1", value)
    board.claim("tasks/*").complete(to="done/")
    mark = board.set("x", [SECRET] * 3).version
    board.set("x", 1)
    board.rollback("x", to=mark)
    board.prune("**", keep_last=1)
    board.prune("**", max_age=0)
    store.compact()
    assert board.get("done/1").value == value
    assert board.get("x").value == [SECRET] * 3
    check(store)


def test_claims_outlive_their_records(store):
    board = store.board()
    board.set("t", 1)
    claim = board.claim("t")
    claim.renew()
    board.prune("**", keep_last=1)
    claim.complete(2, to="done/")
    assert board.get("done/t").value == 2
    check(store)


def test_expired_versions_are_reported_as_expired(store):
    board = store.board()
    first = board.set("t", 1).version
    board.set("t", 2)
    board.prune("t", keep_last=1)
    with pytest.raises(ExpiredError):
        board.get("t", at=first)
    with pytest.raises(ExpiredError):
        board.rollback("", to=first)
    assert board.get("t").value == 2


@pytest.mark.slow
def test_a_policy_bounds_history_while_others_write(store):
    board = store.board()
    board.set_retention("t/*", keep_last=2)
    for number in range(3000):
        board.set(f"t/{number % 3}", f"{number} {SECRET}")
    assert all(len(versions(board, f"t/{each}")) < 700 for each in range(3))
    assert board.list("**", limit=9)[0].key == "t/0"
    assert board.children() == ["t/"]
    check(store)
    board.set_retention("t/*")
    before = len(versions(board, "t/0"))
    for number in range(300):
        board.set("t/0", number)
    assert len(versions(board, "t/0")) == before + 300


def test_a_policy_is_not_visible_as_an_entry(store):
    board = store.board()
    board.set_retention("t/*", keep_last=2)
    board.set("t/0", 0)
    assert (board.children(), [entry.key for entry in board.list()]) == (["t/"], ["t/0"])
    assert board.rollback("", to=0) == ["t/0"]
    assert board.list("durable/**") != []


def test_versions_that_another_process_removes_concurrently_are_skipped(store):
    board = store.board()
    for number in range(5):
        board.set("t", number)
    with store._engine.read() as view:
        owner = board_of(view)
        lsns = list(records_of(view, owner))
    board.prune("t", keep_last=3)
    rule = RetentionRule(compile_pattern("t"), 2, None)
    assert choose(store._engine, owner, [rule], lsns, store.last_lsn) == lsns[2:3]


def test_an_export_of_a_pruned_board_can_be_imported(store, tmp_path):
    board = store.board()
    for number in range(5):
        board.set("t", number)
    board.prune("t", keep_last=2)
    with (tmp_path / "a.export").open("wb") as target:
        store.export(target)
    with statelog.open(tmp_path / "b.state") as other:
        with (tmp_path / "a.export").open("rb") as source:
            other.import_(source)
        assert versions(other.board(), "t") == [4, 3]
        check(other)


@pytest.mark.parametrize("arguments", [{}, {"keep_last": 0}, {"max_age": -1}, {"keep_last": 1, "pattern": "a//"}])
def test_invalid_retention_rules_are_refused(store, arguments):
    with pytest.raises(UsageError):
        store.board().prune(**arguments)


def test_the_board_accepts_policies_up_to_the_limit(store, monkeypatch):
    monkeypatch.setattr(board_policies, "POLICIES_MAX", 2)
    board = store.board()
    board.set("a", 1)
    for pattern in ("a/*", "b/*", "a/*"):
        board.set_retention(pattern, keep_last=3)
    with pytest.raises(LimitError) as caught:
        board.set_retention("c/*", keep_last=3)
    assert (caught.value.actual, caught.value.limit) == (3, 2)
    board.set_retention("b/*")
    board.set_retention("c/*", keep_last=3)
