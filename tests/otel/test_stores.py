"""Instrumenting stores: what is measured, what is stored, and what is refused."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import suppress

import pytest

import statelog
import statelog.otel
from statelog import aio, durable
from statelog.durable import observers
from statelog.errors import ClosedError, ConflictError, UsageError
from statelog.log.engine import Engine
from statelog.store.claims import LeaseAttempt
from statelog.store.store import Store


def test_a_checkpoint_has_the_trace_of_the_span_that_made_it(traced, kept):
    with kept.tracer.start_as_current_span("request") as span:
        made = traced.thread("t").commit({"a": 1}, metadata={"step": 3})
        traced.thread("t").edit(lambda state: state.update(a=2))
    context = span.get_span_context()
    expected = f"00-{context.trace_id:032x}-{context.span_id:016x}-"
    assert made.metadata["traceparent"].startswith(expected)
    assert made.metadata["step"] == 3
    assert traced.thread("t").head.metadata["traceparent"].startswith(expected)
    assert "traceparent" not in traced.thread("t").commit({"a": 3}).metadata


def test_checkpoints_of_a_transaction_have_the_trace_of_the_span_that_staged_them(traced, kept):
    with traced.transaction() as tx:
        with kept.tracer.start_as_current_span("request") as span:
            tx.thread("t").commit({"a": 1})
        tx.thread("u").commit({"a": 1})
    assert f"{span.get_span_context().span_id:016x}" in traced.thread("t").head.metadata["traceparent"]
    assert "traceparent" not in traced.thread("u").head.metadata
    with pytest.raises(UsageError, match="the transaction has ended"):
        tx.thread("v")


def test_a_branch_that_is_checked_out_or_forked_is_traced(traced, kept):
    thread = traced.thread("t")
    thread.commit({"a": 1})
    forked = thread.fork("b")
    with kept.tracer.start_as_current_span("request"):
        for each in (forked, thread.checkout("b")):
            assert "traceparent" in each.commit({"a": 2}).metadata


def test_the_first_commit_of_a_fork_and_a_rollback_have_the_trace(traced, kept):
    thread = traced.thread("t")
    thread.commit({"a": 1})
    with kept.tracer.start_as_current_span("request") as span:
        forked = thread.fork("b", update={"a": 2}, metadata={"why": "try"})
        back = thread.rollback(0)
        thread.fork("c")
    for made in (forked.head, back):
        assert f"{span.get_span_context().span_id:016x}" in made.metadata["traceparent"]
    assert forked.head.metadata["why"] == "try"
    assert "traceparent" not in thread.rollback(0).metadata


def test_a_transaction_of_an_instrumented_store_that_fails_leaves_nothing(traced, kept):
    with kept.tracer.start_as_current_span("request"), suppress(KeyError), traced.transaction() as tx:
        tx.thread("t").commit({"a": 1})
        raise KeyError
    assert traced.thread("t").head is None


def test_the_lag_of_a_store_of_a_fleet_is_measured(tmp_path, kept):
    fleet = pytest.importorskip("statelog.fleet", reason="the extra `fleet` is not installed")
    (tmp_path / "bucket").mkdir()
    with fleet.connect(f"file://{tmp_path}/bucket", tmp_path / "cache").open("agent", ship_ms=60_000) as store:
        statelog.otel.instrument(store, **kept.providers)
        store.thread("t").commit({"a": "x" * 1000})
        points = kept.points
        assert points["statelog.fleet.lag"][0].value > 0
        assert points["statelog.fleet.lag.size"][0].value > 1000
        store.remote.wait()
        points = kept.points
        assert (points["statelog.fleet.lag"][0].value, points["statelog.fleet.lag.size"][0].value) == (0, 0)


def test_a_callers_own_traceparent_stays(traced, kept):
    with kept.tracer.start_as_current_span("request"):
        made = traced.thread("t").commit({"a": 1}, metadata={"traceparent": "mine"})
    assert made.metadata["traceparent"] == "mine"


def test_commits_and_flushes_are_measured(traced, kept):
    thread = traced.thread("t")
    thread.commit({"a": 1})
    traced.board().set("k", 1)
    with traced.transaction() as tx:
        tx.thread("u").commit({"a": 1})
    with pytest.raises(ConflictError):
        thread.commit({"a": 2}, expected_version=7)
    traced.flush()
    points = kept.points
    counts = {each.attributes.get("error.type"): each.count for each in points["statelog.commit.duration"]}
    assert counts == {None: 3, "ConflictError": 1}
    assert [each.count for each in points["statelog.flush.duration"]] == [1]
    [size] = points["statelog.store.size"]
    assert size.value == traced.path.stat().st_size


def test_a_queue_has_its_depth(traced, kept):
    made = durable.workflow(name="w")(lambda run: run.id)
    for number in range(3):
        durable.start(traced, made, id=f"r-{number}", queue="mine")
    [depth] = kept.points["statelog.queue.depth"]
    assert (depth.value, depth.attributes["statelog.queue.name"]) == (3, "mine")


def test_a_lease_that_lapsed_is_a_takeover_and_one_that_was_released_is_none(traced, kept):
    first = traced.board().lease("l", ttl_s=60)
    first.release()
    traced.board().lease("l", ttl_s=0.02, auto_renew=False)
    assert "statelog.takeovers" not in kept.points
    time.sleep(0.05)
    assert traced.board().lease("l", ttl_s=60) is not None
    [point] = kept.points["statelog.takeovers"]
    assert (point.value, point.attributes["statelog.takeover.kind"]) == (1, "lease")


def test_a_store_that_is_instrumented_twice_is_measured_once(traced, kept):
    statelog.otel.instrument(traced, **kept.providers)
    traced.thread("t").commit({"a": 1})
    assert [each.count for each in kept.points["statelog.commit.duration"]] == [1]


def test_uninstrumenting_leaves_nothing_in_the_way(store, kept):
    former = (vars(Store)["__init__"], vars(LeaseAttempt)["take"])
    statelog.otel.instrument(store, **kept.providers)
    statelog.otel.instrument(**kept.providers)
    assert vars(store).keys() > {"_thread"}
    assert observers.observer is not None
    thread = store.thread("t")
    statelog.otel.uninstrument()
    assert vars(store).keys() == {"_engine", "_session"}
    assert not {"commit", "flush"} & vars(store._engine).keys()
    assert (vars(Store)["__init__"], vars(LeaseAttempt)["take"]) == former
    assert observers.observer is None
    with kept.tracer.start_as_current_span("request"):
        assert "traceparent" not in thread.commit({"a": 1}).metadata
    assert kept.points.get("statelog.commit.duration") is None


def test_one_store_of_two_is_uninstrumented(store, tmp_path, kept):
    with statelog.open(tmp_path / "other") as other:
        for each in (store, other):
            statelog.otel.instrument(each, **kept.providers)
        statelog.otel.uninstrument(store)
        store.thread("t").commit({"a": 1})
        assert "statelog.commit.duration" not in kept.points
        other.thread("t").commit({"a": 1})
        assert [each.count for each in kept.points["statelog.commit.duration"]] == [1]


def test_every_store_that_is_opened_later_is_instrumented(tmp_path, store, kept):
    statelog.otel.instrument(**kept.providers)
    store.thread("t").commit({"a": 1})
    assert "statelog.commit.duration" not in kept.points
    with statelog.open(tmp_path / "later") as later:
        later.thread("t").commit({"a": 1})
    assert [each.count for each in kept.points["statelog.commit.duration"]] == [1]


def test_another_store_pays_nothing(traced, tmp_path):
    with statelog.open(tmp_path / "other") as other:
        assert vars(other).keys() == {"_engine", "_session"}
        assert type(other.thread("t")) is statelog.Thread
        assert other._engine.commit.__func__ is Engine.commit
        assert type(traced.thread("t")) is not statelog.Thread


def test_a_closed_store_is_refused_and_one_that_is_closed_later_has_no_gauges(traced, kept):
    traced.thread("t").commit({"a": 1})
    traced.close()
    assert "statelog.store.size" not in kept.points
    with pytest.raises(ClosedError, match="is closed"):
        statelog.otel.instrument(traced)


def test_files_that_are_not_stores_are_refused():
    for call in (statelog.otel.instrument, statelog.otel.uninstrument):
        with pytest.raises(UsageError, match=r"statelog\.open or statelog\.aio\.open, not 'agent\.state'"):
            call("agent.state")
    assert observers.observer is None


def test_a_read_only_store_is_measured(tmp_path, kept):
    with statelog.open(tmp_path / "s") as store:
        store.thread("t").commit({"a": 1})
    with statelog.open(tmp_path / "s", read_only=True) as store:
        statelog.otel.instrument(store, **kept.providers)
        with pytest.raises(statelog.StatelogError):
            store.thread("t").commit({"a": 2})
        assert store.thread("t").state["a"] == 1
        assert kept.points["statelog.store.size"][0].value > 0


def test_a_store_of_asyncio_is_measured(tmp_path, kept):
    async def main():
        async with await aio.open(tmp_path / "s") as store:
            statelog.otel.instrument(store, **kept.providers)
            with kept.tracer.start_as_current_span("request"):
                thread = await store.thread("t")
                made = await thread.commit({"a": 1})
            assert "traceparent" in made.metadata

    asyncio.run(main())
    assert [each.count for each in kept.points["statelog.commit.duration"]] == [1]


LATE = """
import sys
import statelog, statelog.otel

