"""Spans of `statelog.Memory`."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

import statelog
import statelog.otel
from benchmarks.guard_texts import SECRETS
from statelog import Memory, aio, guard
from statelog.errors import UsageError
from statelog.otel.telemetry import CAPTURE


def told(kept):
    return [(each.name, each.attributes.get("gen_ai.memory.record.count")) for each in kept.spans]


def test_operations_have_the_names_of_the_conventions(traced, kept):
    memory = Memory(traced, "user/42")
    memory.remember("likes tea", key="drink")
    memory.remember("likes soup")
    memory.get("drink")
    memory.recall("tea soup")
    memory.forget("drink")
    assert told(kept) == [
        ("upsert_memory", 1),
        ("create_memory", 1),
        ("search_memory", 1),
        ("search_memory", 2),
        ("delete_memory", None),
    ]
    assert dict(kept.spans[0].attributes) == {
        "gen_ai.operation.name": "upsert_memory",
        "gen_ai.memory.store.id": "user/42",
        "gen_ai.memory.record.id": "drink",
        "gen_ai.memory.record.count": 1,
    }
    assert "tea" not in kept.everything()


def test_content_is_on_spans_if_it_is_asked_for_without_secrets(tmp_path, kept, monkeypatch):
    pytest.importorskip("re2")
    monkeypatch.setenv(CAPTURE, "SPAN_ONLY")
    secret = SECRETS["github-token"](Random(1))
    with statelog.open(tmp_path / "guarded.state", guard=statelog.Guard(secrets=guard.Secrets())) as store:
        statelog.otel.instrument(store, **kept.providers)
        memory = Memory(store, "user/42")
        memory.remember(f"the key is {secret}", key="k")
        memory.recall("key")
        statelog.otel.uninstrument(store)
    assert kept.spans[1].attributes["gen_ai.memory.query.text"] == "key"
    assert secret not in kept.everything()
    assert "the key is" in kept.spans[0].attributes["gen_ai.memory.records"]


def test_a_failed_operation_has_its_error(traced, kept):
    with pytest.raises(UsageError):
        Memory(traced, "user/42").remember("")
    [span] = kept.spans
    assert (span.attributes["error.type"], span.status.status_code.name) == ("UsageError", "ERROR")


def test_each_operation_on_the_loop_is_one_span(tmp_path, kept):
    pytest.importorskip("numpy")

    async def embed(texts):
        return [[1.0] for _text in texts]

    async def work():
        async with aio.open(tmp_path / "loop.state") as store:
            statelog.otel.instrument(store, **kept.providers)
            for options in ({}, {"embed": embed, "dims": 1}):
                memory = aio.Memory(store, "user/42", **options)
                await memory.remember("likes tea", key="drink")
                await memory.recall("tea")
            statelog.otel.uninstrument(store)

    asyncio.run(work())
    assert told(kept) == [("upsert_memory", 1), ("search_memory", 1)] * 2


def test_a_store_that_is_not_instrumented_makes_no_span(traced, kept, tmp_path):
    del traced
    with statelog.open(tmp_path / "other.state") as store:
        Memory(store, "user/42").remember("likes tea")
    assert kept.spans == []
