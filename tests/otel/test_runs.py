"""Spans and events of durable runs."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from random import Random

import forks
import pytest
from otlp import receiver, values

import statelog
import statelog.otel
from benchmarks.guard_texts import SECRETS
from statelog import aio, durable
from statelog.aio import durable as aio_durable
from statelog.otel.telemetry import CAPTURE

RUN, CONVERSATION = "gen_ai.agent.execution.id", "gen_ai.conversation.id"


def note(value):
    return value


def failing(value):
    raise ValueError(f"no {value}")


@durable.workflow
def trip(run, to):
    plan = run.step_with(durable.StepOptions(name="plan"), note, to)
    answer = run.gate("approve", timeout_s=3600)
    return run.step_with(durable.StepOptions(name="end"), note, [plan, answer.approved])


def run_trip(store):
    durable.run(store, trip, "Rome", id="evt-1", thread="ticket-42")


def test_a_run_is_a_span_with_a_child_span_a_step(traced, kept):
    with kept.tracer.start_as_current_span("request") as request:
        run_trip(traced)
    [step] = kept.named("step plan")
    [run] = kept.named("invoke_agent trip")
    assert step.parent.span_id == run.context.span_id
    assert run.parent.span_id == request.get_span_context().span_id
    assert dict(run.attributes) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "trip",
        CONVERSATION: "ticket-42",
        RUN: "evt-1",
    }
    assert (run.status.status_code.name, run.links) == ("UNSET", ())
    assert step.attributes["statelog.step.attempt"] == 1
    assert {each.attributes[CONVERSATION] for each in (run, step)} == {"ticket-42"}


def test_a_resumed_run_links_to_the_span_that_it_continues(traced, kept):
    with kept.tracer.start_as_current_span("request") as request:
        run_trip(traced)
    durable.answer(traced, "evt-1/1", approved=True)
    run_trip(traced)
    first, second = kept.named("invoke_agent trip")
    assert second.context.trace_id != first.context.trace_id
    links = [each.context.span_id for each in second.links]
    assert links == [request.get_span_context().span_id, first.context.span_id]
    assert second.attributes["statelog.run.status"] == "completed"


def test_a_pause_and_its_end_are_events(traced, kept):
    run_trip(traced)
    durable.answer(traced, "evt-1/1", approved=False)
    run_trip(traced)
    assert [name for name, _attributes in kept.events] == [
        "gen_ai.agent.checkpointed",
        "gen_ai.agent.checkpointed",
        "gen_ai.agent.paused",
        "statelog.pause.resolved",
        "gen_ai.agent.resumed",
        "gen_ai.agent.checkpointed",
    ]
    [paused] = kept.event_named("gen_ai.agent.paused")
    assert paused["gen_ai.agent.pause.id"] == "evt-1/1"
    assert paused["gen_ai.agent.pause.reason"] == "human_input"
    assert paused["statelog.pause.deadline"] == durable.gates(traced)[0].due.isoformat()
    [resolved] = kept.event_named("statelog.pause.resolved")
    assert resolved["statelog.pause.resolution"] == "refused"
    [resumed] = kept.event_named("gen_ai.agent.resumed")
    assert (resumed["gen_ai.agent.resumed_from.type"], resumed["gen_ai.agent.resumed_from.id"]) == ("pause", "evt-1/1")
    assert {attributes[RUN] for _name, attributes in kept.events} == {"evt-1"}
    assert {attributes[CONVERSATION] for _name, attributes in kept.events} == {"ticket-42"}
    spans = {each.context.span_id for each in kept.named("invoke_agent trip")}
    assert {each.span_id for each in kept.records} == spans


@durable.workflow
def hasty(run):
    return run.gate("approve", timeout_s=0.01).is_timeout


def test_an_expired_pause_is_told_from_a_refused_one(traced, kept):
    durable.run(traced, hasty, id="evt-1")
    while not durable.get_run(traced, "evt-1").has_ended:
        time.sleep(0.02)
        durable.run(traced, hasty, id="evt-1")
    [resolved] = kept.event_named("statelog.pause.resolved")
    assert resolved["statelog.pause.resolution"] == "expired"


@durable.workflow
def patient(run):
    run.gate("first")
    return run.recv("chat", timeout_s=3600)


def test_a_run_that_is_looked_at_and_waits_on_has_one_pause(traced, kept):
    for _ in range(3):
        durable.run(traced, patient, id="evt-1")
        durable.resume_all(traced, [patient])
    assert len(kept.event_named("gen_ai.agent.paused")) == 1
    durable.answer(traced, "evt-1/0", approved=True)
    durable.resume_all(traced, [patient])
    pauses = kept.event_named("gen_ai.agent.paused")
    assert [each["gen_ai.agent.pause.id"] for each in pauses] == ["evt-1/0", "evt-1/mail chat"]
    assert pauses[1]["gen_ai.agent.pause.reason"] == "external_system"
    assert len(kept.event_named("gen_ai.agent.resumed")) == 1


@durable.workflow
def parent(run):
    return run.child(trip, "Oslo", id="child-1")


def test_a_child_names_its_parent_and_is_below_its_span(traced, kept):
    durable.run(traced, parent, id="evt-1")
    [child], [above] = kept.named("invoke_agent trip"), kept.named("invoke_agent parent")
    assert child.parent.span_id == above.context.span_id
    assert child.attributes["statelog.run.parent.id"] == "evt-1"
    pauses = {each[RUN]: each for each in kept.event_named("gen_ai.agent.paused")}
    assert pauses["child-1"]["statelog.run.parent.id"] == "evt-1"
    assert pauses["evt-1"]["gen_ai.agent.pause.id"] == "evt-1/run child-1"


@durable.workflow
def doomed(run, value):
    run.step(failing, value)


def test_a_failed_run_has_the_class_and_text_of_its_error(traced, kept):
    durable.run(traced, doomed, "x", id="evt-1")
    for name in ("step failing", "invoke_agent doomed"):
        [span] = kept.named(name)
        assert span.attributes["error.type"] == "ValueError"
        assert (span.status.status_code.name, span.status.description) == ("ERROR", "no x")
        assert span.events == ()


def test_content_is_off_by_default_and_read_once(store, kept, monkeypatch):
    statelog.otel.instrument(store, **kept.providers)
    monkeypatch.setenv(CAPTURE, "true")
    run_trip(store)
    assert "Rome" not in kept.everything()
    statelog.otel.uninstrument()
    statelog.otel.instrument(store, **kept.providers)
    monkeypatch.delenv(CAPTURE)
    odd = {1: {"a": b"x"}, None: "Rome", "n": float("nan")}
    durable.run(store, durable.workflow(name="w")(lambda run: run.step(note, odd)), id="b")
    [step] = kept.named("step note")
    assert step.attributes["statelog.step.arguments"] == '[[{"1": {"a": "<1 bytes>"}, "n": "nan", "None": "Rome"}], {}]'
    assert step.attributes["statelog.step.result"] == '{"1": {"a": "<1 bytes>"}, "n": "nan", "None": "Rome"}'


@pytest.mark.parametrize("has_content", [False, True])
def test_a_secret_leaves_by_no_span_event_or_metric(tmp_path, kept, monkeypatch, has_content):
    pytest.importorskip("re2")
    token = SECRETS["github-token"](Random(1))
    if has_content:
        monkeypatch.setenv(CAPTURE, "true")

    def body(run, value):
        run.step(note, f"{value} {token}")
        run.step(failing, f"with {token}")

    with statelog.open(tmp_path / "s", guard=statelog.Guard()) as store:
        statelog.otel.instrument(store, **kept.providers)
        durable.run(store, durable.workflow(name="w")(body), token, id="a")
        with pytest.raises(statelog.StatelogError):
            durable.run(store, durable.workflow(name="w")(body), object(), id="b")
    assert len(kept.spans) == 3
    assert token not in kept.everything()
    statelog.otel.uninstrument()
    with statelog.open(tmp_path / "control") as store:
        statelog.otel.instrument(store, **kept.providers)
        durable.run(store, durable.workflow(name="w")(body), token, id="a")
    assert token in kept.everything()


def test_a_run_of_asyncio_has_the_same_spans(tmp_path, kept):
    @aio_durable.workflow(name="both")
    async def both(run):
        async with asyncio.TaskGroup() as group:
            for name in ("left", "right"):
                group.create_task(step(run, name))
        return await run.gate("approve")

    async def step(run, name):
        return await run.step_with(durable.StepOptions(name=name), note, name)

    async def main():
        async with await aio.open(tmp_path / "a") as store:
            statelog.otel.instrument(store, **kept.providers)
            await aio_durable.run(store, both, id="evt-1")
            await aio_durable.answer(store, "evt-1/0", approved=True)
            await aio_durable.run(store, both, id="evt-1")

    asyncio.run(main())
    first, second = kept.named("invoke_agent both")
    assert {each.parent.span_id for each in (*kept.named("step left"), *kept.named("step right"))} == {
        first.context.span_id
    }
    assert [each.context.span_id for each in second.links] == [first.context.span_id]
    assert len(kept.event_named("gen_ai.agent.paused")) == 1


KILLED = """
import os, sys
from pathlib import Path
import statelog, statelog.otel
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from statelog import durable

