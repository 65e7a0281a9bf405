"""Sagas, gates and messages: what a run compensates, and what it waits for."""

from __future__ import annotations

import dataclasses
import threading
import time

import pytest
from executed import Crash, execute
from waiting import until

import statelog
from statelog import durable
from statelog.durable import endings
from statelog.errors import ConflictError, GateNotFoundError, UsageError
from statelog.store.board import own_board
from statelog.testing.durable import skipping_clock

# --- sagas --------------------------------------------------------------------------------------------------


def saga(undone, fail):
    def book(what):
        if what == fail:
            raise OSError(what)
        return what.upper()

    def undo(result, what):
        undone.append((what, result))

    def body(run):
        for what in ("flight", "hotel", "car"):
            run.step_with(durable.StepOptions(compensate=undo), book, what)
        raise durable.Abort("enough")

    return body


def test_compensations_run_in_reverse_order(store):
    """D11."""
    undone = []
    assert execute(store, saga(undone, None)).error == "Abort: enough"
    assert undone == [("car", "CAR"), ("hotel", "HOTEL"), ("flight", "FLIGHT")]


def test_a_failed_step_is_compensated_as_unknown(store):
    undone = []
    assert execute(store, saga(undone, "hotel")).error == "OSError: hotel"
    assert undone == [("hotel", durable.UNKNOWN), ("flight", "FLIGHT")]


def test_a_compensation_that_fails_permanently_is_parked_and_the_others_run(store):
    """D12."""
    undone = []

    @durable.step(retry=durable.Retry(attempts=2, first_delay_s=0.001))
    def broken(_result):
        undone.append("broken")
        raise OSError("stuck")

    def body(run):
        run.step_with(durable.StepOptions(compensate=undone.append, name="one"), lambda: 1)
        run.step_with(durable.StepOptions(compensate=broken, name="two"), lambda: 2)
        raise durable.Abort

    info = execute(store, body)
    assert undone == ["broken", "broken", 1]
    assert info.parked == ("two: OSError: stuck",)


def test_a_saga_continues_after_a_crash_in_a_compensation(store):
    """D11."""
    undone = []

    def undo(_result, what):
        undone.append(what)
        if undone.count(what) == 1 and what == "hotel":
            raise Crash

    def body(run):
        for what in ("flight", "hotel"):
            run.step_with(durable.StepOptions(compensate=undo), str.upper, what)
        raise durable.Abort

    with pytest.raises(Crash):
        execute(store, body)
    assert execute(store, body).status == "failed"
    assert undone == ["hotel", "hotel", "flight"]


def test_a_cancelled_run_is_compensated(store):
    undone = []

    def body(run):
        run.step_with(durable.StepOptions(compensate=lambda result, _what: undone.append(result)), str.upper, "a")
        return run.gate("ok")

    execute(store, body)
    durable.cancel(store, "evt-1")
    assert execute(store, body).status == "cancelled"
    assert undone == ["A"]
    assert durable.gates(store)[0].status == "closed"


# --- gates and messages ---------------------------------------------------------------------------------------


def test_a_gate_suspends_a_run_and_its_answer_continues_it(store):
    """D16."""
    body = lambda run: dataclasses.asdict(run.gate("pay", payload={"total": 840}))  # noqa: E731
    info = execute(store, body)
    (gate,) = durable.gates(store, pending=True)
    assert (info.status, info.waiting_for, gate.payload) == ("suspended", (f"gate {gate.id}",), {"total": 840})
    durable.answer(store, gate.id, approved=True, payload=5, by="me")
    assert execute(store, body).value == {"approved": True, "payload": 5, "by": "me", "is_timeout": False}
    with pytest.raises(ConflictError, match="answered by me"):
        durable.answer(store, gate.id, approved=False)


def test_an_answer_to_an_unknown_gate_or_without_a_decision_is_refused(store):
    with pytest.raises(GateNotFoundError):
        durable.answer(store, "evt-1/0", approved=True)
    with pytest.raises(UsageError):
        durable.answer(store, "evt-1", approved=True)
    with pytest.raises(UsageError):
        durable.answer(store, "evt-1/0", approved="yes")


