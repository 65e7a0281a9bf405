"""Rules: everything that is not allowed is denied, row by row."""

import logging

import pytest

from statelog import Rules, reducers
from statelog.errors import AccessError, AlreadyExistsError, LeaseLostError, UsageError

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


def test_allowed_operations_work_as_without_rules(bound):
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
def test_forbidden_operations_are_denied_and_nothing_is_written(bound, store, call, rule, key):
    before = [(entry.key, entry.value) for entry in store.board().list()]
    with pytest.raises(AccessError) as caught:
        call(bound)
    assert (caught.value.rule, caught.value.agent) == (rule, "a")
    assert key in (None, caught.value.key)
    assert [(entry.key, entry.value) for entry in store.board().list()] == before


def test_lists_are_filtered_row_by_row_for_every_query(bound):
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
def test_entries_are_moved_to_the_dead_only_if_the_agent_may_write_there(bound, free):
    free.claim("tasks/*").release()
    for dead, is_allowed in (("secret/", False), ("research/a/", True)):
        if is_allowed:
            assert bound.claim("tasks/*", max_attempts=1, dead=dead) is None
        else:
            with pytest.raises(AccessError):
                bound.claim("tasks/*", max_attempts=1, dead=dead)
    assert free.get("secret/1").value == "secret/1"
    assert free.get("research/a/1").value == "tasks/1"


def test_an_agent_without_rules_is_denied_everything(store):
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
def test_rules_apply_to_transactions_and_snapshots(store):
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
def test_invalid_rules_are_refused(rules):
    with pytest.raises(UsageError):
        Rules(rules)


def test_rules_do_not_restrict_maintenance(bound):
    with pytest.raises(AccessError):
        bound.prune("**", keep_last=1)


# --- a handle that may write a key and may not read it -----------------------------------

CLERK = Rules({"clerk": {"write": ["inbox/**"]}, "reader": {"read": ["inbox/**"], "write": ["inbox/**"]}})


@pytest.fixture
def clerk(store):
    boss = store.board(agent="boss")
    for key in ("inbox/balance", "inbox/task", "inbox/secret/merger", "vault/merger"):
        boss.set(key, 41)
    boss.claim("inbox/task", lease_s=600)
    return store.board(agent="clerk", rules=CLERK)


@pytest.mark.parametrize("key", ["inbox/balance", "inbox/none"])
@pytest.mark.parametrize(
    "call",
    [
        lambda board, key: board.update(key, reducers.add, 0),
        lambda board, key: board.update(key, reducers.append, 0),
        lambda board, key: board.update(key, lambda now, _write: pytest.fail(f"a reducer was given {now}"), 0),
        lambda board, key: board.cas(key, 0, expected_version=0),
        lambda board, key: board.cas(key, 0, expected_version=1 << 50),
        lambda board, key: board.delete(key, expected_version=1),
    ],
)
def test_operations_that_depend_on_an_entry_need_the_right_to_read_it(clerk, store, call, key):
    before = store.last_lsn
    with pytest.raises(AccessError) as caught:
        call(clerk, key)
    assert caught.value.facts == {"rule": "read", "key": key, "agent": "clerk"}
    with store.transaction() as tx, pytest.raises(AccessError):
        call(tx.board(agent="clerk", rules=CLERK), key)
    assert store.last_lsn == before


def test_an_agent_without_the_right_to_read_gets_only_its_own_value(clerk, store):
    made, task = clerk.set("inbox/balance", 1, priority=3), clerk.set("inbox/task", 2)
    assert (made.value, made.priority, made.created, task.value) == (1, 3, made.time, 2)
    assert (task.created, task.claim, task.attempts) == (task.time, None, 0)
    seen = store.board().get("inbox/task")
    assert (seen.claim.holder, seen.attempts) == ("boss", 1)
    assert seen.created < task.time


