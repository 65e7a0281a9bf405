"""Runs that have not begun end at once if they are cancelled or out of time, whatever they wait for (D25)."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from executed import CALLS

from statelog import aio, durable
from statelog.aio import durable as aio_durable
from statelog.errors import RunCancelledError, RunEndedError, RunFailedError
from statelog.store.board import own_board
from statelog.testing.durable import skipping_clock

TIME_UP = "TimeoutError: the run took longer than 60 s"


@durable.workflow
def reply(run, text):
    CALLS.append(text)
    run.gate("approve")
    return text


@durable.workflow
def other(run):
    return run.recv()


@durable.workflow
def note(run, text):
    return run.step(CALLS.append, text)


@durable.workflow
def parent(run):
    return run.child(note, "of a child", id="kid")


def in_line(store, **how):
    """Begin a run that waits for weeks, and a second run that waits in the same thread."""
    durable.run(store, reply, "first", id="reply-1", thread="chat")
    return durable.start(store, reply, "second", id="reply-2", thread="chat", **how)


def left_behind(store):
    """Return the board keys of future runs."""
    directories = ("deadlines", "dedup", "mail")
    return [entry.key for each in directories for entry in own_board(store).list(f"durable/{each}/**")]


def test_a_run_waiting_for_its_thread_is_cancelled_at_once_and_frees_its_key(store):
    handle = in_line(store, dedup_key="message-2", timeout_s=60)
    durable.send(store, "reply-2", "lost")
    assert durable.cancel(store, "reply-2")
    assert (handle.info.status, handle.info.error, handle.info.waiting_for) == ("cancelled", "it was cancelled", ())
    with pytest.raises(RunCancelledError):
        handle.result(timeout_s=0)
    assert not durable.cancel(store, "reply-2")
    with pytest.raises(RunEndedError):
        durable.send(store, "reply-2", "late")
    assert left_behind(store) == []
    again = durable.start(store, reply, "third", id="reply-3", thread="chat-2", dedup_key="message-2")
    assert again.id == "reply-3"


def test_runs_behind_a_cancelled_run_keep_their_order(store):
    in_line(store)
    durable.start(store, note, "third", id="note-3", thread="chat")
    durable.cancel(store, "reply-2")
    assert durable.run_worker(store, [reply, note], until_idle=True) == 0
    (gate,) = durable.gates(store, pending=True)
    durable.answer(store, gate.id, approved=True)
    durable.run_worker(store, [reply, note], until_idle=True)
    assert {each.id: each.status for each in durable.runs(store)} == {
        "reply-1": "completed",
        "reply-2": "cancelled",
        "note-3": "completed",
    }
    assert CALLS == ["first", "first", "third"]


def test_a_run_in_a_queue_without_workers_is_cancelled_at_once(store):
    handle = durable.start(store, note, "a", id="evt-1", queue="nobody", dedup_key="k", delay_s=600)
    assert handle.cancel()
    assert handle.info.status == "cancelled"
    assert [entry.key for entry in own_board(store).list("durable/**")] == ["durable/runs/evt-1"]
    assert durable.run_worker(store, [note], until_idle=True) == 0
    assert CALLS == []


def test_a_run_that_has_begun_is_cancelled_by_its_driver(store):
    durable.run(store, reply, "first", id="reply-1")
    durable.cancel(store, "reply-1")
    assert durable.get_run(store, "reply-1").status == "suspended"
    durable.run_worker(store, [reply], until_idle=True)
    assert durable.get_run(store, "reply-1").status == "cancelled"


@pytest.mark.slow
def test_either_the_cancellation_or_the_claiming_worker_wins(store):
    for number in range(20):
        run = f"evt-{number}"
        durable.start(store, note, run, id=run)
        worker = threading.Thread(target=durable.run_worker, args=(store, [note]), kwargs={"until_idle": True})
        worker.start()
        durable.cancel(store, run)
        worker.join()
        durable.run_worker(store, [note], until_idle=True)
        status = durable.get_run(store, run).status
        assert status == ("completed" if run in CALLS else "cancelled")


def test_a_parent_continues_when_a_child_that_has_not_begun_is_cancelled(store):
    durable.run(store, reply, "ahead", id="ahead", thread="kid")
    assert durable.run(store, parent, id="evt-1").status == "suspended"
    durable.cancel(store, "kid")
    durable.run_worker(store, [parent, note, reply], until_idle=True)
    info = durable.get_run(store, "evt-1")
    assert (info.status, info.error.partition(":")[0]) == ("failed", "RunCancelledError")


def test_a_run_whose_thread_was_rolled_back_into_it_is_compensated_before_it_ends(store):
    @durable.workflow
    def trip(run):
        run.step_with(
            durable.StepOptions(compensate=lambda _result, _what: CALLS.append("unbook")), CALLS.append, "book"
        )
        run.step(CALLS.append, "pay")

    durable.run(store, trip, id="trip-1", thread="t")
    thread = store.thread("t")
    booked = max(each.version for each in thread.history() if len(each.state.get("statelog:steps") or ()) == 2)
    durable.start(store, reply, "ahead", id="reply-1", thread="t")
    thread.rollback(booked)
    durable.start(store, trip, id="trip-1", thread="t")
    durable.cancel(store, "trip-1")
    assert durable.get_run(store, "trip-1").status == "queued"


# --- time -----------------------------------------------------------------------------------------


def test_any_worker_fails_a_waiting_run_at_its_deadline(store):
    with skipping_clock(store) as clock:
        handle = in_line(store, dedup_key="message-2", timeout_s=60)
        clock.advance(30)
        durable.run_worker(store, [other], until_idle=True)
        assert handle.info.status == "queued"
        clock.advance(31)
        durable.run_worker(store, [other], until_idle=True)
    assert (handle.info.status, handle.info.error) == ("failed", TIME_UP)
    assert left_behind(store) == []
    with pytest.raises(RunFailedError, match="took longer"):
        handle.result(timeout_s=0)


def test_a_run_in_a_full_queue_fails_at_its_deadline(store):
    slots = own_board(store)
    slots.create("durable/slots/trips/0", {})
    slots.claim("durable/slots/trips/*")
    handle = durable.start(store, note, "a", queue="trips", timeout_s=0.05)
    time.sleep(0.06)
    durable.run_worker(store, [note], queues={"trips": durable.Queue(concurrency=1)}, until_idle=True)
    assert (handle.info.status, CALLS) == ("failed", [])


@pytest.mark.parametrize("look", ["run", "resume_all", "aio.run", "aio.resume_all"])
def test_running_or_resuming_other_runs_ends_a_run_past_its_deadline(store, path, look):
    with skipping_clock(store) as clock:
        handle = in_line(store, timeout_s=60)
        clock.advance(61)
        if look == "run":
            assert durable.run(store, reply, "second", id="reply-2", thread="chat").status == "failed"
        elif look == "resume_all":
            durable.resume_all(store, [other])
        else:

            async def main():
                async with await aio.open(path) as opened:
                    if look == "aio.run":
                        await aio_durable.run(opened, reply, "second", id="reply-2", thread="chat")
                    else:
                        await aio_durable.resume_all(opened, [other])

            asyncio.run(main())
    assert (handle.info.status, handle.info.error) == ("failed", TIME_UP)


def test_a_run_that_has_begun_is_compensated_at_its_deadline_and_leaves_no_entry(store):
    @durable.workflow
    def trip(run):
        run.step_with(
            durable.StepOptions(compensate=lambda _result, _what: CALLS.append("unbook")), CALLS.append, "book"
        )
        run.gate("approve")

    with skipping_clock(store) as clock:
        durable.run(store, trip, id="trip-1", timeout_s=60)
        clock.advance(61)
        durable.run_worker(store, [other], until_idle=True)
        assert durable.get_run(store, "trip-1").status == "suspended"
        durable.run_worker(store, [trip], until_idle=True)
    assert (durable.get_run(store, "trip-1").status, CALLS) == ("failed", ["book", "unbook"])
    assert left_behind(store) == []


def test_the_deadline_of_a_run_that_is_being_driven_is_checked_again(store):
    handle = durable.start(store, note, "a", timeout_s=0.01)
    claim = own_board(store).claim("durable/tasks/**")
    time.sleep(0.02)
    durable.run_worker(store, [other], until_idle=True)
    assert handle.info.status == "running"
    claim.release(counts=False)
    (entry,) = own_board(store).list("durable/deadlines/*")
    own_board(store).cas(entry.key, entry.value, expected_version=entry.version)
    durable.run_worker(store, [other], until_idle=True)
    assert handle.info.status == "failed"


def test_runs_without_a_timeout_and_ended_runs_have_no_deadline_entry(store):
    in_line(store)
    assert left_behind(store) == []
    durable.run(store, note, "a", id="evt-1", timeout_s=60)
    assert left_behind(store) == []


def test_a_worker_is_needed_at_the_deadline_of_a_waiting_run(store):
    in_line(store, timeout_s=600)
    due = durable.next_due(store)
    assert abs(due.timestamp() - time.time() - 600) < 60
