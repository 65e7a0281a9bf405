"""Threads of LangGraph with newer code: a renamed channel, a changed type, a renamed node, a lost class.

Each symptom has a negative control: with LangGraph's saver and the same code, data is lost silently.
"""

from __future__ import annotations

import asyncio
import dataclasses
import operator
import sys
import types as modules
import warnings
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph.graph", reason="needs langgraph")

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel

from statelog import versioned
from statelog.adapters.langgraph import LostTypeWarning, StatelogSaver, resume_or_start
from statelog.errors import (
    MigrationError,
    MissingMigrationError,
    NodeNotFoundError,
    SchemaVersionError,
    UsageError,
)

CONFIG = {"configurable": {"thread_id": "t"}}


class Before(TypedDict, total=False):
    notes: Annotated[list, operator.add]
    total: int
    answer: str


class After(TypedDict, total=False):
    memories: Annotated[list, operator.add]
    total: list
    answer: str


def graph_of(state, node, saver, *, name="work"):
    builder = StateGraph(state)
    builder.add_node(name, node)
    builder.add_edge(START, name)
    builder.add_edge(name, END)
    return builder.compile(checkpointer=saver)


def asking(saver, name="ask", state=Before):
    """Return a graph that asks a person at a node."""
    return graph_of(state, lambda _state: {"answer": f"{interrupt('which?')}"}, saver, name=name)


def paused(saver):
    asking(saver).invoke({"notes": ["a"]}, CONFIG)


# --- renamed nodes ---------------------------------------------------------------------


def test_negative_control_another_saver_loses_an_answer_to_a_renamed_node():
    saver = InMemorySaver()
    paused(saver)
    assert "answer" not in asking(saver, "ask_user").invoke(Command(resume="yes"), CONFIG)


@pytest.mark.parametrize("given", [Command(resume="yes"), None], ids=["an answer", "a retry"])
def test_a_run_at_a_node_that_the_graph_lacks_raises_and_names_it(store, given):
    paused(StatelogSaver(store))
    before = store.last_lsn
    with pytest.raises(NodeNotFoundError, match="paused at node 'ask'") as raised:
        asking(StatelogSaver(store), "ask_user").invoke(given, CONFIG)
    assert (raised.value.thread, raised.value.node) == ("t", "ask")
    assert "ask_user" in raised.value.nodes
    assert store.last_lsn == before
    assert asking(StatelogSaver(store)).invoke(Command(resume="yes"), CONFIG)["answer"] == "yes"


def test_reading_the_thread_and_starting_a_new_run_are_allowed(store):
    paused(StatelogSaver(store))
    graph = asking(StatelogSaver(store), "ask_user")
    assert graph.get_state(CONFIG).values["notes"] == ["a"]
    assert len(list(graph.get_state_history(CONFIG))) == 2
    assert "__interrupt__" in graph.invoke({"notes": ["b"]}, CONFIG)
    assert graph.invoke(Command(resume="new"), CONFIG) == {"notes": ["a", "b"], "answer": "new"}


@pytest.mark.parametrize("given", [{"notes": ["b"]}, None, Command(resume="yes")], ids=["new", "none", "answer"])
def test_resume_or_start_raises_at_a_node_that_the_graph_lacks(store, given):
    paused(StatelogSaver(store))
    before = store.last_lsn
    with pytest.raises(NodeNotFoundError, match="paused at node 'ask'"):
        resume_or_start(asking(StatelogSaver(store), "ask_user"), given, CONFIG)
    assert store.last_lsn == before
    graph = asking(StatelogSaver(store, nodes={"ask": "ask_user"}), "ask_user")
    assert resume_or_start(graph, Command(resume="yes"), CONFIG)["answer"] == "yes"
    assert "__interrupt__" in resume_or_start(graph, {"notes": ["b"]}, CONFIG)


