"""AutoGen's cache, and states of teams."""

from __future__ import annotations

from adapter_driver import Driver

from statelog.adapters.autogen import StatelogCacheStore, load_team, save_team
from statelog.errors import NotFoundError


class Held:
    """A team of which the test says what its state is."""

    def __init__(self, state=None):
        self.state = state

    async def save_state(self):
        return self.state

    async def load_state(self, state):
        self.state = state


class Cache(Driver):
    keeps_all = False
    no_names = (None, 7, "\ud800")
    names = ("", *Driver.names)
    unstorable_error = Driver.unstorable_error[0], None

    async def add(self, name, *values):
        StatelogCacheStore(self.store).set(name, [*values])

    async def read(self, name):
        return StatelogCacheStore(self.store).get(name, [])


class Teams(Driver):
    keeps_all = False
    no_names = (None, 7, "\ud800")
    unstorable_error = Driver.unstorable_error[0], None

    async def add(self, name, *values):
        await save_team(self.store, name, Held({"values": [*values]}))

    async def read(self, name):
        team = Held()
        try:
            await load_team(self.store, name, team)
        except NotFoundError:
            return []
        return team.state["values"]

    def thread_ids(self, name):
        return [f"autogen:team/{name}"]