folder, url = Path(sys.argv[1]), sys.argv[2]
spans, logs = TracerProvider(), LoggerProvider()
spans.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(url + "/v1/traces")))
logs.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter(url + "/v1/logs")))
meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter(url + "/v1/metrics"))])

def first():
    return 1

def second():
    if not (folder / "killed").exists():
        (folder / "killed").touch()
        os.kill(os.getpid(), 9)
    return 2

@durable.workflow
def trip(run):
    return [run.step(first), run.step(second)]

with statelog.open(folder / "agent.state") as store:
    statelog.otel.instrument(store, tracer_provider=spans, logger_provider=logs, meter_provider=meters)
    durable.run(store, trip, id="evt-1")
meters.force_flush()
"""


@pytest.mark.slow
def test_a_killed_run_that_another_process_resumes_links_to_its_trace_over_otlp(tmp_path):
    with receiver() as received:
        command = [sys.executable, "-c", KILLED, str(tmp_path), received.url]
        codes = [forks.run(command, check=False, timeout=600).returncode for _ in range(2)]
    assert codes == [-signal.SIGKILL, 0]
    by_name = {each.name: each for each in received.spans}
    assert sorted(each.name for each in received.spans) == ["invoke_agent trip", "step first", "step second"]
    killed, resumed = by_name["step first"], by_name["invoke_agent trip"]
    assert resumed.trace_id != killed.trace_id
    [link] = resumed.links
    assert (link.trace_id, link.span_id) == (killed.trace_id, killed.parent_span_id)
    assert values(resumed.attributes)[CONVERSATION] == "evt-1"
    [event] = [each for each in received.events if each.event_name == "gen_ai.agent.resumed"]
    assert values(event.attributes)["gen_ai.agent.resumed_from.type"] == "checkpoint"
    assert event.trace_id == resumed.trace_id
    assert "statelog.commit.duration" in {each.name for each in received.metrics}
    takeovers = [each for each in received.metrics if each.name == "statelog.takeovers"]
    assert [point.as_int for point in takeovers[-1].sum.data_points] == [1]
