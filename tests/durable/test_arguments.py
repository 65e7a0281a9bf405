"""Invalid arguments are refused before anything happens. The error has the name and the value of the argument."""

from __future__ import annotations

import asyncio
import threading

import pytest
from executed import execute

import statelog
from statelog import aio, durable
from statelog.aio import durable as aio_durable
from statelog.errors import UsageError


@durable.workflow
def echo(run, value):
    return run.recv("never") if value is None else value


HOURLY = {"cron": "0 * * * *"}

NOT_TAKEN = {
    "missing": (lambda store: durable.start(store, echo, id="a"), "missing a required argument: 'value'"),
    "extra": (lambda store: durable.start(store, echo, 1, 2, id="a"), "too many positional arguments"),
    "unknown": (lambda store: durable.run(store, echo, id="a", other=1), "'value'"),
    "scheduled": (lambda store: durable.schedule(store, "a", echo, **HOURLY), "missing a required argument: 'value'"),
}


@pytest.mark.parametrize("how", NOT_TAKEN)
def test_arguments_that_do_not_fit_the_workflow_are_refused_and_the_id_stays_free(store, how):
    act, said = NOT_TAKEN[how]
    with pytest.raises(UsageError, match=said):
        act(store)
    assert store.last_lsn == 0
    assert durable.run(store, echo, 1, id="a").value == 1


def test_arguments_that_do_not_fit_an_async_workflow_are_refused(tmp_path):
    @durable.workflow
    async def go(_run, value):
        return value

    async def main():
        async with await aio.open(tmp_path / "a.state") as store:
            for begin in (aio_durable.run, aio_durable.start):
                with pytest.raises(UsageError, match="missing a required argument: 'value'"):
                    await begin(store, go, id="a")
            return await aio_durable.run(store, go, 1, id="a")

    assert asyncio.run(main()).value == 1


FORK = {"at": 0, "id": "evt-2"}


@pytest.mark.parametrize(
    ("act", "argument", "value"),
    [
        (lambda store: durable.run(store, echo, 1, thread=5), "run id", 5),
        (lambda store: durable.run(store, echo, 1, id="evt-2", thread=5), "thread", 5),
        (lambda store: durable.start(store, echo, 1, id="evt-2", thread=""), "thread", ""),
        (lambda store: durable.start(store, echo, 1, dedup_key=5), "dedup_key", 5),
        (lambda store: durable.send(store, "evt-1", 1, idempotency_key=5), "idempotency_key", 5),
        (lambda store: durable.send(store, "evt-1", 1, idempotency_key=""), "idempotency_key", ""),
        (lambda store: durable.fork(store, "evt-1", **FORK, args=5), "args", 5),
        (lambda store: durable.fork(store, "evt-1", **FORK, args="how"), "args", "how"),
        (lambda store: durable.fork(store, "evt-1", **FORK, kwargs="how"), "kwargs", "how"),
        (lambda store: durable.check_replay(store, None), "workflows", None),
        (lambda store: durable.resume_all(store, 5), "workflows", 5),
        (lambda store: durable.run_worker(store, None, until_idle=True), "workflows", None),
        (lambda store: durable.run_worker(store, [echo], queues=5, until_idle=True), "queues", 5),
        (lambda store: durable.run_worker(store, [echo], queues="q", until_idle=True), "queues", "q"),
        (lambda store: durable.run_worker(store, [echo], stop=5, until_idle=True), "stop", 5),
        (lambda store: list(durable.stream(store, "evt-1", after=None)), "after", None),
        (lambda store: list(durable.stream(store, "evt-1", after=-1)), "after", -1),
        (lambda store: list(durable.stream(store, "evt-1", timeout_s="1")), "timeout_s", "1"),
        (lambda _store: durable.workflow(raises=5), "raises", 5),
        (lambda _store: durable.workflow(raises=["ValueError"]), "raises", "ValueError"),
        (lambda _store: durable.step(ignore=None), "ignore", None),
        (lambda _store: durable.step(ignore="client"), "ignore", "client"),
        (lambda _store: durable.Retry(give_up_on="ValueError"), "give_up_on", "ValueError"),
        (lambda _store: durable.Retry(give_up_on=("ValueError",)), "give_up_on", "ValueError"),
        (lambda _store: durable.Retry(give_up_on=None), "give_up_on", None),
        (lambda _store: durable.Retry(give_up_on=int), "give_up_on", int),
    ],
)
def test_an_invalid_argument_is_named_and_no_run_begins(store, act, argument, value):
    durable.run(store, echo, None, id="evt-1")
    with pytest.raises(UsageError) as raised:
        act(store)
    assert raised.value.facts == {"argument": argument, "value": value}
    assert [info.id for info in durable.runs(store)] == ["evt-1"]


@pytest.mark.parametrize(
    "body",
    [
        lambda run: run.transact(None),
        lambda run: run.transact(asyncio.sleep),
        lambda run: run.branch("no function"),
        lambda run: run.start(5),
        lambda run: run.child(echo, 1, id=""),
    ],
)
def test_an_invalid_argument_of_an_operation_fails_the_run(store, body):
    assert execute(store, body).error.startswith("UsageError: ")


def test_give_up_on_accepts_one_exception_class_or_several():
    assert durable.Retry(give_up_on=ValueError).gives_up(UnicodeError())
    assert durable.Retry(give_up_on=[KeyError, ValueError]).gives_up(ValueError())
    assert not durable.Retry().gives_up(ValueError())


def test_a_stop_event_of_the_wrong_kind_does_not_block_the_loop(path):
    async def main():
        async with await aio.open(path) as store:
            with pytest.raises(UsageError, match=r"asyncio\.Event"):
                await aio_durable.run_worker(store, [echo], stop=threading.Event())
            with pytest.raises(UsageError, match="after"):
                [chunk async for chunk in aio_durable.stream(store, "evt-1", after=None)]

    statelog.open(path).close()
    asyncio.run(asyncio.wait_for(main(), 60))