def test_a_renamed_entrypoint_raises_before_a_finished_task_runs_again(store):
    called = []

    @task
    def charge(amount):
        called.append(amount)
        return amount

    def flow(name):
        def work(amount):
            return [charge(amount).result(), interrupt("?")]

        work.__name__ = name
        return entrypoint(checkpointer=StatelogSaver(store, nodes={"flow": "flow2"}))(work)

    flow("flow").invoke(1, CONFIG)
    for given in (Command(resume="yes"), None):
        with pytest.raises(NodeNotFoundError, match="paused in entrypoint 'flow'"):
            flow("flow2").invoke(given, CONFIG)
    assert flow("flow").invoke(Command(resume="yes"), CONFIG) == [1, "yes"]
    assert called == [1]
    flow("flow2").invoke(2, CONFIG)
    assert called == [1, 2]


def test_the_async_saver_also_raises(store):
    paused(StatelogSaver(store))

    async def main():
        with pytest.raises(NodeNotFoundError, match="ask"):
            await asking(StatelogSaver(store), "ask_user").ainvoke(Command(resume="yes"), CONFIG)
        graph = asking(StatelogSaver(store, nodes={"ask": "ask_user"}), "ask_user")
        return await graph.ainvoke(Command(resume="yes"), CONFIG)

    assert asyncio.run(main())["answer"] == "yes"


def test_a_wrapping_saver_can_rename_the_node_itself(store):
    class Healing(StatelogSaver):
        def get_tuple(self, config):
            found = super().get_tuple(config)
            return found and self.heal(found)

        def heal(self, found):
            for part in (found.checkpoint["channel_values"], found.checkpoint["channel_versions"]):
                part["branch:to:ask_user"] = part.pop("branch:to:ask")
            found.checkpoint["updated_channels"] = None
            return found._replace(pending_writes=[each for each in found.pending_writes if each[1] == "__resume__"])

    paused(StatelogSaver(store))
    assert asking(Healing(store), "ask_user").invoke(Command(resume="yes"), CONFIG)["answer"] == "yes"


def test_an_answer_reaches_a_renamed_node(store):
    paused(StatelogSaver(store))
    graph = asking(StatelogSaver(store, nodes={"ask": "ask_user"}), "ask_user")
    state = graph.get_state(CONFIG)
    assert state.next == ("ask_user",)
    assert [each.value for each in state.interrupts] == ["which?"]
    assert graph.invoke(Command(resume={state.interrupts[0].id: "yes"}), CONFIG)["answer"] == "yes"
    assert graph.get_state(CONFIG).next == ()


def test_an_answer_to_one_of_two_questions_is_kept(store):
    def ask_twice(_state):
        return {"answer": f"{interrupt('first?')} {interrupt('second?')}"}

    first = graph_of(Before, ask_twice, StatelogSaver(store), name="ask")
    first.invoke({"notes": []}, CONFIG)
    first.invoke(Command(resume="one"), CONFIG)
    second = graph_of(Before, ask_twice, StatelogSaver(store, nodes={"ask": "ask_user"}), name="ask_user")
    assert [each.value for each in second.get_state(CONFIG).interrupts] == ["second?"]
    assert second.invoke(Command(resume="two"), CONFIG)["answer"] == "one two"


def test_a_finished_task_of_a_renamed_node_is_not_called_again(store):
    calls = []

    def graph(saver, ask, load):
        builder = StateGraph(Before)
        builder.add_node(ask, lambda _state: {"answer": interrupt("which?")})
        builder.add_node(load, lambda _state: calls.append(load) or {"notes": [load]})
        for name in (ask, load):
            builder.add_edge(START, name)
        builder.add_node("end", lambda _state: {"total": 1})
        builder.add_edge([ask, load], "end")
        return builder.compile(checkpointer=saver)

    graph(StatelogSaver(store), "ask", "load").invoke({"notes": []}, CONFIG)
    renamed = graph(StatelogSaver(store, nodes={"ask": "ask_user", "load": "fetch"}), "ask_user", "fetch")
    found = renamed.invoke(Command(resume="yes"), CONFIG)
    assert found == {"notes": ["load"], "answer": "yes", "total": 1}
    assert calls == ["load"]


