"""Threads that other writers commit to, or roll back, while a run is at work in them (D18)."""

from __future__ import annotations

import pytest
from executed import CALLS, note

from statelog import durable
from statelog.errors import ConflictError


@pytest.mark.parametrize("way", ["step", "transact", "emit"])
def test_a_run_continues_from_the_version_to_which_its_thread_was_rolled_back(store, way):
    @durable.workflow(name="w")
    def flow(run):
        for number in range(3):
            run.step(note, number)
        if CALLS.count(2) == 1:  # Another writer rolls back while the run is driven.
            store.thread("evt-1").rollback(0)
        if way == "step":
            run.step(note, "last")
        elif way == "transact":
            run.transact(lambda tx: tx.board().set("last", CALLS.count(2)))
        else:
            run.emit("last", 1)
        return "done"

    assert durable.run(store, flow, id="evt-1").value == "done"
    assert [call for call in CALLS if call != "last"] == [0, 1, 2, 1, 2]
    assert [each.place for each in durable.steps(store, "evt-1")] == ["0", "1", "2", "3"]
    assert way != "transact" or store.board().get("last").value == 2


def test_commits_of_other_writers_to_the_thread_of_a_run_are_kept(store):
    @durable.workflow
    def flow(run):
        for number in range(3):
            store.thread("evt-1").commit({f"other{number}": number})
            run.step_with(durable.StepOptions(commit=lambda number: {f"mine{number}": number}), note, number)
            store.thread("evt-1").commit({f"more{number}": number})
            run.emit("told", number)

    assert durable.run(store, flow, id="evt-1").status == "completed"
    assert len(store.thread("evt-1").state) == 9


def test_a_run_that_repeatedly_rolls_back_its_own_thread_gets_an_error(store):
    @durable.workflow
    def flow(run):
        run.step(note, 1)
        run.step(note, 2)
        store.thread("evt-1").rollback(0)
        run.step(note, 3)

    with pytest.raises(ConflictError, match="rolled back 21 times"):
        durable.run(store, flow, id="evt-1")
