"""Artifacts and memory of ADK in a file, with the behaviour of ADK's own services."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("google.adk", exc_type=ImportError)

from google.adk.artifacts.in_memory_artifact_service import InMemoryArtifactService
from google.adk.cli.service_registry import get_service_registry
from google.adk.events.event import Event
from google.adk.memory.in_memory_memory_service import InMemoryMemoryService
from google.adk.sessions.session import Session
from google.genai import types

import statelog
from statelog.adapters.google_adk import (
    StatelogArtifactService,
    StatelogMemoryService,
    StatelogSessionService,
    register,
)
from statelog.errors import UsageError

HERE = {"app_name": "app", "user_id": "user", "session_id": "s"}
BYTES = bytes(range(256)) * 40


@pytest.fixture
def store(path):
    with statelog.open(path, durability="interval") as opened:
        yield opened
        assert opened.verify().ok


async def artifacts(service):
    """Return the answers of a service."""
    found = []
    part = types.Part.from_bytes(data=BYTES, mime_type="image/png")
    found.append(await service.load_artifact(**HERE, filename="f"))
    found += [await service.save_artifact(**HERE, filename="f", artifact=part) for _ in range(2)]
    found.append(await service.save_artifact(**HERE, filename="f", artifact={"text": "hi"}, custom_metadata={"z": 1}))
    found.append(await service.save_artifact(**HERE, filename="user:g", artifact={"text": "of all"}))
    found += [await service.load_artifact(**HERE, filename="f", version=version) for version in (None, 0, 1, 2, 3)]
    found.append(await service.load_artifact(**{**HERE, "session_id": "other"}, filename="user:g"))
    found.append(await service.load_artifact(**{**HERE, "session_id": "other"}, filename="f"))
    found.append(await service.list_artifact_keys(**HERE))
    found.append(await service.list_artifact_keys(app_name="app", user_id="user"))
    found.append(await service.list_versions(**HERE, filename="f"))
    for each in await service.list_artifact_versions(**HERE, filename="f"):
        found.append((each.version, each.custom_metadata, each.mime_type))
    one = await service.get_artifact_version(**HERE, filename="f", version=2)
    found.append((one.version, one.custom_metadata))
    found.append(await service.get_artifact_version(**HERE, filename="unknown"))
    await service.delete_artifact(**HERE, filename="f")
    found.append(await service.load_artifact(**HERE, filename="f"))
    found.append(await service.list_artifact_keys(**HERE))
    found.append(await service.save_artifact(**HERE, filename="f", artifact={"text": "anew"}))
    found.append(await service.list_versions(**HERE, filename="f"))
    return found


def test_artifacts_equal_those_of_adks_in_memory_service(store):
    ours = asyncio.run(artifacts(StatelogArtifactService(store)))
    theirs = asyncio.run(artifacts(InMemoryArtifactService()))
    assert [each for each, other in zip(ours, theirs, strict=True) if each != other] == []


def test_fifty_concurrent_versions_have_distinct_numbers(store):
    async def main():
        service = StatelogArtifactService(store)
        calls = (service.save_artifact(**HERE, filename="f", artifact={"text": str(n)}) for n in range(50))
        numbers = await asyncio.gather(*calls)
        kept = [(await service.load_artifact(**HERE, filename="f", version=number)).text for number in numbers]
        return numbers, kept

    numbers, kept = asyncio.run(main())
    assert sorted(numbers) == [*range(50)]
    assert kept == [str(n) for n in range(50)]


def said(id, text, session="s"):
    return Event(
        id=id, author=session, timestamp=1000.0, content=types.Content(role="user", parts=[types.Part(text=text)])
    )


def session_of(id, *events):
    return Session(id=id, app_name="app", user_id="user", events=list(events))


async def memories(service):
    found = []

    async def search(query):
        response = await service.search_memory(app_name="app", user_id="user", query=query)
        found.append([(each.id, each.author, each.content.parts[0].text) for each in response.memories])

    await search("anything")
    await service.add_session_to_memory(session_of("s", said("1", "the red house"), said("2", "私はPythonを使う")))
    await service.add_session_to_memory(session_of("t", said("3", "a red car and a red house", "t")))
    for query in ("red", "RED house", "python", "使う", "hous", "blue"):
        await search(query)
    await service.add_session_to_memory(session_of("s", said("1", "the red house"), said("4", "a green house")))
    await service.add_events_to_memory(
        app_name="app", user_id="user", events=[said("5", "red"), said("5", "red")], session_id="u"
    )
    await service.add_events_to_memory(
        app_name="app", user_id="user", events=[said("6", "red"), said("5", "red")], session_id="u"
    )
    await service.delete_memory(app_name="app", user_id="user", memory_id="1")
    await service.add_session_to_memory(session_of("s", said("1", "the red house"), said("4", "a green house")))
    for query in ("red", "house", "python"):
        await search(query)
    response = await service.search_memory(app_name="app", user_id="other", query="red")
    found.append(response.memories)
    return found


def test_memory_search_equals_adks_in_memory_service(store):
    ours = asyncio.run(memories(StatelogMemoryService(store)))
    assert ours == asyncio.run(memories(InMemoryMemoryService()))
    again = asyncio.run(StatelogMemoryService(store).search_memory(app_name="app", user_id="user", query="green"))
    assert [each.id for each in again.memories] == ["4"]


def test_adks_command_line_accepts_the_uri_of_a_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    register()
    registry = get_service_registry()
    session = registry.create_session_service("statelog:///agent.state", agents_dir="agents")
    artifact = registry.create_artifact_service(f"statelog:///{tmp_path}/agent.state")
    memory = registry.create_memory_service("statelog:///agent.state")
    kinds = (StatelogSessionService, StatelogArtifactService, StatelogMemoryService)
    assert tuple(map(type, (session, artifact, memory))) == kinds
    assert (tmp_path / "agent.state").exists()
    for service in (session, artifact, memory):
        service.store.close()
    for uri in ("statelog://host/agent.state", "statelog:///", "statelog:"):
        with pytest.raises(UsageError, match="is not the URI of a store"):
            registry.create_session_service(uri)
