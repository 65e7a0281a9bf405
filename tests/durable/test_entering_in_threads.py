"""A run as a block in a thread: entering the block begins, continues, ends or replays the run."""

from __future__ import annotations

import signal
import sys
import threading

import forks
import pytest
from executed import CALLS

import statelog
from statelog import durable
from statelog.errors import (
    ConflictError,
    NondeterminismError,
    RunCancelledError,
    RunEndedError,
    StepFailedError,
    UsageError,
)


class DeclinedError(Exception):
    """An exception class that only this module knows."""


def double(number):
    CALLS.append(number)
    return number * 2


def fail():
    CALLS.append("fail")
    raise ValueError("no")


def enter(store, body, run="r", **how):
    """Enter a run and call a function with it."""
    with durable.entered(store, run, **how) as entered:
        return body(entered)


def doubled(store, *numbers, **how):
    with durable.entered(store, "r", **how) as run:
        return [run.step(double, number) for number in numbers]


def status(store):
    return durable.get_run(store, "r").status


def test_a_block_that_ends_completes_its_run_and_entering_again_calls_nothing(store):
    for _time in range(2):
        assert doubled(store, 1, 2, name="agent") == [2, 4]
    info = durable.get_run(store, "r")
    assert (info.status, info.workflow, CALLS) == ("completed", "agent", [1, 2])
    assert store.thread("r").state.get("statelog:steps") is None


def test_an_exception_that_leaves_the_block_fails_the_run_and_is_raised_unchanged(store):
    def body(run):
        run.step_with(durable.StepOptions(compensate=lambda result, _number: CALLS.append(f"undo {result}")), double, 1)
        raise KeyError("mine")

    with pytest.raises(KeyError):
        enter(store, body)
    assert (status(store), CALLS) == ("failed", [1, "undo 2"])


def test_a_failed_step_fails_again_on_replay_and_can_be_caught(store):
    for _time in range(2):
        with pytest.raises(ValueError, match="no"), durable.entered(store, "r") as run:
            run.step(fail)
    assert CALLS == ["fail"]
    with durable.entered(store, "s") as run:
        with pytest.raises(ValueError, match="no"):
            run.step(fail)
        assert run.step(double, 1) == 2
    assert durable.get_run(store, "s").status == "completed"


def test_exceptions_in_raises_are_restored_with_their_class(store):
    def decline():
        raise DeclinedError("no funds")

    for raises, kind in ([], StepFailedError), ([DeclinedError], DeclinedError):
        with pytest.raises(kind), durable.entered(store, f"r-{len(raises)}", raises=raises) as run:
            run.step(decline)


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interrupt_leaves_the_run_open_and_the_next_block_continues_it(store, interrupt):
    def body(run):
        run.step(double, 1)
        raise interrupt

    with pytest.raises(interrupt):
        enter(store, body)
    assert status(store) == "queued"
    assert doubled(store, 1, 2) == [2, 4]
    assert (status(store), CALLS) == ("completed", [1, 2])


def test_an_interrupt_within_a_step_leaves_the_run_open_and_the_step_is_repeated(store):
    def interrupted():
        CALLS.append("interrupted")
        if len(CALLS) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), durable.entered(store, "r") as run:
        run.step(interrupted)
    with durable.entered(store, "r") as run:
        run.step(interrupted)
    assert (status(store), CALLS) == ("completed", ["interrupted"] * 2)


def test_an_ended_run_refuses_calls_that_it_has_not_recorded(store):
    doubled(store, 1)
    with pytest.raises(RunEndedError):
        doubled(store, 1, 2)
    assert (status(store), CALLS) == ("completed", [1])


