"""Imports of LangGraph threads into a store with a guard leave out their secrets."""

from __future__ import annotations

import json
import operator
from random import Random
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("re2")
pytest.importorskip("langgraph.checkpoint.sqlite")

from commands import run_here
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt

import statelog
from benchmarks.guard_texts import SECRETS
from statelog import Guard, guard
from statelog.adapters.langgraph import StatelogSaver
from statelog.adapters.langgraph.move.endpoints import opened
from statelog.adapters.langgraph.move.migration import migrate
from statelog.errors import SecretError

RANDOM = Random(61)
TOKEN = SECRETS["github-token"](RANDOM)
NAMED = SECRETS["named-secret"](RANDOM)


def joined(values, writes):
    return [*values, *(item for write in writes for item in write)]


class State(TypedDict, total=False):
    messages: Annotated[list, add_messages]
    notes: Annotated[list, operator.add]
    deltas: Annotated[list, DeltaChannel(joined, snapshot_frequency=2)]
    more: dict[str, Any]
    password: str


def graph_of(saver):
    def tool(state):
        number = len(state["messages"])
        return {
            "messages": [AIMessage(f"{number}: the key is {TOKEN}", additional_kwargs={"raw": [TOKEN, number]})],
            "notes": [f"note {number} " + "x" * 300, TOKEN],
            "deltas": [f"delta {number} {TOKEN}"],
            "more": {"api_key": NAMED, "headers": [["Authorization", f"Bearer {NAMED}"]], "text": "y" * 20_000 + TOKEN},
            "password": NAMED,
        }

    def ask(_state):
        interrupt(f"is {TOKEN} the key?")

    builder = StateGraph(State)
    builder.add_node("tool", tool)
    builder.add_node("ask", ask)
    builder.add_edge(START, "tool")
    builder.add_edge("tool", "ask")
    return builder.compile(checkpointer=saver)


def config(thread, **metadata):
    return {"configurable": {"thread_id": thread}, "metadata": metadata}


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "checkpoints.db"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        graph = graph_of(saver)
        for turn in range(3):
            graph.invoke({"messages": [HumanMessage(f"turn {turn}")]}, config("leaky", note=f"with {TOKEN}", n=turn))
        builder = StateGraph(State)
        builder.add_node("plain", lambda _state: {"notes": ["all is well"]})
        builder.add_edge(START, "plain")
        builder.compile(checkpointer=saver).invoke({"messages": []}, config("clean"))
    return path


def imported(database, store_path, **options):
    def open_store(path, **given):
        return statelog.open(path, guard=None if given.get("read_only") else Guard(**options), **given)

    with (
        opened(f"sqlite:{database}", writing=False) as source,
        opened(str(store_path), writing=True, open_store=open_store) as target,
    ):
        return migrate(source, target)


def raw(tmp_path):
    return b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.name.startswith("agent.state"))


def test_threads_with_secrets_are_imported_without_them_and_named(database, tmp_path):
    path = tmp_path / "agent.state"
    report = imported(database, path)
    assert (report.redacted, report.left_out, report.threads) == (("leaky",), (), 2)
    assert TOKEN.encode() not in raw(tmp_path)
    assert NAMED.encode() not in raw(tmp_path)
    with statelog.open(path, guard=Guard()) as store:
        state = graph_of(StatelogSaver(store)).get_state(config("leaky"))
        mark = store.find_secrets() or state.values["notes"][1]
        assert mark.startswith("[REDACTED github-token ")
        assert state.values["messages"][1].content == f"1: the key is {mark}"
        assert state.values["more"]["text"] == "y" * 20_000 + mark
        assert state.values["deltas"][-1] == f"delta 5 {mark}"
        assert state.values["password"].startswith("[REDACTED ")
        assert state.metadata["note"] == f"with {mark}"
        assert state.tasks[0].interrupts[0].value == f"is {mark} the key?"
        assert store.verify().ok


def test_a_repeated_import_adds_nothing(database, tmp_path):
    path = tmp_path / "agent.state"
    first = imported(database, path)
    with statelog.open(path, read_only=True) as store:
        before = store.last_lsn
    second = imported(database, path)
    with statelog.open(path, read_only=True) as store:
        assert store.last_lsn == before
    assert (first.copied, second.copied) == (first.checkpoints, 0)
    assert second.redacted == first.redacted


def test_a_guard_that_refuses_leaves_the_thread_out_by_name(database, tmp_path):
    report = imported(database, tmp_path / "agent.state", secrets=guard.Secrets(on_found="refuse"))
    assert [(each.thread, type(each.error)) for each in report.left_out] == [("leaky", SecretError)]
    assert (report.redacted, report.threads) == ((), 1)
    assert TOKEN.encode() not in raw(tmp_path)


def test_a_field_of_the_guard_is_redacted(database, tmp_path):
    report = imported(database, tmp_path / "agent.state", secrets=guard.Secrets(fields=["notes"]))
    assert report.redacted == ("clean", "leaky")
    assert b"all is well" not in raw(tmp_path)


def test_the_command_names_the_threads(database, tmp_path):
    path = tmp_path / "agent.state"
    statelog.open(path, guard=Guard()).close()
    answer = run_here("import-langgraph", f"sqlite:{database}", path)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.splitlines()[-1] == "secrets were redacted in 1 thread: 'leaky'"
    told = json.loads(run_here("import-langgraph", f"sqlite:{database}", path, "--json").stdout)
    assert told["redacted"] == ["leaky"]


def test_negative_control_a_store_without_a_guard_gets_the_secrets(database, tmp_path):
    path = tmp_path / "agent.state"
    with opened(f"sqlite:{database}", writing=False) as source, opened(str(path), writing=True) as target:
        assert migrate(source, target).redacted == ()
    assert TOKEN.encode() in raw(tmp_path)
