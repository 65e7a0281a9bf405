"""Forks continue from the present record of their run, also if it was rolled back or is a fork itself."""

from __future__ import annotations

import pytest
from executed import execute

from statelog import durable
from statelog.errors import UsageError


def several(run):
    for number in range(3):
        run.step_with(durable.StepOptions(commit=lambda result: {"last": result}), abs, -number)
    run.uuid()
    run.step_with(durable.StepOptions(commit=lambda result: {"last": result}), abs, -9)
    return run.gate("approve").approved


def drawn(store, run):
    return next(each.result for each in durable.steps(store, run) if each.kind == "uuid")


def test_a_fork_of_a_rolled_back_run_has_the_calls_made_after_the_rollback(store):
    execute(store, several)
    before = drawn(store, "evt-1")
    store.thread("evt-1").rollback(1)
    execute(store, several)
    now = drawn(store, "evt-1")
    assert now != before
    for kept in range(7):
        durable.fork(store, "evt-1", at=kept, id=f"fork-{kept}")
        assert [each.place for each in durable.steps(store, f"fork-{kept}")] == [str(place) for place in range(kept)]
        if kept > 3:
            assert drawn(store, f"fork-{kept}") == now


@pytest.mark.parametrize("has_begun_the_thread", [False, True])
def test_a_fork_of_a_fork_can_begin_before_the_first_fork(store, has_begun_the_thread):
    if not has_begun_the_thread:
        store.thread("evt-1").commit({"before": 1})
    execute(store, several)
    durable.fork(store, "evt-1", at="4", id="first")
    for kept in range(4):
        durable.fork(store, "first", at=kept, id=f"fork-{kept}")
        state = dict(store.thread("evt-1", branch=f"fork-{kept}").state)
        assert len(state.pop("statelog:steps", ())) == kept
        assert state.get("last") == (None if kept == 0 else min(kept - 1, 2))
        assert ("before" in state) is not has_begun_the_thread


def test_a_fork_before_the_oldest_kept_record_is_refused(store):
    execute(store, several)
    store.prune(keep_last=1)
    with pytest.raises(UsageError, match="was removed"):
        durable.fork(store, "evt-1", at=0, id="fork")


@pytest.mark.parametrize("begins_anew", [False, True])
def test_a_run_whose_thread_was_deleted_shows_no_steps(store, begins_anew):
    execute(store, several)
    durable.answer(store, durable.gates(store)[0].id, approved=True)
    execute(store, several)
    durable.fork(store, "evt-1", at=3, id="fork")
    store.delete_thread("evt-1")
    if begins_anew:
        store.thread("evt-1", recreate=True).commit({"x": 1})
    for run in ("evt-1", "fork"):
        assert durable.get_run(store, run).id == run
        assert durable.steps(store, run) == []


def test_a_fork_begins_after_the_last_continue_as_new(store):
    def anew(run, number):
        for each in range(9 - number):
            run.step(abs, -each)
        run.commit({"came": number})
        if number < 3:
            run.continue_as_new(number + 1)
        run.recv()

    execute(store, anew, 0)
    for kept in range(7):
        durable.fork(store, "evt-1", at=kept, id=f"fork-{kept}")
        state = store.thread("evt-1", branch=f"fork-{kept}").state
        assert (len(state.get("statelog:steps", ())), state["came"]) == (kept, 2)
