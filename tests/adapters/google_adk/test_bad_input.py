"""The order of keys, empty names, and refused calls of ADK's services on a store, which store nothing."""

from __future__ import annotations

import asyncio
import json
import math

import pytest

pytest.importorskip("google.adk", exc_type=ImportError)

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types

import statelog
from statelog.adapters.google_adk import StatelogArtifactService, StatelogMemoryService, StatelogSessionService
from statelog.errors import LimitError, UsageError, ValueTypeError

USER = {"app_name": "app", "user_id": "user"}
HERE = {**USER, "session_id": "s"}
NESTED = {"z": 1, "a": {"y": [{"q": 1, "b": 2}], "b": 3}, "m": None}


@pytest.fixture
def store(path):
    with statelog.open(path, durability="interval") as opened:
        yield opened
        assert opened.verify().ok


def said(id="e", text="x", **delta):
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return Event(id=id, author="user", timestamp=1000.0, content=content, actions=EventActions(state_delta=delta))


def called(arguments):
    part = types.Part(function_call=types.FunctionCall(id="c", name="f", args=arguments))
    return Event(author="a", timestamp=1000.0, content=types.Content(role="model", parts=[part]))


def scoped(*names):
    return {f"{scope}{name}": NESTED for name in names for scope in ("user:", "", "app:")}


# --- the order of keys ------------------------------------------------------------------


async def talk(service):
    """Return the answers of a service for states with unsorted keys."""
    session = await service.create_session(**HERE, state=scoped("z", "k", "a"))
    other = await service.create_session(**USER, session_id="t", state={"b": 1, "a": 2})
    await service.append_event(session, said("e1", **scoped("m", "a", "b")))
    await service.append_event(other, said("e2", c=1, user_id=2))
    found = [await service.get_session(**each) for each in (HERE, {**USER, "session_id": "t"})]
    found += sorted((await service.list_sessions(**USER)).sessions, key=lambda each: each.id)
    return [json.dumps(each.state) for each in found], json.dumps(await service.get_user_state(**USER))


def test_states_have_the_key_order_of_adks_in_memory_service(store):
    ours = asyncio.run(talk(StatelogSessionService(store)))
    assert ours == asyncio.run(talk(InMemorySessionService()))


def test_a_fork_and_an_event_keep_the_order_of_keys(store):
    async def main():
        service = StatelogSessionService(store)
        session = await service.create_session(**HERE, state={"z": 1, "a": 1})
        await service.append_event(session, said("e1", y=1, b=1))
        await service.append_event(session, called(NESTED))
        await service.append_event(session, said("e2", x=1, c=1))
        forked = await service.fork_session(**HERE, at="e1", new_session_id="f")
        await service.append_event(forked, said("e3", d=1, a=2))
        sessions = (await service.list_sessions(**USER)).sessions
        listed = {each.id: list(each.state) for each in sessions}
        read = {name: await service.get_session(**USER, session_id=name) for name in listed}
        assert listed == {name: list(each.state) for name, each in read.items()}
        return listed, read["s"].events[1].content.parts[0].function_call.args

    listed, arguments = asyncio.run(main())
    assert listed == {"s": list("zaybxc"), "f": list("zaybd")}
    assert json.dumps(arguments) == json.dumps(NESTED)


def test_artifacts_and_memories_keep_the_order_of_keys(store):
    async def main():
        artifacts, memory = StatelogArtifactService(store), StatelogMemoryService(store)
        part = types.Part(function_call=types.FunctionCall(name="f", args=NESTED))
        await artifacts.save_artifact(**HERE, filename="f", artifact=part, custom_metadata=NESTED)
        told = called(NESTED)
        told.content.parts.append(types.Part(text="word"))
        await memory.add_events_to_memory(**HERE, events=[told])
        [found] = (await StatelogMemoryService(store).search_memory(**USER, query="word")).memories
        return (
            (await artifacts.load_artifact(**HERE, filename="f")).function_call.args,
            (await artifacts.get_artifact_version(**HERE, filename="f")).custom_metadata,
            found.content.parts[0].function_call.args,
        )

    assert [json.dumps(each) for each in asyncio.run(main())] == [json.dumps(NESTED)] * 3


# --- names ------------------------------------------------------------------------------


@pytest.mark.parametrize("id", ["", " ", None])
def test_a_session_without_an_id_gets_one_as_in_memory(store, id):
    async def main(service):
        made = await service.create_session(**USER, session_id=id)
        assert await service.get_session(**USER, session_id="") is None
        await service.delete_session(**USER, session_id="")
        [shown] = (await service.list_sessions(**USER)).sessions
        assert shown.id == made.id
        return len(made.id)

    assert asyncio.run(main(StatelogSessionService(store))) == asyncio.run(main(InMemorySessionService()))


def test_an_app_without_a_name_is_refused_and_a_user_without_a_name_is_accepted(store):
    async def main():
        service = StatelogSessionService(store)
        with pytest.raises(UsageError, match="name"):
            await service.create_session(app_name="", user_id="user")
        assert store.last_lsn == 0
        await service.create_session(app_name="app", user_id="", session_id="s", state={"user:k": 1})
        await service.create_session(app_name="app", user_id="s", session_id="s")
        assert await service.get_user_state(app_name="app", user_id="") == {"k": 1}
        return {(each.user_id, each.id) for each in (await service.list_sessions(app_name="app")).sessions}

    assert asyncio.run(main()) == {("", "s"), ("s", "s")}


@pytest.mark.parametrize("name", ["", "~", "k" * 4000, "漢" * 900, "a/b", "a\0b"])
def test_a_state_can_have_long_keys_of_any_script(store, name):
    async def main(service):
        session = await service.create_session(**HERE, state={name: 1, f"user:{name}": 2, f"app:{name}": 3})
        await service.append_event(session, said(**{name: 4, f"user:{name}": 5}))
        [shown] = (await service.list_sessions(**USER)).sessions
        return (await service.get_session(**HERE)).state, shown.state

    assert asyncio.run(main(StatelogSessionService(store))) == asyncio.run(main(InMemorySessionService()))


def test_a_key_that_is_too_long_is_refused_and_nothing_is_stored(store):
    async def main():
        service = StatelogSessionService(store)
        session = await service.create_session(**HERE)
        before = store.last_lsn
        for scope in ("", "user:", "app:"):
            with pytest.raises(LimitError):
                await service.append_event(session, said(first=1, **{f"{scope}{'k' * 4097}": 1}))
        assert store.last_lsn == before
        return await service.get_session(**HERE)

    assert asyncio.run(main()).events == []


# --- values that are not JSON, and stores that refuse ----------------------------------------------


def holding_itself():
    value = {}
    value["self"] = value
    return value


@pytest.mark.parametrize("value", [math.nan, holding_itself(), object()], ids=["not a number", "cycle", "object"])
@pytest.mark.parametrize("scope", ["", "user:", "app:"])
def test_a_delta_that_is_not_json_is_refused_with_its_whole_event(store, scope, value):
    async def main():
        service = StatelogSessionService(store)
        session = await service.create_session(**HERE)
        before = store.last_lsn
        with pytest.raises(ValueTypeError, match="JSON"):
            await service.append_event(session, said(first=1, **{f"{scope}k": value}))
        assert store.last_lsn == before
        assert session.events == []
        await service.append_event(session, said(first=2))
        return await service.get_session(**HERE)

    assert asyncio.run(main()).state == {"first": 2}
