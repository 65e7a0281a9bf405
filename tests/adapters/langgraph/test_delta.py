"""Channels stored as writes are rebuilt as by an InMemorySaver, and safe from pruning."""

from __future__ import annotations

from typing import Annotated, TypedDict
from unittest.mock import patch

import pytest

pytest.importorskip("langgraph.channels", reason="needs langgraph")

from graphs import DURABILITIES, config, history
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from statelog.adapters.langgraph import StatelogSaver
from statelog.adapters.langgraph.saver.puts import Changes
from statelog.errors import ExpiredError
from statelog.log.care import retention

pytestmark = pytest.mark.filterwarnings("ignore")


def concatenate(state, writes):
    return [*state, *[item for write in writes for item in write]]


class Talk(TypedDict):
    messages: Annotated[list, DeltaChannel(concatenate, snapshot_frequency=7)]


class Common(TypedDict):
    messages: Annotated[list, DeltaChannel(concatenate, snapshot_frequency=100)]


class Long(TypedDict):
    messages: Annotated[list, DeltaChannel(concatenate, snapshot_frequency=1000)]


def talk(saver, state=Talk):
    builder = StateGraph(state)
    builder.add_node("answer", lambda state: {"messages": [AIMessage(f"answer {len(state['messages'])}", id="a")]})
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


def run(graph, turns, durability="sync", thread="t"):
    for turn in range(turns):
        said = {"messages": [HumanMessage(f"turn {turn}", id=str(turn))]}
        result = graph.invoke(said, config(thread), durability=durability)
    return result


@pytest.fixture
def saver(tmp_path):
    with StatelogSaver.open(tmp_path / "s", durability="interval") as opened:
        yield opened
        assert opened.store.verify().ok


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_long_conversation_is_rebuilt_at_every_checkpoint(saver, durability):
    expected, found = [(run(graph, 20, durability), history(graph)) for graph in (talk(InMemorySaver()), talk(saver))]
    assert found == expected
    assert len(found[0]["messages"]) == 40


@pytest.mark.parametrize(
    ("state", "keep_last"),
    [
        (Talk, 1),
        (Long, 10),
        *(pytest.param(*each, marks=pytest.mark.soak) for each in [(Talk, 10), (Talk, 100), (Long, 1), (Long, 100)]),
    ],
)
def test_no_policy_makes_a_conversation_unreadable(saver, keep_last, state):
    """The kept part is read as from a saver that removes nothing."""
    saver.store.set_retention(keep_last=keep_last)
    memory = InMemorySaver()
    for each in (memory, saver):
        run(talk(each, state), 40)
    expected = {found.metadata["step"]: found.values for found in talk(memory, state).get_state_history(config("t"))}
    for lasts in (100, keep_last, 1):
        saver.store.prune(keep_last=lasts)
        kept = list(talk(saver, state).get_state_history(config("t")))
        assert {found.metadata["step"]: found.values for found in kept}.items() <= expected.items()
        assert kept[0].metadata["step"] == max(expected)
    run(talk(saver, state), 1)
    assert len(talk(saver, state).get_state(config("t")).values["messages"]) == 82


@pytest.mark.parametrize(("durability", "keep_last"), [("sync", 1), pytest.param("async", 10, marks=pytest.mark.soak)])
def test_checkpoints_are_readable_at_every_stage_of_a_policy(saver, durability, keep_last, monkeypatch):
    """Also if more must be removed at once than retention removes for one version."""
    monkeypatch.setattr(retention, "_POLICY_TRANSACTIONS_MAX", 1)
    saver.store.set_retention(keep_last=keep_last)
    graph, memory = talk(saver, Common), talk(InMemorySaver(), Common)
    listed, cuts = 0, 0
    for turn in range(80):
        for each in (memory, graph):
            each.invoke({"messages": [f"{turn}"]}, config("t"), durability=durability)
        before, listed = listed, len(list(saver.list(config("t"))))
        if listed < before:
            expected = {found.metadata["step"]: found.values for found in memory.get_state_history(config("t"))}
            found = {found.metadata["step"]: found.values for found in graph.get_state_history(config("t"))}
            assert found.items() <= expected.items()
            cuts += len(found) > 64 + keep_last
    assert cuts


