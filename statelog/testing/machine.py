"""A state machine for Hypothesis that tests your schema with kills and power cuts."""

from __future__ import annotations

import contextlib
import tempfile
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from statelog.schema import Schema
from statelog.testing.algebra import annotated_values, domains
from statelog.testing.crash import POINTS, crash_at
from statelog.testing.history import Operation, perform
from statelog.testing.model import StoreModel
from statelog.testing.powerloss.campaign import examine_recordings
from statelog.testing.powerloss.recorder import log_directory, record
from statelog.testing.powerloss.shim import is_supported
from statelog.testing.powerloss.workloads import Workload
from statelog.testing.strategies import draw_operation, small_values

if TYPE_CHECKING:
    from hypothesis.strategies import DataObject, SearchStrategy

_KILLS = tuple(point for point in POINTS if point.startswith(("creation.", "commit.")))
_PASSES_MAX = 6
_IMAGES = 150
_THREADS = ("a", "b")
_SETTINGS = settings(
    max_examples=8, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)


def crash_machine(
    schema: object,
    *,
    writes: SearchStrategy[Mapping[str, Any]] | None = None,
    durability: Literal["commit", "interval"] = "commit",
) -> type[RuleBasedStateMachine]:
    """Return a state machine that performs operations on stores with a schema, kills processes, and cuts the power.

    Each run draws a history of commits, forks, rollbacks, tags and transactions. From time to time, a process performs
    the history on a new store and is killed with SIGKILL at a named point, or the power is cut at every point of the
    history. Each time, the store must have exactly the acknowledged contents, as a model of the schema has them.

        TestMyState = crash_machine(MyState).TestCase   # or: run_state_machine_as_test(crash_machine(MyState))

    Power cuts need a 64-bit Linux and a C compiler. Elsewhere, there are only kills. A run takes some seconds.

    Args:
        schema: a TypedDict, dataclass, pydantic model or dict of reducers. It must be importable, as for pickle.
        writes: a strategy for updates. By default, updates of the types that the schema and its reducers declare.
        durability: the durability of the stores.

    Raises:
        UsageError: `writes` is left out, and a reducer does not declare its types.
        SchemaError: `schema` is not a schema.
    """
    updates = _writes_of(schema) if writes is None else writes
    supersteps = st.lists(updates, min_size=1, max_size=3).map(tuple)

    class CrashMachine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.history: list[Operation] = []
            self.model = StoreModel()

        @rule(data=st.data())
        def something_happens(self, data: DataObject) -> None:
            draw: Any = data.draw
            operation = draw_operation(draw, self.model, schema, supersteps, _THREADS)
            perform(operation, self.model, schema=schema)
            self.history.append(operation)

        @precondition(lambda self: self.history)
        @rule(point=st.sampled_from(_KILLS), occurrence=st.integers(1, _PASSES_MAX))
        def a_process_is_killed(self, point: str, occurrence: int) -> None:
            with tempfile.TemporaryDirectory() as temporary:
                crash_at(
                    Path(temporary) / "agent.state",
                    tuple(self.history),
                    point=point,
                    occurrence=occurrence,
                    schema=schema,
                    durability=durability,
                )

        @precondition(lambda self: self.history and is_supported())
        @rule()
        def the_power_is_cut(self) -> None:
            workload = Workload("history", (tuple(self.history),), schema=schema, durability=durability)
            with tempfile.TemporaryDirectory(dir=log_directory()) as temporary:
                recording = record(workload, Path(temporary))
            report = examine_recordings([recording], images=_IMAGES, thorough=False, workers=1)
            assert report.ok, report.bad[0].message

    CrashMachine.TestCase.settings = _SETTINGS
    return CrashMachine


def _writes_of(schema: object) -> SearchStrategy[dict[str, Any]]:
    """Return a strategy for updates of some channels, of the types that the schema or its reducers declare."""
    parsed = Schema.of(schema)
    hints: dict[str, Any] = {}
    if not isinstance(schema, Mapping):
        with contextlib.suppress(NameError, TypeError):
            hints = typing.get_type_hints(schema)
    channels: dict[str, SearchStrategy[Any]] = {}
    for name in parsed.specs():
        reducer = parsed.reducer(name)
        if reducer.name == "append":
            channels[name] = small_values()
        elif name in hints and reducer.name != "upsert":
            channels[name] = annotated_values(hints[name])
        else:
            channels[name] = st.one_of(*domains(reducer))
    return st.fixed_dictionaries({}, optional=channels)
