"""Memory spans and events of LangGraph."""

from __future__ import annotations

import asyncio
import sys
from random import Random
from typing import TypedDict

import pytest

pytest.importorskip("langgraph")

import forks
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from otlp import receiver, values

import statelog
import statelog.otel
from benchmarks.guard_texts import SECRETS
from statelog.adapters.langgraph import StatelogSaver, StatelogStore
from statelog.errors import ValueTypeError
from statelog.otel.telemetry import CAPTURE

CONFIG = {"configurable": {"thread_id": "ticket-42"}}
CONVERSATION = "gen_ai.conversation.id"


class State(TypedDict, total=False):
    asked: str
    answer: str


def remember(state, *, store):
    store.put(("users", "ann"), "likes", {"text": state["asked"]})
    return {}


def approve(state):
    return {"answer": interrupt({"question": state["asked"]})}


def graph_of(store):
    builder = StateGraph(State)
    builder.add_node("remember", remember)
    builder.add_node("approve", approve)
    builder.add_edge(START, "remember")
    builder.add_edge("remember", "approve")
    builder.add_edge("approve", END)
    return builder.compile(checkpointer=StatelogSaver(store), store=StatelogStore(store))


def test_memory_operations_are_spans_with_the_conversation(traced, kept):
    graph_of(traced).invoke({"asked": "tea"}, CONFIG)
    [span] = kept.named("upsert_memory")
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "upsert_memory",
        "gen_ai.memory.store.id": "users/ann",
        "gen_ai.memory.record.id": "likes",
        "gen_ai.memory.record.count": 1,
        CONVERSATION: "ticket-42",
    }


def test_reads_and_deletes_have_the_names_of_the_conventions(traced, kept):
    memory = StatelogStore(traced)
    memory.put(("a",), "k", {"x": 1})
    memory.get(("a",), "k")
    memory.get(("a",), "none")
    memory.search(("a",), query="tea")
    memory.delete(("a",), "k")
    memory.list_namespaces()
    told = [(each.name, each.attributes.get("gen_ai.memory.record.count")) for each in kept.spans]
    assert told == [
        ("upsert_memory", 1),
        ("search_memory", 1),
        ("search_memory", 0),
        ("search_memory", 1),
        ("delete_memory", 1),
    ]
    assert "tea" not in kept.everything()
    assert CONVERSATION not in kept.spans[0].attributes


def test_content_is_on_spans_if_it_is_asked_for(store, kept, monkeypatch):
    monkeypatch.setenv(CAPTURE, "SPAN_ONLY")
    statelog.otel.instrument(store, **kept.providers)
    memory = StatelogStore(store)
    memory.put(("a",), "k", {"x": {"y": 1}})
    memory.search(("a",), query="tea")
    put, search = kept.spans
    record = '[{"id": "k", "content": {"x": {"y": 1}}}]'
    assert put.attributes["gen_ai.memory.records"] == record
    assert search.attributes["gen_ai.memory.records"] == record
    assert search.attributes["gen_ai.memory.query.text"] == "tea"


def test_a_failed_operation_has_its_error(traced, kept):
    with pytest.raises(ValueTypeError):
        StatelogStore(traced).put(("a",), "k", {"x": object()})
    [span] = kept.spans
    assert (span.attributes["error.type"], span.status.status_code.name) == ("ValueTypeError", "ERROR")


def test_a_secret_leaves_by_no_memory_span(tmp_path, kept, monkeypatch):
    pytest.importorskip("re2")
    monkeypatch.setenv(CAPTURE, "true")
    token = SECRETS["github-token"](Random(1))
    with statelog.open(tmp_path / "s", guard=statelog.Guard()) as store:
        statelog.otel.instrument(store, **kept.providers)
        memory = StatelogStore(store)
        memory.put(("a",), "k", {"x": token})
        memory.search(("a",), query=f"where is {token}")
    assert len(kept.spans) == 2
    assert token not in kept.everything()


def test_an_interrupted_graph_has_one_pause_and_one_resume_with_a_link(traced, kept):
    graph = graph_of(traced)
    with kept.tracer.start_as_current_span("first") as first:
        graph.invoke({"asked": "tea"}, CONFIG)
    with kept.tracer.start_as_current_span("again"):
        graph_of(traced).invoke(None, CONFIG)
    with kept.tracer.start_as_current_span("second"):
        assert graph_of(traced).invoke(Command(resume="yes"), CONFIG)["answer"] == "yes"
    [paused], [resumed] = kept.event_named("gen_ai.agent.paused"), kept.event_named("gen_ai.agent.resumed")
    assert resumed["gen_ai.agent.resumed_from.type"] == "pause"
    assert resumed["gen_ai.agent.resumed_from.id"] == paused["gen_ai.agent.pause.id"]
    assert paused[CONVERSATION] == resumed[CONVERSATION] == "ticket-42"
    [link] = kept.named("second")[0].links
    assert link.context.span_id == first.get_span_context().span_id
    assert [len(each.links) for name in ("first", "again") for each in kept.named(name)] == [0, 0]
    checkpoints = [each["gen_ai.agent.checkpoint.id"] for each in kept.event_named("gen_ai.agent.checkpointed")]
    assert len(checkpoints) == len(set(checkpoints)) == 4


