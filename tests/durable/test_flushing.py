"""What of a run is on the disk when a step is called: it is what a power cut cannot take."""

from __future__ import annotations

import pytest

import statelog
from statelog import durable

UNHURRIED_MS = 60_000


@pytest.fixture
def opened(path):
    """Return a function that opens the store with a durability; no timer flushes it during a test."""
    stores = []

    def open_with(durability):
        stores.append(statelog.open(path, durability=durability, interval_ms=UNHURRIED_MS))
        return stores[-1]

    yield open_with
    for store in stores:
        store.close()


def lag_in_step(store, **options):
    """Return how many records before the call of a step are not on the disk; one step was recorded before it."""

    def look():
        return store.last_lsn - store._session.engine.store_file.flushed_lsn()

    @durable.workflow
    def two(run):
        run.step_with(durable.StepOptions(name="first"), lambda: 1)
        return run.step_with(durable.StepOptions(**options), look)

    return durable.run(store, two, id="evt-1").value


@pytest.mark.parametrize("options", [{"semantics": "at_most_once"}, {"compensate": print}])
@pytest.mark.parametrize("durability", ["commit", "interval"])
def test_that_a_step_begins_is_on_the_disk_before_the_call_in_both_modes(opened, durability, options):
    """D9, D10."""
    assert lag_in_step(opened(durability), **options) == 0


def test_with_commit_what_is_recorded_is_on_the_disk_before_the_next_call(opened):
    assert lag_in_step(opened("commit")) == 0


def test_with_interval_what_is_recorded_may_be_lost(opened):
    assert lag_in_step(opened("interval")) >= 1
