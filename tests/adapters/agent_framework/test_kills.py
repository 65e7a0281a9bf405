"""Calls of the storages whose process is killed at any fault point have their full effect or none."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("agent_framework")

from agent_framework import AgentSession, Message, WorkflowCheckpoint
from forked import Nursery

import statelog
from statelog.adapters.agent_framework import StatelogCheckpointStorage, StatelogHistoryProvider, StatelogSessionStore

pytestmark = pytest.mark.filterwarnings("ignore")


def checkpoint(number, name="w"):
    return WorkflowCheckpoint(
        workflow_name=name,
        graph_signature_hash="h",
        checkpoint_id=f"{name}{number}",
        timestamp=f"2026-01-01T00:00:0{number}+00:00",
        state={"n": number, "list": [*range(number + 1)]},
    )


def session_with(n):
    session = AgentSession(session_id="x")
    session.state["n"] = {"list": [*range(n)]}
    return session


async def save(store):
    await StatelogCheckpointStorage(store).save(checkpoint(5))


async def save_of_another_workflow(store):
    await StatelogCheckpointStorage(store).save(checkpoint(5, "new"))


async def delete(store):
    await StatelogCheckpointStorage(store).delete("w1")


async def say(store):
    await StatelogHistoryProvider(store).save_messages("s", [Message("user", ["two"]), Message("assistant", ["three"])])


async def set_session(store):
    await StatelogSessionStore(store).set("s", session_with(3))


async def delete_session(store):
    await StatelogSessionStore(store).delete("s")


WORK = (save, save_of_another_workflow, delete, say, set_session, delete_session)


def made(path):
    async def make(store):
        for number in range(3):
            await StatelogCheckpointStorage(store).save(checkpoint(number))
        await StatelogHistoryProvider(store).save_messages("s", [Message("user", ["one"])])
        for n in range(2):
            await StatelogSessionStore(store).set("s", session_with(n))

    with statelog.open(path) as store:
        asyncio.run(make(store))


def killed(path, name, begin, end):
    with statelog.open(path) as store:
        begin()
        asyncio.run(globals()[name](store))
        end()


def look(store):
    async def read():
        storage = StatelogCheckpointStorage(store)
        found = [each.to_dict() for name in ("w", "new") for each in await storage.list_checkpoints(workflow_name=name)]
        ids = [id for name in ("w", "new") for id in await storage.list_checkpoint_ids(workflow_name=name)]
        assert [each["checkpoint_id"] for each in found] == ids
        messages = [each.text for each in await StatelogHistoryProvider(store).get_messages("s")]
        session = await StatelogSessionStore(store).get("s")
        return found, messages, session and session.to_dict()

    return asyncio.run(read())


@pytest.fixture(scope="module")
def nursery():
    with Nursery(__file__) as forking:
        yield forking


@pytest.mark.parametrize("name", [work.__name__ for work in WORK])
def test_a_killed_call_has_its_full_effect_or_none(nursery, tmp_path, name):
    counts = nursery.check_whole("killed", tmp_path, look, before="made", arguments=[name])
    assert all(count > 2 for count in counts), "killed before the commit, and after it"
