"""Claims: the right entry, one winner, and refusal of ended claims."""

import time

import pytest
from waiting import until

import statelog
from statelog.errors import LeaseLostError, UsageError


@pytest.fixture
def board(store):
    return store.board(agent="worker")


def test_a_claim_takes_the_highest_priority_and_then_the_oldest_entry(board):
    for name, priority in (("z", 0), ("a", 0), ("high", 5), ("low", -5)):
        board.set(f"tasks/{name}", name, priority=priority)
    assert [board.claim("tasks/*").value for _ in range(4)] == ["high", "z", "a", "low"]
    assert board.claim("tasks/*") is None


def test_setting_an_entry_again_keeps_its_place_in_the_order(board):
    board.set("tasks/1", "first")
    board.set("tasks/2", "second")
    board.set("tasks/1", "first again")
    assert board.claim("tasks/*").value == "first again"


def test_a_pattern_over_several_directories_takes_the_first_entry_of_all(board):
    board.set("a/x/1", "old")
    board.set("a/1", "high", priority=1)
    board.set("b/1", "of no interest", priority=9)
    assert [board.claim("a/**").value, board.claim("a/**").value, board.claim("a/**")] == ["high", "old", None]
    assert board.claim("*/1").value == "of no interest"


def test_a_claimed_entry_names_its_claimer_and_cannot_be_claimed_again(board, store):
    board.set("t", 1)
    claim = board.claim("t", lease_s=30)
    assert (claim.key, claim.value, claim.attempt) == ("t", 1, 1)
    entry = store.board().get("t")
    assert (entry.claim.token, entry.claim.holder, entry.attempts) == (claim.token, "worker", 1)
    assert board.claim("**") is None


def test_complete_removes_the_entry_and_sets_the_result(board):
    board.set("tasks/pending/7", "do")
    claim = board.claim("tasks/pending/*")
    claim.complete({"ok": True}, to="tasks/done/")
    assert board.get("tasks/pending/7") is None
    assert board.get("tasks/done/7").value == {"ok": True}
    assert [each.kind for each in board.history("tasks/pending/7")] == ["complete", "claim", "set"]
    with pytest.raises(UsageError, match="was completed"):
        claim.complete()


def test_complete_without_a_result_moves_the_value(board):
    board.set("tasks/1", ["kept"])
    board.claim("tasks/*").complete(to="done/")
    assert board.get("done/1").value == ["kept"]


def test_a_result_that_cannot_be_stored_leaves_the_claim(board):
    board.set("tasks/1", 1)
    claim = board.claim("tasks/*")
    with pytest.raises(statelog.errors.ValueTypeError):
        claim.complete(object())
    claim.complete(2)


def test_a_released_entry_can_be_claimed_again_at_once(board):
    board.set("t", 1)
    first = board.claim("t")
    first.release()
    again = board.claim("t")
    assert (again.attempt, again.token > first.token) == (2, True)


def test_a_failed_entry_can_be_claimed_after_its_delay_and_history_has_the_reason(board):
    for key, retry_in_s in (("t", 0.2), ("late", 3600)):
        board.set(key, 1)
        board.claim(key).fail(ValueError("no luck"), retry_in_s=retry_in_s)
    assert board.claim("late") is None
    assert board.history("t")[0].error == "ValueError: no luck"
    assert board.claim("t", wait_s=60).attempt == 2


def test_an_entry_that_fails_too_often_moves_to_the_dead(board):
    board.set("tasks/open/1", "poison")
    for attempt in (1, 2):
        claim = board.claim("tasks/open/*", max_attempts=2, dead="tasks/dead/")
        assert claim.attempt == attempt
        claim.fail("boom")
    assert board.claim("tasks/open/*", max_attempts=2, dead="tasks/dead/") is None
    dead = board.get("tasks/dead/1")
    assert (dead.value, dead.error, dead.attempts) == ("poison", "boom", 2)
    assert board.get("tasks/open/1") is None