def test_an_agent_without_the_right_to_read_does_not_learn_the_version(clerk, store):
    with pytest.raises(AlreadyExistsError) as caught:
        clerk.create("inbox/balance", 1)
    assert caught.value.facts == {"key": "inbox/balance"}
    assert str(caught.value) == "entry 'inbox/balance' already exists"
    with pytest.raises(AlreadyExistsError) as caught:
        store.board(agent="reader", rules=CLERK).create("inbox/balance", 1)
    assert caught.value.version == store.board().get("inbox/balance").version


def test_an_error_of_a_rollback_names_no_hidden_key(clerk, store, caplog):
    mark = store.last_lsn
    store.board().set("vault/merger", 42)
    for prefix in ("", "vault/"):
        with caplog.at_level(logging.WARNING, "statelog.board"), pytest.raises(AccessError) as caught:
            clerk.rollback(prefix, to=mark)
        assert "merger" not in f"{caught.value} {caught.value.facts} {caplog.text}"
    assert store.board().get("vault/merger").value == 42
    reads_all = Rules({"clerk": {"read": ["**"], "write": ["inbox/**"]}})
    with pytest.raises(AccessError) as caught:
        store.board(agent="clerk", rules=reads_all).rollback("", to=mark)
    assert caught.value.key == "vault/merger"


def test_a_rollback_leaves_out_hidden_keys(clerk, store):
    mark = store.last_lsn
    store.board().set("inbox/secret/merger", 42)
    assert clerk.rollback("inbox/", to=mark) == []
    assert store.board().get("inbox/secret/merger").value == 41
    store.board().set("inbox/secret/merger", 42)
    assert store.board(agent="reader", rules=CLERK).rollback("inbox/", to=mark) == ["inbox/secret/merger"]


# --- claims of others ----------------------------------------------------------------------

CLAIMERS = Rules({"junior": {"claim": ["tasks/*"], "read": ["tasks/*"]}, "senior": {"claim": ["tasks/*"]}})


@pytest.mark.parametrize("boss_rules", [None, Rules({"boss": {"claim": ["tasks/*"]}})], ids=["free", "bound"])
def test_rules_let_nobody_act_on_the_claim_of_another_agent(store, boss_rules):
    store.board().set("tasks/1", {"pay": 900})
    claim = store.board(agent="boss", rules=boss_rules).claim("tasks/*", lease_s=600)
    store.board(agent="junior").set("tasks/1", {"pay": 1})  # The last record of the entry was written by junior.
    before = store.last_lsn
    texts = set()
    for agent in ("junior", "senior"):
        board = store.board(agent=agent, rules=CLAIMERS)
        for token in range(1, store.last_lsn + 2):
            with pytest.raises(LeaseLostError) as caught:
                board.claim_of("tasks/1", token)
            texts.add(str(caught.value).replace(f"token {token}", ""))
    assert len(texts) == 1  # The error does not reveal which token is valid.
    assert store.last_lsn == before
    claim.complete("done")


def test_an_agent_can_continue_its_claim_with_the_same_rules(store):
    store.board().set("tasks/1", 1)
    claim = store.board(agent="junior", rules=CLAIMERS).claim("tasks/*", lease_s=600)
    store.board(agent="boss").set("tasks/1", 2)
    again = store.board(agent="junior", rules=CLAIMERS).claim_of("tasks/1", claim.token)
    assert again.value == 2
    again.renew()
    store.board(agent="anybody").claim_of("tasks/1", claim.token).complete()  # A handle without rules may continue it.


def test_an_agent_can_continue_its_claim_after_retention_removed_the_record_of_the_claim(store):
    store.board().set("tasks/1", 1)
    board = store.board(agent="junior", rules=CLAIMERS)
    claim = board.claim("tasks/*", lease_s=600)
    claim.renew()
    store.board(agent="boss").set("tasks/1", 2)
    store.board().prune(keep_last=2)
    board.claim_of("tasks/1", claim.token).renew()
    assert store.board().get("tasks/1").claim.holder == "junior"
    store.board(agent="boss").set("tasks/1", 3)
    store.board().prune(keep_last=1)  # No kept record names the holder of the claim.
    assert store.board().get("tasks/1").claim.holder is None
    with pytest.raises(LeaseLostError):
        board.claim_of("tasks/1", claim.token)
    claim.complete()
