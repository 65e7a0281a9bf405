"""Calls of ADK's services whose process is killed at any fault point have their full effect or none."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("google.adk", exc_type=ImportError)

from forked import Nursery
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.genai import types

import statelog
from statelog.adapters.google_adk import StatelogArtifactService, StatelogMemoryService, StatelogSessionService

USER = {"app_name": "app", "user_id": "user"}
HERE = {**USER, "session_id": "s"}
SESSIONS = ("s", "gone", "new")


def said(number):
    content = types.Content(role="user", parts=[types.Part(text=f"word{number} of all")])
    actions = EventActions(state_delta={"n": number, "user:n": number, "app:n": number})
    return Event(id=f"e{number}", author="user", timestamp=1000.0 + number, content=content, actions=actions)


def image(byte):
    return types.Part.from_bytes(data=bytes([byte]) * 20_000, mime_type="image/png")


class Services:
    def __init__(self, store):
        self.sessions = StatelogSessionService(store)
        self.artifacts = StatelogArtifactService(store)
        self.memory = StatelogMemoryService(store)

    async def session(self):
        return await self.sessions.get_session(**HERE)


# --- what a process does --------------------------------------------------------------


async def create(services):
    await services.sessions.create_session(**USER, session_id="new", state={"n": 0, "user:k": 1, "app:k": 1})


async def create_again(services):
    await services.sessions.create_session(**USER, session_id="gone", state={"n": 0, "user:k": 1})


async def fork_at_an_event(services):
    await services.sessions.fork_session(**HERE, at="e1", new_session_id="new")


async def fork_to_a_deleted_id(services):
    await services.sessions.fork_session(**HERE, at="e1", new_session_id="gone")


async def delete(services):
    await services.sessions.delete_session(**HERE)


async def save_artifact(services):
    await services.artifacts.save_artifact(**HERE, filename="new", artifact=image(1), custom_metadata={"z": 1})


async def save_another_version(services):
    await services.artifacts.save_artifact(**HERE, filename="f", artifact=image(1))


async def delete_artifact(services):
    await services.artifacts.delete_artifact(**HERE, filename="f")


async def remember_session(services):
    await services.memory.add_session_to_memory(await services.session())


async def remember_events(services):
    await services.memory.add_events_to_memory(**HERE, events=[said(7), said(8)])


async def forget_memory(services):
    await services.memory.delete_memory(**USER, memory_id="m2")


async def save_in_two_commits(services):
    """Save a version and then its name in a second commit, which a correct save must not do."""
    artifacts = services.artifacts
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("statelog.adapters.kit.directory.Directory.put", lambda *_: None)
        await save_artifact(services)
    await save_artifact(Services(artifacts.store))


WORK = (
    create, create_again, fork_at_an_event, fork_to_a_deleted_id, delete, save_artifact, save_another_version,
    delete_artifact, remember_session, remember_events, forget_memory,
)  # fmt: skip


def made(path):
    async def make(services):
        for name in SESSIONS[:2]:
            await services.sessions.create_session(**USER, session_id=name, state={"n": -1, "user:k": 0})
        session = await services.session()
        for number in range(3):
            await services.sessions.append_event(session, said(number))
        await services.sessions.delete_session(**USER, session_id="gone")
        for byte in range(2):
            await services.artifacts.save_artifact(**HERE, filename="f", artifact=image(byte))
        events = [Event(id=f"m{number}", author="s", content=said(number).content) for number in range(3)]
        await services.memory.add_events_to_memory(**HERE, events=events)

    with statelog.open(path) as store:
        asyncio.run(make(Services(store)))


def killed(path, name, begin, end):
    with statelog.open(path) as store:
        services = Services(store)
        begin()
        asyncio.run(globals()[name](services))
        end()


# --- what another process finds ---------------------------------------------------------


def look(store):
    async def read(services):
        shown = (await services.sessions.list_sessions(**USER)).sessions
        found = {}
        for each in shown:
            held = await services.sessions.get_session(**USER, session_id=each.id)
            assert (held.state, held.last_update_time) == (each.state, each.last_update_time)
            found[each.id] = held.state, [event.id for event in held.events]
        for name in SESSIONS:
            held = await services.sessions.get_session(**USER, session_id=name)
            assert (held is not None) == (name in found)
        names = await services.artifacts.list_artifact_keys(**HERE)
        for name in names:
            numbers = await services.artifacts.list_versions(**HERE, filename=name)
            read = [await services.artifacts.load_artifact(**HERE, filename=name, version=n) for n in numbers]
            found[f"artifact {name}"] = [each.inline_data.data for each in read]
        memories = (await services.memory.search_memory(**USER, query="all")).memories
        return found, [each.id for each in memories]

    return asyncio.run(read(Services(store)))


@pytest.fixture(scope="module")
def nursery():
    with Nursery(__file__) as forking:
        yield forking


@pytest.mark.parametrize("name", [work.__name__ for work in WORK])
def test_a_killed_call_has_its_full_effect_or_none(nursery, tmp_path, name):
    counts = nursery.check_whole("killed", tmp_path, look, before="made", arguments=[name])
    assert all(count > 2 for count in counts), "killed before the commit, and after it"


def test_a_save_in_two_commits_is_detected(nursery, tmp_path):
    with pytest.raises(AssertionError, match="Death"):
        nursery.check_whole("killed", tmp_path, look, before="made", arguments=["save_in_two_commits"])
