"""Failed runs: their tracebacks and log lines, and how their waits are shown."""

from __future__ import annotations

import asyncio
import logging
import traceback

import pytest
from waiting import until

import statelog
from statelog import aio, durable
from statelog.aio import durable as aio_durable
from statelog.durable.failures import TRACEBACK_SIZE_MAX
from statelog.errors import RunCancelledError, RunFailedError, UsageError
from statelog.testing.durable import crash_everywhere


@durable.workflow
def broken(run):
    return run.step(len, "abc") + name_that_is_missing  # noqa: F821


@durable.workflow
async def broken_async(run):
    return await run.step(len, "abc") + name_that_is_missing  # noqa: F821


def divide(number):
    return 1 // number


@durable.workflow
def broken_step(run):
    return run.step(divide, 0)


@durable.workflow
def broken_saga(run):
    run.step_with(durable.StepOptions(compensate=lambda _result, _text: None), len, "a")
    return run.step(divide, 0)


def in_asyncio(path, workflow):
    async def main():
        async with await aio.open(path) as store:
            return await aio_durable.run(store, workflow, id="a")

    return asyncio.run(main())


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
def test_the_traceback_of_a_failed_run_is_recorded_and_logged_once(tmp_path, caplog, is_async):
    path = tmp_path / "a.state"
    with caplog.at_level(logging.DEBUG, logger="statelog"):
        if is_async:
            info = in_asyncio(path, broken_async)
        else:
            with statelog.open(path) as store:
                info = durable.run(store, broken, id="a")
    with statelog.open(path) as store:
        assert durable.get_run(store, "a").traceback == info.traceback
    lines = info.traceback.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert f"in {'broken_async' if is_async else 'broken'}" in lines[1]  # No frame of the library precedes it.
    assert lines[-1] == "NameError: name 'name_that_is_missing' is not defined"
    records = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert [(each.name, each.levelname) for each in records] == [("statelog.durable", "ERROR")]
    assert "name_that_is_missing" in logging.Formatter().format(records[0])


def test_a_run_that_gives_up_is_not_logged_as_an_error(store, caplog):
    @durable.workflow(name="go")
    def go(run, is_undone):
        run.step_with(durable.StepOptions(compensate=(lambda _result, _text: None) if is_undone else None), len, "a")
        raise durable.Abort("declined")

    with caplog.at_level(logging.INFO, logger="statelog.durable"):
        for is_undone in (False, True):
            assert "declined" in durable.run(store, go, is_undone, id=str(is_undone)).traceback
    assert [each.levelname for each in caplog.records] == ["INFO", "INFO"]


def test_the_traceback_shows_the_line_of_the_step_that_failed(store):
    info = durable.run(store, broken_step, id="a")
    assert "in divide" in info.traceback
    assert "in broken_step" in info.traceback


@pytest.mark.slow
def test_the_failure_is_kept_through_compensations_and_a_crash_among_them(store, caplog):
    assert "in divide" in durable.run(store, broken_saga, id="a").traceback
    for each in crash_everywhere(broken_saga, how=["kill"]):
        assert each
    assert all("in divide" in logging.Formatter().format(each) for each in caplog.records if each.levelname == "ERROR")


def test_the_traceback_of_a_task_group_has_no_library_frames(tmp_path):
    @durable.workflow
    async def go(run):
        async with asyncio.TaskGroup() as group:
            group.create_task(run.step(divide, 0))
            group.create_task(run.step(divide, 0))

    text = in_asyncio(tmp_path / "a.state", go).traceback
    assert "statelog/aio/durable" not in text
    assert text.count("in divide") == 2


def test_the_traceback_that_a_block_raises_shows_the_line_of_its_step(store):
    with pytest.raises(ZeroDivisionError) as raised, durable.entered(store, "a", name="divide") as run:
        run.step(divide, 0)
    assert "divide" in [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]


def test_a_long_traceback_keeps_its_beginning_and_its_end(store):
    @durable.workflow
    def shout(_run):
        raise ValueError("x" * 1_000_000 + " the end")

    info = durable.run(store, shout, id="a")
    assert len(info.traceback) <= TRACEBACK_SIZE_MAX
    assert info.traceback.startswith("Traceback")
    assert "in shout" in info.traceback
    assert info.traceback.endswith("the end\n")
    assert "characters are left out" in info.traceback


