"""Versioned schemas: code of one version with states of another."""

from __future__ import annotations

import asyncio
import copy
import subprocess
import sys
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pydantic
import pytest

import statelog
from statelog import aio, reducers, versioned
from statelog.errors import (
    MigrationError,
    MissingMigrationError,
    SchemaError,
    SchemaVersionError,
    UsageError,
    ValidationError,
)
from statelog.testing import observe


class First(TypedDict, total=False):
    notes: Annotated[list[str], reducers.append]
    count: int


class Third(TypedDict, total=False):
    memories: Annotated[list[str], reducers.append]
    preferences: dict[str, Any]
    count: int


def third(cls: Any = Third, **changed: Any) -> Any:
    """Return version 3 of a schema with both of its steps."""
    schema = versioned(cls, name="research", version=3)
    if "step" not in changed:
        schema.step(1)(lambda state: {**state, "preferences": {}})
    else:
        schema.step(1)(changed["step"])
    schema.rename(2, "notes", "memories")
    return schema


AS_FIRST = {"notes": ["a", "b"], "count": 2}
AS_THIRD = {"memories": ["a", "b"], "preferences": {}, "count": 2}


@pytest.fixture
def store(path):
    with statelog.open(path) as opened:
        first = opened.thread("t", schema=First)
        first.commit({"notes": "a", "count": 1})
        first.commit({"notes": "b", "count": 2})
        yield opened
        assert opened.verify().ok


@pytest.fixture
def thread(store):
    return store.thread("t", schema=third())


def test_old_state_is_read_as_the_declared_version(thread):
    assert thread.state == AS_THIRD
    assert thread.at(0).state == {"memories": ["a"], "preferences": {}, "count": 1}
    assert [each.state["count"] for each in thread.history()] == [2, 1]


def test_a_thread_without_the_schema_shows_the_stored_state(thread):
    assert thread.at(-1).stored == AS_FIRST
    assert thread.at(-1).schema_version == 1


def test_reading_writes_nothing(store, thread):
    before = store.last_lsn
    assert thread.state["memories"]
    assert store.last_lsn == before


def test_first_commit_writes_the_declared_version(thread):
    made = thread.commit({"memories": "c"}, metadata={"step": 7})
    assert made.stored == {**AS_THIRD, "memories": ["a", "b", "c"]}
    assert (made.schema_version, made.metadata) == (3, {"step": 7})
    assert thread.at(1).stored == AS_FIRST
    assert (made.version, len(list(thread.history()))) == (2, 3)


def test_later_commits_keep_the_version_without_a_migration(thread):
    thread.commit({"count": 3})
    made = thread.commit({"count": 4})
    assert (made.schema_version, made.channels_written) == (3, ("count",))


def test_reducers_of_the_new_version_apply_to_the_migrated_value(path):
    with statelog.open(path) as store:
        store.thread("t", schema={"tags": reducers.union}).commit({"tags": {"a"}})
        schema = versioned({"tags": reducers.extend}, name="tagged", version=2)
        schema.step(1)(lambda state: {**state, "tags": sorted(state["tags"])})
        thread = store.thread("t", schema=schema)
        thread.commit({"tags": ["b"]})
        assert thread.state == {"tags": ["a", "b"]}
        thread = store.thread("t", schema=schema)
        thread.commit({"tags": ["c"]})
        assert thread.state == {"tags": ["a", "b", "c"]}


def test_a_list_is_keyed_by_the_reducer_of_the_new_version(path):
    with statelog.open(path) as store:
        items = [{"id": str(number), "text": "x" * 40} for number in range(200)]
        store.thread("t").commit({"items": items})
        schema = versioned({"items": reducers.upsert("id")}, name="items", version=2)
        schema.step(1)(lambda state: {"items": [{**each, "n": 1} for each in state["items"]]})
        thread = store.thread("t", schema=schema)
        thread.commit({"items": [{"id": "5", "text": "new"}]})
        assert len(thread.state["items"]) == len(items)
        assert thread.state["items"][5] == {"id": "5", "text": "new"}
        assert store.verify().ok


