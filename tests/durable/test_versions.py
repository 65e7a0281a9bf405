"""Steps with versioned results, and renamed workflows."""

from __future__ import annotations

import asyncio
import logging

import pytest

import statelog
from statelog import aio, durable
from statelog.aio import durable as aio_durable
from statelog.errors import (
    ConflictError,
    NondeterminismError,
    NotFoundError,
    StepVersionError,
    UsageError,
    ValueTypeError,
)


def priced(version=1, upcast=None, result=None):
    """Return a step `price`."""

    @durable.step(name="price", version=version, upcast=upcast)
    def price():
        return result

    return price


def booking(step, *, name="booking", aliases=(), seen=None, undo=None):
    @durable.workflow(name=name, aliases=aliases)
    def book(run):
        found = run.step_with(durable.StepOptions(compensate=undo), step)
        if seen is not None:
            seen.append(found)
        answer = run.gate("go")
        return [found, answer.payload]

    return book


def is_waiting(info):
    return info.status == "suspended" and info.waiting_for[0].startswith("gate ")


def answer_all(store):
    for gate in durable.gates(store):
        durable.answer(store, gate.id, approved=True, payload="yes")


def cents(amount):
    return {"cents": round(amount * 100)}


def with_currency(price):
    return {**price, "currency": "EUR"}


def test_a_recorded_result_passes_through_all_upcasts_and_the_record_is_unchanged(store):
    durable.run(store, booking(priced(result=1.5)), id="a")
    answer_all(store)
    new = priced(version=3, upcast={1: cents, 2: with_currency})
    info = durable.run(store, booking(new), id="a")
    assert info.value == [{"cents": 150, "currency": "EUR"}, "yes"]
    step = durable.steps(store, "a")[0]
    assert (step.result, step.version) == (1.5, 1)


def test_a_result_of_the_current_version_is_returned_unchanged(store):
    seen = []
    new = priced(version=2, upcast={1: cents}, result={"cents": 7})
    durable.run(store, booking(new, seen=seen), id="a")
    answer_all(store)
    durable.run(store, booking(new, seen=seen), id="a")
    assert seen == [{"cents": 7}] * 2
    assert durable.steps(store, "a")[0].version == 2


@pytest.mark.parametrize(
    ("recorded", "code", "facts"),
    [
        (priced(version=2, result=1), priced(result=1), (2, 1, None)),
        (priced(result=1), priced(version=3, upcast={2: cents}), (1, 3, 1)),
        (priced(result=1), priced(version=2), (1, 2, 1)),
    ],
    ids=["newer", "gap", "no function"],
)
@pytest.mark.parametrize("drive", ["run", "resume_all", "work"])
def test_a_result_without_an_upcast_stops_the_run_and_correct_code_continues_it(store, recorded, code, facts, drive):
    durable.run(store, booking(recorded), id="a")
    answer_all(store)
    if drive == "run":
        with pytest.raises(StepVersionError) as raised:
            durable.run(store, booking(code), id="a")
        error = raised.value
        assert (error.run, error.place, error.stored, error.declared, error.missing) == ("a", "0", *facts)
    elif drive == "resume_all":
        durable.resume_all(store, [booking(code)])
    else:
        durable.run_worker(store, [booking(code)], until_idle=True)
    info = durable.get_run(store, "a")
    assert not info.has_ended
    assert "StepVersionError" in info.error
    assert isinstance(durable.check_replay(store, [booking(code)])["a"], StepVersionError)
    assert durable.check_replay(store, [booking(recorded)]) == {}
    assert durable.run(store, booking(recorded), id="a").value == [1, "yes"]


def test_an_upcast_that_raises_stops_the_run_and_is_named(store):
    def fail(_result):
        raise ZeroDivisionError("no")

    durable.run(store, booking(priced(result=1)), id="a")
    answer_all(store)
    with pytest.raises(ZeroDivisionError) as raised:
        durable.run(store, booking(priced(version=2, upcast={1: fail})), id="a")
    assert "upcast[1] of step 'price' at place 0" in raised.value.__notes__[0]
    assert durable.run(store, booking(priced(result=1)), id="a").value == [1, "yes"]


async def later(result):
    return result


