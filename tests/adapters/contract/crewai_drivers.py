"""States of flows, questions to people, and memories of CrewAI."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from adapter_driver import Driver, holding_itself, new_id
from crewai.flow.async_feedback.types import PendingFeedbackContext
from crewai.memory.types import MemoryRecord

from statelog.adapters.crewai import StatelogFlowPersistence, StatelogMemoryStorage

MADE = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)  # CrewAI's have no zone


class Flows(Driver):
    keeps_all = False
    unstorable = (holding_itself(),)
    no_names = ("", None)

    async def add(self, name, *values):
        StatelogFlowPersistence(self.store).save_state(name, "m", {"values": [*values]})

    async def read(self, name):
        state = StatelogFlowPersistence(self.store).load_state(name)
        return [] if state is None else state["values"]

    def thread_ids(self, name):
        return [f"crewai:{name}"]


class Questions(Flows):
    kills = ("add", "delete")
    unstorable = ()  # crewai/test_bad_input.py: some of a cycle is found by CrewAI's own code

    async def add(self, name, *values):
        question = PendingFeedbackContext(
            flow_id=name,
            flow_class="m.F",
            method_name="ask",
            method_output={"values": [*values]},
            message="?",
            metadata={"values": [*values]},
        )
        StatelogFlowPersistence(self.store).save_pending_feedback(name, question, {"values": [*values]})

    async def read(self, name):
        found = StatelogFlowPersistence(self.store).load_pending_feedback(name)
        if found is None:
            return []
        state, question = found
        assert json.dumps(state) == json.dumps(question.method_output) == json.dumps(question.metadata)
        return state["values"]

    async def delete(self, name):
        StatelogFlowPersistence(self.store).clear_pending_feedback(name)


class Memories(Driver):
    kills = ("add", "delete")
    unstorable = ()  # texts
    no_names = ("",)

    def memory(self, name):
        return StatelogMemoryStorage(self.store, name=name)

    async def add(self, name, *values):
        records = [
            MemoryRecord(
                id=new_id(), content=str(len(str(value))), embedding=[1.0, 0.0], created_at=MADE,
                metadata={"v": value},
            )
            for value in values
        ]  # fmt: skip
        self.memory(name).save(records)

    async def read(self, name):
        records = sorted(self.memory(name).list_records(), key=lambda each: each.id)
        assert self.memory(name).count() == len(records)
        return [each.metadata["v"] for each in records]

    async def delete(self, name):
        self.memory(name).reset()


class Updates(Memories):
    """One memory, which each call of `add` replaces."""

    keeps_all = False

    async def add(self, name, *values):
        metadata = {"values": [*values]}
        record = MemoryRecord(id="one", content="x", embedding=[1.0, 0.0], created_at=MADE, metadata=metadata)
        self.memory(name).update(record)

    async def read(self, name):
        record = self.memory(name).get_record("one")
        return [] if record is None else record.metadata["values"]

    async def delete(self, name):
        self.memory(name).delete(record_ids=["one"])