@pytest.mark.parametrize(
    ("reducer", "write"), [("append", {"id": "x"}), ("extend", [{"id": "x"}]), ("add", [{"id": "x"}])]
)
def test_a_list_loses_its_key_with_the_reducer_that_needs_it(path, reducer, write):
    with statelog.open(path) as store:
        items = [{"id": str(number), "text": "x" * 40} for number in range(200)]
        store.thread("t", schema={"items": reducers.upsert("id")}).commit({"items": items})
        schema = versioned({"items": getattr(reducers, reducer)}, name="items", version=2)
        schema.step(1)(lambda state: state)
        thread = store.thread("t", schema=schema)
        thread.commit({"items": write})
        thread.commit({"items": write})
        assert thread.state["items"] == [*items, {"id": "x"}, {"id": "x"}]
        assert store.verify().ok


def test_steps_see_the_same_as_readers_and_hidden_values_stay_hidden(path):
    pytest.importorskip("re2")
    from statelog.guard import Guard, allow, quarantine

    def hush(value, _where):
        return quarantine("hush") if "secret" in str(value) else allow()

    with statelog.open(path) as store:
        store.thread("t").commit({"text": "a secret", "texts": ["x", "a secret"], "n": 1})
    schema = versioned({"text": str, "copied": str, "texts": list, "n": int}, name="texts", version=2)
    seen = []

    @schema.step(1)
    def copy_text(state):
        seen.append(f"{state['text']!r} {state['texts'].to_python()!r}")
        return {**state, "copied": state["text"], "n": 2}

    with statelog.open(path, guard=Guard(on_read=[hush])) as store:
        thread = store.thread("t", schema=schema)
        thread.commit({"n": 3})
        assert "secret" not in f"{seen} {dict(thread.state)!r}"
        whole = store.thread("t", schema=schema, include_quarantined=True).state
        assert (whole["text"], whole["copied"], whole["texts"]) == ("a secret", "a secret", ["x", "a secret"])


def test_a_quarantined_value_of_a_newer_version_can_be_released(path):
    pytest.importorskip("re2")
    from statelog.guard import Guard, allow, quarantine

    def hush(value, _where):
        return quarantine("hush") if value == "odd" else allow()

    schema = versioned({"text": str}, name="texts", version=2)
    with statelog.open(path, guard=Guard(on_write=[hush])) as store:
        thread = store.thread("t", schema=schema)
        thread.commit({"text": "odd"})
        store.release(store.quarantined()[0])
        assert (thread.state["text"], thread.head.schema_version) == ("odd", 2)


def test_mount_and_edit_work_on_the_migrated_state(store, thread):
    with thread.mount() as state:
        state["preferences"]["tea"] = True
    assert thread.head.stored == {**AS_THIRD, "preferences": {"tea": True}}
    thread.rollback(1)
    thread.edit(lambda state: state["memories"].append("c"))
    assert thread.head.stored == {**AS_THIRD, "memories": ["a", "b", "c"]}
    thread.rollback(0)
    thread.edit(lambda state: state["memories"].append("c"), lazy=True)
    assert store.thread("t").state["memories"] == ["a", "c"]


def test_a_lazy_mount_changes_a_large_value_made_by_a_step(path):
    with statelog.open(path) as store:
        store.thread("t").commit({"texts": ["a" * 100] * 500})
        schema = versioned({"texts": list}, name="texts", version=2)
        schema.step(1)(lambda state: {"texts": [each.upper() for each in state["texts"]]})
        thread = store.thread("t", schema=schema)
        with thread.mount(lazy=True) as state:
            state["texts"].append("b")
        assert thread.head.stored["texts"] == ["A" * 100] * 500 + ["b"]
        assert store.verify().ok


