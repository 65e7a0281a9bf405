"""Many tasks, several stores, kills and bad input: no data is lost, and none is partial."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

pytest.importorskip("agent_framework")

from agent_framework import Message, WorkflowCheckpoint
from agent_framework.exceptions import WorkflowCheckpointException

import statelog
from statelog.adapters.agent_framework import StatelogCheckpointStorage, StatelogHistoryProvider, StatelogSessionStore
from statelog.errors import ClosedError, ReadOnlyError, ValueTypeError

KILLED = """
import asyncio, sys, statelog
from agent_framework import WorkflowCheckpoint
from statelog.adapters.agent_framework import StatelogCheckpointStorage

async def main():
    with statelog.open(sys.argv[1]) as store:
        storage = StatelogCheckpointStorage(store)
        for n in range(8):
            state = {"n": n, "list": list(range(n))}
            await storage.save(WorkflowCheckpoint("w", "h", checkpoint_id=f"c{n}", state=state))
            print(n, flush=True)

asyncio.run(main())
"""


class Own:
    """A type that is not allowed."""


def checkpoint(number, state=None, **fields):
    state = {"n": number} if state is None else state
    return WorkflowCheckpoint("w", "h", checkpoint_id=f"c{number}", state=state, **fields)


async def all_saved(storages, count):
    saves = [storages[n % len(storages)].save(checkpoint(n, {"l": list(range(n))})) for n in range(count)]
    await asyncio.gather(*saves)
    return {each.checkpoint_id: each.state["l"] for each in await storages[0].list_checkpoints(workflow_name="w")}


def test_fifty_tasks_with_one_object_lose_no_checkpoint(store):
    assert asyncio.run(all_saved([StatelogCheckpointStorage(store)], 50)) == {
        f"c{n}": list(range(n)) for n in range(50)
    }


def test_two_opened_stores_lose_no_checkpoint_of_each_other(path):
    with statelog.open(path) as one, statelog.open(path) as two:
        storages = [StatelogCheckpointStorage(one), StatelogCheckpointStorage(two)]
        assert asyncio.run(all_saved(storages, 30)) == {f"c{n}": list(range(n)) for n in range(30)}


def test_all_messages_of_two_opened_stores_are_kept(path):
    async def told(providers):
        for n in range(10):
            await asyncio.gather(*(each.save_messages("s", [Message("user", [str(n)])]) for each in providers))
        return [message.text for message in await providers[0].get_messages("s")]

    with statelog.open(path) as one, statelog.open(path) as two:
        found = asyncio.run(told([StatelogHistoryProvider(one), StatelogHistoryProvider(two)]))
    assert sorted(found) == sorted([str(n) for n in range(10)] * 2)


def test_providers_with_different_names_have_separate_histories(store):
    asyncio.run(StatelogHistoryProvider(store, "audit").save_messages("s", [Message("user", ["hi"])]))
    assert asyncio.run(StatelogHistoryProvider(store).get_messages("s")) == []


def test_the_order_of_keys_is_kept(store):
    storage = StatelogCheckpointStorage(store)
    asyncio.run(storage.save(checkpoint(1, {"z": 1, "a": {"y": 1, "b": [{"x": 1, "c": 2}]}})))
    assert repr(asyncio.run(storage.load("c1")).state) == "{'z': 1, 'a': {'y': 1, 'b': [{'x': 1, 'c': 2}]}}"


@pytest.mark.parametrize("point", ["commit.before_lmdb_commit", "commit.after_lmdb_commit", "journal.before_append",
                                   "journal.after_append", "journal.after_flush", "commit.after_delivery"])  # fmt: skip
@pytest.mark.parametrize("times", [2, 5])
def test_a_killed_process_loses_no_checkpoint_that_was_saved(path, point, times):
    environment = {**os.environ, "STATELOG_FAULT": f"{point}:{times}:kill"}
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLED, str(path)],
        env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    told = len(child.stdout.split())
    with statelog.open(path) as store:
        found = asyncio.run(StatelogCheckpointStorage(store).list_checkpoints(workflow_name="w"))
        assert store.verify().ok
    assert [each.state["list"] for each in found] == [list(range(n)) for n in range(len(found))]
    assert told <= len(found) <= told + 1


@pytest.mark.parametrize("state", [{"x": float("nan")}, {"x": Own()}, {"x": lambda: None}])
def test_values_that_cannot_be_loaded_are_refused_at_save(store, state):
    with pytest.raises(WorkflowCheckpointException):
        asyncio.run(StatelogCheckpointStorage(store).save(checkpoint(1, state)))
    assert store.last_lsn == 0


def test_a_cycle_is_refused(store):
    state = {}
    state["self"] = state
    with pytest.raises(WorkflowCheckpointException):
        asyncio.run(StatelogCheckpointStorage(store).save(checkpoint(1, state)))


def test_an_empty_checkpoint_id_is_refused(store):
    with pytest.raises(WorkflowCheckpointException):
        asyncio.run(StatelogCheckpointStorage(store).save(WorkflowCheckpoint("w", "h", checkpoint_id="")))


def test_a_checkpoint_of_a_deleted_thread_is_not_found(store):
    storage = StatelogCheckpointStorage(store)
    asyncio.run(storage.save(checkpoint(1)))
    store.delete_thread("agent-framework:workflow/w")
    with pytest.raises(WorkflowCheckpointException):
        asyncio.run(storage.load("c1"))
    asyncio.run(storage.save(checkpoint(2)))
    assert asyncio.run(storage.load("c2")) == checkpoint(2, timestamp=asyncio.run(storage.load("c2")).timestamp)


def test_a_message_that_is_not_json_is_refused(store):
    with pytest.raises((ValueTypeError, TypeError)):
        asyncio.run(
            StatelogHistoryProvider(store).save_messages(
                "s", [Message("user", ["x"], additional_properties={"x": float("nan")})]
            )
        )
    assert store.last_lsn == 0


def test_a_closed_store_raises(path):
    with statelog.open(path) as store:
        storage = StatelogCheckpointStorage(store)
    with pytest.raises(ClosedError):
        asyncio.run(storage.save(checkpoint(1)))


def test_a_read_only_store_can_be_read(path):
    with statelog.open(path) as store:
        asyncio.run(StatelogCheckpointStorage(store).save(checkpoint(1)))
    with statelog.open(path, read_only=True) as store:
        storage = StatelogCheckpointStorage(store)
        assert asyncio.run(storage.load("c1")).state == {"n": 1}
        with pytest.raises(ReadOnlyError):
            asyncio.run(storage.save(checkpoint(2)))


def test_a_long_session_id_is_accepted(store):
    sessions = StatelogSessionStore(store)
    assert asyncio.run(sessions.get("é" * 1000)) is None
