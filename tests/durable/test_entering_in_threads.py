"""A run as a block of a thread: it is begun, gone on with, ended and replayed by entering it."""

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
    """An exception of nobody's but this module's."""


def double(number):
    CALLS.append(number)
    return number * 2


def fail():
    CALLS.append("fail")
    raise ValueError("no")


def enter(store, body, run="r", **how):
    """Be in a run while a function of it is called."""
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


def test_an_exception_that_leaves_the_block_fails_the_run_undoes_it_and_comes_as_itself(store):
    def body(run):
        run.step_with(durable.StepOptions(compensate=lambda result, _number: CALLS.append(f"undo {result}")), double, 1)
        raise KeyError("mine")

    with pytest.raises(KeyError):
        enter(store, body)
    assert (status(store), CALLS) == ("failed", [1, "undo 2"])


def test_a_failed_step_fails_again_when_its_run_is_replayed_and_may_be_caught(store):
    for _time in range(2):
        with pytest.raises(ValueError, match="no"), durable.entered(store, "r") as run:
            run.step(fail)
    assert CALLS == ["fail"]
    with durable.entered(store, "s") as run:
        with pytest.raises(ValueError, match="no"):
            run.step(fail)
        assert run.step(double, 1) == 2
    assert durable.get_run(store, "s").status == "completed"


def test_exceptions_come_back_as_themselves_where_they_are_named(store):
    def decline():
        raise DeclinedError("no funds")

    for raises, kind in ([], StepFailedError), ([DeclinedError], DeclinedError):
        with pytest.raises(kind), durable.entered(store, f"r-{len(raises)}", raises=raises) as run:
            run.step(decline)


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interrupt_leaves_the_run_open_and_the_next_block_goes_on(store, interrupt):
    def body(run):
        run.step(double, 1)
        raise interrupt

    with pytest.raises(interrupt):
        enter(store, body)
    assert status(store) == "queued"
    assert doubled(store, 1, 2) == [2, 4]
    assert (status(store), CALLS) == ("completed", [1, 2])


def test_an_interrupt_within_a_step_leaves_the_run_open_and_calls_it_again(store):
    def interrupted():
        CALLS.append("interrupted")
        if len(CALLS) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), durable.entered(store, "r") as run:
        run.step(interrupted)
    with durable.entered(store, "r") as run:
        run.step(interrupted)
    assert (status(store), CALLS) == ("completed", ["interrupted"] * 2)


def test_a_run_that_has_ended_refuses_more_than_it_has_recorded(store):
    doubled(store, 1)
    with pytest.raises(RunEndedError):
        doubled(store, 1, 2)
    assert (status(store), CALLS) == ("completed", [1])


def test_another_step_than_the_recorded_one_stops_the_run(store):
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
def test_one_block_at_a_time_is_in_a_run_and_the_next_one_waits_for_it(store):
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


def test_blocks_of_two_runs_may_be_one_in_the_other(store):
    with durable.entered(store, "outer") as outer:
        with durable.entered(store, "inner") as inner:
            assert (inner.step(double, 1), outer.step(double, 2)) == (2, 4)
        assert outer.step(double, 3) == 6
    assert [durable.get_run(store, each).status for each in ("outer", "inner")] == ["completed"] * 2


def test_a_step_in_another_thread_than_the_block_is_refused(store):
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


def test_a_long_wait_ends_the_block_and_the_run_goes_on_when_it_is_entered_later(store):
    with pytest.raises(ConflictError, match="waits too long"), durable.entered(store, "r") as run:
        run.step_with(durable.StepOptions(retry=durable.Retry(attempts=2, first_delay_s=3600)), fail)
    assert status(store) == "suspended"
    with pytest.raises(ConflictError), durable.entered(store, "r"):
        pass


def test_a_thread_that_is_rolled_back_under_a_block_ends_it(store):
    def body(run):
        run.step(double, 1)
        run.step(double, 2)
        store.thread("r").rollback(0)
        run.step(double, 3)

    with pytest.raises(ConflictError, match="rolled back"):
        enter(store, body)
    assert doubled(store, 1, 2, 3) == [2, 4, 6]


def test_a_parked_run_and_one_of_another_workflow_are_not_entered(store):
    @durable.workflow
    def other(run):
        return run.recv()

    durable.run(store, other, id="r")
    with pytest.raises(ConflictError, match="another workflow"):
        doubled(store, 1)
    assert CALLS == []


@pytest.mark.parametrize("options", [{"wait_s": -1}, {"name": ""}, {"raises": 3}], ids=str)
def test_what_is_no_option_of_a_block_is_refused_and_nothing_begins(store, options):
    with pytest.raises(UsageError):
        doubled(store, 1, **options)
    assert durable.runs(store) == []


@pytest.mark.parametrize("damage", ["closed", "deleted", "replaced"])
def test_an_exception_whose_run_cannot_be_recorded_comes_as_itself_with_a_note(tmp_path, damage):
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
        assert "Error was raised, too" in caught.value.__notes__[0]


def test_a_step_that_is_called_behind_its_block_is_refused(store):
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
def test_a_killed_process_repeats_the_step_in_flight_alone(tmp_path):
    codes = [
        forks.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, timeout=60).returncode
        for _time in range(2)
    ]
    assert codes == [-signal.SIGKILL, 0]
    assert (tmp_path / "calls").read_text().split() == ["1", "2", "2", "3"]