def test_diff_shows_no_migration(thread):
    thread.commit({"memories": "c"})
    assert [each.path for each in statelog.diff(thread.at(1), thread.at(2))] == [("memories", 2)]


def test_rollback_restores_the_stored_version(thread):
    thread.commit({"count": 3})
    back = thread.rollback(0)
    assert (back.schema_version, back.stored) == (1, {"notes": ["a"], "count": 1})
    assert back.state == {"memories": ["a"], "preferences": {}, "count": 1}
    again = thread.rollback(2)
    assert (again.schema_version, again.state["count"]) == (3, 3)


def test_fork_of_an_old_version_continues_as_the_declared_version(thread):
    thread.commit({"count": 3})
    fork = thread.fork("what-if", at=0, update={"memories": "z"})
    assert (fork.head.schema_version, fork.head.stored["memories"]) == (3, ["a", "z"])
    later = thread.fork("later", at=1)
    assert (later.head.schema_version, later.state) == (1, AS_THIRD)


def test_copies_exports_and_retention_keep_versions(store, thread, path):
    thread.commit({"count": 3})
    thread.commit({"count": 4})
    copied = store.copy_thread("t", "u")
    assert [each.schema_version for each in copied.history()] == [3, 3, 1, 1]
    assert store.thread("u", schema=third()).state == {**AS_THIRD, "count": 4}
    for threads in (None, ["t"]):
        exported = path.with_name(f"exported-{threads}")
        with exported.open("wb") as target:
            store.export(target, threads=threads)
        with statelog.open(path.with_name(f"imported-{threads}")) as imported, exported.open("rb") as source:
            imported.import_(source)
            observed = observe(imported, lsns=False)["threads"][0]
            assert observed == observe(store, lsns=False)["threads"][0]
            assert observed["schema"] == "research:3"
            assert imported.thread("t", schema=third()).at(0).state["memories"] == ["a"]
    store.prune(keep_last=1)
    store.compact()
    assert store.thread("t", schema=third()).head.schema_version == 3
    store.rebuild_index()
    assert store.thread("t", schema=third()).state == {**AS_THIRD, "count": 4}


def test_transaction_migrates_and_an_abort_changes_nothing(store, thread):
    before = store.last_lsn

    def commit_both():
        with store.transaction() as tx:
            tx.thread("u", schema=third()).commit({"count": 3})
            tx.thread("t", schema=versioned(Third, name="research", version=2)).commit({"count": 3})

    with pytest.raises(MissingMigrationError):
        commit_both()
    assert store.last_lsn == before
    with store.transaction() as tx:
        inside = tx.thread("t", schema=third())
        inside.commit({"memories": "c"})
        inside.commit({"memories": "d"})
        assert inside.state["memories"] == ["a", "b", "c", "d"]
    assert thread.head.stored == {**AS_THIRD, "memories": ["a", "b", "c", "d"]}


def test_snapshot_shows_the_declared_version(store):
    with store.snapshot() as snapshot:
        assert snapshot.thread("t", schema=third()).state == AS_THIRD


@pytest.mark.usefixtures("store")
def test_asyncio_shows_the_same_versions(path):
    async def look():
        async with aio.open(path) as opened:
            thread = opened.thread("t", schema=third())
            assert await thread.state["memories"] == ["a", "b"]
            assert await thread.stored_of(await thread.at(0))["notes"] == ["a"]
            await thread.commit({"count": 3})
            return (await thread.head()).schema_version

    assert asyncio.run(look()) == 3


# --- renames read no value ------------------------------------------------------------


def log_size_bytes(store):
    return sum(record.size_bytes for record in store.log())


