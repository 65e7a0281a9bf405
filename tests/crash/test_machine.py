"""The state machine that users run over their schemas passes over good ones, and finds a store that loses commits."""

import operator
from dataclasses import dataclass
from typing import Annotated, TypedDict

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from statelog import reducers
from statelog.errors import SchemaError, UsageError
from statelog.testing import crash_machine, machine

QUICK = settings(max_examples=1, stateful_step_count=8, deadline=None, derandomize=True, database=None)
FINDING = settings(QUICK, phases=(Phase.generate,), max_examples=10, suppress_health_check=list(HealthCheck))


class Research(TypedDict):
    query: str
    findings: Annotated[list[str], operator.add]
    notes: Annotated[dict, reducers.merge]
    messages: Annotated[list[dict], reducers.upsert("id")]


@dataclass
class Counter:
    total: Annotated[int, operator.add] = 0
    best: Annotated[int, reducers.max] = 0


def longest(current, write):
    return max(current or "", write, key=len)


@pytest.mark.parametrize("schema", [Research, {"steps": reducers.append, "seen": reducers.union}])
def test_a_schema_is_taken_through_kills_and_cuts(schema):
    run_state_machine_as_test(crash_machine(schema), settings=QUICK)


def test_a_store_that_acknowledges_too_early_is_found(monkeypatch):
    """Negative control."""
    crash_at = machine.crash_at

    def crash_early(*arguments, **options):
        return crash_at(*arguments, **options, acknowledges_early=True)

    monkeypatch.setattr(machine, "crash_at", crash_early)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(crash_machine(Counter), settings=FINDING)


def test_writes_may_be_given():
    texts = st.fixed_dictionaries({"text": st.text(max_size=5)})
    run_state_machine_as_test(crash_machine({"text": reducers.custom(longest)}, writes=texts), settings=QUICK)


def test_a_reducer_that_does_not_say_what_it_merges_needs_writes():
    with pytest.raises(UsageError):
        crash_machine({"text": reducers.custom(longest)})


def test_what_is_no_schema_is_refused():
    with pytest.raises(SchemaError):
        crash_machine(5)
