"""Retries of failed runs: a run continues from its record and repeats the calls that failed."""

from __future__ import annotations

import asyncio

import pytest
from executed import CALLS, note

import statelog
from statelog import aio, durable
from statelog.aio import durable as aio_durable
from statelog.errors import ConflictError, RunEndedError, RunNotFoundError, UsageError
from statelog.testing.durable import crash_everywhere, skipping_clock

broken = {"is": True}


def fail(value):
    CALLS.append(f"fail {value}")
    if broken["is"]:
        raise ValueError(value)
    return value


@pytest.fixture(autouse=True)
def _is_broken():
    broken["is"] = True


def mend():
    broken["is"] = False
    found = list(CALLS)
    CALLS.clear()
    return found


def retried(store, workflow, *args, **how):
    """Run a workflow until it fails, fix it, retry it, and return the state of the run."""
    assert durable.run(store, workflow, *args, id="a", **how).status == "failed"
    first = mend()
    assert durable.retry(store, "a").status == "queued"
    return first, durable.run(store, workflow, *args, id="a", **how)


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
def test_a_run_that_failed_by_a_bug_continues_after_its_recorded_steps(tmp_path, is_async):
    path = tmp_path / "a.state"

    if is_async:

        @durable.workflow(name="go")
        async def go(run):
            found = await run.step(note, 1)
            if broken["is"]:
                raise NameError("a bug")
            return found + await run.step(note, 2)

        async def main():
            async with await aio.open(path) as store:
                assert (await aio_durable.run(store, go, id="a")).status == "failed"
                first = mend()
                await aio_durable.retry(store, "a")
                return first, await aio_durable.run(store, go, id="a")

        first, info = asyncio.run(main())
    else:

        @durable.workflow(name="go")
        def go(run):
            found = run.step(note, 1)
            if broken["is"]:
                raise NameError("a bug")
            return found + run.step(note, 2)

        with statelog.open(path) as store:
            first, info = retried(store, go)
    assert (info.status, info.value, info.error, info.traceback) == ("completed", 3, None, None)
    assert (first, CALLS) == ([1], [2])
    with statelog.open(path) as store:
        assert [each.place for each in durable.steps(store, "a")] == ["0", "1"]


def one_after_the_other(run):
    return [run.step(note, 1), run.step(fail, 2), run.step(note, 3)]


def handled_before(run):
    try:
        run.step(fail, 1)
    except ValueError:
        run.step(note, "handled")
    if broken["is"]:
        raise NameError("a bug")
    return run.step(note, 2)


def cleaned_up(run):
    try:
        return [run.step(note, 1), run.step(fail, 2), run.step(note, 3)]
    except ValueError:
        run.step(note, "clean up")
        raise


def aborted(run):
    run.step(note, 1)
    try:
        run.step(fail, 2)
    except ValueError as error:
        raise durable.Abort("no") from error
    return run.step(note, 3)


def mapped(run):
    return run.map_with(
        durable.StepOptions(name="each"), lambda number: note(number) if number % 2 else fail(number), [1, 2, 3, 4]
    )


def gathered(run):
    return run.gather(run.start(note, 1), run.start(fail, 2), run.start(note, 3))


def branched(run):
    return run.gather(run.branch(one_after_the_other), run.start(note, 9))


def timed_out(run):
    run.step(note, 1)
    return run.step_with(durable.StepOptions(retry=durable.Retry(attempts=2, first_delay_s=0)), fail, 2)


BODIES = {
    "one after the other": (one_after_the_other, [1, "fail 2"], ["fail 2", 3]),
    "handled before": (handled_before, ["fail 1", "handled"], [2]),
    "cleaned up": (cleaned_up, [1, "fail 2", "clean up"], ["fail 2", 3]),
    "aborted": (aborted, [1, "fail 2"], ["fail 2", 3]),
    "mapped": (mapped, [1, "fail 2", 3, "fail 4"], ["fail 2", "fail 4"]),
    "gathered": (gathered, [1, "fail 2", 3], ["fail 2"]),
    "branched": (branched, [1, "fail 2", 9], ["fail 2", 3]),
    "with attempts": (timed_out, [1, "fail 2", "fail 2"], ["fail 2"]),
}


