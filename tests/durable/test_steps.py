"""Steps are called once, and a run gets their recorded results."""

from __future__ import annotations

import dataclasses
import threading
import time

import pydantic
import pytest
from executed import Crash, execute

from statelog import durable
from statelog.errors import (
    ConflictError,
    StepFailedError,
    StepInterruptedError,
    StepTimeoutError,
    UsageError,
    ValueTypeError,
)

FAST = durable.Retry(attempts=3, first_delay_s=0.001, jitter=False)


class DeclinedError(Exception):
    pass


@dataclasses.dataclass
class Flight:
    number: str
    seats: list[int]


class Hotel(pydantic.BaseModel):
    name: str


# --- results -------------------------------------------------------------------------------


def test_steps_lists_failed_attempts_with_errors_and_times(store):
    def fail_twice():
        if durable.current_step().attempt < 3:
            raise DeclinedError(durable.current_step().attempt)
        return "done"

    execute(store, lambda run: [run.step_with(durable.StepOptions(retry=FAST), fail_twice), run.step(abs, -1)])
    step, other = durable.steps(store, "evt-1")
    assert [(each.number, each.error) for each in step.failed_attempts] == [
        (1, "DeclinedError: 1"),
        (2, "DeclinedError: 2"),
    ]
    first, second = step.failed_attempts
    assert first.time < first.next <= second.time < second.next <= step.ended
    assert (step.attempts, other.failed_attempts) == (3, ())


def test_a_step_returns_the_recorded_value_and_never_the_live_object(store):
    """D5, D7."""
    live = {"a": [1]}
    got = []

    def body(run):
        got.append(run.step(lambda: live))
        got[0]["a"].append(2)
        return run.recv()

    execute(store, body)
    durable.send(store, "evt-1", 1)
    execute(store, body)
    assert live == {"a": [1]}
    assert got[1] == {"a": [1]} or got[1] == {"a": [1, 2]}
    assert got[1] is not got[0]


def test_an_annotation_restores_the_type_of_a_result(store):
    def fly() -> Flight:
        return Flight("LH1", [1, 2])

    def sleep() -> Hotel:
        return Hotel(name="Ritz")

    def body(run):
        return [type(run.step(fly)).__name__, type(run.step(sleep)).__name__, run.step(fly).seats]

    assert execute(store, body).value == ["Flight", "Hotel", [1, 2]]


def test_builtin_and_declared_exceptions_are_restored_with_their_class(store):
    """D19."""
    caught = []

    def body(run):
        for error in (KeyError("k"), DeclinedError("no money"), pydantic.PydanticUserError("x", code=None)):

            def fail(error=error):
                raise error

            try:
                run.step_with(durable.StepOptions(name="fail"), fail)
            except Exception as raised:  # noqa: BLE001
                caught.append(raised)
        return run.recv()

    execute(store, body, raises=[DeclinedError])
    durable.send(store, "evt-1", 1)
    execute(store, body, raises=[DeclinedError])
    kinds = [KeyError, DeclinedError, StepFailedError]
    assert [type(each) for each in caught] == kinds * 2
    assert caught[0].args == caught[3].args == ("k",)
    assert caught[5].type == "PydanticUserError"


def test_unstorable_arguments_are_refused_and_unstorable_results_fail_the_step(store):
    called = []

    def body(run):
        with pytest.raises(ValueTypeError, match="arguments of step"):
            run.step(called.append, object())
        with pytest.raises(ValueTypeError, match="result of step"):
            run.step_with(durable.StepOptions(name="thing"), object)
        return called

    assert execute(store, body).value == []


def test_arguments_that_are_ignored_need_not_be_storable(store):
    @durable.step(ignore=["client"])
    def ask(client, question):
        return client(question)

    def body(run):
        return run.step(ask, str.upper, "a"), run.recv()

    execute(store, body)
    durable.send(store, "evt-1", 1)
    assert execute(store, body).value == ("A", 1)


def test_a_step_inside_a_step_is_refused(store):
    """D23."""

    def body(run):
        return run.step_with(durable.StepOptions(name="outer"), lambda: run.step(len, "a"))

    assert "inside a step" in execute(store, body).error


def test_a_step_can_drive_another_run_which_is_driven_once(store):
    """D23 concerns only the operations of the step's own run."""
    counted = []

    @durable.workflow
    def inner(run):
        return run.step_with(durable.StepOptions(name="count"), lambda: counted.append(1) or len(counted))

    def drive_inner():
        return durable.run(store, inner, id="inner").result()

    assert execute(
        store, lambda run: [run.step_with(durable.StepOptions(name=name), drive_inner) for name in "ab"]
    ).value == [1, 1]
    assert [step.name for step in durable.steps(store, "inner")] == ["count"]


