"""`resume_all`: a run that cannot be driven is reported, and does not hold up the others."""

from __future__ import annotations

import asyncio
import logging
import operator

import pytest
from executed import CALLS

from statelog import aio, durable, reducers
from statelog.aio import durable as aio_durable
from statelog.errors import ClosedError
from statelog.store.board import own_board


def job_of(body, **how):
    return durable.workflow(name="job", **how)(body)


def counts(run, order):
    run.commit({"count": 1})
    return order


COUNTS = job_of(counts, schema={"count": operator.add})
DOES_NOT_FIT = job_of(counts, schema={"count": reducers.merge})
"""The thread has counted otherwise, so no run of this one can write to it."""


def waits(run, order):
    return run.step(CALLS.append, "begun"), run.recv(), order


def calls_something_else(run, order):
    return run.step(str, order)


async def is_async(run, order):
    return await run.recv(), order


@durable.workflow
def note(run, text):
    return run.step(CALLS.append, text)


def resume_here(_path, store, workflows):
    return durable.resume_all(store, workflows)


def resume_on_loop(path, _store, workflows):
    async def main():
        async with await aio.open(path) as opened:
            return await aio_durable.resume_all(opened, workflows)

    return asyncio.run(main())


@pytest.fixture(params=[resume_here, resume_on_loop])
def resume(request, store, path):
    """Resume all runs of a store, in a thread or on an event loop."""
    return lambda *workflows: request.param(path, store, workflows)


def begin_broken(store, **how):
    """Start a run that waits in a thread whose schema differs from `DOES_NOT_FIT`."""
    durable.run(store, COUNTS, "first", id="first", thread="t")
    durable.start(store, COUNTS, "second", id="broken", thread="t", **how)


def test_a_run_that_cannot_be_driven_is_reported_and_others_continue(store, resume, caplog):
    begin_broken(store, priority=9)
    durable.start(store, note, "a", id="evt-1")
    durable.start(store, note, "b", id="evt-2", priority=-9)
    with caplog.at_level(logging.WARNING, "statelog.durable"):
        infos = {info.id: info for info in resume(DOES_NOT_FIT, note)}
    assert list(infos) == ["broken", "evt-1", "evt-2"]
    assert [infos[each].status for each in ("evt-1", "evt-2")] == ["completed"] * 2
    assert (infos["broken"].status, infos["broken"].attempts) == ("queued", 0)
    assert "count" in infos["broken"].error
    assert [record.args[0] for record in caplog.records] == ["broken"]
    assert CALLS == ["a", "b"]


def test_a_reported_run_continues_at_once_with_fixed_code(store, resume):
    begin_broken(store)
    resume(DOES_NOT_FIT)
    (info,) = resume(COUNTS)
    assert (info.id, info.status, info.error) == ("broken", "completed", None)


def test_a_run_whose_code_does_not_match_is_reported_once(store, resume):
    durable.run(store, job_of(waits), "x", id="differs", thread="t")
    durable.send(store, "differs", "go on")
    durable.start(store, note, "a", id="evt-1")
    infos = {info.id: info for info in resume(job_of(calls_something_else), note)}
    assert infos["evt-1"].status == "completed"
    assert infos["differs"].error.startswith("NondeterminismError")


def test_a_run_of_an_async_workflow_is_reported_by_the_sync_resume_all(store):
    durable.start(store, job_of(is_async), "x", id="later")
    durable.start(store, note, "a", id="evt-1")
    infos = {info.id: info for info in durable.resume_all(store, [job_of(is_async), note])}
    assert infos["evt-1"].status == "completed"
    assert (infos["later"].status, "is async" in infos["later"].error) == ("queued", True)


def test_a_task_without_its_run_does_not_block_other_runs(store, resume):
    durable.start(store, note, "gone", id="gone", priority=9)
    own_board(store).delete("durable/runs/gone")
    durable.start(store, note, "a", id="evt-1")
    assert [(info.id, info.status) for info in resume(note)] == [("evt-1", "completed")]


def test_an_interrupt_ends_resume_all_and_releases_the_runs_that_were_set_aside(store):
    @durable.workflow
    def interrupted(run):
        raise KeyboardInterrupt(run.id)

    begin_broken(store, priority=9)
    durable.start(store, interrupted, id="evt-1")
    with pytest.raises(KeyboardInterrupt):
        durable.resume_all(store, [DOES_NOT_FIT, interrupted])
    assert {info.id: info.status for info in durable.runs(store, status="queued")} == {
        "broken": "queued",
        "evt-1": "queued",
    }


def test_closing_the_store_ends_resume_all(store):
    @durable.workflow
    def closing(run):
        store.close()
        return run.step(CALLS.append, "never")

    durable.start(store, closing, id="evt-1")
    with pytest.raises(ClosedError):
        durable.resume_all(store, [closing])
