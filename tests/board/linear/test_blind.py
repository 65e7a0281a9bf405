"""Some order of the calls explains all answers to four processes, some of which were killed during a call."""

import pytest
from blind import check_blind
from calls import Call
from workers import Run

SOAK_CALLS = 10_000


@pytest.mark.slow
def test_an_order_explains_every_answer(tmp_path):
    run = Run(tmp_path, seed=2, count=1500, what="all", kill_s=0.25)
    assert check_blind(run.calls) == []
    assert run.kills > 0


@pytest.mark.soak
def test_an_order_explains_ten_thousand_answers(tmp_path, soak_scale):
    count = max(int(SOAK_CALLS * soak_scale), 1000)
    run = Run(tmp_path, seed=3, count=count, what="all", kill_s=0.5)
    assert check_blind(run.calls) == []
    assert run.kills > 0 or count < SOAK_CALLS / 2  # A short run may end before the first kill.


# --- hand-made histories -------------------------------------------------------------

KILLED = float("inf"), {}


def a_call(name, invoked, responded, result, **about):
    return Call(f"0.{invoked}", name, about, invoked, responded, result)


def a_set(value, version, invoked, responded, key="a"):
    result = {"version": version, "value": value} if version else {}
    return a_call("set", invoked, responded, result, key=key, value=value)


def a_get(value, version, invoked, responded):
    return a_call("get", invoked, responded, {"version": version, "value": value}, key="a")


def a_claim(key, token, invoked, responded, attempt=1, lease_ns=10**12):
    result = {"key": key, "value": 1, "attempt": attempt, "token": token} if key else {"key": None}
    return a_call("claim", invoked, responded, result, lease_ns=lease_ns)


ONE_TASK = a_set(1, 1, 0, 1, key="tasks/1")
KILLED_SET = a_set(2, 0, 2, float("inf"))
KILLED_CLAIM = a_call("claim", 2, *KILLED, lease_ns=10**12)

RIGHT = {
    "calls that overlap, in either order": [a_set(5, 1, 0, 10), a_get(None, 0, 1, 9), a_get(5, 1, 1, 9)],
    "a killed call has happened": [a_set(1, 1, 0, 1), KILLED_SET, a_get(1, 1, 3, 4), a_get(2, 7, 5, 6)],
    "a killed call has not happened": [a_set(1, 1, 0, 1), KILLED_SET, a_get(1, 1, 3, 4)],
    "a killed delete was seen by who created": [
        a_set(1, 1, 0, 1),
        a_call("delete", 2, *KILLED, key="a"),
        a_call("create", 3, 4, {"version": 5, "value": 9}, key="a", value=9),
    ],
    "a killed claim has happened": [ONE_TASK, KILLED_CLAIM, a_claim(None, 0, 3, 4)],
    "a killed claim has not happened": [ONE_TASK, KILLED_CLAIM, a_claim("tasks/1", 3, 3, 4)],
    "a claim whose time was up": [
        ONE_TASK,
        a_claim("tasks/1", 2, 2, 3, lease_ns=10**6),
        a_claim("tasks/1", 4, 10**9, 10**9 + 1, attempt=2),
    ],
}
WRONG = {
    "a stale read": [a_set(5, 1, 0, 1), a_set(6, 2, 2, 3), a_get(5, 1, 4, 5)],
    "two reads that go back": [a_set(5, 1, 0, 1), KILLED_SET, a_get(2, 7, 3, 4), a_get(5, 1, 5, 6)],
    "a version that is begun anew": [
        a_set(5, 1, 0, 1),
        a_call("delete", 2, 3, {"was_there": True}, key="a"),
        a_set(6, 1, 4, 5),
    ],
    "two who created": [
        a_call("create", 0, 9, {"version": 1, "value": 1}, key="a", value=1),
        a_call("create", 1, 8, {"version": 2, "value": 2}, key="a", value=2),
    ],
    "an update that is lost": [
        a_set(1, 1, 0, 1),
        a_call("update", 2, 9, {"version": 3, "value": 2}, key="a", value=1),
        a_call("update", 3, 8, {"version": 4, "value": 2}, key="a", value=1),
    ],
    "a claim won twice": [ONE_TASK, a_claim("tasks/1", 2, 2, 9), a_claim("tasks/1", 3, 3, 8)],
    "a claim of the younger entry": [ONE_TASK, a_set(1, 2, 2, 3, key="tasks/0"), a_claim("tasks/0", 3, 4, 5)],
    "an entry that is left lying": [ONE_TASK, a_claim(None, 0, 2, 3)],
    "a claim taken before its time was up": [
        ONE_TASK,
        a_claim("tasks/1", 2, 2, 3),
        a_claim("tasks/1", 4, 10**9, 10**9 + 1, attempt=2),
    ],
}


@pytest.mark.parametrize("case", RIGHT)
def test_possible_histories_are_accepted(case):
    assert check_blind(RIGHT[case]) == []


@pytest.mark.parametrize("case", WRONG)
def test_impossible_histories_are_detected(case):
    assert len(check_blind(WRONG[case])) == 1