def test_a_run_that_a_step_drives_calls_no_operation_of_the_run_around_it(store):
    """D23."""

    def body(run):
        def inner(_inner):
            return run.step(len, "a")

        return run.step_with(
            durable.StepOptions(name="o"),
            lambda: durable.run(store, durable.workflow(name="inner")(inner), id="i").result(),
        )

    assert "inside a step" in execute(store, body).error
    assert durable.steps(store, "i") == []


@durable.step(name="charged", retry=durable.Retry(attempts=2, first_delay_s=0), timeout_s=60)
def charge(amount: int) -> tuple[int, str]:
    if durable.current_step().attempt < 3:
        raise ConnectionError("busy")
    return amount, "EUR"


def test_options_of_a_call_override_those_of_the_step_for_that_call(store):
    often = charge.options(retry=durable.Retry(attempts=3, first_delay_s=0)).options(semantics="at_most_once")
    once = durable.StepOptions(retry=durable.Retry(attempts=1), name="direct")

    def body(run):
        found = [run.step(often, 840)]
        for call in (lambda: run.step(charge, 1), lambda: run.step_with(once, often, 2)):
            with pytest.raises(ConnectionError):
                call()
        found += run.map(often, [3])
        return [*found, run.start(often, 4).result()]

    info = execute(store, body)
    assert info.value == [(840, "EUR"), (3, "EUR"), (4, "EUR")]
    steps = [each for each in durable.steps(store, info.id) if each.kind == "step"]
    assert [(each.name, each.attempts) for each in steps] == [
        ("charged", 3),
        ("charged", 2),
        ("direct", 1),
        ("charged", 3),
        ("charged", 3),
    ]
    assert charge.options(timeout_s=1).__name__ == "charge"


def test_a_step_with_options_can_be_called_as_a_plain_function():
    @durable.step
    def double(number):
        return 2 * number

    assert double.options(timeout_s=5)(4) == double(4) == 8


@pytest.mark.parametrize(
    "options",
    [{"retry": 3}, {"timeout_s": 0}, {"semantics": "once"}, {"compensate": 1}, {"commit": {}}],
)
def test_bad_options_are_refused_before_the_call(store, options):
    called = []
    info = execute(store, lambda run: run.step_with(durable.StepOptions(**options), called.append, 1))
    assert info.error.startswith("UsageError")
    assert called == []


# --- attempts ----------------------------------------------------------------------------------------


def test_a_step_is_retried_with_the_same_idempotency_key(store):
    seen = []

    def flaky():
        step = durable.current_step()
        seen.append((step.attempt, step.idempotency_key))
        if len(seen) < 3:
            raise OSError("again")
        return "done"

    assert execute(store, lambda run: run.step_with(durable.StepOptions(retry=FAST), flaky)).value == "done"
    assert seen == [(number, "evt-1/0") for number in (1, 2, 3)]
    assert durable.steps(store, "evt-1")[0].attempts == 3


def test_a_long_delay_suspends_the_run_and_give_up_on_ends_the_attempts(store):
    def fail():
        raise OSError("again")

    slow = durable.Retry(attempts=2, first_delay_s=60)
    info = execute(store, lambda run: run.step_with(durable.StepOptions(retry=slow), fail))
    assert (info.status, info.waiting_for) == (
        "suspended",
        ("retry of step test_a_long_delay_suspends_the_run_and_give_up_on_ends_the_attempts.fail",),
    )
    never = durable.Retry(attempts=9, first_delay_s=60, give_up_on=OSError)
    assert (
        execute(store, lambda run: run.step_with(durable.StepOptions(retry=never), fail), id="evt-2").status == "failed"
    )


def test_a_step_that_exceeds_its_timeout_fails(store):
    def slow():
        while not durable.current_step().is_cancelled:
            time.sleep(0.001)

    def body(run):
        with pytest.raises(StepTimeoutError):
            run.step_with(durable.StepOptions(timeout_s=0.01), slow)
        return "late"

    assert execute(store, body).value == "late"


def test_current_step_outside_a_step_raises():
    with pytest.raises(UsageError, match="outside of a step"):
        durable.current_step()


def test_an_at_least_once_step_in_flight_is_called_again(store):
    seen = []

    def effect():
        seen.append(durable.current_step().idempotency_key)
        if len(seen) == 1:
            raise Crash
        return "done"

    with pytest.raises(Crash):
        execute(store, lambda run: run.step(effect))
    assert execute(store, lambda run: run.step(effect)).value == "done"
    assert seen == ["evt-1/0", "evt-1/0"]


