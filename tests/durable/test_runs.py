"""Runs: one id is one run, the runs of a thread are sequential, and a rollback of the thread includes its run."""

from __future__ import annotations

import time

import pytest
from executed import CALLS, note

import statelog
from statelog import durable
from statelog.errors import (
    ConflictError,
    LimitError,
    NondeterminismError,
    RunCancelledError,
    RunEndedError,
    RunFailedError,
    RunNotFoundError,
    UsageError,
    ValueTypeError,
)
from statelog.store.board import own_board
from statelog.testing.durable import skipping_clock


@durable.workflow
def three(run, first):
    return [run.step(note, (first, number)) for number in range(3)]


@durable.workflow
def chat(run, name):
    said = run.recv("chat")
    run.commit({"messages": {name: said}})
    return said


@durable.workflow
def refused(run):
    run.step(note, 1)
    raise ValueError("no")


def test_a_run_returns_what_its_steps_return(store):
    info = durable.run(store, three, "a", id="evt-1")
    assert (info.status, info.value, info.thread) == ("completed", [("a", 0), ("a", 1), ("a", 2)], "evt-1")


def test_the_same_id_is_the_same_run(store):
    """D1."""
    first = durable.run(store, three, "a", id="evt-1")
    assert durable.run(store, three, "a", id="evt-1") == first
    assert len(CALLS) == 3


def test_the_same_id_with_other_arguments_workflow_or_thread_is_refused(store):
    """D1."""
    durable.run(store, three, "a", id="evt-1")
    with pytest.raises(ConflictError, match="different arguments"):
        durable.run(store, three, "b", id="evt-1")
    with pytest.raises(ConflictError, match="a different workflow"):
        durable.run(store, chat, "a", id="evt-1")
    with pytest.raises(ConflictError, match="thread"):
        durable.run(store, three, "a", id="evt-1", thread="other")


def test_the_id_and_the_thread_of_a_run_default_to_each_other(store):
    assert durable.run(store, three, "a", thread="ticket-1").id == "ticket-1"
    assert durable.run(store, three, "a", id="evt-2").thread == "evt-2"
    with pytest.raises(UsageError, match="id= or thread="):
        durable.run(store, three, "a")


@pytest.mark.parametrize("id", ["a/b", "*", ".", "..", "a\u0308", "\u00e4", "50%", "[x]", "\\", "a b", "x" * 200])
def test_an_id_can_be_any_text(store, id):
    assert durable.run(store, three, "a", id=id).status == "completed"
    assert durable.get_run(store, id).id == id


def test_a_long_id_is_refused(store):
    with pytest.raises(LimitError):
        durable.run(store, three, "a", id="x" * 201)


def test_steps_are_removed_from_the_head_at_the_end_and_stay_in_history(store):
    """D17."""
    durable.run(store, chat, "a", id="evt-1", thread="ticket-1")
    durable.send(store, "evt-1", "hello", topic="chat")
    durable.run(store, chat, "a", id="evt-1", thread="ticket-1")
    assert store.thread("ticket-1").state == {"messages": {"a": "hello"}}
    assert [each.kind for each in durable.steps(store, "evt-1")] == ["recv", "commit"]


def test_runs_of_one_thread_are_sequential_even_if_the_first_one_waits(store):
    """D2."""
    first = durable.run(store, chat, "a", id="evt-1", thread="ticket-1")
    second = durable.run(store, chat, "b", id="evt-2", thread="ticket-1")
    assert (first.status, second.status, second.waiting_for) == ("suspended", "queued", ("run evt-1",))
    durable.send(store, "evt-2", "second", topic="chat")
    durable.send(store, "evt-1", "first", topic="chat")
    assert durable.run(store, chat, "b", id="evt-2", thread="ticket-1").status == "queued"
    assert durable.run(store, chat, "a", id="evt-1", thread="ticket-1").value == "first"
    assert durable.run(store, chat, "b", id="evt-2", thread="ticket-1").value == "second"
    assert durable.runs(store, thread="ticket-1", status="completed")[0].id == "evt-1"


def test_rolling_back_a_thread_rolls_back_its_run(store):
    """D18."""
    durable.run(store, three, "a", id="evt-1")
    store.thread("evt-1").rollback(1)
    CALLS.clear()
    assert durable.run(store, three, "a", id="evt-1").value == [("a", 0), ("a", 1), ("a", 2)]
    assert CALLS == [("a", 2)]