def test_a_step_that_differs_from_the_record_stops_the_run(store):
    def body(run):
        run.step(double, 1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        enter(store, body)
    for numbers in ([7], []):
        with pytest.raises(NondeterminismError):
            doubled(store, *numbers)
    assert status(store) == "queued"
    assert doubled(store, 1) == [2]


@pytest.mark.slow
def test_only_one_block_at_a_time_is_in_a_run_and_the_next_one_waits(store):
    is_in, found = threading.Event(), []

    def other():
        with durable.entered(store, "r", wait_s=20) as run:
            found.append(run.step(double, 1))

    with durable.entered(store, "r") as run:
        with pytest.raises(ConflictError, match="running elsewhere"):
            doubled(store, 1)
        waiting = threading.Thread(target=other)
        waiting.start()
        is_in.wait(0.05)
        run.step(double, 1)
    waiting.join()
    assert (found, CALLS) == ([2], [1])


def test_blocks_of_two_runs_can_be_nested(store):
    with durable.entered(store, "outer") as outer:
        with durable.entered(store, "inner") as inner:
            assert (inner.step(double, 1), outer.step(double, 2)) == (2, 4)
        assert outer.step(double, 3) == 6
    assert [durable.get_run(store, each).status for each in ("outer", "inner")] == ["completed"] * 2


def test_a_step_in_a_different_thread_than_its_block_is_refused(store):
    refused = []

    def elsewhere(run):
        try:
            run.step(double, 1)
        except UsageError as error:
            refused.append(error)

    with durable.entered(store, "r") as run:
        thread = threading.Thread(target=elsewhere, args=(run,))
        thread.start()
        thread.join()
    assert (len(refused), CALLS, status(store)) == (1, [], "completed")


def test_a_run_that_is_cancelled_ends_its_block(store):
    def body(run):
        run.step_with(durable.StepOptions(compensate=lambda result, _number: CALLS.append(f"undo {result}")), double, 1)
        durable.cancel(store, "r")
        run.step(double, 2)

    with pytest.raises(RunCancelledError):
        enter(store, body)
    assert (status(store), CALLS) == ("cancelled", [1, "undo 2"])


def test_a_long_wait_ends_the_block_and_entering_the_run_later_continues_it(store):
    with pytest.raises(ConflictError, match="cannot wait that long"), durable.entered(store, "r") as run:
        run.step_with(durable.StepOptions(retry=durable.Retry(attempts=2, first_delay_s=3600)), fail)
    assert status(store) == "suspended"
    with pytest.raises(ConflictError), durable.entered(store, "r"):
        pass


def test_rolling_back_the_thread_of_a_block_ends_the_block(store):
    def body(run):
        run.step(double, 1)
        run.step(double, 2)
        store.thread("r").rollback(0)
        run.step(double, 3)

    with pytest.raises(ConflictError, match="rolled back"):
        enter(store, body)
    assert doubled(store, 1, 2, 3) == [2, 4, 6]


def test_a_parked_run_or_a_run_of_another_workflow_cannot_be_entered(store):
    @durable.workflow
    def other(run):
        return run.recv()

    durable.run(store, other, id="r")
    with pytest.raises(ConflictError, match="a different workflow"):
        doubled(store, 1)
    assert CALLS == []


@pytest.mark.parametrize("options", [{"wait_s": -1}, {"name": ""}, {"raises": 3}], ids=str)
def test_an_invalid_option_of_a_block_is_refused_and_no_run_begins(store, options):
    with pytest.raises(UsageError):
        doubled(store, 1, **options)
    assert durable.runs(store) == []


@pytest.mark.parametrize("damage", ["closed", "deleted", "replaced"])
def test_an_exception_is_raised_unchanged_with_a_note_if_the_run_cannot_record_it(tmp_path, damage):
    def body(run):
        run.step(double, 1)
        if damage == "closed":
            store.close()
        elif damage == "deleted":
            store.delete_thread("statelog:board")
        else:
            (tmp_path / "b.state").rename(tmp_path / "moved.state")  # a commit notices it
        raise DeclinedError("mine")

    with statelog.open(tmp_path / "b.state") as store:
        with pytest.raises(DeclinedError, match="mine") as caught:
            enter(store, body)
        assert "Error was also raised" in caught.value.__notes__[0]


def test_a_step_called_after_the_end_of_its_block_is_refused(store):
    for _time in ("begun", "replayed"):
        with durable.entered(store, "r") as run:
            run.step(double, 1)
        with pytest.raises(UsageError, match="has ended: call its steps within the block"):
            run.step(double, 2)
    assert CALLS == [1]


KILLED = """
import os, sys
from pathlib import Path
import statelog
from statelog import durable

folder = Path(sys.argv[1])

def step(number):
    with (folder / "calls").open("a") as file:
        file.write(f"{number} ")
    if number == 2 and not (folder / "killed").exists():
        (folder / "killed").touch()
        os.kill(os.getpid(), 9)

with statelog.open(folder / "a.state") as store, durable.entered(store, "r") as run:
    for number in (1, 2, 3):
        run.step(step, number)
"""


@pytest.mark.slow
def test_after_a_kill_only_the_step_in_flight_is_repeated(tmp_path):
    codes = [
        forks.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, timeout=60).returncode
        for _time in range(2)
    ]
    assert codes == [-signal.SIGKILL, 0]
    assert (tmp_path / "calls").read_text().split() == ["1", "2", "2", "3"]
