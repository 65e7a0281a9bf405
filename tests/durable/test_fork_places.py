"""Where a fork leaves its run: at a place, at a call of `steps`, or behind so many of them."""

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
def test_a_number_is_that_of_the_items_that_are_kept(store, kept, calls):
    """Of a call with a compensation two things are recorded: that it begins, and its end."""
    assert after(store, kept) == calls


def test_a_fork_leaves_before_what_steps_returned(store):
    durable.run(store, booking, id="evt-1")
    assert after(store, durable.steps(store, "evt-1")[2]) == ["b", "hotel"]


def test_a_fork_leaves_before_a_map_at_its_place(store):
    assert after(store, "1") == ["a", "b", "hotel"]


def test_a_fork_of_a_run_that_has_done_nothing_in_no_thread_is_refused(store):
    durable.start(store, booking, id="evt-1")
    with pytest.raises(UsageError, match="nothing"):
        durable.fork(store, "evt-1", at=0, id="evt-2")


def test_a_number_that_cuts_a_call_in_two_is_refused(store):
    durable.run(store, booking, id="evt-1")
    with pytest.raises(UsageError, match="end in the middle of a call: fork at its place, '0'"):
        durable.fork(store, "evt-1", at=1, id="evt-1b")
