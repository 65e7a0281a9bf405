"""`store.migrate`: many threads, concurrent writers, and unchanged data."""

from __future__ import annotations

import asyncio
import threading
from enum import Enum

import pytest

import statelog
from statelog import aio, reducers, versioned
from statelog.errors import ReadOnlyError, SchemaVersionError, StoreFullError, UsageError
from statelog.store import migrations

FIRST = {"notes": reducers.append, "count": int}


def second(step=None):
    schema = versioned({"memories": reducers.append, "count": int}, name="chat", version=2)
    if step is None:
        schema.rename(1, "notes", "memories")
    else:
        schema.step(1)(step)
    return schema


@pytest.fixture
def store(path):
    with statelog.open(path, durability="interval") as opened:
        with opened.transaction() as tx:
            for number in range(100):
                tx.thread(f"chat-{number}", schema=FIRST).commit({"notes": f"note {number}", "count": number})
            tx.thread("job").commit({"x": 1})
        yield opened
        assert opened.closed or opened.verify().ok


def heads(store):
    return {info.id: store.thread(info.id).head for info in store.threads()}


@pytest.mark.slow
def test_all_heads_have_the_declared_version(store):
    report = store.migrate(second(), threads="chat-*")
    assert (report.migrated, report.skipped, report.failed) == (100, 0, [])
    found = heads(store)
    assert found.pop("job").stored == {"x": 1}
    for number, head in enumerate(found.values()):
        assert (head.version, head.schema_version) == (1, 2)
        assert head.stored == {"memories": [f"note {number}"], "count": number}


@pytest.mark.slow
def test_migrated_threads_are_skipped(store):
    store.migrate(second(), threads="chat-1*")
    before = store.last_lsn
    report = store.migrate(second(), threads="chat-*")
    assert (report.migrated, report.skipped) == (89, 11)
    assert store.migrate(second(), threads="chat-*").skipped == 100
    assert store.last_lsn == before + 2 * 89


@pytest.mark.slow
def test_all_branches_of_a_thread_are_migrated_together(store):
    thread = store.thread("chat-0", schema=FIRST)
    thread.commit({"notes": "more"})
    thread.fork("early", at=0)
    thread.fork("own", at=0, update={"notes": "own"})
    assert store.migrate(second(), threads="chat-0").migrated == 1
    schema = second()
    for branch, memories in {"main": 2, "early": 1, "own": 2}.items():
        head = store.thread("chat-0", schema=schema, branch=branch).head
        assert (head.schema_version, len(head.stored["memories"])) == (2, memories)
    assert len({record.continues for record in list(store.log())[-4:]}) == 2  # One transaction.


@pytest.mark.slow
def test_a_failed_thread_is_named_and_the_others_are_migrated(store):
    def step(state):
        if state["count"] in (3, 70):
            raise KeyError(state["count"])
        return {"memories": state["notes"], "count": state["count"]}

    report = store.migrate(second(step), threads="*")
    assert (report.migrated, report.skipped) == (98, 0)
    assert [(each.thread, each.kind) for each in report.failed] == [
        ("chat-3", "MigrationError"),
        ("chat-70", "MigrationError"),
        ("job", "MigrationError"),
    ]
    assert "KeyError: 70" in report.failed[1].reason
    assert store.thread("chat-3").head.version == 0


@pytest.mark.slow
def test_threads_of_other_schemas_and_newer_versions_fail_and_are_unchanged(store):
    other = versioned(FIRST, name="other", version=1)
    store.thread("chat-5", schema=other).commit({"count": 0})
    newer = versioned({"memories": reducers.append, "count": int}, name="chat", version=3)
    newer.rename(1, "notes", "memories")
    newer.rename(2, "nothing", "something")
    store.thread("chat-6", schema=newer).commit({"count": 0})
    report = store.migrate(second(), threads="chat-?")
    assert report.migrated == 8
    assert [(each.thread, each.kind) for each in report.failed] == [
        ("chat-5", "SchemaError"),
        ("chat-6", SchemaVersionError.__name__),
    ]


def test_a_guard_refuses_only_one_thread_of_a_group(path):
    pytest.importorskip("re2")
    from statelog.guard import Guard, allow, refuse

    def check(value, where):
        return refuse("odd") if "refused" in str(value) and where.path.startswith("memories") else allow()

    with statelog.open(path, guard=Guard(on_write=[check])) as store:
        for number in range(5):
            store.thread(f"chat-{number}", schema=FIRST).commit({"notes": "refuse" if number == 2 else "fine"})

        def step(state):
            return {"memories": [f"{each}d" for each in state["notes"]]}

        report = store.migrate(second(step), threads="chat-*")
        assert report.migrated == 4
        assert [(each.thread, each.kind) for each in report.failed] == [("chat-2", "CheckError")]
        assert store.thread("chat-2").head.version == 0


