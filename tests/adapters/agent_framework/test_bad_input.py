"""The order of keys, empty names, and stores that refuse writes.

Existing data is kept, and no part is added.
"""

from __future__ import annotations

import asyncio
import json

import pytest

pytest.importorskip("agent_framework")

from agent_framework import AgentSession, FileHistoryProvider, FileSessionStore, Message, WorkflowCheckpoint
from agent_framework.exceptions import WorkflowCheckpointException

from statelog.adapters.agent_framework import StatelogCheckpointStorage, StatelogHistoryProvider, StatelogSessionStore

pytestmark = pytest.mark.filterwarnings("ignore")

NESTED = {"z": 1, "a": {"y": [{"q": 1, "b": 2}], "b": 3}, "m": None}


def checkpoint(id, name="w", **fields):
    return WorkflowCheckpoint(
        workflow_name=name, graph_signature_hash="h", checkpoint_id=id, timestamp="2026-01-01T00:00:00+00:00", **fields
    )


def session_with(**state):
    session = AgentSession(session_id="x")
    session.state.update(state)
    return session


def said(text, **properties):
    return Message("user", [text], additional_properties=properties)


def test_checkpoints_histories_and_sessions_keep_the_order_of_keys(store, tmp_path):
    async def main(histories, sessions):
        await histories.save_messages("s", [said("x", **NESTED)])
        await sessions.set("s", session_with(**NESTED))
        [message] = await histories.get_messages("s")
        return json.dumps([message.to_dict(), (await sessions.get("s")).to_dict()])

    async def of_checkpoint(storage):
        await storage.save(checkpoint("c", state=NESTED, metadata=NESTED, messages={"z": [], "a": []}))
        return repr((await storage.load("c")).to_dict())

    ours = StatelogHistoryProvider(store), StatelogSessionStore(store)
    theirs = FileHistoryProvider(tmp_path / "h"), FileSessionStore(tmp_path / "s")
    assert asyncio.run(main(*ours)) == asyncio.run(main(*theirs))
    whole = checkpoint("c", state=NESTED, metadata=NESTED, messages={"z": [], "a": []}).to_dict()
    assert asyncio.run(of_checkpoint(StatelogCheckpointStorage(store))) == repr(whole)


def test_a_workflow_without_a_name_has_its_own_checkpoints(store):
    async def main():
        storage = StatelogCheckpointStorage(store)
        await storage.save(checkpoint("a", ""))
        await storage.save(checkpoint("b", "w"))
        return await storage.list_checkpoint_ids(workflow_name=""), (await storage.load("a")).workflow_name

    assert asyncio.run(main()) == (["a"], "")


@pytest.mark.parametrize("name", [None, 7, "\ud800"])
def test_an_id_that_is_not_a_text_is_refused_and_nothing_is_written(store, name):
    with pytest.raises(WorkflowCheckpointException):
        asyncio.run(StatelogCheckpointStorage(store).save(checkpoint(name)))
    assert store.last_lsn == 0
