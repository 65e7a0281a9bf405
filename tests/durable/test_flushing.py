"""The records of a run that are on the disk when a step is called. A power cut cannot undo them."""

from __future__ import annotations

import pytest

import statelog
from statelog import durable

UNHURRIED_MS = 60_000


@pytest.fixture
def opened(path):
    """Return a function that opens the store with a durability. No timer flushes the store during a test."""
    stores = []

    def open_with(durability):
        stores.append(statelog.open(path, durability=durability, interval_ms=UNHURRIED_MS))
        return stores[-1]

    yield open_with
    for store in stores:
        store.close()


def lag_in_step(store, **options):
    """Return the number of records that are not on the disk when a step is called. One step was recorded before."""

    def look():
        return store.last_lsn - store._session.engine.store_file.flushed_lsn()

    @durable.workflow
    def two(run):
        run.step_with(durable.StepOptions(name="first"), lambda: 1)
        return run.step_with(durable.StepOptions(**options), look)

    return durable.run(store, two, id="evt-1").value


@pytest.mark.parametrize("options", [{"semantics": "at_most_once"}, {"compensate": print}])
@pytest.mark.parametrize("durability", ["commit", "interval"])
def test_the_start_of_a_step_is_on_the_disk_before_the_call_in_both_modes(opened, durability, options):
    """D9, D10."""
    assert lag_in_step(opened(durability), **options) == 0


def test_with_durability_commit_results_are_on_the_disk_before_the_next_call(opened):
    assert lag_in_step(opened("commit")) == 0


def test_with_durability_interval_results_may_be_lost(opened):
    assert lag_in_step(opened("interval")) >= 1