@pytest.mark.slow
def test_an_answer_wakes_a_worker(store):
    """D14."""
    stop = threading.Event()
    flow = durable.workflow(name="w")(lambda run: run.gate("pay").approved)
    worker = threading.Thread(target=durable.run_worker, args=(store, [flow]), kwargs={"stop": stop})
    worker.start()
    try:
        handle = durable.start(store, flow, id="evt-1")
        until(lambda: durable.gates(store, pending=True))
        durable.answer(store, durable.gates(store, pending=True)[0].id, approved=True)
        assert handle.result(timeout_s=60) is True
    finally:
        stop.set()
        worker.join()


def test_a_gate_reports_its_timeout(store):
    """D16."""
    flow = lambda run: run.gate("pay", timeout_s=0.01).is_timeout  # noqa: E731
    execute(store, flow)
    time.sleep(0.02)
    assert execute(store, flow).value is True
    with pytest.raises(ConflictError, match="not answered in time"):
        durable.answer(store, durable.gates(store)[0].id, approved=True)


def test_messages_that_arrive_before_the_wait_are_kept_in_order_and_received_once(store):
    """D15."""
    durable.start(store, durable.workflow(name="w")(lambda run: [run.recv("chat") for _ in range(3)]), id="evt-1")
    for number in range(3):
        durable.send(store, "evt-1", number, topic="chat", idempotency_key=str(number))
        durable.send(store, "evt-1", "again", topic="chat", idempotency_key=str(number))
    assert execute(store, lambda run: [run.recv("chat") for _ in range(3)]).value == [0, 1, 2]


def test_recv_returns_none_at_its_timeout(store):
    flow = lambda run: run.recv("chat", timeout_s=0.01)  # noqa: E731
    execute(store, flow)
    time.sleep(0.02)
    assert execute(store, flow).value is None


def test_other_processes_can_read_events(store):
    def body(run):
        run.set_event("progress", 0.4)
        return run.recv()

    execute(store, body)
    assert durable.get_event(store, "evt-1", "progress") == 0.4
    assert durable.get_event(store, "evt-1", "other", timeout_s=0.01) is None


def test_a_stream_is_read_before_the_result(store):
    def talk():
        for word in ("a", "b"):
            durable.current_step().stream(word)
        return "ab"

    execute(store, lambda run: run.step(talk))
    chunks = list(durable.stream(store, "evt-1"))
    assert [(chunk.value, chunk.attempt) for chunk in chunks] == [("a", 1), ("b", 1)]
    assert [chunk.value for chunk in durable.stream(store, "evt-1", after=chunks[0].cursor)] == ["b"]


def test_the_message_of_an_answered_gate_is_no_longer_sent(store):
    flow = lambda run: run.gate("pay").approved  # noqa: E731
    execute(store, flow)
    assert [message.topic for message in durable.outbox(store)] == ["gate/opened"]
    durable.answer(store, durable.gates(store)[0].id, approved=True)
    assert durable.outbox(store) == []
    assert execute(store, flow).value is True
    assert [entry.key for entry in store.board().list("durable/**")] == ["durable/gates/evt-1/0", "durable/runs/evt-1"]


def test_a_compensation_with_a_wrong_signature_is_refused_before_its_step(store):
    called = []
    info = execute(
        store, lambda run: run.step_with(durable.StepOptions(compensate=lambda _result: None), called.append, 5)
    )
    assert "does not take a result and the arguments" in info.error
    assert called == []


def _ask(run):
    return run.gate("approve").approved


def test_a_workflow_that_catches_the_suspension_of_its_branch_is_still_suspended(store):
    def body(run):
        try:
            return run.branch(_ask).result()
        except BaseException:  # noqa: BLE001 - what a careless workflow does
            return "went on"

    assert execute(store, body).status == "suspended"
    durable.answer(store, "evt-1/0.0", approved=True)
    assert execute(store, body).value is True


def test_a_branch_that_replaces_its_suspension_by_an_exception_is_still_suspended(store):
    def ask(run):
        try:
            return _ask(run)
        finally:
            if not durable.gates(store, pending=False):
                raise ValueError("cleaned up too early")

    def body(run):
        return run.branch(ask).result()

    assert execute(store, body).status == "suspended"
    durable.answer(store, "evt-1/0.0", approved=True)
    assert execute(store, body).value is True


# --- rollbacks, ends and checks ------------------------------------------------------------------


def _asks(run):
    first = run.step(abs, -1)
    return [first, run.gate("approve").approved, run.gate("confirm").approved]


