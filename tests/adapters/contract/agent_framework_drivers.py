"""Checkpoints, histories and sessions of the Agent Framework."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from adapter_driver import Driver, holding_itself, new_id
from agent_framework import AgentSession, Message, WorkflowCheckpoint
from agent_framework.exceptions import WorkflowCheckpointException

from statelog.adapters.agent_framework import StatelogCheckpointStorage, StatelogHistoryProvider, StatelogSessionStore
from statelog.errors import ValueTypeError


class Own:
    """A type that nobody allowed."""


class Checkpoints(Driver):
    kills = ("add", "add_new", "delete_one")
    unstorable = math.nan, Own(), holding_itself, holding_itself()
    unstorable_error = WorkflowCheckpointException, None
    no_names = (None, 7, "\ud800")
    no_name_error = WorkflowCheckpointException, None
    reads_any_name = True
    names = ("", *Driver.names)

    def __init__(self, store):
        super().__init__(store)
        self.storage = StatelogCheckpointStorage(store)

    async def add(self, name, *values):
        await self.storage.save(
            WorkflowCheckpoint(
                workflow_name=name,
                graph_signature_hash="h",
                checkpoint_id=new_id(),
                timestamp=datetime.now(UTC).isoformat(),
                state={"values": [*values]},
            )
        )

    async def read(self, name):
        found = await self.storage.list_checkpoints(workflow_name=name)
        return [value for each in found for value in each.state["values"]]

    async def delete(self, name):
        for id in await self.storage.list_checkpoint_ids(workflow_name=name):
            await self.storage.delete(id)

    async def delete_one(self):
        await self.storage.delete((await self.storage.list_checkpoint_ids(workflow_name="s"))[0])

    def thread_ids(self, name):
        return [f"agent-framework:workflow/{name}"]

    async def everything(self, names=("s", "t", "new")):
        for name in names:
            listed = await self.storage.list_checkpoints(workflow_name=name)
            ids = await self.storage.list_checkpoint_ids(workflow_name=name)
            assert [each.checkpoint_id for each in listed] == ids
            assert [await self.storage.load(id) for id in ids] == listed
        return await super().everything(names)


class Histories(Driver):
    unstorable = math.nan, holding_itself()
    unstorable_error = (ValueTypeError, TypeError, ValueError), None
    no_names = (7, "\ud800")

    async def add(self, name, *values):
        messages = [Message("user", ["x"], additional_properties={"v": value}) for value in values]
        await StatelogHistoryProvider(self.store).save_messages(name, messages)

    async def read(self, name):
        messages = await StatelogHistoryProvider(self.store).get_messages(name)
        return [each.additional_properties["v"] for each in messages]


class Sessions(Driver):
    kills = ("add", "delete")
    keeps_all = False
    unstorable_error = (ValueTypeError, RecursionError), None
    unstorable = math.nan, b"x", {1}, holding_itself()
    no_names = ("", None, 7)
    no_name_error = ValueError, "session_id"

    def __init__(self, store):
        super().__init__(store)
        self.sessions = StatelogSessionStore(store)

    async def add(self, name, *values):
        session = AgentSession(session_id="x")
        session.state["values"] = [*values]
        await self.sessions.set(name, session)

    async def read(self, name):
        session = await self.sessions.get(name)
        return [] if session is None else session.state["values"]

    async def delete(self, name):
        await self.sessions.delete(name)
