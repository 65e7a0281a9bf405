"""A versioned schema does not change threads of the library, of an adapter, or of another schema."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import statelog
from statelog import durable, versioned
from statelog.errors import UsageError
from statelog.store.foreign_threads import is_foreign_id

ADAPTERS = Path(statelog.__file__).parent / "adapters"
FOREIGN = ("langgraph:store", "langgraph:cache", "openai:ticket", "adk-memory:app/user", "memory/user/ann/:sessions/1")


def research():
    schema = versioned({"memories": list}, name="research", version=2)
    schema.step(1)(lambda state: {"memories": list(state.get("notes", []))})
    return schema


@pytest.fixture
def store(path):
    with statelog.open(path) as opened:
        opened.thread("chat-1", schema={"notes": list}).commit({"notes": ["tea"]})
        yield opened


def stored(store):
    return {each.id: store.thread(each.id).head.stored.to_python() for each in store.threads()}


def test_foreign_threads_are_left_out_of_a_migration_and_refused_by_name(store):
    for each in FOREIGN:
        store.thread(each).commit({"items": 1})

    @durable.step
    def book():
        return 1

    @durable.workflow(name="trip")
    def trip(run):
        return run.step(book)

    durable.run(store, trip, id="a run")
    before = stored(store)
    assert store.migrate(research(), dry_run=True).migrated == 1
    report = store.migrate(research())
    assert (report.migrated, report.skipped, report.failed) == (1, 1, [])  # The run has no channels of the user.
    assert stored(store) == {**before, "chat-1": {"memories": ["tea"]}}
    for each in FOREIGN:
        with pytest.raises(UsageError, match="reserved for the library"):
            store.migrate(research(), threads=each)
        with pytest.raises(UsageError, match="reserved for the library"):
            store.thread(each, schema=research()).commit({"memories": []})
    assert stored(store) == {**before, "chat-1": {"memories": ["tea"]}}


@pytest.mark.parametrize("is_migrated", [False, True])
def test_threads_of_langgraphs_checkpoints_are_left_out_and_refused_by_name(store, is_migrated):
    pytest.importorskip("langgraph")
    from langgraph.checkpoint.base import empty_checkpoint

    from statelog.adapters.langgraph import StatelogSaver

    checkpoint = {**empty_checkpoint(), "channel_values": {"notes": ["in"]}, "channel_versions": {"notes": "1"}}
    config = {"configurable": {"thread_id": "a", "checkpoint_ns": ""}}
    saver = StatelogSaver(store, migrations=research() if is_migrated else None)
    saver.put_writes(saver.put(config, checkpoint, {}, {"notes": "1"}), [("notes", ["more"])], "task")
    report = store.migrate(research())
    assert (report.migrated, report.failed) == (1, [])
    for act in (
        lambda: store.migrate(research(), threads="a"),
        lambda: store.thread("a", schema=research()).commit({"memories": []}),
    ):
        with pytest.raises(UsageError, match="belongs to LangGraph"):
            act()
    found = saver.get_tuple(config)
    assert found.checkpoint["channel_values"] == {"notes": ["in"]}
    assert found.pending_writes == [("task", "notes", ["more"])]


def test_a_thread_of_another_schema_is_not_emptied(store):
    store.thread("invoice", schema={"total": int, "notes": list}).commit({"total": 5, "notes": []})
    report = store.migrate(research())
    assert report.migrated == 1
    assert [(each.thread, each.kind) for each in report.failed] == [("invoice", "MigrationError")]
    assert "'total' would be lost" in report.failed[0].reason
    assert store.thread("invoice").state == {"total": 5, "notes": []}


@pytest.mark.parametrize(
    "step",
    [
        lambda state: {"memories": state.pop("notes"), "n": state.pop("total")},
        lambda state: {"memories": next(value for name, value in state.items() if name != "total"), "n": 1},
        lambda state: {name: value for name, value in {**state, "memories": [], "n": 1}.items() if name in "memories"},
    ],
)
def test_a_step_can_omit_channels_that_it_has_read_or_removed(store, step):
    schema = versioned({"memories": list, "n": int}, name="research", version=2)
    schema.step(1)(step)
    store.thread("chat-2", schema={"total": int, "notes": list}).commit({"total": 5, "notes": []})
    assert store.migrate(schema, threads="chat-2").failed == []


def test_ids_of_all_adapters_are_known():
    text = "\n".join(each.read_text() for each in sorted(ADAPTERS.rglob("*.py")))
    found = set(re.findall(r'(?:thread_id\(|^_?(?:PREFIX|PENDING_PREFIX) = )"([a-z-]+)"', text, re.MULTILINE))
    assert len(found) >= 10
    assert [each for each in sorted(found) if not is_foreign_id(f"{each}:x")] == []
