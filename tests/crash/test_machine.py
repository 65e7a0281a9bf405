"""The state machine for users' schemas passes with correct stores, and detects a store that loses commits."""

import importlib
import operator
from dataclasses import dataclass
from typing import Annotated, TypedDict

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from statelog import reducers
from statelog.errors import SchemaError, UsageError
from statelog.testing import Commit, crash_machine, machine
from statelog.testing.powerloss.campaign import examine_recordings
from statelog.testing.powerloss.recorder import record
from statelog.testing.powerloss.shim import is_supported
from statelog.testing.powerloss.workloads import Workload

QUICK = settings(max_examples=1, stateful_step_count=4, deadline=None, derandomize=True, database=None)
FINDING = settings(QUICK, phases=(Phase.generate,), max_examples=100, suppress_health_check=list(HealthCheck))


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


@pytest.mark.slow
@pytest.mark.parametrize(
    "schema", [Research, pytest.param({"steps": reducers.append, "seen": reducers.union}, marks=pytest.mark.soak)]
)
def test_a_schema_is_tested_with_kills_and_power_cuts(schema):
    run_state_machine_as_test(crash_machine(schema), settings=QUICK)


@pytest.mark.slow
@pytest.mark.skipif(not is_supported(), reason="nothing can be recorded here")
def test_a_schema_of_a_module_that_only_pytest_can_import_is_also_tested_with_power_cuts(tmp_path, monkeypatch):
    """Users' test modules are like that: no other process has their directory on its path."""
    (tmp_path / "schema_of_a_user.py").write_text("def longest(a, b):\n    return max(a, b, key=len)\n")
    monkeypatch.syspath_prepend(tmp_path)
    schema = {"best": importlib.import_module("schema_of_a_user").longest}
    history = (Commit("a", ({"best": "x"},)), Commit("a", ({"best": "xy"},)))
    directory = tmp_path / "store"
    directory.mkdir()
    recording = record(Workload("history", (history,), schema=schema), directory)
    assert examine_recordings([recording], images=20, thorough=False, workers=1).ok


@pytest.mark.soak
def test_a_store_that_acknowledges_too_early_is_detected(monkeypatch):
    """Negative control."""
    crash_at = machine.crash_at

    def crash_early(*arguments, **options):
        return crash_at(*arguments, **options, acknowledges_early=True)

    monkeypatch.setattr(machine, "crash_at", crash_early)
    monkeypatch.setattr(machine, "is_supported", lambda: False)  # No power cuts, which take long and find nothing here.
    with pytest.raises(AssertionError):
        run_state_machine_as_test(crash_machine(Counter), settings=FINDING)


@pytest.mark.soak
def test_writes_can_be_given():
    texts = st.fixed_dictionaries({"text": st.text(max_size=5)})
    run_state_machine_as_test(crash_machine({"text": reducers.custom(longest)}, writes=texts), settings=QUICK)


def test_a_reducer_without_declared_types_needs_writes():
    with pytest.raises(UsageError):
        crash_machine({"text": reducers.custom(longest)})


def test_invalid_schemas_are_refused():
    with pytest.raises(SchemaError):
        crash_machine(5)
