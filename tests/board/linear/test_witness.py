"""The log of a board confirms the answers to four processes, some of which were killed during a call."""

from dataclasses import replace
from itertools import pairwise

import pytest
from calls import Call
from witness import Record, check_witness, read_records
from workers import Run

import statelog

ROUND = 20_000
SOAK_CALLS = 1_000_000


def check(directory, seed, count, what, kill_s):
    """Make calls in a new store, and return the run."""
    run = Run(directory, seed=seed, count=count, what=what, kill_s=kill_s)
    assert check_witness(read_records(run.path), run.calls) == []
    with statelog.open(run.path) as store:
        assert store.verify().problems == []
    return run


@pytest.mark.slow
@pytest.mark.parametrize("what", ["entries", "all"])
def test_the_log_gives_every_answer(tmp_path, what):
    run = check(tmp_path, 1, 2000, what, 0.15)
    assert len(run.calls) >= 2000
    assert run.kills > 0
    assert overlaps(run.calls) > 20


def overlaps(calls):
    """Return the number of calls that began during another call. Without such calls, the test shows nothing."""
    known = sorted((call for call in calls if call.is_known), key=lambda call: call.invoked)
    return sum(later.invoked < call.responded for call, later in pairwise(known))


@pytest.mark.soak
def test_the_log_gives_every_answer_to_a_million_calls(tmp_path, soak_scale):
    for seed in range(max(int(SOAK_CALLS * soak_scale / ROUND), 1)):
        directory = tmp_path / str(seed)
        directory.mkdir()
        run = check(directory, seed, ROUND, "all", 1.0)
        assert run.kills > 0
        run.remove()


# --- hand-made histories -------------------------------------------------------------

RECORDS = [
    Record(1, "set", "a", "0.0", 5),
    Record(2, "set", "a", "1.0", 6),
    Record(3, "delete", "a", "0.1"),
    Record(4, "set", "tasks/1", "0.2", 7),
    Record(5, "claim", "tasks/1", "1.1", 7, 5),
]
CALLS = [
    Call("0.0", "set", {"key": "a", "value": 5}, 10, 20, {"version": 1, "value": 5}),
    Call("1.0", "set", {"key": "a", "value": 6}, 15, 40, {"version": 2, "value": 6}),
    Call("0.1", "delete", {"key": "a"}, 30, 50, {"was_there": True}),
    Call("1.2", "get", {"key": "a"}, 60, 70, {"version": 0, "value": None}),
    Call("0.2", "set", {"key": "tasks/1", "value": 7}, 80, 90, {"version": 4, "value": 7}),
    Call("1.1", "claim", {"lease_ns": 10**12}, 85, 95, {"key": "tasks/1", "value": 7, "attempt": 1, "token": 5}),
    Call("0.3", "claim", {"lease_ns": 10**12}, 100, 110, {"key": None}),
]


def problems(records=RECORDS, **changes):
    """Return the problems if some answers are changed. A name is `of_` and a number."""
    calls = [replace(call, **changes.get(f"of_{number}", {})) for number, call in enumerate(CALLS)]
    return " ".join(check_witness(records, calls))


def test_a_correct_history_is_accepted():
    assert problems() == ""


def test_a_killed_call_is_accepted_with_or_without_its_effect():
    killed = {"responded": float("inf"), "result": {}}
    assert problems(of_5=killed) == ""
    assert "at no moment" in problems(RECORDS[:4], of_5=killed)  # Call 0.3 has seen its effect.


def test_a_lost_record_is_detected():
    assert "acknowledged, and no record says so" in problems([RECORDS[0], *RECORDS[2:]])


def test_records_that_contradict_real_time_are_detected():
    assert "before 2, which was known" in problems(of_0={"invoked": 45, "responded": 55})


def test_a_stale_read_is_detected():
    assert "at no moment" in problems(of_3={"result": {"version": 2, "value": 6}})
    assert problems(of_3={"invoked": 35, "result": {"version": 2, "value": 6}}) == ""


def test_a_read_of_a_future_value_is_detected():
    assert "at no moment" in problems(of_3={"invoked": 5, "responded": 8, "result": {"version": 1, "value": 5}})


def test_a_claim_won_twice_is_detected():
    twice = {"caller": "0.3", "result": {"key": "tasks/1", "value": 7, "attempt": 2, "token": 6}}
    assert "won, and was not free" in problems([*RECORDS, Record(6, "claim", "tasks/1", "0.3", 7, 6)], of_6=twice)


def test_a_claim_taken_before_its_deadline_is_detected():
    result = {"key": "tasks/1", "value": 7, "attempt": 2, "token": 7}
    records = [*RECORDS, Record(6, "release", "tasks/1", None, 7), Record(7, "claim", "tasks/1", "0.3", 7, 7)]
    late = 2 * 10**12
    assert "before its time was up" in problems(records, of_6={"result": result})
    assert problems(records, of_6={"result": result, "invoked": late, "responded": late + 9}) == ""


def test_an_entry_left_unclaimed_after_its_claim_ended_is_detected():
    late = 2 * 10**12
    assert "at no moment" in problems(of_6={"invoked": late, "responded": late + 9})
