"""The places at which a fork can begin: a place, a call of `steps`, or a number of items."""

from __future__ import annotations

import pytest
from executed import CALLS, note

from statelog import durable
from statelog.errors import UsageError


def undo(result, value):
    pass


@durable.workflow
def booking(run):
    flight = run.step_with(durable.StepOptions(compensate=undo), note, "flight")
    found = run.map(note, ["a", "b"], concurrency=1)
    return [flight, *found, run.step_with(durable.StepOptions(compensate=undo), note, "hotel")]


def after(store, at):
    """Return the calls of a fork."""
    durable.run(store, booking, id="evt-1")
    CALLS.clear()
    durable.fork(store, "evt-1", at=at, id="evt-1b")
    assert durable.resume_all(store, [booking])[0].value == ["flight", "a", "b", "hotel"]
    return CALLS


@pytest.mark.parametrize(("kept", "calls"), [(0, ["flight", "a", "b", "hotel"]), (2, ["a", "b", "hotel"]), (6, [])])
def test_a_number_gives_the_number_of_items_to_keep(store, kept, calls):
    """A call with a compensation has two items: its start and its end."""
    assert after(store, kept) == calls


def test_a_fork_begins_before_a_call_that_steps_returned(store):
    durable.run(store, booking, id="evt-1")
    assert after(store, durable.steps(store, "evt-1")[2]) == ["b", "hotel"]


def test_a_fork_begins_before_a_map_at_its_place(store):
    assert after(store, "1") == ["a", "b", "hotel"]


def test_a_fork_of_a_run_without_records_and_thread_is_refused(store):
    durable.start(store, booking, id="evt-1")
    with pytest.raises(UsageError, match="nothing"):
        durable.fork(store, "evt-1", at=0, id="evt-2")


def test_a_number_that_ends_in_the_middle_of_a_call_is_refused(store):
    durable.run(store, booking, id="evt-1")
    with pytest.raises(UsageError, match="end in the middle of a call: fork at its place, '0'"):
        durable.fork(store, "evt-1", at=1, id="evt-1b")