@pytest.mark.slow
def test_dry_run_writes_nothing_and_shows_the_first_differences(store):
    before = store.last_lsn
    report = store.migrate(second(), threads="chat-*", dry_run=True)
    assert store.last_lsn == before
    assert report.migrated == 100
    assert len(report.differences) == migrations.DIFFERENCES_MAX
    first = report.differences[0]
    assert (first.thread, first.branch, first.change.path, first.change.kind) == (
        "chat-0",
        "main",
        ("notes",),
        "removed",
    )


def test_dry_run_works_on_a_read_only_store(store, path):
    store.close()
    with statelog.open(path, read_only=True) as opened:
        assert opened.migrate(second(), threads="chat-1", dry_run=True).migrated == 1
        with pytest.raises(ReadOnlyError):
            opened.migrate(second(), threads="chat-1")


@pytest.mark.slow
def test_progress_goes_up_to_all_threads(store):
    told = []
    store.migrate(second(), threads="chat-*", progress=lambda done, whole: told.append((done, whole)))
    assert told == sorted(set(told))
    assert told[-1] == (100, 100)
    assert {whole for _done, whole in told} == {100}


@pytest.mark.slow
def test_concurrent_writers_lose_no_commit(store):
    older, schema = versioned(FIRST, name="chat", version=1), second()
    threads = [store.thread(f"chat-{number}", schema=older) for number in range(100)]
    is_over, written, refused = threading.Event(), [0] * 100, set()

    def write():
        while not is_over.is_set() and len(refused) < 100:
            for number, thread in enumerate(threads):
                try:
                    thread.commit({"notes": "beside"})
                    written[number] += 1
                except SchemaVersionError:
                    refused.add(number)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        report = store.migrate(schema, threads="chat-*")
    finally:
        is_over.set()
        writer.join()
    assert (report.migrated, report.failed) == (100, [])
    for number in range(100):
        state = store.thread(f"chat-{number}", schema=schema).head.stored
        assert state["memories"] == [f"note {number}", *["beside"] * written[number]]


def test_a_thread_migrated_by_another_process_in_the_meantime_is_skipped(store, monkeypatch):
    schema = second()
    prepare = migrations._Migration._commit

    def commit_later(self, group):
        store.thread("chat-7", schema=second()).commit({"count": 70})
        return prepare(self, group)

    monkeypatch.setattr(migrations._Migration, "_commit", commit_later)
    report = store.migrate(schema, threads="chat-7")
    assert (report.migrated, report.skipped) == (0, 1)
    assert store.thread("chat-7").head.version == 1


@pytest.mark.slow
def test_threads_migrated_before_the_store_is_full_stay_migrated(tmp_path):
    with statelog.open(tmp_path / "full.state", durability="interval", max_size_bytes=2 << 20) as store:
        for number in range(40):
            store.thread(f"chat-{number}", schema=FIRST).commit({"count": number})

        def step(state):
            return {"count": state["count"], "memories": [f"{state['count']} {at} " * 40 for at in range(300)]}

        with pytest.raises(StoreFullError):
            store.migrate(second(step), threads="*")
        done = [each.schema_version for each in heads(store).values()]
        assert 0 < done.count(2) < 40
        assert store.verify().ok


@pytest.mark.parametrize("wrong", [{"schema": FIRST}, {"threads": ""}, {"dry_run": 1}, {"progress": 3}])
def test_arguments_are_checked(store, wrong):
    before = store.last_lsn
    schema = wrong.pop("schema", None) or second()
    with pytest.raises(UsageError):
        store.migrate(schema, **wrong)
    assert store.last_lsn == before


@pytest.mark.slow
def test_asyncio_can_migrate(store, path):
    store.close()

    async def migrate():
        async with aio.open(path) as opened:
            return await opened.migrate(second(), threads="chat-*")

    assert asyncio.run(migrate()).migrated == 100
    with statelog.open(path) as opened:
        assert opened.thread("chat-9").head.schema_version == 2
        assert opened.verify().ok


class Mood(Enum):
    GLAD = "glad"


@pytest.mark.parametrize(("declared", "value"), [(int, "no number"), (Mood, "sad"), (list[int], ["a"])])
def test_a_value_that_does_not_fit_its_type_fails_and_is_not_stamped(path, declared, value):
    schema = versioned({"x": declared}, name="types", version=2)
    schema.step(1)(lambda state: {**state})
    with statelog.open(path) as store:
        store.thread("bad").commit({"x": value})
        report = store.migrate(schema)
        assert [(each.thread, each.kind) for each in report.failed] == [("bad", "MigrationError")]
        assert store.thread("bad").head.schema_version == 1