def test_a_rename_writes_nothing_of_the_value(path):
    with statelog.open(path) as store:
        store.thread("t").commit({"texts": [f"{number} " + "x" * 200 for number in range(2000)], "n": 0})
        schema = versioned({"pages": list, "n": int}, name="pages", version=2)
        schema.rename(1, "texts", "pages")
        before = log_size_bytes(store)
        store.thread("t", schema=schema).commit({"n": 1})
        assert log_size_bytes(store) - before < 1500
        assert store.thread("t", schema=schema).state["pages"][1999].startswith("1999 ")


def test_a_view_that_a_step_passes_on_is_not_written_again(path):
    with statelog.open(path) as store:
        store.thread("t").commit({"texts": [f"{number} " + "x" * 200 for number in range(2000)], "n": 0})
        schema = versioned({"pages": list, "n": int}, name="pages", version=2)
        schema.step(1)(lambda state: {"pages": state["texts"], "n": state["n"] + 1})
        before = log_size_bytes(store)
        store.thread("t", schema=schema).commit({"n": 5})
        assert log_size_bytes(store) - before < 1500


def test_each_step_runs_once_for_a_state(store):
    calls = []
    schema = third(step=lambda state: calls.append(1) or {**state, "preferences": {}})
    for _ in range(3):
        assert store.thread("t", schema=schema).at(0).state["preferences"] == {}
    with store.snapshot() as snapshot:
        assert snapshot.thread("t", schema=schema).at(0).state["preferences"] == {}
    assert calls == [1]


# --- arguments and results of steps ------------------------------------------------------


def test_a_step_may_change_its_argument(store):
    def change(state):
        state["preferences"] = {"n": state["count"]}
        del state["count"]
        return state

    thread = store.thread("t", schema=third(step=change))
    assert thread.state == {"memories": ["a", "b"], "preferences": {"n": 2}}
    assert thread.at(-1).stored == AS_FIRST
    assert thread.state == {"memories": ["a", "b"], "preferences": {"n": 2}}


def test_a_step_can_change_a_set_in_place(path):
    with statelog.open(path) as store:
        store.thread("t").commit({"tags": {"a"}})
        schema = versioned({"tags": set}, name="tagged", version=2)

        @schema.step(1)
        def change(state):
            state["tags"].add("b")
            return state

        assert store.thread("t", schema=schema).state == {"tags": {"a", "b"}}
        assert store.thread("t").state == {"tags": {"a"}}


@dataclass
class User:
    name: str
    age: int = 0


class Profile(pydantic.BaseModel):
    user: User
    tags: list[str] = []


@pytest.mark.parametrize("kind", ["model", "dataclass", "dict"])
def test_a_step_gets_classes_in_stored_form_and_readers_get_declared_types(path, kind):
    @dataclass
    class Plain:
        user: User
        tags: list[str]

    declared = {"model": Profile, "dataclass": Plain, "dict": {"user": User, "tags": list[str]}}[kind]
    with statelog.open(path) as store:
        store.thread("t").commit({"user": {"name": "Ada"}, "tags": ["x"]})
        seen = []
        schema = versioned(declared, name="profile", version=2)

        @schema.step(1)
        def grow(state):
            seen.append(state["user"]["name"])
            return {**state, "user": User(state["user"]["name"], 36)}

        thread = store.thread("t", schema=schema)
        assert thread.state["user"] == User("Ada", 36)
        thread.commit({"tags": ["y"]})
        assert thread.head.stored == {"user": {"name": "Ada", "age": 36}, "tags": ["y"]}
        assert seen == ["Ada"]


def test_added_value_is_checked_and_copied(store):
    value: dict[str, Any] = {"a": []}
    schema = versioned(Third, name="research", version=3)
    schema.rename(1, "notes", "memories")
    schema.add(2, "preferences", value)
    value["a"].append("later")
    thread = store.thread("t", schema=schema)
    assert thread.state["preferences"] == {"a": []}
    with pytest.raises(ValidationError):
        versioned(Third, name="research", version=2).add(1, "count", "two")


