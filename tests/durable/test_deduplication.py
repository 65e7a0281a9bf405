"""Starts with a deduplication key. One open run per queue has the key, and it can be changed until it begins."""

from __future__ import annotations

import threading

import pytest

from statelog import durable
from statelog.errors import ConflictError, UsageError
from statelog.store.board import own_board

CALLS = []


@pytest.fixture(autouse=True)
def _no_calls():
    CALLS.clear()


def note(name):
    CALLS.append(name)
    return name


@durable.workflow
def job(run, name):
    return run.step(note, name)


@durable.workflow
def chat(run):
    return run.recv()


def test_a_key_starts_no_second_run_until_the_first_has_ended(store):
    first = durable.start(store, chat, queue="trips", dedup_key="customer-1")
    assert durable.start(store, chat, queue="trips", dedup_key="customer-1").id == first.id
    assert durable.start(store, chat, queue="other", dedup_key="customer-1").id != first.id
    assert durable.start(store, chat, queue="trips", dedup_key="customer-2").id != first.id
    durable.run_worker(store, [chat], until_idle=True)
    assert durable.start(store, chat, queue="trips", dedup_key="customer-1").id == first.id
    durable.send(store, first.id, "hello")
    durable.run_worker(store, [chat], until_idle=True)
    assert first.info.status == "completed"
    assert durable.start(store, chat, queue="trips", dedup_key="customer-1").id != first.id


def test_a_key_is_free_after_a_failure_and_a_cancellation(store):
    for _ in range(2):
        handle = durable.start(store, chat, dedup_key="customer-1")
        handle.cancel()
        durable.run_worker(store, [chat], until_idle=True)
        assert handle.info.status == "cancelled"
    assert len(durable.runs(store)) == 2
    assert own_board(store).list("durable/dedup/**") == []


def test_many_concurrent_starts_with_one_key_begin_one_run(store):
    found = []
    starts = [
        threading.Thread(target=lambda: found.append(durable.start(store, chat, dedup_key="customer-1").id))
        for _ in range(8)
    ]
    for each in starts:
        each.start()
    for each in starts:
        each.join()
    assert len(found) == 8
    assert {each.id for each in durable.runs(store)} == {*found}
    assert len({*found}) == 1


def test_a_key_of_another_workflow_is_refused(store):
    durable.start(store, chat, id="evt-1", dedup_key="customer-1")
    with pytest.raises(ConflictError, match="workflow 'chat'"):
        durable.start(store, job, "a", dedup_key="customer-1")


def test_a_debounced_run_begins_with_the_last_arguments(store):
    first = durable.start(store, job, "a", id="evt-1", dedup_key="k", debounce_s=600)
    due = first.info.due
    assert durable.start(store, job, "b", dedup_key="k", debounce_s=900).id == "evt-1"
    assert first.info.due > due
    assert first.info.args == ("b",)
    assert durable.run_worker(store, [job], until_idle=True) == 0
    durable.start(store, job, "c", dedup_key="k", debounce_s=0)
    assert durable.run_worker(store, [job], until_idle=True) == 1
    assert (first.result(timeout_s=1), CALLS) == ("c", ["c"])


def test_a_run_that_has_begun_keeps_its_arguments(store):
    @durable.workflow
    def patient(run, name):
        return run.recv(), name

    handle = durable.start(store, patient, "a", dedup_key="k", debounce_s=0)
    durable.run_worker(store, [patient], until_idle=True)
    assert durable.start(store, patient, "b", dedup_key="k", debounce_s=0).id == handle.id
    durable.send(store, handle.id, "hello")
    durable.start(store, patient, "c", dedup_key="k", debounce_s=0)
    durable.run_worker(store, [patient], until_idle=True)
    assert handle.result(timeout_s=1) == ("hello", "a")


def test_a_run_that_waits_for_its_thread_is_also_debounced(store):
    ahead = durable.start(store, chat, id="evt-1", thread="ticket")
    behind = durable.start(store, job, "a", id="evt-2", thread="ticket", dedup_key="k", debounce_s=0)
    durable.start(store, job, "b", dedup_key="k", debounce_s=0)
    durable.send(store, ahead.id, "hello")
    durable.run_worker(store, [chat, job], until_idle=True)
    assert behind.result(timeout_s=1) == "b"


@pytest.mark.parametrize(
    "options",
    [
        {"dedup_key": ""},
        {"dedup_key": 3},
        {"debounce_s": 5},
        {"dedup_key": "k", "debounce_s": -1},
        {"dedup_key": "k", "debounce_s": 1, "delay_s": 1},
    ],
    ids=str,
)
def test_an_invalid_key_or_time_is_refused(store, options):
    with pytest.raises(UsageError):
        durable.start(store, job, "a", **options)
    assert durable.runs(store) == []
