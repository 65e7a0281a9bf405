"""A cache that every process shares, and teams that continue from any version."""

from __future__ import annotations

import asyncio
from copy import deepcopy

import pytest

pytest.importorskip("autogen_core")

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CacheStore, InMemoryStore
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

import statelog
from statelog.adapters.autogen import StatelogCacheStore, load_team, save_team
from statelog.errors import NotFoundError

VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | st.booleans(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["z", "y/", ""]), inner, max_size=3),
    max_leaves=10,
)


class Held:
    """A team whose state the test sets."""

    def __init__(self, state=None):
        self.state = state

    async def save_state(self):
        return self.state

    async def load_state(self, state):
        self.state = state


class Point(BaseModel):
    x: int


def loaded(store, id, at=None):
    team = Held()
    asyncio.run(load_team(store, id, team, at))
    return team.state


@given(calls=st.lists(st.tuples(st.sampled_from("ab"), VALUES), max_size=8))
def test_a_cache_gives_the_same_answers_as_the_in_memory_cache(tmp_path_factory, calls):
    with statelog.open(tmp_path_factory.mktemp("s") / "s", durability="interval") as store:
        ours, theirs = StatelogCacheStore(store), InMemoryStore()
        for key, value in calls:
            ours.set(key, value)
            theirs.set(key, value)
            assert [repr(ours.get(each, 7)) for each in "abc"] == [repr(theirs.get(each, 7)) for each in "abc"]


def test_models_are_returned_as_their_json(store):
    cache = StatelogCacheStore(store)
    cache.set("one", Point(x=1))
    cache.set("many", ["text", Point(x=2)])
    assert (cache.get("one"), cache.get("many")) == ({"x": 1}, ["text", {"x": 2}])


def test_a_configuration_opens_the_same_file(store):
    cache = StatelogCacheStore(store)
    cache.set("k", 1)
    again = CacheStore.load_component(cache.dump_component())
    assert isinstance(again, StatelogCacheStore)
    assert again.get("k") == 1
    again.store.close()


@given(states=st.lists(st.dictionaries(st.sampled_from(["z", "a"]), VALUES, min_size=1), min_size=1, max_size=5))
def test_every_version_of_a_team_can_be_loaded(tmp_path_factory, states):
    with statelog.open(tmp_path_factory.mktemp("s") / "s", durability="interval") as store:
        versions = [asyncio.run(save_team(store, "t", Held(state))) for state in states]
        assert [repr(loaded(store, "t", version)) for version in versions] == [repr(state) for state in states]


def test_fifty_concurrent_tasks_save_complete_states(store):
    async def saved():
        await asyncio.gather(*(save_team(store, "t", Held({"n": n, "l": [n] * n})) for n in range(50)))

    asyncio.run(saved())
    for version in range(store.thread("autogen:team/t").version + 1):
        state = loaded(store, "t", version)
        assert state["l"] == [state["n"]] * state["n"]


def test_sessions_that_were_never_saved_are_not_found(store):
    for at in (None, 3):
        with pytest.raises(NotFoundError):
            loaded(store, "t", at)


def team_of(*names, answers=1):
    replay = pytest.importorskip("autogen_ext.models.replay")
    clients = {name: replay.ReplayChatCompletionClient([f"{name} {n}" for n in range(answers)]) for name in names}
    agents = [AssistantAgent(name, model_client=client) for name, client in clients.items()]
    return RoundRobinGroupChat(agents, max_turns=len(names))


async def states_around_a_load(store, team):
    """Load the state saved as "t" into a team that has talked. Return its states before and after, and the error."""
    await team.run(task="dinner?")
    before = deepcopy(await team.save_state())
    try:
        await load_team(store, "t", team)
    except BaseException as error:  # noqa: BLE001 - the test looks at it
        return before, await team.save_state(), error
    return before, await team.save_state(), None


def test_a_team_with_an_unsaved_member_is_unchanged(store):
    async def main():
        saved = team_of("ann", answers=3)
        await saved.run(task="lunch?")
        await save_team(store, "t", saved)
        return await states_around_a_load(store, team_of("ann", "bob", answers=3))

    before, after, error = asyncio.run(main())
    assert "bob not found" in str(error)
    assert after == before
    assert not getattr(error, "__notes__", [])


def test_a_team_whose_manager_refuses_the_state_is_unchanged(store):
    async def main():
        saved = team_of("ann", answers=3)
        await saved.run(task="lunch?")
        state = deepcopy(await saved.save_state())
        state["agent_states"]["RoundRobinGroupChatManager"]["current_turn"] = "not a number"
        await save_team(store, "t", Held(state))
        return await states_around_a_load(store, team_of("ann", answers=3))

    before, after, error = asyncio.run(main())
    assert isinstance(error, ValueError)
    assert after == before


class Half(Held):
    """A team that loads half of a state, and then raises an error or waits."""

    def __init__(self, state, failure, *, refuses_all=False):
        super().__init__(state)
        self.failure, self.refuses_all = failure, refuses_all

    async def load_state(self, state):
        if state != {"whole": 1}:
            self.state["whole"] = "half"
            raise self.failure
        if self.refuses_all:
            raise ValueError("never")
        self.state = state


@pytest.mark.parametrize("failure", [KeyError("member"), asyncio.CancelledError()])
def test_a_partially_loaded_state_is_undone(store, failure):
    asyncio.run(save_team(store, "t", Held({"other": 2})))
    team = Half({"whole": 1}, failure)
    with pytest.raises(type(failure)):
        asyncio.run(load_team(store, "t", team))
    assert team.state == {"whole": 1}


def test_a_team_that_refuses_its_former_state_raises(store):
    asyncio.run(save_team(store, "t", Held({"other": 2})))
    with pytest.raises(KeyError) as caught:
        asyncio.run(load_team(store, "t", Half({"whole": 1}, KeyError("member"), refuses_all=True)))
    assert caught.value.__notes__ == ["the team's previous state could not be restored: never"]


def test_an_empty_team_state_is_restored(store):
    asyncio.run(save_team(store, "t", Held({})))
    assert loaded(store, "t") == {}


def test_a_team_of_autogens_own_agents_continues_from_a_version(store):
    pytest.importorskip("autogen_ext")
    from autogen_agentchat.agents import AssistantAgent
    from autogen_agentchat.conditions import MaxMessageTermination
    from autogen_agentchat.teams import RoundRobinGroupChat
    from autogen_ext.models.replay import ReplayChatCompletionClient

    def team():
        model = ReplayChatCompletionClient(["one", "two", "three"])
        agents = [AssistantAgent(name, model_client=model) for name in ("a", "b")]
        return RoundRobinGroupChat(agents, termination_condition=MaxMessageTermination(3))

    async def played():
        states, versions = [], []
        for turn in range(3):
            playing = team()
            if turn:
                await load_team(store, "x", playing)
            await playing.run(task=f"turn {turn}")
            versions.append(await save_team(store, "x", playing))
            states.append(await playing.save_state())
        for state, version in zip(states, versions, strict=True):
            again = team()
            await load_team(store, "x", again, at=version)
            assert await again.save_state() == state

    asyncio.run(played())