def test_add_keeps_an_existing_channel(store):
    schema = third()
    schema.add(2, "count", 0)
    assert store.thread("t", schema=schema).state["count"] == 2


def test_drop_removes_a_channel_and_history_keeps_it(store):
    class Fourth(TypedDict, total=False):
        memories: list[str]

    schema = versioned(Fourth, name="research", version=2)
    schema.rename(1, "notes", "memories")
    schema.drop(1, "count")
    thread = store.thread("t", schema=schema)
    thread.commit({"memories": []})
    assert thread.head.stored == {"memories": []}
    assert thread.at(1).stored["count"] == 2


def test_channels_of_the_library_are_kept(store):
    store.thread("t", schema=First).commit({"statelog:run": {"id": "r"}})
    seen = []
    thread = store.thread("t", schema=third(step=lambda state: seen.append([*state]) or {**state, "preferences": {}}))
    thread.commit({"count": 9})
    assert seen == [["count", "notes"]]
    assert thread.state["statelog:run"] == {"id": "r"}


def test_a_plain_state_is_upgraded_by_the_same_steps():
    given = {"notes": ["a"], "count": 1}
    before = copy.deepcopy(given)
    assert third().upgraded(given, 1) == {"memories": ["a"], "preferences": {}, "count": 1}
    assert given == before
    with pytest.raises(SchemaVersionError):
        third().upgraded({}, 4)


# --- refusals ---------------------------------------------------------------------------


def unchanged(store, thread_id="t"):
    return store.last_lsn, store.thread(thread_id).head.stored.to_python()


def test_a_missing_step_is_named_and_changes_nothing(store):
    schema = versioned(Third, name="research", version=3)
    schema.rename(1, "notes", "memories")
    before = unchanged(store)
    thread = store.thread("t", schema=schema)
    for act in (lambda: thread.state, lambda: thread.commit({"count": 3}), lambda: thread.edit(dict)):
        with pytest.raises(MissingMigrationError) as caught:
            act()
        assert (caught.value.stored, caught.value.declared, caught.value.missing) == (1, 3, 2)
    assert unchanged(store) == before


def fails(_state):
    raise KeyError("nobody")


async def waits(state):
    return state


BROKEN = {
    "raises": fails,
    "returns no dict": lambda _state: None,
    "is async": waits,
    "returns another key": lambda _state: {1: 2},
    "returns a channel of the library's own": lambda state: {**state, "statelog:run": 1},
    "returns what cannot be stored": lambda state: {**state, "preferences": {"a": object()}},
    "returns another type": lambda state: {**state, "count": "two"},
    "returns an unknown channel": lambda state: {**state, "colour": "red"},
    "makes a rename ambiguous": lambda state: {**state, "memories": []},
}


@pytest.mark.parametrize("step", BROKEN.values(), ids=list(BROKEN))
def test_a_broken_step_is_named_and_changes_nothing(store, step):
    before = unchanged(store)
    thread = store.thread("t", schema=third(step=step))
    for act in (
        lambda: thread.state,
        lambda: thread.commit({"count": 3}),
        lambda: thread.edit(lambda state: state.update(count=3)),
        lambda: thread.fork("f", update={"count": 3}),
    ):
        with pytest.raises(MigrationError) as caught:
            act()
        assert (caught.value.schema, caught.value.stored, caught.value.declared) == ("research", 1, 3)
    assert unchanged(store) == before
    assert store.thread("t", schema=First).commit({"notes": "c"}).version == 2


def test_a_forgotten_rename_is_an_error_and_does_not_read_empty(store):
    schema = versioned(Third, name="research", version=2)
    schema.add(1, "preferences", {})
    with pytest.raises(MigrationError, match="'notes'") as caught:
        store.thread("t", schema=schema).state.get("memories", [])
    assert caught.value.channel == "notes"


