"""Sessions, artifacts and memories of the Agent Development Kit."""

from __future__ import annotations

import json
import math

from adapter_driver import Driver, holding_itself, new_id
from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.genai import types

from statelog.adapters.google_adk import StatelogArtifactService, StatelogMemoryService, StatelogSessionService


class Sessions(Driver):
    kills = ()  # google_adk/test_kills.py
    unstorable = math.nan, object(), holding_itself()
    no_names = ("\ud800",)
    names = tuple(name for name in Driver.names if name != " ")  # for that ADK makes an id

    def __init__(self, store):
        super().__init__(store)
        self.service = StatelogSessionService(store)

    def where(self, name):
        return {"app_name": "app", "user_id": "user", "session_id": name}

    async def add(self, name, *values):
        while True:
            try:
                session = await self.service.get_session(**self.where(name))
                if session is None:
                    await self.service.create_session(**self.where(name), state={"first": [*values]})
                else:
                    actions = EventActions(state_delta={"values": [*values]})
                    await self.service.append_event(session, Event(author="user", timestamp=1e9, actions=actions))
            except (StaleSessionError, AlreadyExistsError):
                continue
            return

    async def read(self, name):
        session = await self.service.get_session(**self.where(name))
        if session is None:
            return []
        added = [value for each in session.events for value in each.actions.state_delta["values"]]
        return session.state["first"] + added

    async def delete(self, name):
        await self.service.delete_session(**self.where(name))

    def further_calls(self):
        return [self.service.fork_session(**self.where("s"), new_session_id="f")]

    async def everything(self, names=("s", "t", "new")):
        listed = {each.id: each.state for each in (await self.service.list_sessions(app_name="app")).sessions}
        found = {name: await self.read(name) for name in names}
        assert {name for name in names if found[name]} == listed.keys() & {*names}
        return found, listed


class Users(Sessions):
    no_names = (None, 7, "\ud800")
    names = ("", *Driver.names)

    def where(self, name):
        return {"app_name": "app", "user_id": name, "session_id": "s"}

    async def everything(self, names=("s", "t", "new")):
        return {name: await self.read(name) for name in names}


class Apps(Users):
    no_names = ("", None, 7, "\ud800")
    reads_any_name = True  # an empty one
    names = Driver.names

    def where(self, name):
        return {"app_name": name, "user_id": "user", "session_id": "s"}


class Artifacts(Driver):
    kills = ()
    unstorable = (math.nan,)
    no_names = ("\ud800",)

    def where(self, name):
        return {"app_name": "app", "user_id": "user", "session_id": name, "filename": "f"}

    async def add(self, name, *values):
        metadata = {"values": [*values]}
        artifacts = StatelogArtifactService(self.store)
        await artifacts.save_artifact(**self.where(name), artifact={"text": "x"}, custom_metadata=metadata)

    async def read(self, name):
        service = StatelogArtifactService(self.store)
        versions = await service.list_artifact_versions(**self.where(name))
        assert [each.version for each in versions] == await service.list_versions(**self.where(name))
        return [value for each in versions for value in each.custom_metadata["values"]]

    async def delete(self, name):
        await StatelogArtifactService(self.store).delete_artifact(**self.where(name))


class Memories(Driver):
    kills = ()
    reads_all = False  # a search finds ten
    unstorable = ()  # texts
    no_names = (7, "\ud800")

    def where(self, name):
        return {"app_name": "app", "user_id": name}

    async def add(self, name, *values):
        events = [
            Event(
                id=new_id(),
                author="user",
                timestamp=1000.0,
                content=types.Content(role="user", parts=[types.Part(text="word"), types.Part(text=json.dumps(value))]),
            )
            for value in values
        ]
        await StatelogMemoryService(self.store).add_events_to_memory(**self.where(name), events=events)

    async def read(self, name):
        found = await StatelogMemoryService(self.store).search_memory(**self.where(name), query="word")
        memories = sorted(found.memories, key=lambda each: each.id)
        return [json.loads(each.content.parts[1].text) for each in memories]
