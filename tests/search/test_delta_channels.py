"""Messages of LangGraph's delta channels: found in the versions that are made of what was written to them."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated, TypedDict

import pytest

pytest.importorskip("langgraph.channels", reason="LangGraph is not installed")

from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages

import statelog
from statelog import Checkpoint, Guard, guard
from statelog.adapters.langgraph import StatelogSaver

pytestmark = pytest.mark.filterwarnings("ignore")
CONFIG = {"configurable": {"thread_id": "t"}}


def joined(state, writes):
    for write in writes:
        state = add_messages(state, write)
    return state


class Talk(TypedDict):
    messages: Annotated[list, DeltaChannel(joined, snapshot_frequency=5)]


class Long(TypedDict):
    messages: Annotated[list, DeltaChannel(joined, snapshot_frequency=1000)]


def talk(saver, state=Talk):
    """Return a graph that answers each message, and removes the message that "forget N" names."""

    def answer(state):
        said = state["messages"][-1]
        if said.content.startswith("forget "):
            return {"messages": [RemoveMessage(id=said.content.removeprefix("forget "))]}
        return {"messages": [AIMessage(f"answer to {said.content}", id=f"a{said.id}")]}

    builder = StateGraph(state)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


def say(graph, number, text, config=CONFIG):
    graph.invoke({"messages": [HumanMessage(text, id=str(number))]}, config)


def found(store, query, **conditions):
    return sorted(hit.text for hit in store.search(query, limit=100, **conditions))


@pytest.fixture
def saver(tmp_path):
    with StatelogSaver.open(tmp_path / "a.state", durability="interval") as opened:
        yield opened


def test_every_message_of_a_graph_is_found_once_at_its_place(saver):
    graph = talk(saver)
    for number in range(8):
        say(graph, number, f"refund {number}")
        expected = [(message.content, at) for at, message in enumerate(graph.get_state(CONFIG).values["messages"])]
        hits = saver.store.search("refund", limit=100)
        is_whole = "messages" in saver.store.thread("t").state
        places = [(hit.text, hit.path[1] - is_whole) for hit in hits]  # A list that is stored begins with a mark.
        assert sorted(places) == sorted(expected)
    assert {hit.role for hit in saver.store.search("answer")} == {"assistant"}


def test_a_message_that_the_graph_has_removed_is_found_in_the_history_alone(saver):
    graph = talk(saver)
    say(graph, 0, "refund policy")
    say(graph, 1, "and the weather")
    assert found(saver.store, "policy") == ["answer to refund policy", "refund policy"]
    say(graph, 2, "forget 0")
    assert found(saver.store, "policy") == ["answer to refund policy"]
    assert found(saver.store, "policy", history=True) == ["answer to refund policy", "refund policy"]
    saver.delete_thread("t")
    assert found(saver.store, "policy", history=True) == []


def test_a_rollback_hides_later_messages_and_a_fork_has_its_own(saver):
    graph = talk(saver)
    say(graph, 0, "refund policy")
    first = saver.store.thread("t").head
    say(graph, 1, "refund again")
    saver.store.thread("t").rollback(first)
    say(graph, 2, "refund another way")
    said = [message.content for message in graph.get_state(CONFIG).values["messages"]]
    branch = saver.store.thread("t").head.branch
    assert found(saver.store, "refund", branch=branch) == sorted(said)


WITHOUT_LANGGRAPH = """
import sys, statelog
sys.modules["langgraph"] = sys.modules["langchain_core"] = None
with statelog.open(sys.argv[1], read_only=True) as store:
    print(sorted(hit.text for hit in store.search("refund", limit=100)))
"""


def test_a_search_after_a_turn_reads_the_new_checkpoints_alone(saver, monkeypatch):
    graph = talk(saver, Long)
    for number in range(6):
        say(graph, number, f"refund {number}")
    assert len(found(saver.store, "refund")) == 12
    read = []
    parent = Checkpoint.parent.fget
    monkeypatch.setattr(Checkpoint, "parent", property(lambda self: read.append(self.lsn) or parent(self)))
    say(graph, 6, "refund 6")
    read.clear()
    assert len(found(saver.store, "refund")) == 14
    assert len(read) <= 4
    read.clear()
    saver.store.thread("t").rollback(saver.store.thread("t").head.parent)
    assert "refund 6" in found(saver.store, "refund", branch=saver.store.thread("t").head.branch)


def test_a_process_without_langgraph_finds_the_kept_versions(saver, tmp_path):
    graph = talk(saver)
    for number in range(3):
        say(graph, number, f"refund {number}")
    saver.store.prune(keep_last=1)
    expected = found(saver.store, "refund")
    assert len(expected) == 6
    saver.store.compact()  # It removes the index.
    command = [sys.executable, "-c", WITHOUT_LANGGRAPH, str(tmp_path / "a.state")]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == f"{expected}\n"


def test_values_hidden_by_a_check_of_reads_are_not_found(saver, tmp_path):
    graph = talk(saver)
    say(graph, 0, "refund policy")
    say(graph, 1, "an evil refund")
    assert len(found(saver.store, "refund")) == 4
    saver.close()

    def check(value, _where):
        return guard.quarantine("a word") if "evil" in repr(value) else guard.allow()

    with statelog.open(tmp_path / "a.state", guard=Guard(on_read=[check])) as store:
        assert found(store, "refund") == ["answer to refund policy", "refund policy"]
