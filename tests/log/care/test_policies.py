"""Patterns with a policy: the policy of a new thread, and the kept patterns."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelog.log.care.policies import (
    PolicyRow,
    decode_policies,
    encode_policies,
    policy_of_new_thread,
    says_already,
    stored_pattern,
    with_policy,
    without_thread,
)

PATTERNS = st.text("ab*?", min_size=1, max_size=5) | st.sampled_from(["[ab]*", "*[!a]", "a[b", "a]*", "*"])
IDS = st.text("ab]", min_size=1, max_size=5)
CALLS = st.lists(st.tuples(PATTERNS, st.sampled_from([{}, {"keep_last": 1}, {"keep_last": 2}])), max_size=8)


def set_all(calls):
    rows = []
    for pattern, policy in calls:
        if not says_already(rows, stored_pattern(pattern), policy):
            rows = with_policy(rows, stored_pattern(pattern), policy)
    return rows


@pytest.mark.slow
@given(CALLS, st.lists(IDS, min_size=1, max_size=10))
def test_a_new_thread_gets_the_policy_of_the_last_matching_call(calls, ids):
    rows = decode_policies(encode_policies(set_all(calls)))
    for thread_id in ids:
        fitting = [policy for pattern, policy in calls if fnmatchcase(thread_id, pattern)]
        assert policy_of_new_thread(rows, thread_id) == (fitting[-1] if fitting else {})


@pytest.mark.slow
@given(CALLS)
def test_the_last_call_again_changes_nothing(calls):
    rows = set_all(calls)
    for pattern, policy in calls[-1:]:
        assert says_already(rows, stored_pattern(pattern), policy)


@given(CALLS, IDS, IDS)
def test_policies_for_new_threads_do_not_affect_existing_threads(calls, begun, other):
    rows = set_all(calls)
    if begun != other:
        assert policy_of_new_thread(without_thread(rows, begun), other) == policy_of_new_thread(rows, other)


def test_overridden_patterns_are_removed():
    ten, five = {"keep_last": 10}, {"keep_last": 5}
    assert set_all([("a*", ten), ("b*", five), ("a*", ten), ("b*", five)]) == [
        PolicyRow("a*", ten),
        PolicyRow("b*", five),
    ]
    assert set_all([("a*", ten), ("*b", five), ("a*", ten)]) == [PolicyRow("*b", five), PolicyRow("a*", ten)]
    assert set_all([("a*", ten), ("b*", five), ("*", five)]) == [PolicyRow("*", five)]
    assert set_all([("a*", ten), ("a*", {})]) == []
    assert set_all([("a*", ten), ("b", ten), ("*", {})]) == []
    assert set_all([("a*", ten), ("b*", {})]) == [PolicyRow("a*", ten)]
    assert set_all([("a*", ten), ("ab*", {})]) == [PolicyRow("a*", ten), PolicyRow("ab*", {})]
    assert set_all([("a*", ten), ("ab*", {}), ("a*", {})]) == []
    assert without_thread(set_all([("ab", ten), ("a*", {})]), "ab") == []
