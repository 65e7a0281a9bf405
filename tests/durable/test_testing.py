"""The skipping clock, and stubs instead of steps."""

from __future__ import annotations

import pytest

from statelog import durable
from statelog.durable.clock import WallClock, clock
from statelog.errors import UsageError
from statelog.testing.durable import skipping_clock, stub_steps

SLOW = durable.Retry(attempts=3, first_delay_s=3600, max_delay_s=3600, backoff=1, jitter=False)


def ask_model(_question):
    raise AssertionError("a test asks no model")


def undo(_result, _question):
    raise AssertionError("a test undoes nothing")


@durable.workflow
def asking(run, question):
    return run.step_with(durable.StepOptions(retry=SLOW), ask_model, question)


@durable.workflow
def waiting(run):
    began = run.now()
    run.sleep(86400)
    is_late = run.gate("pay", timeout_s=7200).is_timeout
    return (run.now() - began).total_seconds() // 3600, is_late, run.recv("chat", timeout_s=7200)


@pytest.fixture
def skipping(store):
    with skipping_clock(store) as made:
        yield made


def test_sleeps_and_retries_return_at_once_and_advance_the_clock(store, skipping):
    before_us = skipping.now_us()
    errors = iter([OSError(), OSError()])

    def answer(_question):
        for error in errors:
            raise error
        return 42

    with stub_steps({"ask_model": answer}) as stubs:
        assert durable.run(store, asking, "why?", id="evt-1").value == 42
    assert stubs.count(ask_model) == 3
    assert skipping.now_us() - before_us >= 2 * 3600 * 1_000_000


def test_gates_and_messages_time_out_when_the_clock_is_advanced(store, skipping):
    assert durable.run(store, waiting, id="evt-1").waiting_for == ("gate evt-1/2",)
    skipping.advance(3600)
    assert durable.run(store, waiting, id="evt-1").waiting_for == ("gate evt-1/2",)
    skipping.advance(3600)
    assert durable.run(store, waiting, id="evt-1").waiting_for == ("mail chat",)
    skipping.advance(7200)
    durable.run_worker(store, [waiting], until_idle=True)
    assert durable.get_run(store, "evt-1").value == (26, True, None)


def test_runs_can_be_suspended_during_sleeps(store):
    with skipping_clock(store, suspends=True) as skipping:
        assert durable.run(store, waiting, id="evt-1").waiting_for == ("time",)
        skipping.advance(86400)
        assert durable.run(store, waiting, id="evt-1").waiting_for == ("gate evt-1/2",)


def test_delays_and_timeouts_use_the_skipping_clock(store, skipping):
    durable.start(store, waiting, id="evt-1", delay_s=3600, timeout_s=7200)
    durable.run_worker(store, [waiting], until_idle=True)
    assert durable.get_run(store, "evt-1").status == "queued"
    skipping.advance(7200)
    durable.run_worker(store, [waiting], until_idle=True)
    assert durable.get_run(store, "evt-1").error == "TimeoutError: the run took longer than 7200 s"


def test_a_stopped_clock_moves_only_by_skipped_time(store):
    with skipping_clock(store, stands_at_us=1_000_000) as skipping:
        skipping.advance(2)
        assert skipping.now_us() == 3_000_000
    assert isinstance(clock(), WallClock)


def test_a_stub_is_called_like_the_step_and_records_its_calls(store):
    seen = []

    def answer(_question):
        seen.append(durable.current_step().idempotency_key)
        return "a stub"

    with stub_steps({ask_model: answer}) as stubs:
        durable.start(store, asking, "why?", id="evt-1")
        durable.run_worker(store, [asking], until_idle=True)
        assert durable.get_run(store, "evt-1").value == "a stub"
        assert stubs.calls("ask_model") == [(("why?",), {})]
        assert seen == ["evt-1/0"]
    assert durable.run(store, asking, "why?", id="evt-2").waiting_for == ("retry of step ask_model",)


def test_steps_and_compensations_are_stubbed_by_function_whatever_their_names(store):
    @durable.workflow(name="w")
    def saga(run):
        run.step_with(durable.StepOptions(name="other", compensate=undo), ask_model, 1)
        raise durable.Abort

    with stub_steps({ask_model: str, undo: lambda result, _question: result}) as stubs:
        assert durable.run(store, saga, id="evt-1").parked == ()
        assert stubs.calls(undo) == [(("1", 1), {})]


def test_an_invalid_stub_is_refused():
    for replacements in ({"ask_model": 1}, {5: str}):
        with pytest.raises(UsageError), stub_steps(replacements):
            pass
    with stub_steps({}) as stubs, pytest.raises(UsageError, match="not stubbed"):
        stubs.count("ask_model")