def test_an_entry_whose_claimers_died_too_often_moves_to_the_dead(board):
    board.set("open/1", "poison")
    board.claim("open/*", lease_s=0.01, max_attempts=1, dead="dead/")
    time.sleep(0.02)
    assert board.claim("open/*", max_attempts=1, dead="dead/") is None
    assert board.get("dead/1").value == "poison"


def test_without_dead_an_entry_claimed_too_often_stays_and_is_not_claimed(board):
    board.set("t", 1)
    board.claim("t").release()
    assert board.claim("t", max_attempts=1) is None
    assert board.get("t").value == 1


def test_after_the_deadline_another_claimer_wins_and_the_late_holder_is_refused(board):
    board.set("t", 1)
    late = board.claim("t", lease_s=0.01)
    time.sleep(0.02)
    now = board.claim("t")
    assert now.attempt == 2
    for act in (late.renew, late.complete, late.release, lambda: late.fail("x")):
        with pytest.raises(LeaseLostError) as caught:
            act()
        assert (caught.value.key, caught.value.token) == ("t", late.token)
    assert [each.kind for each in board.history("t")] == ["claim", "release", "claim", "set"]
    now.complete()


def test_a_late_holder_continues_if_no_other_took_over(board):
    board.set("t", 1)
    claim = board.claim("t", lease_s=0.01)
    time.sleep(0.02)
    claim.renew(30)
    assert board.claim("t") is None
    claim.complete()


def test_a_delay_keeps_an_entry_from_claims_and_not_from_reads(board):
    board.set("late", 2, delay_s=3600)
    assert board.get("late").value == 2
    assert board.claim("late") is None
    board.set("t", 1, delay_s=0.2)
    assert board.claim(["t", "late"], wait_s=60).value == 1


def test_an_entry_has_the_time_from_which_it_may_be_claimed(board):
    assert board.set("at once", 1).ready is None
    entry = board.set("t", 1, delay_s=0.2)
    assert (entry.ready - entry.time).total_seconds() == 0.2
    assert board.get("t") == board.list("t")[0] == board.history("t")[0] == entry
    claim = board.claim("t", wait_s=60)
    assert board.get("t").ready == entry.ready
    claim.fail("no luck", retry_in_s=60)
    failed = board.get("t")
    assert (failed.ready - failed.time).total_seconds() == pytest.approx(60, abs=1)
    assert board.set("t", 2).ready is None


def test_writes_of_others_to_a_claimed_entry_keep_the_claim(board, store):
    board.set("t", 1)
    claim = board.claim("t")
    store.board().set("t", 2)
    assert store.board().get("t").claim.token == claim.token
    claim.complete(3)


@pytest.mark.parametrize("end", [lambda board: board.delete("t"), lambda board: board.rollback("", to=0)])
def test_a_claim_ends_with_its_entry(board, end):
    board.set("t", 1)
    claim = board.claim("t")
    end(board)
    with pytest.raises(LeaseLostError):
        claim.complete()


def test_another_process_continues_a_claim_with_its_token(board, store):
    board.set("open/1", 1)
    claim = board.claim("open/*")
    again = store.board().claim_of("open/1", claim.token, max_attempts=1, dead="dead/")
    assert (again.value, again.attempt, again.token) == (1, 1, claim.token)
    again.fail("no")
    assert board.get("dead/1").value == 1
    with pytest.raises(LeaseLostError):
        board.claim_of("open/1", claim.token)


@pytest.mark.parametrize(("to", "error"), [("durable/", UsageError), ("x" * 20 + "/", statelog.errors.LimitError)])
def test_a_result_with_an_invalid_key_is_refused(board, to, error):
    key = "open/" + "z" * 390
    board.set(key, 1)
    claim = board.claim("open/*")
    with pytest.raises(error):
        claim.complete(to=to)
    claim.complete()


def test_an_entry_that_cannot_be_moved_to_the_dead_stays_and_delays_no_other(board):
    board.set("open/" + "z" * 390, 1)
    board.set("open/2", 2)
    bound = {"max_attempts": 1, "dead": "dead/" * 4}
    board.claim("open/*", **bound).fail("x")
    assert board.claim("open/*", **bound).value == 2
    assert board.claim("open/*", **bound) is None
    assert len(board.list("open/*")) == 2