@pytest.mark.parametrize("how", BODIES)
def test_a_retry_repeats_failed_calls_and_no_recorded_ones(store, how):
    body, first, again = BODIES[how]
    found, info = retried(store, durable.workflow(name="go")(body))
    assert info.status == "completed"
    assert sorted(map(str, found)) == sorted(map(str, first))
    assert sorted(map(str, CALLS)) == sorted(map(str, again))


@pytest.mark.parametrize("number", [0, 1])
def test_a_retry_of_an_asyncio_task_group_repeats_failed_calls(tmp_path, number):
    @durable.workflow
    async def go(run):
        if number:
            return await asyncio.gather(run.step(note, 1), run.step(fail, 2), run.step(note, 3))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(run, each)) for each in (1, 2)]
        return [each.result() for each in tasks]

    async def one(run, each):
        await run.step(note, each)
        return await run.step(fail if each == 2 else note, each)

    async def main():
        async with await aio.open(tmp_path / "a.state") as store:
            assert (await aio_durable.run(store, go, id="a")).status == "failed"
            mend()
            await aio_durable.retry(store, "a")
            return await aio_durable.run(store, go, id="a")

    info = asyncio.run(main())
    assert (info.status, info.error) == ("completed", None)
    assert "fail 2" in CALLS


def keyed(value):
    CALLS.append(durable.current_step().idempotency_key)
    return value


def test_a_retry_repeats_compensated_steps_with_new_idempotency_keys_and_no_earlier_steps(store):
    @durable.workflow
    def go(run):
        run.step(keyed, 0)
        run.step_with(durable.StepOptions(compensate=lambda _result, _value: CALLS.append("undone")), keyed, 1)
        run.step(keyed, 2)
        return run.step(fail, 3)

    first, info = retried(store, go)
    assert first == ["a/0", "a/1", "a/2", "fail 3", "undone"]
    assert (info.status, CALLS) == ("completed", ["a/1~1", "a/1~2", "fail 3"])


def test_a_failed_step_is_repeated_with_its_idempotency_key(store):
    def call():
        CALLS.append(durable.current_step().idempotency_key)
        if broken["is"]:
            raise ValueError

    first, _info = retried(store, durable.workflow(name="go")(lambda run: run.step(call)))
    assert first == CALLS == ["a/0"]


def test_a_failed_child_is_retried_with_its_parent(store):
    inner = durable.workflow(name="inner")(one_after_the_other)

    @durable.workflow
    def outer(run):
        return [run.step(note, 0), run.child(inner)]

    first, info = retried(store, outer)
    assert (info.status, first, CALLS) == ("completed", [0, 1, "fail 2"], ["fail 2", 3])


def test_a_retried_run_waits_for_the_other_runs_of_its_thread(store):
    @durable.workflow
    def waiting(run):
        run.step(note, "waiting")
        run.recv()

    go = durable.workflow(name="go")(one_after_the_other)
    durable.run(store, go, id="a", thread="t")
    mend()
    durable.run(store, waiting, id="b", thread="t")
    info = durable.retry(store, "a")
    assert (info.status, info.waiting_for) == ("queued", ("run b",))
    assert [each.place for each in durable.steps(store, "a")] == ["0", "1"]
    durable.send(store, "b", 1)
    durable.run(store, waiting, id="b", thread="t")
    assert durable.run(store, go, id="a", thread="t").value == [1, 2, 3]
    assert CALLS == ["waiting", "fail 2", 3]


def test_a_retry_keeps_answered_gates_and_reopens_closed_ones(store):
    @durable.workflow
    def go(run):
        asked = run.gate("first").by
        gate = run.branch(lambda run: run.gate("second").by)
        if broken["is"]:
            raise NameError("a bug")
        return asked, gate.result()

    durable.run(store, go, id="a")
    durable.answer(store, "a/0", approved=True, by="ann")
    assert durable.run(store, go, id="a").status == "failed"
    mend()
    durable.retry(store, "a")
    info = durable.run(store, go, id="a")
    assert info.waiting_for == ("gate a/1.0",)
    durable.answer(store, "a/1.0", approved=True, by="bob")
    assert durable.run(store, go, id="a").value == ("ann", "bob")


def test_a_retry_restarts_the_timeout_of_the_run(store):
    @durable.workflow
    def go(run):
        return run.recv()

    with skipping_clock(store) as clock:
        durable.run(store, go, id="a", timeout_s=60)
        clock.advance(61)
        assert durable.run(store, go, id="a", timeout_s=60).status == "failed"
        durable.retry(store, "a")
        durable.send(store, "a", 7)
        clock.advance(59)
        assert durable.run(store, go, id="a", timeout_s=60).value == 7


