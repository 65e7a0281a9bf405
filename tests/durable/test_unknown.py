"""A worker reports queued runs whose workflow it does not know."""

from __future__ import annotations

import asyncio
import logging

import pytest

import statelog
from statelog import aio, durable
from statelog.aio import durable as aio_durable


@durable.workflow(name="known")
def known(run):
    return run.step(len, "a")


@durable.workflow(name="fürs/ei")
def unknown(run):
    return run.step(len, "abc")


def warnings(caplog):
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
def test_an_unknown_workflow_is_logged_once_and_reported_by_each_run(tmp_path, caplog, is_async):
    path = tmp_path / "a.state"
    with statelog.open(path) as store:
        for number in range(3):
            durable.start(store, unknown, id=f"a{number}")
        durable.start(store, known, id="b")
        if not is_async:
            assert durable.run_worker(store, [known], until_idle=True) == 1
    if is_async:

        async def main():
            async with await aio.open(path) as store:
                return await aio_durable.run_worker(store, [known], until_idle=True)

        assert asyncio.run(main()) == 1
    (told,) = warnings(caplog)
    assert "a0" in told
    assert "fürs/ei" in told
    assert "known" in told
    with statelog.open(path) as store:
        for number in range(3):
            info = durable.get_run(store, f"a{number}")
            assert info.status == "queued"
            assert "does not know workflow 'fürs/ei'" in info.error
        assert durable.run_worker(store, [known, unknown], until_idle=True) == 3
        assert [(info.status, info.error) for info in durable.runs(store)] == [("completed", None)] * 4


def test_runs_of_other_queues_and_runs_that_are_not_due_are_not_reported(store, caplog):
    durable.start(store, unknown, id="other", queue="other")
    durable.start(store, unknown, id="later", queue="mail", delay_s=3600)
    before = store.last_lsn
    durable.run_worker(store, [known], queues=["mail", "default"], until_idle=True)
    assert warnings(caplog) == []
    assert store.last_lsn == before
    durable.start(store, unknown, id="now", queue="mail", partition="p")
    durable.run_worker(store, [known], queues=["mail"], until_idle=True)
    assert len(warnings(caplog)) == 1
    assert durable.get_run(store, "other").error is None


def test_a_running_worker_reports_later_runs(store, caplog, monkeypatch):
    monkeypatch.setattr("statelog.durable.workers._LOOK_AROUND_S", 0.0)
    claimer = statelog.durable.workers.RunClaimer(store, [known], None, 1, 30.0)
    for number in range(2):
        durable.start(store, unknown, id=f"a{number}")
        claimer._look_around()
        assert durable.get_run(store, f"a{number}").error is not None
    assert len(warnings(caplog)) == 1