def test_a_renamed_node_gets_its_messages(store):
    def graph(saver, name):
        builder = StateGraph(Before)
        builder.add_node("plan", lambda _state: {"total": 1})
        builder.add_node(name, lambda sent: {"notes": [f"{sent['n']} {interrupt('ok?')}"]})
        builder.add_edge(START, "plan")
        builder.add_conditional_edges("plan", lambda _state: [Send(name, {"n": 7})], [name])
        return builder.compile(checkpointer=saver)

    graph(StatelogSaver(store), "work").invoke({"notes": []}, CONFIG)
    with pytest.raises(NodeNotFoundError, match="work"):
        graph(StatelogSaver(store), "do").invoke(Command(resume="yes"), CONFIG)
    renamed = graph(StatelogSaver(store, nodes={"work": "do"}), "do")
    assert renamed.invoke(Command(resume="yes"), CONFIG)["notes"] == ["7 yes"]


def test_a_join_that_waits_for_a_renamed_node_continues(store):
    def graph(saver, ask):
        builder = StateGraph(Before)
        for name in ("a", ask):
            builder.add_node(name, (lambda _state: {"notes": ["a"]}) if name == "a" else _wait)
        builder.add_node("late", lambda _state: {})
        builder.add_node("end", lambda state: {"total": len(state["notes"])})
        builder.add_edge(START, "a")
        builder.add_edge(START, "late")
        builder.add_edge("late", ask)
        builder.add_edge(["a", ask], "end")
        return builder.compile(checkpointer=saver)

    def _wait(_state):
        return {"answer": interrupt("?")}

    graph(StatelogSaver(store), "ask").invoke({"notes": []}, CONFIG)
    renamed = graph(StatelogSaver(store, nodes={"ask": "ask_user"}), "ask_user")
    assert renamed.invoke(Command(resume="yes"), CONFIG) == {"notes": ["a"], "answer": "yes", "total": 1}


def test_a_renamed_node_of_a_graph_that_a_node_calls_raises_or_is_mapped(store):
    def graph(saver, ask):
        inner = StateGraph(Before)
        inner.add_node(ask, lambda _state: {"answer": interrupt("?")})
        inner.add_edge(START, ask)
        return graph_of(Before, inner.compile(), saver, name="outer")

    graph(StatelogSaver(store), "ask").invoke({"notes": []}, CONFIG)
    with pytest.raises(NodeNotFoundError, match="ask"):
        graph(StatelogSaver(store), "ask_user").invoke(Command(resume="yes"), CONFIG)
    renamed = graph(StatelogSaver(store, nodes={"ask": "ask_user"}), "ask_user")
    assert renamed.invoke(Command(resume="yes"), CONFIG)["answer"] == "yes"


def test_other_threads_are_unchanged_and_new_checkpoints_have_the_present_node_name(store):
    saver = StatelogSaver(store, nodes={"ask": "ask_user"})
    graph = asking(saver, "ask_user")
    graph.invoke({"notes": ["x"]}, CONFIG)
    graph.update_state(CONFIG, {"total": 3})
    assert graph.invoke(Command(resume="yes"), CONFIG) == {"notes": ["x"], "total": 3, "answer": "yes"}
    plain = asking(StatelogSaver(store), "ask_user")
    assert plain.get_state(CONFIG).values["answer"] == "yes"


@pytest.mark.parametrize("nodes", [["ask"], {"ask": 1}, {"": "b"}, {"a": "a"}, {"a": "b", "b": "c"}])
def test_invalid_nodes_are_refused(store, nodes):
    with pytest.raises(UsageError) as raised:
        StatelogSaver(store, nodes=nodes)
    assert raised.value.argument == "nodes"


# --- lost classes ----------------------------------------------------------------------


@pytest.fixture
def old_module(monkeypatch):
    """A module with classes, which a test removes."""
    module = modules.ModuleType("old_module")

    class Plan(BaseModel):
        goal: str
        steps: list[Any] = []

    @dataclasses.dataclass
    class Part:
        n: int
        plan: Any = None

    for each in (Plan, Part):
        each.__module__, each.__qualname__ = "old_module", each.__name__
        setattr(module, each.__name__, each)
    monkeypatch.setitem(sys.modules, "old_module", module)
    return module


