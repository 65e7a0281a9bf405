"""Checkpoints of crews, memory, and a store as CrewAI's default."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta

import pytest

pytest.importorskip("crewai", exc_type=ImportError)

from crewai.flow.flow import Flow, listen, start
from crewai.flow.persistence.factory import default_flow_persistence, set_flow_persistence_factory
from crewai.memory.storage.backend import EmbeddingDimensionMismatchError, StorageBackend
from crewai.memory.storage.factory import resolve_memory_storage, set_memory_storage_factory
from crewai.memory.types import MemoryRecord
from crewai.state.checkpoint_config import CheckpointConfig
from crewai.state.provider.json_provider import JsonProvider

import statelog
from statelog.adapters.crewai import (
    StatelogCheckpointProvider,
    StatelogFlowPersistence,
    StatelogMemoryStorage,
    install,
)
from statelog.adapters.crewai.stores import store_at


@pytest.fixture
def store(path):
    with statelog.open(path, durability="interval") as opened:
        yield opened
        assert opened.verify().ok


@pytest.mark.parametrize("separators", [(",", ":"), None])
def test_checkpoints_are_unchanged_and_share_equal_values(path, separators):
    ours, theirs, events, kept = StatelogCheckpointProvider(), JsonProvider(), [], []
    for number in range(40):
        events.append({"type": "task", "output": f"output {number} " * 200})
        data = json.dumps({"z": [], "events": events, "a": number}, separators=separators)
        branch = "main" if number % 10 else "other"
        kept.append((data, ours.checkpoint(data, str(path), parent_id=None, branch=branch)))
        assert theirs.from_checkpoint(theirs.checkpoint(data, str(path.with_name("theirs")))) == data
    assert all(ours.from_checkpoint(location) == data for data, location in kept)
    assert all(asyncio.run(ours.afrom_checkpoint(location)) == data for data, location in kept[-2:])
    assert len({ours.extract_id(location) for _data, location in kept}) == len(kept)
    with pytest.raises(ValueError, match="Checkpoint not found: unknown"):
        ours.from_checkpoint(f"{path}#unknown")
    assert ours.prune(str(path), 6) == 30
    assert ours.prune(str(path), 6) == 0
    there = [data for data, location in kept[-6:] if ours.from_checkpoint(location) == data]
    assert len(there) == 6
    with pytest.raises(ValueError, match="not found"):
        ours.from_checkpoint(kept[1][1])
    assert ours.from_checkpoint(kept[0][1]) == kept[0][0]
    assert store_at(path).verify().ok
    records_size_bytes = store_at(path).statistics().records_size_bytes
    assert records_size_bytes < sum(len(data) for data, _location in kept) / 4


def test_crewais_configuration_accepts_the_provider(path):
    config = CheckpointConfig(location=str(path), provider=StatelogCheckpointProvider())
    assert type(config.provider) is StatelogCheckpointProvider


def record(id, scope="/", vector=(1.0, 0.0), at=0, **fields):
    made = datetime(2026, 1, 1) + timedelta(days=at)  # noqa: DTZ001 - CrewAI's have no zone
    usual = {"id": id, "content": f"content of {id}", "scope": scope, "embedding": list(vector), "created_at": made}
    return MemoryRecord(**{**usual, **fields})


class Counted(Flow):
    @start()
    def first(self):
        self.state["n"] = 1

    @listen(first)
    def second(self):
        self.state["n"] += 1


def test_a_flow_continues_from_a_checkpoint(path):
    config = CheckpointConfig(location=str(path), provider=StatelogCheckpointProvider(), on_events=["flow_finished"])
    Counted(checkpoint=config).kickoff()
    store = store_at(path)
    [thread] = [each.id for each in store.threads() if each.id.startswith("crewai-checkpoints:")]
    made = [f"{path}#{each.id}" for each in store.thread(thread).history()][::-1]
    assert [Counted.from_checkpoint(CheckpointConfig(restore_from=each)).state["n"] for each in made] == [2]
    store.prune(keep_last=1)
    assert StatelogCheckpointProvider().prune(str(path), 0) == len(made)


def test_vectors_of_different_lengths_are_refused_at_once(store):
    memory = StatelogMemoryStorage(store)
    with pytest.raises(EmbeddingDimensionMismatchError):
        memory.save([MemoryRecord(content="a", embedding=[1.0]), MemoryRecord(content="b", embedding=[1.0, 2.0])])
    assert memory.count() == 0


def test_memories_are_found_by_vector_scope_category_and_metadata(store):
    memory = StatelogMemoryStorage(store)
    assert isinstance(memory, StorageBackend)
    assert memory.search([1.0, 0.0]) == []
    memory.save([
        record("a", "/team/ann", (1.0, 0.0), 1, categories=["x"], metadata={"k": 1, "z": 0}),
        record("b", "/team/bob", (0.0, 1.0), 2, categories=["x", "y"]),
        record("c", "/teams", (0.9, 0.1), 3),
        record("d", "/", (1.0, 1.0), 4),
    ])  # fmt: skip

    def found(**filters):
        return [each.id for each, _score in memory.search([1.0, 0.0], **filters)]

    assert found() == ["a", "c", "d", "b"]
    assert found(scope_prefix="/team") == ["a", "b"]
    assert found(scope_prefix="team/") == ["a", "b"]
    assert found(categories=["y", "unknown"]) == ["b"]
    assert found(metadata_filter={"k": 1}) == ["a"]
    assert found(limit=1) == ["a"]
    assert found(min_score=0.9) == ["a", "c"]
    best, score = memory.search([1.0, 0.0])[0]
    assert score == 1.0
    assert list(best.metadata) == ["k", "z"]
    with pytest.raises(EmbeddingDimensionMismatchError):
        memory.search([1.0])
    with pytest.raises(EmbeddingDimensionMismatchError):
        memory.save([record("e", vector=(1.0, 2.0, 3.0))])
    assert [each.id for each in memory.list_records()] == ["d", "c", "b", "a"]
    assert [each.id for each in memory.list_records("/team", limit=1, offset=1)] == ["a"]
    assert memory.list_scopes() == ["/team", "/teams"]
    assert memory.list_scopes("/team") == ["/team/ann", "/team/bob"]
    assert memory.list_categories() == {"x": 2, "y": 1}
    info = memory.get_scope_info("/team")
    assert (info.record_count, info.categories, info.child_scopes) == (2, ["x", "y"], ["/team/ann", "/team/bob"])
    assert (memory.count(), memory.count("/team")) == (4, 2)


def test_changes_and_deletions_of_memories_are_seen_by_others(store):
    memory, other = StatelogMemoryStorage(store), StatelogMemoryStorage(store)
    memory.save([record(str(n), f"/{n % 2}", at=n) for n in range(6)])
    assert other.count() == 6
    memory.update(record("0", "/0", content="another"))
    assert other.get_record("0").content == "another"
    other.get_record("0").metadata["changed"] = "by who has read it"
    assert other.get_record("0").metadata == {}
    assert memory.delete(record_ids=["1", "unknown"]) == 1
    assert memory.delete(older_than=datetime(2026, 1, 4)) == 2  # noqa: DTZ001 - as above
    assert {each.id for each in other.list_records()} == {"3", "4", "5"}
    assert asyncio.run(other.adelete(scope_prefix="/0")) == 1
    asyncio.run(other.asave([record("n", vector=(0.5, 0.5))]))
    assert [each.id for each, _score in asyncio.run(memory.asearch([0.5, 0.5]))] == ["n", "3", "5"]
    memory.reset("/1")
    assert {each.id for each in other.list_records()} == {"n"}
    memory.reset()
    assert other.count() == 0
    assert StatelogMemoryStorage(store, name="another").count() == 0


def test_a_store_can_be_crewais_default(store):
    try:
        install(store)
        persistence = default_flow_persistence()
        assert type(persistence) is StatelogFlowPersistence
        persistence.save_state("f", "m", {"n": 1})
        assert default_flow_persistence().load_state("f") == {"n": 1}
        assert type(resolve_memory_storage("statelog:crew")) is StatelogMemoryStorage
        assert resolve_memory_storage("lancedb") is None
    finally:
        set_flow_persistence_factory(None)
        set_memory_storage_factory(None)