def test_a_traceback_with_invalid_unicode_is_kept(store):
    @durable.workflow
    def shout(_run):
        raise ValueError("\ud800")

    assert "\\ud800" in durable.run(store, shout, id="a").traceback


def test_a_completed_or_cancelled_run_has_no_traceback(store, caplog):
    @durable.workflow
    def wait(run):
        return run.recv()

    durable.run(store, wait, id="a")
    durable.cancel(store, "a")
    durable.send(store, "b", 7) if durable.run(store, wait, id="b").status == "suspended" else None
    assert durable.run(store, wait, id="a").traceback is None
    assert durable.run(store, wait, id="b").traceback is None
    assert not caplog.records


def test_the_traceback_of_a_run_that_timed_out_shows_where_it_was(store):
    @durable.workflow
    def wait(run):
        return run.recv()

    durable.run(store, wait, id="a", timeout_s=0.01)
    info = durable.run(store, wait, id="a", timeout_s=0.01, wait_s=5)
    assert info.error == "TimeoutError: the run took longer than 0.01 s"
    assert "in wait" in info.traceback


def test_info_result_returns_the_value_or_raises_the_failure(store):
    @durable.workflow
    def go(run, how):
        if how == "wait":
            run.gate("approve")
        return 1 // how

    assert durable.run(store, go, 1, id="a").result() == 1
    with pytest.raises(RunFailedError, match="ZeroDivisionError") as raised:
        durable.run(store, go, 0, id="b").result()
    assert raised.value.run == "b"
    with pytest.raises(UsageError, match="suspended, and waits for gate c/0"):
        durable.run(store, go, "wait", id="c").result()
    durable.cancel(store, "c")
    with pytest.raises(RunCancelledError):
        durable.run(store, go, "wait", id="c").result()


# --- waits as last calls ------------------------------------------------------------------------


LAST = {
    "gate": lambda run: run.gate("approve").approved,
    "sleep": lambda run: run.sleep(0.01),
    "recv": lambda run: run.recv("never", timeout_s=0.01),
    "gate late": lambda run: run.gate("approve", timeout_s=0.01).is_timeout,
}


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("kind", LAST)
def test_a_wait_that_is_the_last_call_is_closed_with_its_run(store, kind, fails):
    @durable.workflow
    def go(run):
        LAST[kind](run)
        if fails:
            raise durable.Abort

    durable.run(store, go, id="a")
    if kind == "gate":
        durable.answer(store, "a/0", approved=True)
    info = durable.run(store, go, id="a", wait_s=5)
    assert info.status == ("failed" if fails else "completed")
    assert [each.status for each in durable.steps(store, "a")] == ["done"]


def test_an_answered_wait_is_closed_when_the_run_waits_again(store):
    @durable.workflow
    def go(run):
        run.gate("approve")
        run.recv()

    durable.run(store, go, id="a")
    durable.answer(store, "a/0", approved=True)
    assert durable.run(store, go, id="a").waiting_for == ("mail default",)
    assert [(each.kind, each.status) for each in durable.steps(store, "a")] == [("gate", "done")]


def test_an_abandoned_wait_is_shown_as_closed_and_not_as_waiting(store):
    def wait_for_the_gate():
        until(lambda: any(each.kind == "gate" for each in durable.steps(store, "a")))
        return 3

    @durable.workflow
    def go(run):
        gate = run.branch(lambda run: run.gate("approve"))
        return run.wait_any(gate, run.start(wait_for_the_gate)).result()

    assert durable.run(store, go, id="a").value == 3
    assert {each.kind: each.status for each in durable.steps(store, "a")}["gate"] == "closed"


@pytest.mark.slow
def test_a_run_whose_last_call_is_a_gate_survives_a_kill_at_every_boundary():
    @durable.workflow
    def go(run):
        run.step(len, "abc")
        run.sleep(100)
        return run.gate("approve").approved

    assert len(crash_everywhere(go, answers={"approve": True})) >= 8
