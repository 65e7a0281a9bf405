"""Tools for your own tests: a model of the store, Hypothesis strategies, crash tests, and checks of reducers.

def test_my_reducer_has_the_algebra_it_declares():
    check_reducer(reducers.custom(keep_best, associative=True))

@given(histories(schema=State, writes=my_writes()))
def test_my_state_survives_a_kill(history):
    crash_at(new_path(), history, point="commit.before_lmdb_commit", occurrence=3, schema=State)

TestMyState = crash_machine(State).TestCase

Strategies and checks of reducers need Hypothesis: `pip install 'statelog[test]'`.
"""

from typing import TYPE_CHECKING

from statelog.late import listing
from statelog.testing.comparison import assert_matches
from statelog.testing.crash import FURTHER_COMMIT, POINTS, Child, CrashResult, assert_recovered, crash_at
from statelog.testing.history import (
    Commit,
    Copy,
    Fork,
    History,
    Operation,
    Rollback,
    Tag,
    Together,
    Untag,
    perform,
    perform_all,
)
from statelog.testing.identity import exact_form, identical
from statelog.testing.model import CheckpointModel, StoreModel, ThreadModel
from statelog.testing.observation import differences, observe
from statelog.testing.on_demand import on_demand
from statelog.testing.sample import SCHEMA

if TYPE_CHECKING:
    from statelog.testing.algebra import check_reducer
    from statelog.testing.machine import crash_machine
    from statelog.testing.strategies import (
        elements,
        floats,
        histories,
        integers,
        large_values,
        scalars,
        states,
        texts,
        values,
        writes,
        writes_to,
    )

__all__ = [
    "FURTHER_COMMIT",
    "POINTS",
    "SCHEMA",
    "CheckpointModel",
    "Child",
    "Commit",
    "Copy",
    "CrashResult",
    "Fork",
    "History",
    "Operation",
    "Rollback",
    "StoreModel",
    "Tag",
    "ThreadModel",
    "Together",
    "Untag",
    "assert_matches",
    "assert_recovered",
    "check_reducer",
    "crash_at",
    "crash_machine",
    "differences",
    "elements",
    "exact_form",
    "floats",
    "histories",
    "identical",
    "integers",
    "large_values",
    "observe",
    "perform",
    "perform_all",
    "scalars",
    "states",
    "texts",
    "values",
    "writes",
    "writes_to",
]

__dir__ = listing(__name__)

__getattr__ = on_demand(
    __name__,
    {
        "algebra": ("check_reducer",),
        "machine": ("crash_machine",),
        "strategies": (
            "elements",
            "floats",
            "histories",
            "integers",
            "large_values",
            "scalars",
            "states",
            "texts",
            "values",
            "writes",
            "writes_to",
        ),
    },
)