@pytest.mark.parametrize(
    ("upcast", "error"), [(later, TypeError), (lambda _result: object(), ValueTypeError)], ids=["async", "object"]
)
def test_an_upcast_whose_result_cannot_be_stored_stops_the_run_and_does_not_fail_it(store, upcast, error):
    durable.run(store, booking(priced(result=1)), id="a")
    answer_all(store)
    with pytest.raises(error):
        durable.run(store, booking(priced(version=2, upcast={1: upcast})), id="a")
    assert durable.run(store, booking(priced(result=1)), id="a").value == [1, "yes"]


def test_a_compensation_gets_the_result_in_the_current_version(store):
    undone = []

    @durable.workflow(name="booking")
    def failing(run):
        run.step_with(durable.StepOptions(compensate=undone.append), priced(version=2, upcast={1: cents}))
        run.gate("go")
        raise durable.Abort("no")

    durable.run(store, booking(priced(result=1), undo=undone.append), id="a")
    answer_all(store)
    assert durable.run(store, failing, id="a").status == "failed"
    assert undone == [{"cents": 100}]


def test_a_transaction_has_a_version(store):
    def workflow_of(function):
        @durable.workflow(name="w")
        def w(run):
            found = run.transact(function)
            run.gate("go")
            return found

        return w

    @durable.step(name="count")
    def first(_tx):
        return 1

    @durable.step(name="count", version=2, upcast={1: cents})
    def second(_tx):
        return 2

    durable.run(store, workflow_of(first), id="a")
    answer_all(store)
    assert durable.run(store, workflow_of(second), id="a").value == {"cents": 100}
    durable.run(store, workflow_of(second), id="b")
    assert durable.steps(store, "b")[0].version == 2


def test_async_workflows_apply_upcasts(tmp_path):
    def flow(step):
        @durable.workflow(name="flow")
        async def flow(run):
            found = await run.step(step)
            await run.gate("go")
            return found

        return flow

    async def main():
        async with await aio.open(tmp_path / "a.state") as store:
            await aio_durable.run(store, flow(priced(result=1)), id="a")
            await aio_durable.answer(store, (await aio_durable.gates(store))[0].id, approved=True)
            with pytest.raises(StepVersionError):
                await aio_durable.run(store, flow(priced(version=2)), id="a")
            info = await aio_durable.run(store, flow(priced(version=2, upcast={1: cents})), id="a")
            return info.value

    assert asyncio.run(main()) == {"cents": 100}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"version": 0}, "version"),
        ({"version": "2"}, "version"),
        ({"version": True}, "version"),
        ({"version": 2, "upcast": [cents]}, "upcast"),
        ({"version": 2, "upcast": {2: cents}}, "upcast"),
        ({"version": 2, "upcast": {"1": cents}}, "upcast"),
        ({"version": 2, "upcast": {1: "cents"}}, "upcast[1]"),
        ({"upcast": {1: cents}}, "upcast"),
    ],
)
def test_an_invalid_version_or_upcast_is_refused(arguments, named):
    with pytest.raises(UsageError) as raised:
        durable.step(**arguments)
    assert raised.value.argument == named


# --- renamed workflows ---------------------------------------------------------


def renamed(**more):
    return booking(priced(result=1), name="reserve", aliases=["booking"], **more)


@pytest.mark.parametrize("drive", ["run", "resume_all", "work"])
def test_a_renamed_workflow_continues_runs_of_its_former_name(store, drive):
    durable.run(store, booking(priced(result=1)), id="a")
    answer_all(store)
    if drive == "run":
        durable.run(store, renamed(), id="a")
    elif drive == "resume_all":
        durable.resume_all(store, [renamed()])
    else:
        durable.run_worker(store, [renamed()], until_idle=True)
    info = durable.get_run(store, "a")
    assert (info.value, info.workflow) == ([1, "yes"], "booking")
    with pytest.raises(ConflictError):  # Without the alias, it is a different workflow.
        durable.run(store, booking(priced(), name="reserve"), id="a")
    assert durable.start(store, renamed(), id="a").id == "a"


def test_a_renamed_async_workflow_continues_runs_of_its_former_name(tmp_path):
    def flow(name, aliases=()):
        @durable.workflow(name=name, aliases=aliases)
        async def flow(run):
            await run.gate("go")
            return "done"

        return flow

    async def main():
        async with await aio.open(tmp_path / "a.state") as store:
            await aio_durable.run(store, flow("old"), id="a")
            await aio_durable.answer(store, (await aio_durable.gates(store))[0].id, approved=True)
            await aio_durable.run_worker(store, [flow("new", ["old"])], until_idle=True)
            return (await aio_durable.get_run(store, "a")).value

    assert asyncio.run(main()) == "done"