def test_an_at_most_once_step_in_flight_is_not_called_again(store):
    """D9."""
    seen = []

    def effect():
        seen.append(1)
        raise Crash

    def body(run):
        try:
            return run.step_with(durable.StepOptions(semantics="at_most_once"), effect)
        except StepInterruptedError as error:
            return error.message

    with pytest.raises(Crash):
        execute(store, body)
    assert "at most once" in execute(store, body).value
    assert seen == [1]


# --- one commit ---------------------------------------------------------------------------------------


def test_a_result_and_its_writes_are_one_checkpoint(store):
    """D4."""

    def body(run):
        return run.step_with(durable.StepOptions(commit=lambda result: {"hotel": result}, name="book"), lambda: "Ritz")

    execute(store, body, thread="t")
    thread = store.thread("t")
    assert [sorted(checkpoint.state) for checkpoint in thread.history()][-1] == [
        "hotel",
        "statelog:run",
        "statelog:steps",
    ]


def test_a_refused_write_is_recorded_as_the_failure_of_its_step(store):
    store.thread("t", schema={"n": int}).commit({"n": 1})

    def body(run):
        run.step_with(durable.StepOptions(commit=lambda result: {"other": result}, name="book"), lambda: 1)

    info = execute(store, body, thread="t")
    assert info.error.startswith("ChannelError")
    assert store.thread("t").state == {"n": 1}


def test_a_transaction_is_committed_exactly_once_and_completely(store):
    def reserve(tx, seat):
        tx.board().create(f"seats/{seat}", "me")
        tx.thread("log").commit({"seat": seat})
        return seat

    def body(run):
        seat = run.transact(reserve, 7)
        with pytest.raises(ConflictError):
            run.transact(reserve, 7)
        return seat

    assert execute(store, body).value == 7
    assert store.thread("log").version == 0


def test_a_workflow_cannot_write_a_channel_of_the_library(store):
    assert "reserved for the library" in execute(store, lambda run: run.commit({"statelog:steps": []})).error
    info = execute(
        store,
        lambda run: run.step_with(durable.StepOptions(commit=lambda _result: {"statelog:steps": []}), int),
        id="evt-2",
    )
    assert "reserved for the library" in info.error


# --- concurrency --------------------------------------------------------------------------------


def test_map_keeps_the_order_and_the_concurrency_limit(store):
    at_work, most = [], []
    lock = threading.Lock()

    def search(item):
        with lock:
            at_work.append(item)
            most.append(len(at_work))
        time.sleep(0.005)
        with lock:
            at_work.remove(item)
        return item * 2

    info = execute(store, lambda run: run.map(search, range(8), concurrency=3))
    assert info.value == [number * 2 for number in range(8)]
    assert max(most) <= 3


def test_wait_any_records_the_winner(store):
    """D22."""
    order = []

    def body(run):
        gate = threading.Event()
        slow = run.start_with(durable.StepOptions(name="slow"), lambda: gate.wait(60))
        fast = run.start_with(durable.StepOptions(name="fast"), lambda: "fast")
        winner = run.wait_any(slow, fast)
        gate.set()
        order.append(winner.place)
        return run.recv(), winner.result()

    execute(store, body)
    durable.send(store, "evt-1", 1)
    assert execute(store, body).value == (1, "fast")
    assert order[0] == order[1]


def test_each_branch_numbers_its_own_calls(store):
    """D6."""

    def part(run, start):
        return [run.step(abs, start + number) for number in range(3)]

    info = execute(store, lambda run: run.gather(run.branch(part, 10), run.branch(part, 20)))
    assert info.value == [[10, 11, 12], [20, 21, 22]]
    assert {each.place for each in durable.steps(store, "evt-1")} == {f"{a}.{b}" for a in (0, 1) for b in range(3)}


def test_a_call_from_another_os_thread_raises_an_error_that_names_the_alternative(store):
    def body(run):
        errors = []

        def call():
            try:
                run.step(abs, 1)
            except UsageError as error:
                errors.append(error.message)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        return errors

    assert "run.start" in execute(store, body).value[0]


# --- replays ----------------------------------------------------------------------------------------


def test_times_and_random_values_replay(store):
    got = []

    def body(run):
        got.append((run.now(), run.uuid(), run.random()))
        run.sleep(0.001)
        return run.recv()

    execute(store, body)
    durable.send(store, "evt-1", 1)
    execute(store, body)
    assert got[0] == got[1]