def test_a_retry_of_a_run_that_has_not_failed_is_refused_and_changes_nothing(store):
    @durable.workflow
    def go(run, how):
        return run.recv() if how == "wait" else how

    durable.run(store, go, 1, id="completed")
    durable.run(store, go, "wait", id="open")
    durable.run(store, go, "wait", id="cancelled")
    durable.cancel(store, "cancelled")
    durable.run(store, go, "wait", id="cancelled")
    before = store.last_lsn
    for run, kind in (
        ("completed", RunEndedError),
        ("cancelled", RunEndedError),
        ("open", UsageError),
        ("none", RunNotFoundError),
    ):
        with pytest.raises(kind):
            durable.retry(store, run)
    assert store.last_lsn == before


def test_a_retry_of_a_run_whose_record_was_removed_is_refused(store):
    go = durable.workflow(name="go")(one_after_the_other)
    durable.run(store, go, id="a")
    store.delete_thread("a")
    with pytest.raises(ConflictError, match="was removed"):
        durable.retry(store, "a")
    assert durable.get_run(store, "a").status == "failed"


@pytest.mark.slow
def test_a_retried_run_survives_a_kill_at_every_boundary(tmp_path):
    """The process is killed before and after each commit of the retried run."""
    from statelog.durable.probes import probe

    def lived(at):
        CALLS.clear()
        broken["is"] = True
        go = durable.workflow(name="go")(one_after_the_other)
        passed = 0

        class Killed(BaseException):
            pass

        def kill(moment, _run, _what):
            nonlocal passed
            passed += moment != "call"
            if passed == at and moment != "call":
                raise Killed

        with statelog.open(tmp_path / f"{at}.state") as store:
            durable.run(store, go, id="a")
            mend()
            durable.retry(store, "a")
            token = probe.set(kill)
            try:
                durable.run(store, go, id="a", lease_s=0.05)
            except Killed:
                pass
            finally:
                probe.reset(token)
            info = durable.run(store, go, id="a", wait_s=5, lease_s=0.05)
            assert info.value == [1, 2, 3]
            assert 1 not in CALLS
            assert CALLS.count(3) <= 2
            assert [each.place for each in durable.steps(store, "a")] == ["0", "1", "2"]
        return passed

    boundaries = lived(0)
    assert boundaries >= 6
    for at in range(1, boundaries + 1):
        lived(at)


# --- visits --------------------------------------------------------------------------------------


def test_each_pass_of_continue_as_new_has_its_own_children_and_idempotency_keys(store):
    @durable.workflow
    def inner(run, number):
        return run.step(note, f"inner {number}")

    @durable.workflow
    def go(run, passes):
        run.step(keyed, 1)
        run.child(inner, 7)
        if passes:
            run.continue_as_new(passes - 1)
        return "done"

    assert durable.run(store, go, 2, id="a").value == "done"
    assert CALLS == ["a/0", "inner 7", "a/1~0", "inner 7", "a/2~0", "inner 7"]


def test_an_answer_to_a_gate_of_an_earlier_pass_does_not_answer_a_later_one(store):
    @durable.workflow
    def go(run, passes):
        run.step(note, run.gate("approve").by)
        if passes:
            run.continue_as_new(passes - 1)
        return "done"

    durable.run(store, go, 1, id="a")
    durable.answer(store, "a/0", approved=True, by="ann")
    assert durable.run(store, go, 1, id="a").waiting_for == ("gate a/1~0",)
    with pytest.raises(statelog.errors.GateNotFoundError):
        durable.answer(store, "a/0", approved=True, by="ann again")
    assert [each.id for each in durable.gates(store, run="a")] == ["a/1~0"]
    durable.answer(store, "a/1~0", approved=True, by="bob")
    assert durable.run(store, go, 1, id="a").value == "done"
    assert CALLS == ["ann", "bob"]


@pytest.mark.slow
def test_a_loop_survives_a_kill_at_every_boundary():
    @durable.workflow
    def inner(run, number):
        return run.step(note, number)

    @durable.workflow
    def go(run, passes):
        run.child(inner, passes)
        run.gate("approve")
        if passes:
            run.continue_as_new(passes - 1)
        return "done"

    assert len(crash_everywhere(go, 2, answers={"approve": True}, workflows=[inner])) > 20
