"""Rules: what is not allowed is denied, row by row."""

import logging

import pytest

from statelog import Rules
from statelog.errors import AccessError, UsageError

RULES = Rules(
    {
        "a": {
            "read": ["research/**"],
            "write": ["research/a/**"],
            "claim": ["tasks/**"],
            "lease": ["names/*"],
            "watch": ["tasks/**"],
        }
    }
)


@pytest.fixture
def free(store):
    board = store.board()
    for key in ("research/a/1", "research/b/1", "tasks/1", "secret/1"):
        board.set(key, key)
    return board


@pytest.fixture
def bound(store, free):  # noqa: ARG001 - there are entries
    return store.board(agent="a", rules=RULES)


def test_what_the_rules_allow_goes_as_without_them(bound):
    bound.set("research/a/2", 2)
    assert bound.get("research/b/1").value == "research/b/1"
    bound.claim("tasks/*").complete()
    with bound.lease("names/x"):
        pass


@pytest.mark.parametrize(
    ("call", "rule", "key"),
    [
        (lambda board: board.get("secret/1"), "read", "secret/1"),
        (lambda board: board.get("secret/1", at=1), "read", "secret/1"),
        (lambda board: board.history("secret/1"), "read", "secret/1"),
        (lambda board: board.set("research/b/1", 0), "write", "research/b/1"),
        (lambda board: board.create("secret/2", 0), "write", "secret/2"),
        (lambda board: board.cas("secret/1", 0, expected_version=0), "write", "secret/1"),
        (lambda board: board.delete("secret/1"), "write", "secret/1"),
        (lambda board: board.lease("other"), "lease", "other"),
        (lambda board: board.rollback("", to=0), "write", None),
        (lambda board: board.claim("tasks/*").complete(to="secret/"), "write", "secret/1"),
    ],
)
def test_what_they_do_not_allow_is_denied_and_nothing_is_written(bound, store, call, rule, key):
    before = [(entry.key, entry.value) for entry in store.board().list()]
    with pytest.raises(AccessError) as caught:
        call(bound)
    assert (caught.value.rule, caught.value.agent) == (rule, "a")
    assert key in (None, caught.value.key)
    assert [(entry.key, entry.value) for entry in store.board().list()] == before


def test_lists_are_filtered_row_by_row_whatever_is_asked_for(bound):
    assert [entry.key for entry in bound.list("**")] == ["research/a/1", "research/b/1"]
    assert [entry.key for entry in bound.list("**", limit=1)] == ["research/a/1"]
    assert bound.list("secret/*") == []
    assert bound.children() == ["research/"]


def test_claims_and_watches_are_filtered_row_by_row(bound, free):
    watch = bound.watch("**", timeout_s=0)
    assert bound.claim("**").key == "tasks/1"
    assert bound.claim("**") is None
    free.set("secret/1", 2)
    assert [event.key for event in watch] == ["tasks/1"]


@pytest.mark.usefixtures("free")
def test_entries_go_to_the_dead_only_where_one_may_write(bound, free):
    free.claim("tasks/*").release()
    for dead, is_allowed in (("secret/", False), ("research/a/", True)):
        if is_allowed:
            assert bound.claim("tasks/*", max_attempts=1, dead=dead) is None
        else:
            with pytest.raises(AccessError):
                bound.claim("tasks/*", max_attempts=1, dead=dead)
    assert free.get("secret/1").value == "secret/1"
    assert free.get("research/a/1").value == "tasks/1"


def test_who_has_no_rules_may_do_nothing(store):
    for agent in (None, "b"):
        board = store.board(agent=agent, rules=RULES)
        for call in (
            board.list,
            board.children,
            board.watch,
            lambda board=board: board.claim("**"),
            lambda board=board: board.set("x", 1),
        ):
            with pytest.raises(AccessError):
                call()


@pytest.mark.usefixtures("free")
def test_transactions_and_snapshots_have_the_same_rules(store):
    with store.transaction() as tx, pytest.raises(AccessError):
        tx.board(agent="a", rules=RULES).set("secret/1", 1)
    with store.snapshot() as snapshot:
        assert len(snapshot.board(agent="a", rules=RULES).list()) == 2


def test_denials_are_logged_at_most_once_a_second(bound, caplog):
    with caplog.at_level(logging.WARNING, "statelog.board"):
        for _ in range(5):
            with pytest.raises(AccessError):
                bound.get("secret/1")
    assert len(caplog.records) <= 1


@pytest.mark.parametrize(
    "rules", [{"a": {"reed": ["**"]}}, {"a": {"read": "**"}}, {"a": ["**"]}, [], {"a": {"read": ["a//b"]}}]
)
def test_what_are_no_rules_is_refused(rules):
    with pytest.raises(UsageError):
        Rules(rules)


def test_rules_are_for_agents_and_not_for_care(bound):
    with pytest.raises(AccessError):
        bound.retain("**", keep_last=1)