def test_ancestors_removed_by_an_older_release_raise_an_error(saver):
    """Their content is not guessed."""
    with patch.object(Changes, "needs", lambda *_: []):
        run(talk(saver, Long), 5)
    saver.store.prune(keep_last=2)
    with pytest.raises(ExpiredError, match=r"'messages' .*have expired"):
        talk(saver, Long).get_state(config("t"))


def test_forks_are_rebuilt_from_their_own_past(saver):
    made = []
    for each in (InMemorySaver(), saver):
        graph = talk(each)
        run(graph, 9)
        past = list(graph.get_state_history(config()))[11]
        graph.invoke({"messages": [HumanMessage("instead", id="x")]}, past.config)
        graph.update_state(past.config, {"messages": [HumanMessage("changed", id="y")]})
        made.append((graph.get_state(config()).values, history(graph)))
    assert made[0] == made[1]


@pytest.mark.parametrize("turns", range(3, 12))
def test_pruning_keeps_checkpoints_that_a_channel_needs(saver, turns):
    graph = talk(saver)
    expected = run(graph, turns)
    saver.prune(["t"])
    assert len(list(saver.list(config()))) == 1
    assert graph.get_state(config()).values == expected
    run(graph, 1)
    assert len(graph.get_state(config()).values["messages"]) == 2 * turns + 2
    saver.prune(["t"])
    saver.prune(["t"])
    assert len(graph.get_state(config()).values["messages"]) == 2 * turns + 2


def test_pruning_removes_checkpoints_that_are_not_needed(saver):
    graph = talk(saver)
    run(graph, 40)
    before = saver.store.thread("t").branches()[0]
    saver.prune(["t"])
    left = sum(1 for _ in saver.store.thread("t").history())
    assert left < 20 < before.head_version


def test_deleting_runs_keeps_channels_complete(saver):
    graph = talk(saver)
    for turn in range(6):
        graph.invoke(
            {"messages": [HumanMessage("hi", id=str(turn))]}, {**config(), "metadata": {"run_id": f"r{turn % 2}"}}
        )
    expected = graph.get_state(config()).values
    runs = {each.metadata.get("run_id") for each in saver.list(config())}
    saver.delete_for_runs(["r0"])
    assert runs == {"r0", "r1"}
    assert {each.metadata.get("run_id") for each in saver.list(config())} == {"r1"}
    assert graph.get_state(config()).values == expected


def test_a_copied_thread_has_its_channels(saver):
    graph = talk(saver)
    expected = run(graph, 9)
    saver.copy_thread("t", "copy")
    saver.delete_thread("t")
    assert graph.get_state(config("copy")).values == expected
    run(graph, 2, thread="copy")
    assert len(graph.get_state(config("copy")).values["messages"]) == 22


class Big(TypedDict):
    messages: Annotated[list, DeltaChannel(concatenate, snapshot_frequency=5)]


def say(graph, turns, thread="t"):
    for turn in turns:
        said = {"messages": [HumanMessage(f"{turn:04} {'x' * 4000}", id=str(turn))]}
        graph.invoke(said, config(thread), durability="sync")


def test_whole_values_refer_to_written_nodes(tmp_path):
    path, other = tmp_path / "s", tmp_path / "never whole"
    with StatelogSaver.open(other) as saver:
        say(talk(saver, Long), range(60))
    with StatelogSaver.open(path) as saver:
        say(talk(saver, Big), range(60))
        expected = talk(saver, Big).get_state(config()).values
        assert len(expected["messages"]) == 120
        assert saver.store.verify().ok
    assert path.stat().st_size < 1.4 * other.stat().st_size
    with StatelogSaver.open(path) as saver:
        graph = talk(saver, Big)
        assert graph.get_state(config()).values == expected
        listed = [found.values for found in graph.get_state_history(config())]
        memory = talk(InMemorySaver(), Big)
        say(memory, range(60))
        assert listed == [found.values for found in memory.get_state_history(config())]


def test_a_snapshot_of_a_delta_channel_survives_pruned_writes(saver):
    graph = talk(saver, Big)
    say(graph, range(30))
    expected = graph.get_state(config()).values
    saver.prune(["t"])
    assert graph.get_state(config()).values == expected
    say(graph, range(30, 60))
    saver.store.compact()
    assert [message.id for message in graph.get_state(config()).values["messages"][::2]] == [*map(str, range(60))]
    say(graph, range(60, 90))
    assert [message.id for message in graph.get_state(config()).values["messages"][::2]] == [*map(str, range(90))]
