"""`resume_or_start`: crashed runs are resumed, no input is dropped or used twice, and no interrupt is answered."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated

import pytest

pytest.importorskip("langgraph")

from langchain_core.messages import HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from statelog.adapters.langgraph import StatelogSaver, aresume_or_start, resume_or_start, runs
from statelog.errors import ConflictError, UsageError


class State(TypedDict):
    log: Annotated[list, operator.add]
    n: int


class Graph:
    """Two nodes. The second one can fail or ask."""

    def __init__(self, saver, **options):
        self.fails, self.asks = False, False
        builder = StateGraph(State)
        builder.add_node("first", lambda state: {"log": [f"first {state['n']}"]})
        builder.add_node("second", self.second)
        builder.add_edge(START, "first")
        builder.add_edge("first", "second")
        builder.add_edge("second", END)
        self.graph = builder.compile(checkpointer=saver, **options)

    def second(self, state):
        if self.fails:
            raise ZeroDivisionError
        answer = interrupt("ok?") if self.asks else state["n"]
        return {"log": [f"second {answer}"]}


CONFIG = {"configurable": {"thread_id": "t"}}


@pytest.fixture
def saver(tmp_path):
    with StatelogSaver.open(tmp_path / "a.state") as opened:
        yield opened


def sync(graph, *args, **more):
    return resume_or_start(graph, *args, **more)


def on_a_loop(graph, *args, **more):
    return asyncio.run(aresume_or_start(graph, *args, **more))


@pytest.fixture(params=[sync, on_a_loop], ids=["sync", "async"])
def go(request):
    return request.param


def crash(go, made, input, **more):
    made.fails = True
    with pytest.raises(ZeroDivisionError):
        go(made.graph, input, CONFIG, **more)
    made.fails = False


def test_a_thread_without_a_run_is_started(go, saver):
    assert go(Graph(saver).graph, {"n": 1}, CONFIG)["log"] == ["first 1", "second 1"]


def test_a_crashed_run_is_resumed_and_its_own_input_is_not_used_again(go, saver):
    made = Graph(saver)
    crash(go, made, {"n": 1})
    assert go(made.graph, {"n": 1}, CONFIG)["log"] == ["first 1", "second 1"]
    assert go(made.graph, None, CONFIG)["log"] == ["first 1", "second 1"]


def test_a_new_input_runs_after_the_rest_of_a_crashed_run(go, saver):
    made = Graph(saver)
    crash(go, made, {"n": 1})
    assert go(made.graph, {"n": 2}, CONFIG)["log"] == ["first 1", "second 1", "first 2", "second 2"]


def test_a_new_input_is_not_used_if_the_resumed_run_fails_again(go, saver):
    made = Graph(saver)
    crash(go, made, {"n": 1})
    crash(go, made, {"n": 2})
    assert go(made.graph, {"n": 2}, CONFIG)["log"] == ["first 1", "second 1", "first 2", "second 2"]


def test_equal_inputs_of_two_events_are_both_used_and_a_repeated_event_is_not(go, saver):
    made = Graph(saver)
    crash(go, made, {"n": 1}, event_id="evt-1")
    assert len(go(made.graph, {"n": 1}, CONFIG, event_id="evt-2")["log"]) == 4
    assert len(go(made.graph, {"n": 1}, CONFIG, event_id="evt-1")["log"]) == 4
    assert len(go(made.graph, {"n": 1}, CONFIG, event_id="evt-3")["log"]) == 6
    crash(go, made, {"n": 1}, event_id="evt-4")
    assert len(go(made.graph, {"n": 1}, CONFIG, event_id="evt-4")["log"]) == 8


def test_an_input_overtaken_by_another_run_is_refused_and_used_when_repeated(saver):
    made = Graph(saver)

    def overtaken(_state):
        resume_or_start(made.graph, {"n": 2}, CONFIG, event_id="e2")
        return {}

    builder = StateGraph(State)
    builder.add_node("overtaken", overtaken)
    builder.add_edge(START, "overtaken")
    graph = builder.compile(checkpointer=saver)
    with pytest.raises(ConflictError):
        resume_or_start(graph, {"n": 1}, CONFIG, event_id="e1", durability="exit")
    assert resume_or_start(made.graph, {"n": 1}, CONFIG, event_id="e1")["n"] == 1
    assert resume_or_start(made.graph, {"n": 1}, CONFIG, event_id="e1")["log"] == [
        "first 2",
        "second 2",
        "first 1",
        "second 1",
    ]


def test_an_event_of_another_line_counts_as_not_done(go, saver):
    made = Graph(saver)
    go(made.graph, {"n": 1}, CONFIG, event_id="e1")
    before = made.graph.get_state(CONFIG).config
    go(made.graph, {"n": 2}, CONFIG, event_id="e2")
    made.graph.invoke({"n": 3}, before)
    assert go(made.graph, {"n": 1}, CONFIG, event_id="e1")["n"] == 3
    assert go(made.graph, {"n": 2}, CONFIG, event_id="e2")["n"] == 2


def test_only_a_command_answers_an_interrupt(go, saver):
    made = Graph(saver)
    made.asks = True
    (asked,) = go(made.graph, {"n": 1}, CONFIG)["__interrupt__"]
    assert go(made.graph, {"n": 1}, CONFIG)["__interrupt__"] == [asked]
    assert go(made.graph, None, CONFIG)["__interrupt__"] == [asked]
    with pytest.raises(ConflictError, match="input was not used") as refused:
        go(made.graph, {"n": 2}, CONFIG)
    assert refused.value.facts["interrupts"] == [asked.id]
    made.graph.get_state(CONFIG)
    assert go(made.graph, Command(resume="yes"), CONFIG)["log"] == ["first 1", "second yes"]
    made.asks = False
    assert len(go(made.graph, {"n": 2}, CONFIG)["log"]) == 4


@pytest.mark.skipif(runs._interrupt_id is None, reason="this release of LangGraph does not number questions")
def test_a_run_that_fails_after_its_answer_is_resumed_with_it_and_asks_its_next_question(go, saver):
    fails = [False]

    def ask(_state):
        first = interrupt("first?")
        if fails.pop():
            raise ZeroDivisionError
        return {"log": [first, interrupt("second?")]}

    builder = StateGraph(State).add_node("ask", ask).add_edge(START, "ask")
    graph = builder.compile(checkpointer=saver)
    for name, input in enumerate((None, Command(resume="yes"))):
        config = {"configurable": {"thread_id": str(name)}}
        go(graph, {"n": 1}, config)
        fails[:] = [False, True]
        with pytest.raises(ZeroDivisionError):
            go(graph, Command(resume="yes"), config)
        with pytest.raises(ConflictError, match="received an answer"):
            go(graph, Command(resume="no"), config)
        assert [each.value for each in go(graph, input, config)["__interrupt__"]] == ["second?"]
        assert [each.value for each in go(graph, None, config)["__interrupt__"]] == ["second?"]
        with pytest.raises(ConflictError, match="is waiting in ask"):
            go(graph, {"n": 2}, config)
        fails[:] = [False]
        assert go(graph, Command(resume="right"), config)["log"] == ["yes", "right"]


def test_an_interrupt_after_a_crash_keeps_the_new_input_unused(go, saver):
    made = Graph(saver)
    crash(go, made, {"n": 1})
    made.asks = True
    with pytest.raises(ConflictError, match="input was not used"):
        go(made.graph, {"n": 2}, CONFIG)
    assert go(made.graph, Command(resume="yes"), CONFIG)["log"] == ["first 1", "second yes"]


def test_a_breakpoint_is_not_passed_by_an_input(go, saver):
    made = Graph(saver, interrupt_before=["second"])
    go(made.graph, {"n": 1}, CONFIG)
    with pytest.raises(ConflictError, match="second"):
        go(made.graph, {"n": 2}, CONFIG)
    assert made.graph.get_state(CONFIG).next == ("second",)
    assert go(made.graph, None, CONFIG)["log"] == ["first 1", "second 1"]


def test_a_breakpoint_of_the_call_is_not_passed_by_an_input(go, saver):
    made = Graph(saver)
    more = {"interrupt_before": ["second"], "event_id": "e1"}
    go(made.graph, {"n": 1}, CONFIG, **more)
    with pytest.raises(ConflictError, match="second"):
        go(made.graph, {"n": 2}, CONFIG, interrupt_before=["second"])
    assert go(made.graph, {"n": 1}, CONFIG, **more)["log"] == ["first 1"]
    assert go(made.graph, None, CONFIG)["log"] == ["first 1", "second 1"]


def test_messages_are_compared_without_their_ids(go, saver):
    fails = [True]

    def answer(_state):
        if fails[0]:
            raise ZeroDivisionError
        return {"messages": [("ai", "soup")]}

    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    graph = builder.compile(checkpointer=saver)
    with pytest.raises(ZeroDivisionError):
        go(graph, {"messages": [HumanMessage("hi")]}, CONFIG)
    fails[0] = False
    found = go(graph, {"messages": [HumanMessage("hi")]}, CONFIG)
    assert [message.content for message in found["messages"]] == ["hi", "soup"]


def test_an_input_with_an_array_is_delivered_again(saver):
    np = pytest.importorskip("numpy")
    fails = [True]

    def add(state):
        if fails.pop():
            raise ZeroDivisionError
        return {"log": [float(np.nansum(state["n"]))]}

    graph = StateGraph(State).add_node("add", add).add_edge(START, "add").compile(checkpointer=saver)
    with pytest.raises(ZeroDivisionError):
        resume_or_start(graph, {"n": np.array([1.0, np.nan])}, CONFIG)
    fails[:] = [False] * 3
    assert resume_or_start(graph, {"n": np.array([1.0, np.nan])}, CONFIG)["log"] == [1.0]


def test_bad_arguments_are_refused(go, saver):
    made = Graph(saver)
    with pytest.raises(UsageError, match="checkpointer"):
        go(Graph(None).graph, {"n": 1}, CONFIG)
    with pytest.raises(UsageError, match="event_id"):
        go(made.graph, {"n": 1}, CONFIG, event_id="")
    with pytest.raises(UsageError, match="is not waiting for an answer"):
        go(made.graph, Command(resume="yes"), CONFIG)
    assert made.graph.get_state(CONFIG).values == {}
