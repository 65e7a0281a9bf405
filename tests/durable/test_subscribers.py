"""Subscribers: which functions and webhooks get messages, and when."""

from __future__ import annotations

import threading

import pytest

from statelog import durable
from statelog.errors import UsageError

GOT: list[durable.Message] = []


@pytest.fixture(autouse=True)
def _nothing_got():
    GOT.clear()


def take(message):
    GOT.append(message)


def payloads():
    return [each.payload for each in GOT]


@durable.workflow
def telling(run, count):
    for number in range(count):
        run.emit("trip/booked", number)


@durable.workflow
def asking(run):
    run.emit("trip/asked")
    return run.gate("approve").approved


def emitted(store, count=1, id="evt-1"):
    durable.run(store, telling, count, id=id)


def test_without_subscribers_messages_wait(store):
    emitted(store)
    assert durable.deliver(store, []).waiting == 1
    assert [each.is_parked for each in durable.outbox(store)] == [False]


def test_subscribers_get_the_topics_they_subscribe_to(store):
    durable.run(store, asking, id="evt-1", outbox=[durable.subscription(take, topics=["gate/*"])])
    assert [each.topic for each in GOT] == ["gate/opened"]
    assert durable.outbox(store) == []


def test_messages_of_children_are_sent_before_a_run_returns(store):
    @durable.workflow
    def parent(run):
        run.child(telling, 1)
        run.emit("done")

    durable.run(store, parent, id="evt-1", outbox=[take])
    assert payloads() == [0, None]


def test_resume_all_delivers_the_messages_of_its_runs(store):
    durable.start(store, telling, 2, id="evt-1")
    durable.resume_all(store, [telling], outbox=[take])
    assert payloads() == [0, 1]


@pytest.mark.slow
def test_a_worker_delivers_while_it_works_and_the_rest_when_it_is_idle(store):
    emitted(store, 2, id="evt-0")
    for number in range(1, 4):
        durable.start(store, telling, 2, id=f"evt-{number}")
    durable.run_worker(store, [telling], outbox=[take], until_idle=True)
    assert len(GOT) == 8
    assert durable.outbox(store) == []


@pytest.mark.slow
def test_a_worker_without_runs_delivers_new_messages(store):
    stop, came = threading.Event(), threading.Event()
    worker = threading.Thread(
        target=durable.run_worker,
        args=(store, [asking]),
        kwargs={"outbox": [lambda _message: came.set()], "stop": stop},
    )
    worker.start()
    emitted(store)
    assert came.wait(10)
    stop.set()
    worker.join()
    assert durable.outbox(store) == []


async def coroutine(message):
    pass


@pytest.mark.parametrize("outbox", [5, "url", take, [5], [coroutine], [None]])
def test_an_invalid_subscriber_is_refused_before_anything_happens(store, outbox):
    for call in (
        lambda: durable.run(store, telling, 1, id="evt-1", outbox=outbox),
        lambda: durable.resume_all(store, [telling], outbox=outbox),
        lambda: durable.run_worker(store, [telling], outbox=outbox, until_idle=True),
        lambda: durable.deliver(store, outbox),
    ):
        with pytest.raises(UsageError) as raised:
            call()
        assert {"argument", "value"} <= set(raised.value.facts)
    assert durable.runs(store) == []


def test_invalid_arguments_are_refused(store):
    with pytest.raises(UsageError, match="wait must be True or False"):
        durable.deliver(store, [take], wait=1)
    with pytest.raises(UsageError, match="parked must be True, False or None"):
        durable.outbox(store, parked="yes")
    with pytest.raises(UsageError, match="topics must be a non-empty sequence"):
        durable.subscription(take, topics="a")