def test_a_fork_has_the_earlier_records_and_new_arguments(store):
    """D18."""
    durable.run(store, three, "a", id="evt-1")
    CALLS.clear()
    durable.fork(store, "evt-1", at="2", id="evt-1b")
    assert durable.run(store, three, "a", id="evt-1b", thread="evt-1").value == [("a", 0), ("a", 1), ("a", 2)]
    assert CALLS == [("a", 2)]
    durable.fork(store, "evt-1", at=0, id="evt-1c", args=["c"])
    assert durable.run(store, three, "c", id="evt-1c", thread="evt-1").value[0] == ("c", 0)
    assert store.thread("evt-1").checkout("evt-1b").id == "evt-1"


def test_a_fork_after_a_gate_has_its_answer(store):
    @durable.workflow
    def asks(run, first):
        run.step(note, first)
        approved = run.gate("ok").approved
        return run.step(note, approved)

    durable.run(store, asks, "a", id="evt-1")
    durable.answer(store, durable.gates(store)[0].id, approved=True)
    durable.run(store, asks, "a", id="evt-1")
    CALLS.clear()
    durable.fork(store, "evt-1", at="2", id="evt-1b")
    assert durable.run(store, asks, "a", id="evt-1b").value is True
    assert CALLS == [True]


def test_a_fork_of_nothing_is_refused(store):
    with pytest.raises(RunNotFoundError):
        durable.fork(store, "evt-1", at=0, id="evt-2")
    durable.run(store, three, "a", id="evt-1")
    for at in ("9", "note", 7, -1):
        with pytest.raises(UsageError):
            durable.fork(store, "evt-1", at=at, id="evt-2")
    with pytest.raises(ConflictError):
        durable.fork(store, "evt-1", at=0, id="evt-1")


def test_a_failed_run_reports_its_error(store):
    info = durable.run(store, refused, id="evt-1")
    assert (info.status, info.error, info.value) == ("failed", "ValueError: no", None)
    with pytest.raises(RunFailedError, match="ValueError: no"):
        durable.Handle(store, "evt-1").result(timeout_s=1)


def test_a_run_is_cancelled_at_its_next_operation(store):
    durable.run(store, chat, "a", id="evt-1")
    assert durable.cancel(store, "evt-1")
    assert durable.run(store, chat, "a", id="evt-1").status == "cancelled"
    assert not durable.cancel(store, "evt-1")
    with pytest.raises(RunCancelledError):
        durable.Handle(store, "evt-1").result()
    with pytest.raises(RunEndedError):
        durable.send(store, "evt-1", "late", topic="chat")


def test_a_run_fails_at_its_timeout(store):
    with skipping_clock(store) as clock:
        durable.run(store, chat, "a", id="evt-1", timeout_s=60)
        clock.advance(61)
        info = durable.run(store, chat, "a", id="evt-1")
    assert (info.status, info.error) == ("failed", "TimeoutError: the run took longer than 60 s")


def test_a_worker_drives_started_runs(store):
    handles = [durable.start(store, three, number, id=f"evt-{number}") for number in range(5)]
    assert durable.run_worker(store, [three, chat], until_idle=True) == 5
    assert [handle.result(timeout_s=5)[0] for handle in handles] == [(number, 0) for number in range(5)]


def test_priority_and_delay_determine_which_run_begins(store):
    durable.start(store, three, "low", id="evt-1", queue="trips")
    durable.start(store, three, "high", id="evt-2", queue="trips", priority=5)
    durable.start(store, three, "late", id="evt-3", queue="trips", delay_s=3600)
    durable.run_worker(store, [three], queues=["trips"], until_idle=True, concurrency=1)
    assert [call[0] for call in CALLS] == ["high"] * 3 + ["low"] * 3
    assert durable.get_run(store, "evt-3").status == "queued"


def test_a_message_does_not_begin_a_delayed_run_but_a_cancellation_ends_it(store):
    handle = durable.start(store, chat, "a", id="evt-1", delay_s=3600)
    durable.send(store, "evt-1", "hello", topic="chat")
    assert durable.run_worker(store, [chat], until_idle=True) == 0
    assert handle.info.status == "queued"
    handle.cancel()
    durable.run_worker(store, [chat], until_idle=True)
    assert handle.info.status == "cancelled"


def test_a_handle_waits_no_longer_than_its_timeout(store):
    handle = durable.start(store, three, "a", id="evt-1")
    with pytest.raises(TimeoutError):
        handle.result(timeout_s=0.01)


