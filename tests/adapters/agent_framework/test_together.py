"""Many tasks, several stores, kills and bad input: no data is lost, and none is partial."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("agent_framework")

from agent_framework import Message, WorkflowCheckpoint
from agent_framework.exceptions import WorkflowCheckpointException

from statelog.adapters.agent_framework import StatelogCheckpointStorage, StatelogHistoryProvider


def checkpoint(number, state=None, **fields):
    state = {"n": number} if state is None else state
    return WorkflowCheckpoint("w", "h", checkpoint_id=f"c{number}", state=state, **fields)


def test_providers_with_different_names_have_separate_histories(store):
    asyncio.run(StatelogHistoryProvider(store, "audit").save_messages("s", [Message("user", ["hi"])]))
    assert asyncio.run(StatelogHistoryProvider(store).get_messages("s")) == []


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
