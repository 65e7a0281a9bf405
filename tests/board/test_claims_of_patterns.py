"""Claims from several patterns: one winner among all, and each pattern wakes a waiter."""

import sys
import threading
import time

import pytest

import statelog
from statelog.board.names import compile_pattern
from statelog.board.waiters import claimer_subject
from statelog.errors import UsageError


@pytest.fixture
def board(store):
    return store.board(agent="worker")


def test_a_claim_from_several_patterns_takes_the_first_entry_of_all(board):
    for key, priority in (("a/1", 0), ("b/1", 0), ("c/1", 0), ("b/2", 5), ("none/1", 9)):
        board.set(key, 0, priority=priority)
    patterns = ["c/*", "a/1", "*/2", "b/**", "b/*"]
    assert [board.claim(patterns).key for _ in range(4)] == ["b/2", "a/1", "b/1", "c/1"]
    assert board.claim(tuple(patterns)) is None


def test_claims_from_several_patterns_obey_rules_and_move_dead_entries(board, store):
    board.set("a/1", 0)
    board.set("b/1", 0)
    bound = store.board(agent="x", rules=statelog.Rules({"x": {"claim": ["b/*"], "write": ["dead/*"]}}))
    claim = bound.claim(["a/*", "b/*"], max_attempts=1, dead="dead/")
    claim.fail("no")
    assert (claim.key, bound.claim(["a/*", "b/*"])) == ("b/1", None)
    assert board.get("dead/1").attempts == 1


@pytest.mark.parametrize("pattern", [[], (), None, ["a", ""], [3], "", ["a", "durable/x"]], ids=repr)
def test_invalid_patterns_of_claims_are_refused(board, pattern):
    board.set("a", 1)
    with pytest.raises(UsageError):
        board.claim(pattern)


def test_unless_excludes_entries_below_a_prefix(board):
    for key, priority in (("q/a@x/1", 9), ("q/a@x/2", 8), ("q/a/1", 0), ("q/b/1", -1)):
        board.set(key, 0, priority=priority)
    assert board.claim("q/**", unless=["q/a@"]).key == "q/a/1"
    assert board.claim(["q/a@*/*", "q/b/*"], unless=["q/a@x/"]).key == "q/b/1"
    assert board.claim(["q/a@*/*"], unless="q/a@x/") is None
    assert board.claim(["q/a@*/*"], unless=["q/a@x/1"]).key == "q/a@x/2"
    assert board.claim(["q/a@*/*"]).key == "q/a@x/1"


@pytest.mark.parametrize("unless", [[""], ["/"], ["a//"], [3], ["*"]], ids=repr)
def test_invalid_prefixes_in_unless_are_refused(board, unless):
    board.set("a", 1)
    with pytest.raises(UsageError):
        board.claim("a", unless=unless)


def test_a_pattern_of_one_level_reads_no_other_directory(board):
    for number in range(3):
        board.set(f"other/{number}", 0)
        board.set(f"q{number}/w/deep/1", 0)
    assert board.claim("q*/w/*") is None
    board.set("q2/w/1", 0)
    assert board.claim("q*/w/*").key == "q2/w/1"


def test_a_release_that_is_not_counted_keeps_attempts_and_order(board):
    board.set("a/1", 0)
    board.set("a/2", 0)
    board.claim("a/*").release()
    claim = board.claim("a/*")
    assert (claim.key, claim.attempt) == ("a/1", 2)
    claim.release(counts=False)
    assert board.get("a/1").attempts == 1
    assert board.claim("a/*").key == "a/1"
    with pytest.raises(UsageError):
        board.claim("a/*").release(counts=1)


LONG = "z" * 150


@pytest.mark.parametrize(
    ("patterns", "subject"),
    [
        (["a/*"], "a/*"),
        (["a/*", "b", "durable/x/*"], "a/*\nb\ndurable/x/*"),
        ([f"a/b/{LONG}/*", f"a/b/{LONG}/1", f"a/b/c/{LONG}"], "a/b/**"),
        ([f"a/b*/{LONG}", f"a/b/{LONG}", f"a/b/{LONG}?"], "a/**"),
        ([f"a/{LONG}", f"b/{LONG}", f"{LONG}c"], "**"),
        ([f"durable/{LONG}", f"b/{LONG}", f"{LONG}c"], "**\ndurable/**"),
        ([f"durable/a/{LONG}", f"durable/b/{LONG}", f"durable/c/{LONG}"], "durable/**"),
        (["a/" + "z" * 398], "a/**"),
        (["a/" + "z" * 396 + "/x"], "a/**"),
        (["z" * 400], "**"),
    ],
)
def test_a_waiter_is_notified_of_all_matching_entries(patterns, subject):
    assert claimer_subject([compile_pattern(each) for each in patterns]) == b"c" + subject.encode()


@pytest.mark.parametrize("patterns", [["a/*", "b/*"], ["none/" + "z" * 390, "b/*"], "b/" + "?" * 398], ids=len)
def test_a_waiter_is_woken_by_each_pattern_even_a_long_one(store, patterns, monkeypatch):
    monkeypatch.setattr("statelog.store.claims._LOOK_S", 60.0)
    board, found, seen = store.board(), [], []
    board.set("other", 1)
    waiting = threading.Thread(target=lambda: found.append(board.claim(patterns, wait_s=60)))
    waiting.start()
    while not seen:
        store._engine.store_file.wake.call_next(lambda subject: bool(seen.append(subject)))
    time.sleep(0.05)  # The waiter searches once, and sleeps.
    board.set("b/" + "x" * 398, 1)
    waiting.join(20)
    assert [claim.attempt for claim in found] == [1]


def calls_of(work):
    """Return the number of Python calls of a function, and its result."""
    count = 0

    def note(_frame, event, _argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        result = work()
    finally:
        sys.setprofile(None)
    return count, result


@pytest.mark.parametrize("is_ready", [True, False])
def test_a_claim_by_its_key_costs_the_same_beside_many_entries(board, is_ready):
    counts = []
    for number in range(300):
        board.set(f"jobs/{number:03}", 0, delay_s=600)
        if number in (9, 299):
            board.set("jobs/mine", 0, delay_s=None if is_ready else 900)
            count, claim = calls_of(lambda: board.claim("jobs/mine"))
            assert (claim is not None) == is_ready
            board.delete("jobs/mine")
            counts.append(count)
    assert counts[1] <= counts[0] * 1.05


def test_a_claim_by_its_key_keeps_the_rules_of_every_claim(board):
    board.set("a/delayed", 0, delay_s=600)
    board.set("a/expired", 0, ttl_s=0.001)
    board.set("a/spent", 0)
    board.set("a/claimed", 0)
    board.claim("a/spent").release()
    board.claim("a/claimed")
    time.sleep(0.002)
    keys = ["a/delayed", "a/expired", "a/spent", "a/claimed", "a/none", "a"]
    assert [board.claim(key, max_attempts=1) for key in keys] == [None] * 6
    assert board.claim(keys, unless=["a/spent"]) is None
    assert board.claim("a/spent", max_attempts=1, dead="dead/") is None
    assert board.get("dead/spent").attempts == 1


def test_a_claim_by_its_key_waits_until_the_entry_is_ready(board):
    board.set("a/1", 0, delay_s=3600)
    assert board.claim("a/1", wait_s=0) is None
    board.set("a/1", 0, delay_s=0.05)
    assert board.claim("a/1", wait_s=20).key == "a/1"