def test_resume_all_drives_every_run_that_can_continue(store):
    durable.run(store, chat, "a", id="evt-1")
    durable.run(store, chat, "b", id="evt-2")
    durable.start(store, three, "a", id="evt-3")
    durable.send(store, "evt-2", "hello", topic="chat")
    resumed = durable.resume_all(store, [chat, three])
    assert {(info.id, info.status) for info in resumed} == {("evt-2", "completed"), ("evt-3", "completed")}


def test_children_are_separate_runs(store):
    @durable.workflow
    def parent(run):
        return run.child(three, "child")

    info = durable.run(store, parent, id="evt-1")
    assert info.value == [("child", 0), ("child", 1), ("child", 2)]
    assert durable.get_run(store, "evt-1.0").parent == "evt-1"


@pytest.mark.slow
def test_a_parent_waits_for_a_child_that_waits_and_is_cancelled_with_it(store):
    @durable.workflow
    def parent(run):
        return run.child(chat, "child", id="kid")

    assert durable.run(store, parent, id="evt-1").waiting_for == ("run kid",)
    durable.send(store, "kid", "hello", topic="chat")
    durable.resume_all(store, [parent, chat])
    assert durable.run(store, parent, id="evt-1").value == "hello"
    durable.run(store, parent, id="evt-2") if durable.purge_run(store, "kid") is None else None
    durable.cancel(store, "evt-2")
    durable.resume_all(store, [parent, chat])
    assert {durable.get_run(store, each).status for each in ("evt-2", "kid")} == {"cancelled"}


def test_a_parent_that_fails_cancels_the_child_it_waits_for(store):
    @durable.workflow
    def parent(run):
        return run.child(chat, "child", id="kid")

    with skipping_clock(store, stands_at_us=10**15) as clock:
        durable.run(store, parent, id="evt-1", timeout_s=60)
        clock.advance(61)
        assert durable.run(store, parent, id="evt-1").status == "failed"
        assert durable.run(store, chat, "child", id="kid").status == "cancelled"


def test_continue_as_new_starts_an_endless_loop_again(store):
    @durable.workflow
    def loop(run, count):
        run.step(note, count)
        if count < 3:
            run.continue_as_new(count + 1)
        return count

    info = durable.run(store, loop, 0, id="evt-1")
    assert (info.value, CALLS) == (3, [0, 1, 2, 3])
    assert durable.run(store, loop, 0, id="evt-1").value == 3


def test_changed_code_stops_a_run_without_compensations(store):
    """D8, D13."""
    undone = []

    def workflow(step_name):
        @durable.workflow(name="w")
        def made(run):
            run.step_with(durable.StepOptions(compensate=lambda *_args: undone.append(1), name=step_name), note, 1)
            return run.recv()

        return made

    durable.run(store, workflow("old"), id="evt-1")
    assert list(durable.check_replay(store, [workflow("new")])) == ["evt-1"]
    assert durable.check_replay(store, [workflow("old")]) == {}
    durable.send(store, "evt-1", "hello")
    with pytest.raises(NondeterminismError) as caught:
        durable.run(store, workflow("new"), id="evt-1")
    assert (caught.value.recorded, caught.value.called) == ("step 'old'", "step 'new'")
    assert undone == []
    durable.resume(store, "evt-1")
    assert durable.run(store, workflow("old"), id="evt-1").value == "hello"


def test_a_stopped_run_continues_at_once_with_matching_code(store):
    def workflow(number):
        return durable.workflow(name="w")(lambda run: (run.step(abs, number), run.recv())[0])

    durable.run(store, workflow(1), id="evt-1")
    durable.send(store, "evt-1", "hello")
    with pytest.raises(NondeterminismError):
        durable.run(store, workflow(2), id="evt-1")
    assert durable.run(store, workflow(1), id="evt-1").value == 1


def test_an_argument_that_is_not_a_store_is_refused(path):
    with pytest.raises(UsageError, match="is not a store"):
        durable.run(path, three, "a", id="evt-1")


def test_code_that_fails_before_its_recorded_calls_stops_the_run(store):
    """D8."""

    @durable.workflow(name="w")
    def good(run):
        run.step(note, 1)
        return run.recv()

    @durable.workflow(name="w")
    def bad(_run):
        raise AttributeError("a bad deploy")

    durable.run(store, good, id="evt-1")
    with pytest.raises(NondeterminismError, match="ends without it"):
        durable.run(store, bad, id="evt-1") if durable.resume(store, "evt-1") else None


