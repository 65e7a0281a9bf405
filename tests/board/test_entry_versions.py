"""`Board.schema`: newer code with entries of older versions, and older code with newer entries."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

import statelog
from statelog import aio, reducers, versioned
from statelog.board import reads
from statelog.errors import (
    AccessError,
    ChannelError,
    CheckError,
    CorruptionError,
    MigrationError,
    MissingMigrationError,
    ReadOnlyError,
    SchemaError,
    SchemaVersionError,
    UsageError,
    ValidationError,
)
from statelog.format import cbor
from statelog.format.fields import ENTRY_SCHEMA, WrongFieldError
from statelog.log.kinds.entries import LEASES_ID, EntryAct, EntryEvent
from statelog.portable.events import check_event
from statelog.store.session import session_of

OLD = {"notes": ["tea"]}
NEW = {"memories": ["tea"], "preferences": {}}


def research(version=3, **steps):
    name = "memories" if version > 2 else "notes"
    schema = versioned({name: list, "preferences": dict}, name="research", version=version)
    if version > 1:
        schema.step(1)(steps.get("step", lambda value: {**value, "preferences": {}}))
    if version > 2:
        schema.rename(2, "notes", "memories")
    return schema


def opened(path):
    return statelog.open(path, durability="interval")


@pytest.fixture
def old(path):
    """A store written by code without the schema."""
    with opened(path) as store:
        store.board(agent="a").set("tasks/1", OLD, priority=3, ttl_s=1000)
        store.board().set("tasks/2", OLD)
        store.board().set("other", OLD)
    return path


@pytest.fixture
def store(old):
    with opened(old) as store:
        store.board().schema("tasks/**", research())
        yield store
        assert store.verify().problems == []


def stored(path, key="tasks/1"):
    """Return the stored value and its version."""
    with opened(path) as store:
        entry = store.board().get(key)
        return entry.value, entry.schema_version


# --- reads ------------------------------------------------------------------------


def test_every_read_shows_the_declared_version(store):
    board = store.board()
    lsn = board.get("tasks/1").version
    with store.snapshot() as snapshot, store.transaction() as tx:
        for entry in (
            board.get("tasks/1"),
            board.get("tasks/1", at=lsn),
            board.list("tasks/*")[0],
            board.history("tasks/1")[0],
            snapshot.board().get("tasks/1"),
            tx.board().get("tasks/1"),
        ):
            assert (entry.value, entry.schema_version) == (NEW, 1)
    assert board.get("other").value == OLD
    claim = board.claim("tasks/*")
    assert (claim.key, claim.value) == ("tasks/1", NEW)
    assert board.claim_of(claim.key, claim.token).value == NEW
    assert board.claims()[0].value == NEW
    assert board.list("tasks/*")[0].value == NEW
    events = [event for event in board.watch("tasks/*", after=0, follow=False) if event.key == "tasks/1"]
    assert [(event.kind, event.old, event.new) for event in events] == [("set", None, NEW), ("claim", NEW, NEW)]


def test_the_most_specific_pattern_applies_and_the_last_declaration_of_a_pattern_counts(store):
    board = store.board()
    board.schema("tasks/1", versioned({"notes": list}, name="one", version=1))
    assert board.get("tasks/1").value == OLD
    assert board.get("tasks/2").value == NEW
    board.schema("tasks/1", research())
    assert board.get("tasks/1").value == NEW


def test_a_caller_may_change_a_returned_value(store):
    board = store.board()
    board.get("tasks/1").value["memories"].append("coffee")
    assert board.get("tasks/1").value == NEW


# --- writes -----------------------------------------------------------------------


@pytest.mark.parametrize("write", ["set", "cas", "update", "create", "transaction"])
def test_the_first_write_stores_the_declared_version(store, write):
    board, value = store.board(), {"memories": ["x"], "preferences": {}}
    if write == "update":
        entry = board.update("tasks/1", reducers.merge, {"memories": ["x"]})
    elif write == "cas":
        entry = board.cas("tasks/1", value, expected_version=board.get("tasks/1").version)
    elif write == "create":
        board.delete("tasks/1")
        entry = board.create("tasks/1", value)
    elif write == "transaction":
        with store.transaction() as tx:
            tx.board().set("tasks/1", value)
        entry = board.get("tasks/1")
    else:
        entry = board.set("tasks/1", value)
    assert (entry.value, entry.schema_version) == (value, 3)
    assert stored(store.path) == (value, 3)
    assert board.get("tasks/2").schema_version == 1


def test_an_update_starts_from_the_migrated_value(store):
    board = store.board()
    before = board.get("tasks/1")
    after = board.update("tasks/1", reducers.merge, {"preferences": {"a": 1}})
    assert after.value == {"memories": ["tea"], "preferences": {"a": 1}}
    assert (after.expires, after.priority, after.created) == (before.expires, 3, before.created)
    assert [entry.schema_version for entry in board.history("tasks/1")] == [3, 1]


def test_claims_and_moves_keep_the_version_of_the_value(store):
    board = store.board()
    board.update("tasks/1", reducers.merge, {})
    board.claim("tasks/1", max_attempts=1, dead="dead/").fail("no")
    assert stored(store.path, "dead/1") == (NEW, 3)
    board.set("tasks/2", NEW)
    board.claim("tasks/2").release()
    assert stored(store.path, "tasks/2") == (NEW, 3)
    board.claim("tasks/2").complete(to="done/")
    assert stored(store.path, "done/2") == (NEW, 3)
    assert board.get("done/2").value == NEW
    board.set("tasks/4", NEW)
    board.claim("tasks/4").complete("fine", to="done/")
    assert stored(store.path, "done/4") == ("fine", 1)
    claim = board.claim("other")
    with pytest.raises(UsageError):
        claim.complete("no dict", to="tasks/9/")
    claim.complete(NEW, to="tasks/9/")
    assert stored(store.path, "tasks/9/other") == (NEW, 3)


def test_a_rollback_restores_the_schema_version(store):
    board = store.board()
    lsn = store.last_lsn
    board.set("tasks/1", NEW)
    board.rollback("tasks/", to=lsn)
    assert stored(store.path) == (OLD, 1)
    board.rollback("tasks/", to=lsn + 1)
    assert stored(store.path) == (NEW, 3)


def test_a_large_value_is_migrated_and_merged(store):
    with opened(store.path) as without:
        without.board().set("tasks/1", {"notes": [f"note {number}" for number in range(3000)]})
    entry = store.board().update("tasks/1", reducers.merge, {"preferences": {"a": 1}})
    assert len(entry.value["memories"]) == 3000
    assert stored(store.path) == (entry.value, 3)


def test_log_and_index_have_the_same_schema_versions(store):
    board = store.board()
    board.set("tasks/1", NEW)
    board.claim("tasks/1").release()
    assert [record.body.get("schema") for record in store.log()][-3:] == ["research:3"] * 3
    before = board.list()
    store.rebuild_index()
    assert board.list() == before


# --- refusals ---------------------------------------------------------------------


def check_writes_nothing(store, error, *calls):
    lsn = store.last_lsn
    for call in calls:
        with pytest.raises(error) as caught:
            call()
        assert type(caught.value) is error
    assert store.last_lsn == lsn
    return caught.value


def test_code_without_the_schema_may_read_and_delete_but_not_write(store):
    store.board().set("tasks/1", NEW)
    store.board().set("tasks/2", NEW)
    with opened(store.path) as without:
        board = without.board()
        error = check_writes_nothing(
            without,
            SchemaVersionError,
            lambda: board.set("tasks/1", OLD),
            lambda: board.cas("tasks/1", OLD, expected_version=board.get("tasks/1").version),
            lambda: board.update("tasks/1", reducers.merge, {}),
        )
        assert (error.key, error.stored, error.declared) == ("tasks/1", 3, 1)
        assert board.get("tasks/1").value == NEW
        board.set("spare/2", 1)
        claim = board.claim("spare/2")
        check_writes_nothing(without, SchemaVersionError, lambda: claim.complete(1, to="tasks/"))
        assert board.delete("tasks/1")


def test_code_of_an_older_version_is_refused(store):
    store.board().set("tasks/1", NEW)
    store.flush()
    with opened(store.path) as older:
        board = older.board()
        board.schema("tasks/*", research(2))
        error = check_writes_nothing(
            older,
            SchemaVersionError,
            lambda: board.get("tasks/1"),
            lambda: board.list("tasks/*"),
            lambda: board.history("tasks/1"),
            lambda: board.claim("tasks/*"),
            lambda: board.set("tasks/1", {"notes": []}),
            lambda: board.update("tasks/1", reducers.merge, {}),
            lambda: list(board.watch("tasks/*", after=store.last_lsn - 1, follow=False)),
        )
        assert (error.key, error.stored, error.declared) == ("tasks/1", 3, 2)
        assert [entry.key for entry in board.list("tasks/*", values=False)] == ["tasks/1", "tasks/2"]


@pytest.mark.slow
def test_a_process_of_older_code_is_refused_after_another_has_migrated(old):
    code = """