def test_the_workflow_of_a_child_can_be_renamed(store):
    def parent_of(child):
        @durable.workflow(name="parent")
        def parent(run):
            return run.child(child)

        return parent

    durable.run(store, parent_of(booking(priced(result=1))), id="a")
    answer_all(store)
    with pytest.raises(NondeterminismError):
        durable.run(store, parent_of(booking(priced(result=1), name="reserve")), id="a")
    assert durable.run(store, parent_of(renamed()), id="a").value == [1, "yes"]


def test_a_deduplication_key_holds_for_a_renamed_workflow(store):
    first = durable.start(store, booking(priced()), dedup_key="k")
    assert durable.start(store, renamed(), dedup_key="k").id == first.id
    with pytest.raises(ConflictError):
        durable.start(store, booking(priced(), name="reserve"), dedup_key="k")


@pytest.mark.parametrize("aliases", ["booking", [""], [1], None, ["reserve"]])
def test_invalid_aliases_are_refused(aliases):
    with pytest.raises(UsageError):
        durable.workflow(name="reserve", aliases=aliases)(cents)


def test_a_former_name_can_belong_to_only_one_workflow(store):
    with pytest.raises(UsageError, match="two workflows have the name 'booking'"):
        durable.run_worker(store, [renamed(), booking(priced())], until_idle=True)


# --- unknown workflows ----------------------------------------------------------


def told(caplog):
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


@pytest.fixture
def other():
    @durable.workflow(name="other")
    def other(run):
        return run.step(len, "a")

    return other


def test_a_suspended_run_of_a_removed_workflow_is_reported_with_its_gate(store, caplog, other):
    durable.run(store, booking(priced(result=1)), id="a")
    (gate,) = durable.gates(store)
    durable.run_worker(store, [other], until_idle=True)
    (message,) = told(caplog)
    assert f"gate {gate.id}" in message
    assert "booking" in message
    assert durable.get_run(store, "a").waiting_for == (f"gate {gate.id}", "code booking")
    assert durable.get_run(store, "a").status == "suspended"
    caplog.clear()
    durable.run_worker(store, [other], until_idle=True)
    assert len(told(caplog)) == 1  # Each worker reports the run.
    answer_all(store)
    durable.run_worker(store, [renamed(), other], until_idle=True)
    assert durable.get_run(store, "a").value == [1, "yes"]


def test_a_worker_that_knows_the_workflow_clears_the_mark(store, other):
    durable.run(store, booking(priced(result=1)), id="a")
    durable.run_worker(store, [other], until_idle=True)
    assert "code booking" in durable.get_run(store, "a").waiting_for
    before = store.last_lsn
    durable.run_worker(store, [renamed()], until_idle=True)
    assert is_waiting(durable.get_run(store, "a"))
    assert len(durable.get_run(store, "a").waiting_for) == 1
    assert store.last_lsn == before + 1
    durable.run_worker(store, [renamed()], until_idle=True)
    assert store.last_lsn == before + 1


def test_a_run_that_was_driven_in_the_meantime_is_not_marked(store, other):
    durable.run(store, booking(priced(result=1)), id="a")
    durable.run_worker(store, [other], until_idle=True)
    durable.run(store, booking(priced(result=1)), id="b")
    assert len(durable.get_run(store, "b").waiting_for) == 1


def test_workers_with_and_without_the_workflow_do_not_write_in_turn(store, other):
    claimer = statelog.durable.workers.RunClaimer
    durable.run(store, booking(priced(result=1)), id="a")
    knows, does_not = (claimer(store, [each], None, 1, 30.0) for each in (renamed(), other))
    does_not._unknown.report()
    knows._unknown.report()
    before = store.last_lsn
    for _ in range(3):
        does_not._unknown.report()
        knows._unknown.report()
    assert store.last_lsn == before


def test_later_runs_are_marked_as_well(store, other):
    worker = statelog.durable.workers.RunClaimer(store, [other], None, 1, 30.0)
    for run in "ab":
        durable.run(store, booking(priced(result=1)), id=run)
        worker._unknown.report()
        assert "code booking" in durable.get_run(store, run).waiting_for


def test_check_replay_reports_an_unknown_workflow(store, other):
    durable.run(store, booking(priced(result=1)), id="a")
    assert isinstance(durable.check_replay(store, [other])["a"], NotFoundError)