def test_a_patch_lets_code_change_under_open_runs(store):
    """D24."""

    @durable.workflow(name="w")
    def old(run):
        run.step(note, "before")
        run.recv()
        return run.step(note, "old")

    @durable.workflow(name="w")
    def new(run):
        run.step(note, "before")
        run.recv()
        return run.step(note, "new" if run.patched("better") else "old")

    @durable.workflow(name="w")
    def newer(run):
        run.step(note, "before")
        run.recv()
        run.deprecate_patch("better")
        return run.step(note, "new")

    for id in ("evt-1", "evt-2"):
        durable.run(store, old, id=id)
        durable.send(store, id, "go")
    assert durable.run(store, new, id="evt-1").value == "new"
    assert durable.run(store, newer, id="evt-2").value == "new"


def test_arguments_that_cannot_be_stored_are_refused_before_the_run_begins(store):
    with pytest.raises(ValueTypeError, match="arguments of workflow"):
        durable.run(store, three, object(), id="evt-1")
    with pytest.raises(RunNotFoundError):
        durable.get_run(store, "evt-1")


def test_unknown_runs_statuses_and_workflows_are_refused(store):
    for act in (
        lambda: durable.get_run(store, "nobody"),
        lambda: durable.cancel(store, "nobody"),
        lambda: durable.send(store, "nobody", 1),
        lambda: durable.steps(store, "nobody"),
        lambda: durable.get_event(store, "nobody", "x"),
        lambda: durable.resume(store, "nobody"),
    ):
        with pytest.raises(RunNotFoundError):
            act()
    with pytest.raises(UsageError, match="status"):
        durable.runs(store, status="asleep")
    with pytest.raises(UsageError, match="not a workflow"):
        durable.run(store, note, id="evt-1")


def test_a_run_that_repeatedly_kills_its_worker_is_parked_until_it_is_resumed(store):
    """D20."""
    durable.start(store, three, "a", id="evt-1")
    for _ in range(20):
        claim = own_board(store).claim("durable/tasks/**", lease_s=0.001)
        assert claim is not None
        time.sleep(0.002)
    durable.run_worker(store, [three], until_idle=True)
    assert durable.get_run(store, "evt-1").status == "parked"
    assert "20 times" in durable.get_run(store, "evt-1").error
    durable.resume(store, "evt-1")
    durable.run_worker(store, [three], until_idle=True)
    assert durable.get_run(store, "evt-1").status == "completed"
    assert store.board().list("**") == []


def test_an_id_can_be_used_again_after_purge(store):
    durable.run(store, three, "a", id="evt-1")
    durable.purge_run(store, "evt-1")
    assert durable.run(store, three, "b", id="evt-1").value[0] == ("b", 0)
    durable.run(store, chat, "a", id="evt-2")
    with pytest.raises(UsageError, match="not ended"):
        durable.purge_run(store, "evt-2")


def test_running_an_async_workflow_raises_an_error_that_names_aio_durable(store):
    @durable.workflow
    async def later(_run):
        return 1

    with pytest.raises(UsageError, match=r"statelog\.aio\.durable"):
        durable.run(store, later, id="evt-1")


def test_a_store_with_runs_verifies_and_rebuilds(path):
    with statelog.open(path) as store:
        durable.run(store, three, "a", id="evt-1")
        durable.run(store, chat, "a", id="evt-2")
        store.rebuild_index()
        assert store.verify().problems == []
        assert durable.get_run(store, "evt-2").status == "suspended"


@durable.workflow
def parent(run):
    return run.child(three, "a", id="below")


def test_the_call_of_a_child_names_the_run_of_the_child(store):
    durable.run(store, parent, id="above")
    assert [(each.kind, each.child) for each in durable.steps(store, "above")] == [("child", "below")]


@durable.workflow
def talks(run):
    return run.recv("chat")


@durable.workflow
def asks(run):
    return run.child(talks, id="below")


def test_the_end_of_a_child_that_existed_before_wakes_its_parents(store):
    durable.run(store, talks, id="below")
    assert durable.run(store, asks, id="above").waiting_for == ("run below",)
    assert durable.run(store, asks, id="beside").waiting_for == ("run below",)
    durable.send(store, "below", "hello", topic="chat")
    durable.run_worker(store, [talks, asks], until_idle=True)
    assert [durable.get_run(store, id).value for id in ("below", "above", "beside")] == ["hello"] * 3