def test_two_questions_of_a_node_are_two_pauses_and_two_resumes(traced, kept):
    def ask_twice(_state):
        return {"answer": interrupt("first") + interrupt("second")}

    builder = StateGraph(State)
    builder.add_node("ask", ask_twice)
    builder.add_edge(START, "ask")
    graph = builder.compile(checkpointer=StatelogSaver(traced))
    graph.invoke({"asked": "tea"}, CONFIG)
    for _ in range(2):
        found = graph.invoke(Command(resume="yes"), CONFIG)
    assert found["answer"] == "yesyes"
    assert len(kept.event_named("gen_ai.agent.paused")) == 2
    assert len(kept.event_named("gen_ai.agent.resumed")) == 2


def test_an_interrupt_of_a_graph_in_a_graph_is_one_pause(traced, kept):
    inner = StateGraph(State)
    inner.add_node("approve", approve)
    inner.add_edge(START, "approve")
    builder = StateGraph(State)
    builder.add_node("inner", inner.compile())
    builder.add_edge(START, "inner")
    graph = builder.compile(checkpointer=StatelogSaver(traced))
    graph.invoke({"asked": "tea"}, CONFIG)
    assert graph.invoke(Command(resume="yes"), CONFIG)["answer"] == "yes"
    assert len(kept.event_named("gen_ai.agent.paused")) == 1


def test_a_resume_by_interrupt_id_is_one_resume(traced, kept):
    graph = graph_of(traced)
    [asked] = graph.invoke({"asked": "tea"}, CONFIG)["__interrupt__"]
    graph.invoke(Command(resume={asked.id: "yes"}), CONFIG)
    assert len(kept.event_named("gen_ai.agent.resumed")) == 1


def test_a_graph_on_the_event_loop_has_the_same_events(traced, kept):
    async def main():
        graph = graph_of(traced)
        await graph.ainvoke({"asked": "tea"}, CONFIG)
        with kept.tracer.start_as_current_span("second"):
            await graph.ainvoke(Command(resume="yes"), CONFIG)

    asyncio.run(main())
    assert [name for name, _attributes in kept.events if name != "gen_ai.agent.checkpointed"] == [
        "gen_ai.agent.paused",
        "gen_ai.agent.resumed",
    ]
    [span] = kept.named("upsert_memory")
    assert span.attributes[CONVERSATION] == "ticket-42"


@pytest.mark.usefixtures("traced")
def test_a_graph_in_a_store_that_is_not_instrumented_leaves_no_trace(kept, tmp_path):
    with statelog.open(tmp_path / "other") as other, kept.tracer.start_as_current_span("request"):
        graph = graph_of(other)
        graph.invoke({"asked": "tea"}, CONFIG)
        assert "traceparent" not in graph.get_state(CONFIG).metadata
    assert (kept.named("upsert_memory"), kept.events) == ([], [])
    assert "traceparent" not in kept.everything()


ASKING = """
import sys
from pathlib import Path
from typing import TypedDict
import statelog, statelog.otel
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from statelog.adapters.langgraph import StatelogSaver

path, url, answer = sys.argv[1:]
spans, logs = TracerProvider(), LoggerProvider()
spans.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(url + "/v1/traces")))
logs.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter(url + "/v1/logs")))

class State(TypedDict, total=False):
    answer: str

def approve(state):
    return {"answer": interrupt("pay?")}

with statelog.open(path) as store:
    statelog.otel.instrument(store, tracer_provider=spans, logger_provider=logs)
    builder = StateGraph(State)
    builder.add_node("approve", approve)
    builder.add_edge(START, "approve")
    graph = builder.compile(checkpointer=StatelogSaver(store))
    with spans.get_tracer("test").start_as_current_span("request " + answer):
        given = Command(resume=answer) if answer else {}
        graph.invoke(given, {"configurable": {"thread_id": "ticket-42"}})
"""


def test_a_graph_that_another_process_resumes_links_to_its_trace_over_otlp(tmp_path):
    with receiver() as received:
        for answer in ("", "yes"):
            command = [sys.executable, "-c", ASKING, str(tmp_path / "agent.state"), received.url, answer]
            forks.run(command, check=True, timeout=600)
    asked, resumed = received.spans
    assert resumed.name == "request yes"
    [link] = resumed.links
    assert (link.trace_id, link.span_id) == (asked.trace_id, asked.span_id)
    pauses = [each for each in received.events if each.event_name == "gen_ai.agent.paused"]
    resumes = [each for each in received.events if each.event_name == "gen_ai.agent.resumed"]
    assert [each.trace_id for each in resumes] == [resumed.trace_id]
    assert [each.trace_id for each in pauses] == [asked.trace_id]
    assert values(resumes[0].attributes)["gen_ai.agent.resumed_from.type"] == "pause"