with statelog.open(sys.argv[1]) as store:
    statelog.otel.instrument(store)
    early = store.thread("t")
    early.commit({"a": 1})
    print(type(early) is statelog.Thread, "commit" in vars(store._engine))
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider

    reader = InMemoryMetricReader()
    trace.set_tracer_provider(TracerProvider())
    metrics.set_meter_provider(MeterProvider([reader]))
    with trace.get_tracer("test").start_as_current_span("request"):
        made = store.thread("t").commit({"a": 2})
    [scope] = reader.get_metrics_data().resource_metrics[0].scope_metrics
    counts = {each.name: each.data.data_points[0] for each in scope.metrics}
    print("traceparent" in made.metadata, counts["statelog.commit.duration"].count)
"""


@pytest.mark.slow
def test_an_sdk_that_is_set_up_late_is_found_and_before_it_nothing_is_in_the_way(tmp_path):
    done = subprocess.run([sys.executable, "-c", LATE, tmp_path / "s"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["True False", "True 1"]


WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import statelog
try:
    import statelog.otel
except ModuleNotFoundError as error:
    print(error, error.name)
"""


@pytest.mark.slow
def test_without_the_extra_the_import_names_the_missing_package():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("statelog.otel needs opentelemetry-api: pip install 'statelog[otel]' opentelemetry")


@pytest.mark.slow
def test_a_store_without_opentelemetry_is_not_slowed_by_an_import():
    code = "import sys, statelog, statelog.durable; print('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_lone_surrogate_in_a_name_can_be_exported(traced, kept):
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    made = durable.workflow(name="w")(lambda run: run.step(_fail))
    durable.run(traced, made, id="evt-1")
    encoded = encode_spans(kept.spans)
    assert len(encoded.resource_spans[0].scope_spans[0].spans) == 2
    assert "\\ud800" in {each.status.description for each in kept.spans}


def _fail():
    raise ValueError("\ud800")