@pytest.mark.slow
def test_a_claim_ends_when_its_entry_expires(board):
    board.set("t", 1, ttl_s=0.5)
    claim = board.claim("t", lease_s=30)
    until(lambda: board.get("t") is None)
    with pytest.raises(LeaseLostError):
        claim.complete(to="done/")
    assert board.list() == []


def test_a_move_onto_a_claimed_entry_keeps_the_claim(board):
    board.set("done/1", "old")
    other = board.claim("done/*")
    board.set("open/1", "new")
    board.claim("open/*").complete(to="done/")
    assert board.get("done/1").value == "new"
    other.complete()


def test_an_expired_entry_is_not_claimed(board):
    board.set("t", 1, ttl_s=0.01)
    time.sleep(0.02)
    assert board.claim("t") is None


def test_a_rollback_releases_the_claims_of_that_time(board):
    board.set("t", 1)
    claim = board.claim("t")
    claim.complete()
    assert board.rollback("", to=claim.token) == ["t"]
    assert board.get("t").claim is None
    assert board.claim("t").attempt == 2


@pytest.mark.slow
def test_many_tasks_are_each_claimed_once(board, store):
    for number in range(200):
        board.set(f"tasks/{number:03}", number)
    claims = [board.claim("tasks/*") for _ in range(200)]
    assert [claim.value for claim in claims] == list(range(200))
    for claim in claims:
        claim.complete(to="done/")
    assert len(board.list("done/*")) == 200
    assert store.verify().problems == []


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"lease_s": 0}, "lease_s"),
        ({"lease_s": True}, "lease_s"),
        ({"wait_s": -1}, "wait_s"),
        ({"wait_s": float("nan")}, "wait_s"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"dead": "dead", "max_attempts": 1}, "dead"),
        ({"dead": "dead/"}, "dead"),
        ({"dead": "durable/", "max_attempts": 1}, "dead"),
    ],
)
def test_invalid_claims_are_refused(board, arguments, argument):
    with pytest.raises(UsageError) as caught:
        board.claim("tasks/*", **arguments)
    assert caught.value.argument == argument


def test_claims_are_refused_in_transactions_and_snapshots(store):
    store.board().set("t", 1)
    with store.transaction() as tx, pytest.raises(UsageError):
        tx.board().claim("t")
    with store.snapshot() as snapshot, pytest.raises(UsageError):
        snapshot.board().claim("t")
    assert store.board().claim("t") is not None


@pytest.mark.parametrize("has_entries", [False, True])
def test_claims_in_a_read_only_store_are_refused(tmp_path, has_entries):
    path = tmp_path / "b.state"
    with statelog.open(path) as written:
        written.thread("t").commit({"n": 1})
        if has_entries:
            written.board().set("t", 1)
    with statelog.open(path, read_only=True) as store:
        board = store.board()
        for call in (
            lambda: board.set("t", 1),
            lambda: board.delete("t"),
            lambda: board.claim("t"),
            lambda: board.lease("t"),
            lambda: board.rollback("", to=0),
            lambda: board.prune("t", keep_last=1),
            board.sweep,
        ):
            with pytest.raises(statelog.errors.ReadOnlyError):
                call()


@pytest.mark.parametrize(("name", "value"), [("priority", 128), ("priority", 1.0), ("delay_s", -1), ("ttl_s", 0)])
def test_options_of_set_are_checked(board, name, value):
    with pytest.raises(UsageError):
        board.set("t", 1, **{name: value})
    assert board.get("t") is None


def test_claims_past_their_deadlines_are_also_listed(store):
    board = store.board()
    for key in ("tasks/a", "tasks/b", "tasks/c", "other/d"):
        board.set(key, 1)
    board.claim("tasks/a", lease_s=0.001)
    board.claim("tasks/c")
    board.claim("other/d")
    assert [each.key for each in board.claims("tasks/*")] == ["tasks/a", "tasks/c"]
    assert [each.key for each in board.claims()] == ["other/d", "tasks/a", "tasks/c"]
