"""Transcripts of the Claude Agent SDK."""

from __future__ import annotations

from uuid import uuid4

from adapter_driver import Driver

from statelog.adapters.claude_agent_sdk import StatelogSessionStore


class Sessions(Driver):
    kills = ()  # claude_agent_sdk/test_kills.py
    no_names = (None, 7, "\ud800")
    names = ("", *Driver.names)

    def __init__(self, store):
        super().__init__(store)
        self.sessions = StatelogSessionStore(store)

    def key(self, name):
        return {"project_key": "p", "session_id": name}

    async def add(self, name, *values):
        entries = [{"type": "user", "uuid": str(uuid4()), "message": {"role": "user", "v": value}} for value in values]
        await self.sessions.append(self.key(name), entries)

    async def read(self, name):
        return [each["message"]["v"] for each in await self.sessions.load(self.key(name)) or ()]

    async def delete(self, name):
        await self.sessions.delete(self.key(name))

    async def everything(self, names=("s", "t", "new")):
        listed = {each["session_id"]: each["mtime"] for each in await self.sessions.list_sessions("p")}
        summaries = {each["session_id"]: each for each in await self.sessions.list_session_summaries("p")}
        assert {name: each["mtime"] for name, each in summaries.items()} == listed
        found = {name: await self.read(name) for name in names}
        assert [name for name in names if found[name]] == [name for name in names if name in listed]
        return found, {name: each["data"] for name, each in summaries.items()}


class Subpaths(Sessions):
    no_names = (7,)
    names = Driver.names

    def key(self, name):
        return {"project_key": "p", "session_id": "s", "subpath": name}

    async def everything(self, names=("s", "t", "new")):
        subpaths = sorted(await self.sessions.list_subkeys({"project_key": "p", "session_id": "s"}))
        found = {name: await self.read(name) for name in names}
        assert [name for name in sorted(names) if found[name]] == [each for each in subpaths if each in names]
        return found, subpaths


class Projects(Sessions):
    no_names = ("", None, 7, "\ud800")
    reads_any_name = True  # an empty one
    names = Driver.names

    def key(self, name):
        return {"project_key": name, "session_id": "s"}

    async def everything(self, names=("s", "t", "new")):
        lists = {name: [each["session_id"] for each in await self.sessions.list_sessions(name)] for name in names}
        found = {name: await self.read(name) for name in names}
        assert lists == {name: ["s"] if found[name] else [] for name in names}
        return found