def test_without_a_version_a_channel_that_the_schema_lacks_is_shown_under_its_stored_name(store):
    # Documented in VERSIONS.md: the schema may declare a part of the channels.
    class Renamed(TypedDict, total=False):
        memories: Annotated[list[str], reducers.append]

    assert store.thread("t", schema=Renamed).state == AS_FIRST


def test_without_a_version_another_reducer_is_an_error(store):
    with pytest.raises(SchemaError, match="notes: -append \\+extend"):
        store.thread("t", schema={"notes": reducers.extend, "count": int})


def test_a_changed_reducer_needs_a_new_version(store, thread):
    thread.commit({"count": 3})
    changed = versioned({"memories": reducers.extend, "preferences": dict, "count": int}, name="research", version=3)
    with pytest.raises(SchemaError, match="need a version other than 3"):
        store.thread("t", schema=changed)


def test_older_code_is_refused_on_read_and_write(store, thread):
    older = versioned(First, name="research", version=1)
    openers = {
        "an older version": lambda: store.thread("t", schema=older),
        "no version": lambda: store.thread("t", schema=First),
    }
    opened = {name: make() for name, make in openers.items()}
    thread.commit({"count": 3})
    before = unchanged(store)
    for name, make in openers.items():
        for each in (opened[name], make()):
            for act in (
                lambda each=each: each.state,
                lambda each=each: each.commit({"notes": "x"}),
                lambda each=each: each.edit(lambda state: state.update(count=1)),
                lambda each=each: each.mount().__enter__(),
                lambda each=each: each.fork("f", update={"notes": "x"}),
            ):
                with pytest.raises(SchemaVersionError) as caught:
                    act()
                assert (caught.value.stored, caught.value.declared, caught.value.thread) == (3, 1, "t")
            assert each.at(1).state == AS_FIRST
    assert unchanged(store) == before


def test_code_without_a_schema_reads_stored_values_and_cannot_write_users_channels(store, thread):
    thread.commit({"count": 3})
    plain = store.thread("t")
    assert plain.state == {**AS_THIRD, "count": 3}
    before = unchanged(store)
    for act in (
        lambda: plain.commit({"notes": "lost"}),
        lambda: plain.commit({"count": reducers.DROP}),
        lambda: plain.edit(lambda state: state.update(count=1)),
    ):
        with pytest.raises(SchemaVersionError):
            act()
    assert unchanged(store) == before
    assert plain.commit({"statelog:run": 1}, metadata={"a": 1}).schema_version == 3


OLDER = """
import statelog, sys
from statelog import versioned
with statelog.open(sys.argv[1]) as store:
    older = versioned({"notes": statelog.reducers.append, "count": int}, name="research", version=1)
    thread = store.thread("t", schema=older)
    thread.commit({"count": 10})
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        thread.commit({"count": 11})
    except statelog.errors.SchemaVersionError as error:
        print("refused", error.stored, error.declared, flush=True)
"""