import statelog, sys
from statelog.errors import SchemaVersionError
with statelog.open(sys.argv[1], durability="interval") as store:
    board = store.board()
    for line in sys.stdin:
        try:
            print(board.set("tasks/1", {"notes": [line.strip()]}).version > 0, flush=True)
        except SchemaVersionError as error:
            print(error.stored, flush=True)
"""
    command = [sys.executable, "-c", code, old]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
        opened(old) as store,
    ):

        def set_there(text):
            process.stdin.write(f"{text}\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        assert set_there("coffee") == "True"
        board = store.board()
        board.schema("tasks/**", research())
        assert board.get("tasks/1").value == {"memories": ["coffee"], "preferences": {}}
        board.update("tasks/1", reducers.merge, {})
        assert set_there("water") == "3"
        assert board.get("tasks/1").value == {"memories": ["coffee"], "preferences": {}}
        process.communicate(timeout=60)


def raising(_value):
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        (versioned({"memories": list}, name="research", version=2), MissingMigrationError),
        (research(step=raising), MigrationError),
        (research(step=lambda value: [*value]), MigrationError),
        (research(step=lambda value: {**value, "unknown": 1}), MigrationError),
        (research(step=lambda value: {**value, "preferences": 1}), MigrationError),
    ],
    ids=["gap", "raises", "no dict", "unknown field", "wrong type"],
)
def test_a_failed_migration_changes_nothing(store, schema, error):
    board = store.board()
    board.schema("tasks/**", schema)
    found = check_writes_nothing(
        store,
        error,
        lambda: board.get("tasks/1"),
        lambda: board.update("tasks/1", reducers.merge, {}),
        lambda: board.claim("tasks/1"),
    )
    assert (found.key, found.stored) == ("tasks/1", 1)
    report = board.migrate()
    assert [(each.key, each.kind) for each in report.failed] == [(f"tasks/{n}", error.__name__) for n in (1, 2)]
    assert stored(store.path) == (OLD, 1)


def test_values_must_fit_the_schema(store):
    board = store.board()
    check_writes_nothing(store, UsageError, lambda: board.set("tasks/1", [1]))
    check_writes_nothing(store, ChannelError, lambda: board.set("tasks/1", OLD))
    check_writes_nothing(
        store,
        ValidationError,
        lambda: board.set("tasks/1", {"memories": 1}),
        lambda: board.update("tasks/1", reducers.merge, {"memories": 1}),
    )
    with opened(store.path) as without:
        without.board().set("tasks/3", "a text")
    assert check_writes_nothing(store, MigrationError, lambda: board.get("tasks/3")).key == "tasks/3"


def test_a_schema_with_another_name_is_refused(store):
    board = store.board()
    board.set("tasks/1", NEW)
    board.schema("tasks/1", versioned({"a": int}, name="other", version=4))
    check_writes_nothing(store, SchemaError, lambda: board.get("tasks/1"), lambda: board.set("tasks/1", {"a": 1}))


def test_a_watch_ends_at_an_event_that_it_cannot_return(store):
    board = store.board()
    first = board.get("tasks/2").version
    board.set("tasks/1", NEW)
    board.set("tasks/2", NEW)
    board.schema("tasks/2", research(2))
    store.flush()
    watch = board.watch("tasks/*", after=first, follow=False)
    assert next(watch).key == "tasks/1"
    for _ in range(2):
        with pytest.raises(SchemaVersionError) as caught:
            next(watch)
    assert caught.value.version == board.list("tasks/*", values=False)[1].version
    assert list(board.watch("tasks/*", after=caught.value.version, follow=False)) == []


def test_arguments_are_checked(store):
    board = store.board()
    ruled = store.board(agent="a", rules=statelog.Rules({"a": {"read": ["**"], "write": ["**"]}}))
    for call in (
        lambda: board.schema("tasks/**", {"memories": list}),
        lambda: board.schema("tasks/", research()),
        lambda: board.schema("durable/**", research()),
        lambda: board.migrate("[a]"),
        lambda: board.migrate(dry_run=1),
        lambda: board.migrate(progress=1),
    ):
        with pytest.raises(UsageError):
            call()
    for call in (lambda: ruled.schema("tasks/**", research()), lambda: ruled.migrate("tasks/**")):
        with pytest.raises(AccessError):
            call()
    with store.transaction() as tx, pytest.raises(UsageError):
        tx.board().schema("tasks/**", research())


# --- migrating all ----------------------------------------------------------------


def test_migrate_changes_only_the_values(store):
    board = store.board(agent="m")
    claim = board.claim("tasks/1")
    before = board.get("tasks/1")
    report = board.migrate()
    assert (report.migrated, report.skipped, report.failed) == (2, 0, [])
    after = board.get("tasks/1")
    assert stored(store.path) == (NEW, 3)
    assert (after.created, after.expires, after.claim, after.priority, after.attempts) == (
        before.created,
        before.expires,
        before.claim,
        before.priority,
        before.attempts,
    )
    assert (after.agent, after.version > before.version) == ("m", True)
    claim.complete()
    lsn = store.last_lsn
    assert board.migrate("tasks/**").skipped == 1
    assert store.last_lsn == lsn
    assert stored(store.path, "other") == (OLD, 1)


def test_a_dry_run_of_migrate_reports_the_changes(store):
    lsn, told = store.last_lsn, []
    report = store.board().migrate(dry_run=True, progress=lambda *numbers: told.append(numbers))
    assert (store.last_lsn, told) == (lsn, [(2, 2)])
    assert report.migrated == 2
    first = report.differences[0]
    assert (first.key, first.thread, first.change.path, first.change.kind) == ("tasks/1", None, ("memories",), "added")


def test_a_dry_run_of_migrate_works_in_a_read_only_store(old):
    with statelog.open(old, read_only=True) as reads:
        reads.board().schema("tasks/**", research())
        assert reads.board().migrate(dry_run=True).migrated == 2
        with pytest.raises(ReadOnlyError):
            reads.board().migrate()


def test_steps_run_again_for_an_entry_that_was_written_during_the_migration(store):
    seen = []

    def step(value):
        seen.append(value["notes"])
        if len(seen) == 1:
            with opened(store.path) as without:
                without.board().set("tasks/1", {"notes": ["meanwhile"]})
        return {**value, "preferences": {}}

    board = store.board()
    board.schema("tasks/**", research(step=step))
    assert board.migrate("tasks/1").migrated == 1
    assert seen == [["tea"], ["meanwhile"]]
    assert stored(store.path) == ({"memories": ["meanwhile"], "preferences": {}}, 3)


def test_an_async_board_reads_refuses_and_migrates_alike(old):
    async def main():
        async with await aio.open(old, durability="interval") as store:
            board = store.board()
            begin = (await board.get("tasks/1")).version
            await board.schema("tasks/**", research())
            assert (await board.get("tasks/1")).value == NEW
            assert (await board.migrate("tasks/1")).migrated == 1
            events = [event async for event in board.watch("tasks/*", after=begin, follow=True, timeout_s=0.2)]
            assert [(event.key, event.new) for event in events] == [("tasks/2", NEW), ("tasks/1", NEW)]
            await board.schema("tasks/**", research(2))
            with pytest.raises(SchemaVersionError):
                await board.claim("tasks/*")
            with pytest.raises(SchemaVersionError):
                async for _event in board.watch("tasks/*", after=begin, timeout_s=0.2):
                    pass

    asyncio.run(main())


# --- the record -------------------------------------------------------------------


@pytest.mark.parametrize(("act", "key"), [(EntryAct.DELETE, "tasks/1"), (EntryAct.CLAIM, "/name")])
def test_a_record_with_a_version_and_no_value_is_refused(store, act, key):
    with session_of(store).read() as view:
        board, leases = reads.board_of(view), view.thread_lsn(LEASES_ID)
        owner = board if key[0] != "/" else leases or board
        claim = [0, b"clockclo", 1, 1, 1] if key[0] == "/" else None
        event = EntryEvent(owner, act, key, None, 2, 0, 0, None, 0, 0, None, claim, None, [], ["research", 3])
        lsn = view.transaction.last_lsn() + 1
        with pytest.raises(CorruptionError):
            check_event(view, event, lsn, {})


@pytest.mark.parametrize("schema", [["research"], ["research", 1], [1, 3], ["", 3], ["research", 3, 3], "research:3"])
def test_a_field_that_is_not_a_schema_version_is_refused(schema):
    with pytest.raises((WrongFieldError, ValueError)):
        ENTRY_SCHEMA(cbor.encode(schema))


# --- with a guard -----------------------------------------------------------------


def test_migrated_values_pass_the_guard(old):
    pytest.importorskip("re2")
    from statelog.guard import Guard, allow, refuse

    def check(value, _where):
        return refuse("odd") if "made" in str(value) else allow()

    with statelog.open(old, durability="interval", guard=Guard(on_write=[check])) as store:
        board = store.board()
        board.schema("tasks/**", research(step=lambda value: {**value, "preferences": {"made": 1}}))
        assert board.get("tasks/1").value["preferences"] == {"made": 1}
        check_writes_nothing(store, CheckError, lambda: board.update("tasks/1", reducers.merge, {}))
        assert [each.kind for each in board.migrate().failed] == ["CheckError"] * 2
        assert board.get("tasks/1").schema_version == 1


def test_checks_of_reads_see_the_migrated_value(old):
    pytest.importorskip("re2")
    from statelog.guard import Guard, allow, redact

    seen = []

    def check(value, where):
        if where.act == "write" or "tea" not in str(value):
            return allow()
        seen.append(str((where.path, value)))
        return redact("hidden")

    with statelog.open(old, durability="interval", guard=Guard(on_read=[check])) as store:
        board = store.board()
        board.schema("tasks/**", research())
        assert "tea" not in str(board.get("tasks/1").value)
        assert seen
        assert "notes" not in str(seen)
        assert "tea" not in str(board.migrate(dry_run=True).differences)