class NewPlan(BaseModel):
    goal: str
    steps: list[Any] = []
    owner: str = "nobody"


class Holds(TypedDict, total=False):
    plan: Any
    plans: list


def put_plans(saver, module):
    plan = module.Plan(goal="tea")
    parts = [plan, {"a": module.Part(1, plan)}]
    graph_of(Holds, lambda _state: {"plan": plan, "plans": parts}, saver).invoke({}, CONFIG)


def read(saver):
    return graph_of(Holds, lambda _state: {}, saver).get_state(CONFIG).values


def test_negative_control_another_saver_silently_reads_a_lost_class_as_a_dict(old_module):
    saver = InMemorySaver()
    put_plans(saver, old_module)
    del sys.modules["old_module"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert type(read(saver)["plan"]) is dict


def test_a_lost_class_is_named_once(store, old_module):
    put_plans(StatelogSaver(store), old_module)
    del old_module.Plan
    saver = StatelogSaver(store)
    with pytest.warns(LostTypeWarning, match="old_module:Plan"):
        assert read(saver)["plan"]["goal"] == "tea"
    with warnings.catch_warnings():
        warnings.simplefilter("error", LostTypeWarning)
        read(saver)
        with pytest.raises(LostTypeWarning):
            read(StatelogSaver(store))


def test_an_existing_class_is_not_named(store, old_module):
    saver = StatelogSaver(store)
    put_plans(saver, old_module)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LostTypeWarning)
        assert type(read(saver)["plan"]) is old_module.Plan


def test_a_moved_class_is_upgraded_everywhere_in_a_value(store, old_module):
    put_plans(StatelogSaver(store), old_module)
    del sys.modules["old_module"]
    saver = StatelogSaver(store, types={"old_module:Plan": NewPlan, "old_module:Part": lambda n, plan: (n, plan)})
    plan = NewPlan(goal="tea")
    assert read(saver) == {"plan": plan, "plans": [plan, {"a": (1, plan)}]}


def test_upgraded_values_are_written_as_the_new_class(store, old_module):
    put_plans(StatelogSaver(store), old_module)
    del sys.modules["old_module"]
    upgrades = {"old_module:Plan": lambda **fields: NewPlan(owner="me", **fields), "old_module:Part": dict}
    graph = graph_of(Holds, lambda state: {"plan": state["plan"]}, StatelogSaver(store, types=upgrades))
    graph.invoke({"plans": []}, CONFIG)
    assert read(StatelogSaver(store))["plan"].owner == "me"


def test_an_upgrade_that_raises_is_reported_and_no_data_is_lost(store, old_module):
    put_plans(StatelogSaver(store), old_module)
    del sys.modules["old_module"]

    def fail(**_fields):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        read(StatelogSaver(store, types={"old_module:Plan": fail}))
    assert any("old_module:Plan" in note for note in raised.value.__notes__)
    with pytest.raises(ZeroDivisionError):  # Within another value, where LangGraph catches every Exception.
        read(StatelogSaver(store, types={"old_module:Plan": fail, "old_module:Part": dict}))
    assert read(StatelogSaver(store, types={"old_module:Plan": NewPlan, "old_module:Part": dict}))["plan"].goal == "tea"


@pytest.mark.parametrize("types", [["a:b"], {"a.b": dict}, {"a:": dict}, {"a:b:c": dict}, {1: dict}, {"a:b": "c"}])
def test_invalid_types_are_refused(store, types):
    with pytest.raises(UsageError) as raised:
        StatelogSaver(store, types=types)
    assert raised.value.argument == "types"


def test_types_need_the_serialiser_of_langgraph(store):
    class Other:
        def dumps_typed(self, _value):
            return "x", b""

        def loads_typed(self, _data):
            return None

    with pytest.raises(UsageError, match="JsonPlusSerializer"):
        StatelogSaver(store, Other(), types={"a:b": dict})