@pytest.mark.slow
def test_a_process_of_an_older_version_is_refused_once_another_has_migrated(store, path):
    with subprocess.Popen(
        [sys.executable, "-c", OLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as older:
        assert older.stdout.readline() == "ready\n"
        thread = store.thread("t", schema=third())
        thread.commit({"memories": "c"})
        older.stdin.write("\n")
        older.stdin.flush()
        assert older.stdout.readline() == "refused 3 1\n"
    assert thread.state == {"memories": ["a", "b", "c"], "preferences": {}, "count": 10}


def test_a_commit_migrates_a_state_that_an_older_process_has_just_written(store):
    older = store.thread("t", schema=versioned(First, name="research", version=1))
    thread = store.thread("t", schema=third())
    assert thread.state == AS_THIRD
    older.commit({"notes": "c"})
    thread.commit({"memories": "d"})
    assert thread.head.stored["memories"] == ["a", "b", "c", "d"]


def test_a_different_schema_name_is_refused(store, thread):
    thread.commit({"count": 3})
    other = versioned(Third, name="other", version=3)
    with pytest.raises(SchemaError, match=r"'research'.*'other'"):
        store.thread("t", schema=other)


def test_a_different_schema_name_is_refused_at_the_commit(store):
    other = store.thread("t", schema=versioned(Third, name="other", version=3))
    store.thread("t", schema=third()).commit({"count": 3})
    before = unchanged(store)
    with pytest.raises(SchemaError, match=r"'research'.*'other'"):
        other.commit({"count": 4})
    assert unchanged(store) == before


def test_a_step_is_registered_once():
    schema = third()
    for act in (
        lambda: schema.step(1)(dict),
        lambda: schema.rename(1, "a", "b"),
        lambda: schema.step(2)(dict),
        lambda: schema.rename(2, "memories", "x"),
        lambda: schema.drop(2, "notes"),
    ):
        with pytest.raises(UsageError, match="is already registered"):
            act()
    schema.drop(2, "another")


@pytest.mark.parametrize("version", [0, -1, True, "1", 1.0, None, 10**9])
def test_versions_are_ints_from_1(version):
    with pytest.raises(UsageError):
        versioned(First, name="research", version=version)
    with pytest.raises(UsageError):
        third().rename(version, "a", "b")


def test_steps_lead_to_declared_versions():
    with pytest.raises(UsageError, match="leads beyond the declared version, 3"):
        third().step(3)


@pytest.mark.parametrize("name", ["", "x" * 201, None, 3])
def test_names_must_be_non_empty_strings(name):
    with pytest.raises((UsageError, statelog.LimitError)):
        versioned(First, name=name, version=1)


def test_a_versioned_schema_cannot_be_versioned_again():
    with pytest.raises(UsageError):
        versioned(third(), name="again", version=1)
    with pytest.raises(SchemaError):
        versioned(3, name="again", version=1)
    with pytest.raises(UsageError):
        versioned(None, name="again", version=1)


def test_own_channels_cannot_be_named():
    with pytest.raises(UsageError):
        third().drop(2, "statelog:steps")


def test_metadata_cannot_name_a_version(store):
    with pytest.raises(UsageError, match="statelog:schema"):
        store.thread("t", schema=First).commit({"count": 1}, metadata={"statelog:schema": 3})


def test_text_in_metadata_is_not_read_as_a_version(store):
    made = store.thread("t", schema=First).commit({"count": 1}, metadata={"said": "statelog:schema"})
    assert made.schema_version == 1
    assert made.metadata == {"said": "statelog:schema"}


def test_metadata_that_leaves_no_room_for_the_version_is_refused(store, thread):
    before = unchanged(store)
    with pytest.raises(statelog.LimitError):
        thread.commit({"count": 3}, metadata={"text": "x" * (65_536 - 12)})
    assert unchanged(store) == before


@pytest.mark.parametrize("items", [1, 2000])
def test_a_step_may_change_lists_and_dicts_in_place_at_any_depth(path, items):
    schema = versioned({"messages": list, "conf": dict, "kept": list}, name="chat", version=2)

    @schema.step(1)
    def change(state):
        for message in state["messages"]:
            message["role"] = message.pop("sender")
        state["conf"]["model"]["name"] = "new"
        state["conf"]["tags"] = state["kept"]
        assert state["kept"][0] == "a"
        return state

    with statelog.open(path) as store:
        old = {"messages": [{"sender": "ann"}] * items, "conf": {"model": {"name": "old"}}, "kept": ["a"] * items}
        store.thread("t").commit(old)
        thread = store.thread("t", schema=schema)
        new = {
            "messages": [{"role": "ann"}] * items,
            "conf": {"model": {"name": "new"}, "tags": ["a"] * items},
            "kept": ["a"] * items,
        }
        assert thread.state == new
        assert list(thread.head.stored["kept"]) == ["a"] * items
        assert thread.commit({}).stored == new