def test_a_waiting_run_continues_from_the_version_to_which_its_thread_was_rolled_back(store):
    execute(store, _asks)
    durable.answer(store, "evt-1/1", approved=True)
    assert execute(store, _asks).waiting_for == ("gate evt-1/2",)
    store.thread("evt-1").rollback(0)  # After the step, before the first gate.
    assert execute(store, _asks).waiting_for == ("gate evt-1/1",)
    assert durable.answer(store, "evt-1/1", approved=False).status == "answered"


def test_a_gate_closed_by_the_end_of_its_run_can_be_answered_after_a_rollback(store):
    execute(store, _asks)
    version = store.thread("evt-1").version
    durable.cancel(store, "evt-1")
    assert execute(store, _asks).status == "cancelled"
    store.thread("evt-1").rollback(version)
    assert execute(store, _asks).status == "suspended"
    assert durable.answer(store, "evt-1/1", approved=True).status == "answered"
    durable.answer(store, execute(store, _asks).waiting_for[0].removeprefix("gate "), approved=False)
    assert execute(store, _asks).value == [1, True, False]


def test_the_end_of_a_run_also_closes_gates_from_before_a_rollback(store):
    wanted = [True]

    def body(run):
        if run.step(lambda: wanted[0]):
            run.recv()
            run.gate("approve")

    execute(store, body)
    durable.send(store, "evt-1", 1)
    execute(store, body)
    wanted[0] = False
    durable.fork(store, "evt-1", at=0, id="evt-2")  # The fork has none of these calls.
    store.thread("evt-1").commit({"statelog:steps": [], "statelog:run": {"run": "other", "workflow": "w"}})
    durable.resume(store, "evt-1")
    assert execute(store, body).status == "completed"
    assert [gate.status for gate in durable.gates(store)] == ["closed"]


def test_messages_that_arrive_while_a_run_ends_are_removed_with_it(path, monkeypatch):
    with statelog.open(path) as store:
        clear, sent = endings._clear, []

        def send():
            durable.send(store, "evt-1", "late")

        def clear_and_get_mail(*given):
            clear(*given)
            if not sent:
                sent.append(1)
                thread = threading.Thread(target=send)
                thread.start()
                thread.join(0.2)

        monkeypatch.setattr(endings, "_clear", clear_and_get_mail)
        assert execute(store, lambda run: run.now() and 1).status == "completed"
        assert own_board(store).list("durable/mail/**") == []


def test_check_replay_does_not_let_a_gate_time_out(store):
    @durable.workflow(name="w")
    def asks(run):
        return run.gate("approve", timeout_s=0.01).is_timeout

    durable.run(store, asks, id="evt-1")
    time.sleep(0.02)
    lsn = store.last_lsn
    assert durable.check_replay(store, [asks]) == {}
    assert store.last_lsn == lsn
    assert durable.run(store, asks, id="evt-1", wait_s=5).value is True


def test_is_cancelled_is_false_in_compensations_of_a_cancelled_run(store):
    told = []

    def body(run):
        run.step_with(
            durable.StepOptions(compensate=lambda *_: told.append(durable.current_step().is_cancelled)), abs, -1
        )
        run.gate("approve")

    execute(store, body)
    durable.cancel(store, "evt-1")
    assert execute(store, body).status == "cancelled"
    assert told == [False]


@pytest.mark.parametrize("is_map", [False, True])
def test_the_first_failure_is_raised_again_after_a_waiting_call_has_also_failed(store, is_map):
    retry = durable.Retry(attempts=2, first_delay_s=6, give_up_on=ValueError)
    got = []

    def fail(number):
        if number == 1:
            raise ValueError(number)
        raise OSError(number)

    def ask(run):
        if not run.gate("approve").approved:
            raise OSError(0)

    def body(run):
        try:
            if is_map:
                run.map_with(durable.StepOptions(retry=retry), fail, [0, 1])
            else:
                run.gather(run.branch(ask), run.start(fail, 1))
        except (ValueError, OSError) as error:
            got.append(repr(error))
        run.recv()

    with skipping_clock(store, suspends=True) as clock:
        assert execute(store, body).status == "suspended"
        for gate in durable.gates(store, pending=True):
            durable.answer(store, gate.id, approved=False)
        clock.advance(10)
        durable.send(store, "evt-1", 1)
        assert execute(store, body).status == "completed"
    assert got[0] == got[-1] == "ValueError(1)"