# --- renamed channels, and changed types ----------------------------------------------------------


def research(version=2):
    made = versioned(After, name="research", version=version)
    made.rename(1, "notes", "memories")
    return made


def with_total():
    made = versioned(After, name="research", version=3)
    made.rename(1, "notes", "memories")

    @made.step(2)
    def total(state):
        return {**state, "total": [state["total"]]} if "total" in state else state

    return made


def test_negative_control_another_saver_silently_reads_a_renamed_channel_as_empty():
    saver = InMemorySaver()
    graph_of(Before, lambda _state: {"notes": ["b"]}, saver).invoke({"notes": ["a"]}, CONFIG)
    renamed = graph_of(After, lambda _state: {"memories": ["c"]}, saver)
    assert renamed.invoke({}, CONFIG)["memories"] == ["c"]


def old_thread(store):
    graph = graph_of(Before, lambda _state: {"notes": ["b"], "total": 5}, StatelogSaver(store))
    graph.invoke({"notes": ["a"]}, CONFIG)


def test_a_renamed_channel_continues_under_its_new_name(store):
    old_thread(store)
    saver = StatelogSaver(store, migrations=research())
    graph = graph_of(After, lambda _state: {"memories": ["c"]}, saver)
    assert graph.get_state(CONFIG).values == {"memories": ["a", "b"], "total": 5}
    assert next(each.values["memories"] for each in graph.get_state_history(CONFIG)) == ["a", "b"]
    assert graph.invoke({"answer": "x"}, CONFIG) == {"memories": ["a", "b", "c"], "total": 5, "answer": "x"}
    thread = store.thread("t")
    assert thread.head.schema_version == 2
    assert "notes" not in thread.state
    again = StatelogSaver(store, migrations=research())
    assert graph_of(After, lambda _state: {}, again).get_state(CONFIG).values["memories"] == ["a", "b", "c"]


def test_a_renamed_delta_channel_raises(store):
    delta = pytest.importorskip("langgraph.channels.delta")

    def reduce(items, more):
        return [*(items or []), *(item for each in more for item in each)]

    def graph(name, saver):
        state = TypedDict("State", {name: Annotated[list, delta.DeltaChannel(reduce, list)], "x": str}, total=False)
        return graph_of(state, lambda _state: {name: ["b"]}, saver)

    graph("notes", StatelogSaver(store)).invoke({"notes": ["a"], "x": "1"}, CONFIG)
    before = store.last_lsn
    with pytest.raises(MigrationError, match="'notes' is a DeltaChannel"):
        graph("memories", StatelogSaver(store, migrations=research())).invoke({"x": "2"}, CONFIG)
    assert store.last_lsn == before
    kept = versioned({"notes": list, "x": str}, name="research", version=2)
    kept.step(1)(lambda state: {"x": state["x"] + "!"})
    state = graph("notes", StatelogSaver(store, migrations=kept)).get_state(CONFIG).values
    assert state == {"notes": ["a", "b"], "x": "1!"}


def test_a_renamed_channel_of_a_graph_that_a_node_calls_raises(store):
    def graph(saver, state, channel):
        inner = StateGraph(state)
        inner.add_node("ask", lambda _state: {channel: [interrupt("?")]})
        inner.add_edge(START, "ask")
        return graph_of(state, inner.compile(), saver, name="outer")

    graph(StatelogSaver(store), Before, "notes").invoke({"notes": ["a"]}, CONFIG)
    with pytest.raises(MigrationError, match="channel 'notes', which that graph no longer has"):
        graph(StatelogSaver(store, migrations=research()), After, "memories").invoke(Command(resume="yes"), CONFIG)
    ended = graph(StatelogSaver(store), Before, "notes").invoke(Command(resume="yes"), CONFIG)
    assert ended["notes"] == ["a", "a", "yes"]


def test_a_channel_of_a_changed_type_passes_its_migration_step(store):
    old_thread(store)
    graph = graph_of(
        After, lambda state: {"total": [*state["total"], 6]}, StatelogSaver(store, migrations=with_total())
    )
    assert graph.invoke({}, CONFIG) == {"memories": ["a", "b"], "total": [5, 6]}
    assert graph.get_state(CONFIG).values["total"] == [5, 6]
    assert graph.invoke({}, CONFIG)["total"] == [5, 6, 6]


