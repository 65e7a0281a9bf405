"""Kills at every boundary: workflows survive them, and the harness detects workflows that do not."""

from __future__ import annotations

import sys
import threading

import pytest

from statelog import durable
from statelog.durable import execution
from statelog.durable.branches import Branch
from statelog.durable.record import BEGUN
from statelog.durable.run import Run
from statelog.durable.steps import make_call
from statelog.errors import StepInterruptedError, UsageError
from statelog.reducers import add, append
from statelog.store.thread import Thread
from statelog.testing.durable import crash_everywhere

step_module = sys.modules["statelog.durable.steps"]
FAST = durable.Retry(attempts=2, first_delay_s=60, jitter=False)


def book(what):
    return {"booked": what}


def cancel(_result, _what):
    return None


def flaky():
    if durable.current_step().attempt < 2:
        raise OSError("again")
    return "at last"


def reserve(tx, seat):
    tx.board().update("seats", add, 1)
    return seat


def part(run, start):
    return [run.step(abs, start), run.step(abs, start + 1)]


@durable.workflow
def child(run, number):
    run.commit({"n": number})
    return run.step(book, number)["booked"]


@durable.workflow(schema={"hotel": append, "said": append})
def trip(run, to):
    flight = run.step_with(durable.StepOptions(compensate=cancel), book, f"flight to {to}")
    run.step_with(
        durable.StepOptions(compensate=cancel, commit=lambda result: {"hotel": result["booked"]}), book, "hotel"
    )
    found = run.map(book, [1, 2])
    both = run.gather(run.branch(part, 10), run.start(abs, -1))
    late = run.step_with(durable.StepOptions(retry=FAST), flaky)
    run.sleep(3600)
    seat = run.transact(reserve, 7)
    answer = run.gate("pay", timeout_s=60)
    said = [run.recv("chat"), run.recv("chat", timeout_s=60)]
    run.commit({"said": said})
    run.emit("trip/booked", {"id": str(run.uuid()), "chance": run.random()})
    run.set_event("progress", 0.9)
    return [flight, found, both, late, seat, answer.approved, said, run.step(book, "all")]


@durable.workflow
def undone(run):
    for what in ("flight", "hotel"):
        run.step_with(durable.StepOptions(compensate=cancel), book, what)
    run.child(child, 5)
    if not run.gate("pay", timeout_s=60).approved:
        raise durable.Abort("declined")


TRIP = {"answers": {"pay": True}, "messages": {"chat": ["a"]}}


@pytest.mark.slow
def test_a_trip_survives_a_kill_at_every_boundary(tmp_path):
    """D5."""
    boundaries = crash_everywhere(trip, "Lisbon", **TRIP, how=["kill"], directory=tmp_path)
    assert len(boundaries) > 40
    assert boundaries[0] == "before the begin of step 'book' at 0 of run 'run'"


@pytest.mark.soak
def test_a_trip_survives_a_takeover_or_cancellation_at_every_boundary(tmp_path):
    crash_everywhere(trip, "Lisbon", **TRIP, directory=tmp_path)


@pytest.mark.slow
def test_a_rollback_survives_a_kill_at_every_boundary(tmp_path):
    answers = {"pay": {"approved": False, "by": "me"}}
    crash_everywhere(undone, workflows=[child], answers=answers, directory=tmp_path)


@pytest.mark.slow
def test_an_at_most_once_step_is_not_called_again(tmp_path):
    @durable.workflow(name="w")
    def once(run):
        try:
            return run.step_with(durable.StepOptions(semantics="at_most_once"), book, "flight")
        except StepInterruptedError:
            return run.step_with(durable.StepOptions(name="look"), book, "look")

    crash_everywhere(once, directory=tmp_path)


@pytest.mark.slow
def test_an_endless_loop_survives_a_kill_at_every_boundary(tmp_path):
    @durable.workflow(name="w")
    def loop(run, count):
        run.step_with(durable.StepOptions(compensate=cancel), book, count)
        run.transact(reserve, count)
        if count < 1:
            run.continue_as_new(count + 1)
        return count

    crash_everywhere(loop, 0, directory=tmp_path)


# --- errors are detected -------------------------------------------------------------------------


def short(run):
    run.step_with(durable.StepOptions(compensate=cancel), book, "flight")
    run.step_with(durable.StepOptions(commit=lambda result: {"hotel": result["booked"]}), book, "hotel")


SHORT = durable.workflow(name="short")(short)


@pytest.mark.slow
def test_a_correct_workflow_passes_the_harness(tmp_path):
    assert len(crash_everywhere(SHORT, directory=tmp_path)) == 8


def test_recording_without_a_fence_is_detected(tmp_path, monkeypatch):
    """D3."""
    fenced = Thread.commit

    def unfenced(self, *updates, fence=None, **how):
        del fence
        return fenced(self, *updates, **how)

    monkeypatch.setattr(Thread, "commit", unfenced)
    with pytest.raises(AssertionError, match="overtake at boundary 1 of 8"):
        crash_everywhere(SHORT, directory=tmp_path)


def test_a_compensation_recorded_after_the_call_is_detected(tmp_path, monkeypatch):
    """D10."""
    commit, held = execution.Execution.commit, {}

    def late(self, *items, **how):
        if items[0]["s"] == BEGUN:
            held[self] = items
            return
        commit(self, *held.pop(self, ()), *items, **how)

    monkeypatch.setattr(execution.Execution, "commit", late)
    with pytest.raises(AssertionError, match=r"cancel at boundary 1 of .* was called, but not compensated"):
        crash_everywhere(SHORT, directory=tmp_path)


@pytest.mark.slow
def test_a_result_recorded_in_a_different_commit_than_its_writes_is_detected(tmp_path, monkeypatch):
    """D4."""

    def apart(run, call, item, given):
        run.commit(item)
        run.commit(writes=(call.commit(given),))

    monkeypatch.setattr(step_module, "_commit_more", apart)
    with pytest.raises(AssertionError, match=r"kill at boundary 6 of .* threads is"):
        crash_everywhere(SHORT, directory=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("is_wrong", [False, True])
def test_identity_by_completion_order_is_detected(tmp_path, monkeypatch, is_wrong):
    """D6: of two concurrent steps, the second ends first, but not after a crash."""
    first, ended = "fast", threading.Event()

    def by_completion(self, function, what):
        scope, call = self._scope(), make_call(function, (what,), {})

        async def work():
            assert what == first or ended.wait(10)
            place = scope.take()
            ended.set()
            return await step_module.take_step(self._execution, place, call)

        return Branch(self._execution, f"~{what}", work(), self._awaited)

    @durable.workflow(name="w")
    def two(run):
        nonlocal first
        ended.clear()
        first = "slow" if run._execution.record.count else "fast"
        return run.gather(run.start(book, "slow"), run.start(book, "fast"))

    if not is_wrong:
        crash_everywhere(two, directory=tmp_path)
        return
    monkeypatch.setattr(Run, "start", by_completion)
    with pytest.raises(AssertionError, match="with different arguments"):
        crash_everywhere(two, how=["kill"], directory=tmp_path)


def test_a_workflow_that_waits_for_a_message_that_never_comes_is_reported(tmp_path):
    waiting = durable.workflow(name="w")(lambda run: run.recv("chat"))
    with pytest.raises(AssertionError, match=r"mail chat.*messages="):
        crash_everywhere(waiting, directory=tmp_path)


def test_an_unknown_kind_of_crash_is_refused():
    with pytest.raises(UsageError, match="kill, overtake, cancel"):
        crash_everywhere(SHORT, how=["burn"])
