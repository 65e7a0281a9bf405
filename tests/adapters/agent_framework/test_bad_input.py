"""The order of keys, empty names, and stores that refuse writes.

Existing data is kept, and no part is added.
"""

from __future__ import annotations

import asyncio
import json
import math

import pytest

pytest.importorskip("agent_framework")

from agent_framework import AgentSession, FileHistoryProvider, FileSessionStore, Message, WorkflowCheckpoint
from agent_framework.exceptions import WorkflowCheckpointException

import statelog
from statelog.adapters.agent_framework import StatelogCheckpointStorage, StatelogHistoryProvider, StatelogSessionStore
from statelog.errors import ClosedError, ReadOnlyError, StoreFullError, UsageError, ValueTypeError

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


def holding_itself():
    value = {}
    value["self"] = value
    return value


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
def test_a_name_that_is_not_a_text_is_refused_and_nothing_is_written(store, name):
    async def main():
        storage, histories = StatelogCheckpointStorage(store), StatelogHistoryProvider(store)
        with pytest.raises(WorkflowCheckpointException):
            await storage.save(checkpoint("c", name))
        with pytest.raises(WorkflowCheckpointException):
            await storage.save(checkpoint(name))
        if name is not None:  # It is the session "default".
            with pytest.raises(UsageError, match="name"):
                await histories.save_messages(name, [said("x")])

    asyncio.run(main())
    assert store.last_lsn == 0


@pytest.mark.parametrize(
    "value", [math.nan, b"x", {1}, holding_itself()], ids=["not a number", "bytes", "set", "cycle"]
)
def test_a_session_that_is_not_json_is_refused_and_the_former_one_is_kept(store, value):
    async def main():
        sessions = StatelogSessionStore(store)
        await sessions.set("s", session_with(n=1))
        before = store.last_lsn
        with pytest.raises((ValueTypeError, RecursionError)):
            await sessions.set("s", session_with(n=2, k=value))
        assert store.last_lsn == before
        return (await sessions.get("s")).state

    assert asyncio.run(main()) == {"n": 1}


def test_a_message_that_contains_itself_is_refused_with_its_call(store):
    async def main():
        histories = StatelogHistoryProvider(store)
        with pytest.raises((ValueError, ValueTypeError), match="Circular"):
            await histories.save_messages("s", [said("first"), said("x", k=holding_itself())])
        return await histories.get_messages("s")

    assert asyncio.run(main()) == []
    assert store.last_lsn == 0


def writes(store):
    storage, histories, sessions = (
        StatelogCheckpointStorage(store),
        StatelogHistoryProvider(store),
        StatelogSessionStore(store),
    )
    return (
        lambda text: storage.save(checkpoint("c", state={"t": text})),
        lambda text: storage.save(checkpoint("new" if len(text) > 1 else "c", "new", state={"t": text})),
        lambda text: histories.save_messages("s", [said("first"), said(text)]),
        lambda text: sessions.set("s", session_with(t=text)),
    )


async def held(store):
    storage = StatelogCheckpointStorage(store)
    listed = [await storage.list_checkpoints(workflow_name=name) for name in ("w", "new")]
    messages = await StatelogHistoryProvider(store).get_messages("s")
    session = await StatelogSessionStore(store).get("s")
    return [[each.state for each in found] for found in listed], [each.text for each in messages], session.to_dict()


def test_closed_read_only_and_full_stores_raise_and_are_unchanged(path):
    async def main():
        with statelog.open(path, max_size_bytes=1 << 20) as store:
            for write in writes(store):
                await write("x")
            before = await held(store), store.last_lsn
            for write in writes(store):
                with pytest.raises(StoreFullError):
                    await write("x" * (1 << 21))
            assert (await held(store), store.last_lsn) == before
        for write in writes(store):
            with pytest.raises(ClosedError):
                await write("x")
        with statelog.open(path, read_only=True) as store:
            for write in writes(store):
                with pytest.raises(ReadOnlyError):
                    await write("y")
            for delete in (StatelogCheckpointStorage(store).delete("c"), StatelogSessionStore(store).delete("s")):
                with pytest.raises(ReadOnlyError):
                    await delete
            assert await held(store) == before[0]

    asyncio.run(main())