def test_a_pending_write_is_applied_to_the_renamed_channel(store):
    def graph(state, saver, channel):
        builder = StateGraph(state)
        builder.add_node("ask", lambda _state: {"answer": interrupt("?")})
        builder.add_node("load", lambda _state: {channel: ["loaded"]})
        builder.add_edge(START, "ask")
        builder.add_edge(START, "load")
        return builder.compile(checkpointer=saver)

    graph(Before, StatelogSaver(store), "notes").invoke({"notes": ["a"]}, CONFIG)
    renamed = graph(After, StatelogSaver(store, migrations=research()), "memories")
    assert renamed.invoke(Command(resume="yes"), CONFIG) == {"memories": ["a", "loaded"], "answer": "yes"}


def test_older_code_and_code_without_versions_are_refused(store):
    old_thread(store)
    graph_of(After, lambda _state: {"total": []}, StatelogSaver(store, migrations=with_total())).invoke({}, CONFIG)
    before = store.last_lsn
    for saver in (StatelogSaver(store), StatelogSaver(store, migrations=research())):
        with pytest.raises(SchemaVersionError) as raised:
            graph_of(After, lambda _state: {}, saver).invoke({}, CONFIG)
        assert (raised.value.thread, raised.value.stored) == ("t", 3)
    assert store.last_lsn == before


def test_a_gap_and_a_step_that_raises_change_nothing(store):
    old_thread(store)
    before = store.last_lsn
    with pytest.raises(MissingMigrationError):
        graph_of(After, lambda _state: {}, StatelogSaver(store, migrations=research(3))).invoke({}, CONFIG)
    failing = versioned(After, name="research", version=2)
    failing.step(1)(lambda state: state["nothing"])
    with pytest.raises(MigrationError):
        graph_of(After, lambda _state: {}, StatelogSaver(store, migrations=failing)).invoke({}, CONFIG)
    assert store.last_lsn == before


def test_a_migrated_checkpoint_can_be_put_again_under_its_id(store):
    old_thread(store)
    saver = StatelogSaver(store, migrations=research())
    found = saver.get_tuple(CONFIG)
    parent = {"configurable": {**CONFIG["configurable"], "checkpoint_ns": ""}}
    if found.parent_config:
        parent = found.parent_config
    saver.put(parent, found.checkpoint, found.metadata, {})
    assert store.thread("t").head.schema_version == 2
    again = StatelogSaver(store, migrations=research()).get_tuple(CONFIG)
    assert again.checkpoint["id"] == found.checkpoint["id"]
    assert again.checkpoint["channel_values"]["memories"] == ["a", "b"]


def test_a_fork_of_an_old_checkpoint_is_migrated(store):
    old_thread(store)
    graph = graph_of(After, lambda _state: {"memories": ["c"]}, StatelogSaver(store, migrations=research()))
    first = [*graph.get_state_history(CONFIG)][-1]
    forked = graph.update_state(first.config, {"memories": ["z"]})
    assert "z" in graph.get_state(forked).values["memories"]


@pytest.mark.parametrize("migrations", [After, {"a": 1}, "research"])
def test_invalid_migrations_are_refused(store, migrations):
    with pytest.raises(UsageError) as raised:
        StatelogSaver(store, migrations=migrations)
    assert raised.value.argument == "migrations"


def test_open_accepts_nodes_types_and_migrations_together(tmp_path):
    with StatelogSaver.open(tmp_path / "a.state") as saver:
        paused(saver)
    options = {"migrations": research(), "nodes": {"ask": "ask_user"}, "types": {"a:B": dict}}
    with StatelogSaver.open(tmp_path / "a.state", **options) as saver:
        found = asking(saver, "ask_user", After).invoke(Command(resume="yes"), CONFIG)
        assert found == {"memories": ["a"], "answer": "yes"}
