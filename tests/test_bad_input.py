"""Bad input: a specific exception with the facts in it; the store as it was, and usable."""

from __future__ import annotations

import io
import math
import os
from datetime import UTC, datetime

import pytest
from naming import named

import statelog
from statelog import reducers
from statelog.errors import (
    AlreadyExistsError,
    BranchNotFoundError,
    ChannelError,
    CheckpointNotFoundError,
    ConflictError,
    LimitError,
    ReducerTypeError,
    SchemaError,
    ThreadNotFoundError,
    UsageError,
    ValueTypeError,
)
from statelog.limits import DEPTH_MAX, KEY_SIZE_BYTES_MAX, METADATA_SIZE_BYTES_MAX, NAME_SIZE_BYTES_MAX
from statelog.testing import identical

SCHEMA = {
    "any": reducers.replace,
    "total": reducers.add,
    "names": reducers.append,
    "more": reducers.extend,
    "seen": reducers.union,
    "notes": reducers.merge,
    "deep": reducers.deep_merge,
    "best": reducers.max,
    "messages": reducers.upsert("id"),
    "own": lambda current, write: current + write,
}
STATE = {
    "any": "value",
    "total": 5,
    "names": ["a"],
    "more": [1],
    "seen": {"x"},
    "notes": {"k": 1},
    "deep": {"a": {"b": 1}},
    "best": 3,
    "messages": [{"id": "m"}],
    "own": 1,
}


@pytest.fixture
def thread(store):
    """A thread with a value in every channel."""
    thread = store.thread("t", schema=SCHEMA)
    thread.commit({**STATE, "names": "a", "more": [1]}, metadata={"node": "start"}, id="first")
    thread.tag("tagged")
    return thread


def nested(depth):
    value = []
    for _ in range(depth - 1):
        value = [value]
    return value


CYCLE = {}
CYCLE["self"] = CYCLE


# --- values -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kind", "facts"),
    [
        (object(), ValueTypeError, {"path": "any", "type": "object"}),
        ([1, {"x": [range(3)]}], ValueTypeError, {"path": "any[1].x[0]", "type": "range"}),
        ({"k": {3: object()}}, ValueTypeError, {"path": "any.k[3]", "type": "object"}),
        ({math.nan}, ValueTypeError, {"path": "any", "type": "float"}),
        ({math.nan: 1}, ValueTypeError, {"path": "any", "type": "float"}),
        (["\ud800"], ValueTypeError, {"path": "any[0]", "type": "str"}),
        ({"\ud800": 1}, ValueTypeError, {"path": "any key", "type": "str"}),
        (nested(DEPTH_MAX + 1), LimitError, {"limit": DEPTH_MAX}),
        (nested(100_000), LimitError, {"limit": DEPTH_MAX}),
        (CYCLE, LimitError, {"limit": DEPTH_MAX}),
        (2**300_000, LimitError, {"path": "any", "limit": 262_144, "actual": 300_001}),
        ({"k" * 5000: 1}, LimitError, {"path": "any", "limit": KEY_SIZE_BYTES_MAX}),
        ({"e" * 5000}, LimitError, {"path": "any", "limit": KEY_SIZE_BYTES_MAX}),
    ],
    ids=lambda part: type(part).__name__ if isinstance(part, list | dict | int) else named(part),
)
def test_values_that_cannot_be_stored(refused, store, thread, value, kind, facts):
    with refused(store, kind, **facts):
        thread.commit({"total": 1}, {"any": value})


def test_a_value_too_large(refused, store, thread, monkeypatch):
    monkeypatch.setattr("statelog.format.cbor.VALUE_SIZE_BYTES_MAX", 200_000)
    with refused(store, LimitError, path="any", limit=200_000, actual=300_005):
        thread.commit({"any": "x" * 300_000})


def test_a_record_too_large(refused, store, thread, monkeypatch):
    """A step makes 64 KB of nodes at most: what comes near the limit never is one."""
    monkeypatch.setattr("statelog.format.record.RECORD_SIZE_BYTES_MAX", 100_000)
    with refused(store, LimitError, limit=100_000):
        thread.commit({"any": [os.urandom(3000).hex() for _ in range(50)]})


@pytest.mark.parametrize(
    "deepest",
    [nested(DEPTH_MAX), {"k" * 4000: "v"}, 2**262_143, math.nan, "\U0010ffff"],
    ids=["deep", "key", "int", "nan", "text"],
)
def test_values_at_the_limits_are_stored(thread, deepest):
    thread.commit({"any": deepest})
    assert identical(thread.state["any"], deepest)


# --- reducers and schema ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("channel", "write"),
    [
        ("total", "text"),
        ("total", [1]),
        ("total", None),
        ("total", {"a": 1}),
        ("more", "text"),
        ("more", 5),
        ("seen", 5),
        ("seen", [[1]]),
        ("notes", [1]),
        ("notes", None),
        ("deep", 5),
        ("best", "text"),
        ("best", [1]),
        ("messages", "text"),
        ("messages", [1]),
        ("messages", reducers.Remove("absent")),
        ("messages", reducers.Overwrite([1])),
        ("messages", reducers.Overwrite([reducers.REMOVE_ALL])),
    ],
)
def test_writes_their_reducer_cannot_merge(refused, store, thread, channel, write):
    with refused(store, ReducerTypeError) as caught:
        thread.commit({"any": "new"}, {channel: write})
    assert channel in str(caught.value)


@pytest.mark.parametrize("channel", ["names", "more", "seen", "notes", "deep", "messages"])
def test_a_value_of_another_type_in_the_channel(refused, store, thread, channel):
    thread.commit({channel: reducers.Overwrite(5)}) if channel != "messages" else None
    writes = {"names": 1, "more": [1], "seen": {1}, "notes": {"a": 1}, "deep": {"a": 1}, "messages": 5}
    with refused(store, ReducerTypeError) as caught:
        thread.commit({channel: writes[channel]})
    assert channel in str(caught.value)


def test_a_sum_beyond_the_largest_integer_names_its_channel(refused, store, thread):
    thread.commit({"total": 2**262_143})
    with refused(store, LimitError, path="total", limit=262_144, actual=262_145):
        thread.commit({"total": 2**262_143})


def test_exceptions_of_a_users_function_propagate(refused, store, thread):
    with refused(store, TypeError):
        thread.commit({"own": "text"})


def test_the_result_of_a_users_function_is_checked(refused, store):
    thread = store.thread("u", schema={"own": lambda _current, _write: object()})
    thread.commit({"own": 1})
    with refused(store, ValueTypeError, path="own", type="object"):
        thread.commit({"own": 2})


def test_a_users_function_that_is_not_at_hand(refused, store, thread):
    with refused(store, SchemaError, channel="own"):
        store.thread(thread.id).commit({"own": 2})


def test_a_commit_within_a_commit(refused, store):
    def reducer(current, _write):
        store.thread("inner").commit({"x": 1})
        return current

    thread = store.thread("u", schema={"own": reducer})
    thread.commit({"own": 1})
    with refused(store, UsageError):
        thread.commit({"own": 2})


def test_a_channel_the_schema_has_not(refused, store, thread):
    with refused(store, ChannelError, channel="finding", channels=tuple(SCHEMA)):
        thread.commit({"any": 1}, {"finding": 1})


def test_a_schema_with_other_reducers(refused, store, thread):
    with refused(store, SchemaError, thread="t") as caught:
        store.thread("t", schema={**SCHEMA, "total": reducers.max})
    assert (caught.value.stored["total"], caught.value.given["total"]) == ("add", "max")
    assert "add" in str(caught.value)
    assert "max" in str(caught.value)
    assert thread.state["total"] == 5


@pytest.mark.parametrize("schema", [5, "text", {}, {"x": 5}, {1: reducers.add}, {"": reducers.add}, {"x": len}, int])
def test_invalid_schemas_are_refused_by_the_store(refused, store, schema):
    with refused(store, SchemaError):
        store.thread("new", schema=schema)


# --- writes and arguments ---------------------------------------------------------------


@pytest.mark.parametrize("write", [None, 5, "text", [("any", 1)], {1: 2}, {None: 1}, dict])
def test_invalid_writes_are_refused(refused, store, thread, write):
    with refused(store, UsageError):
        thread.commit({"any": 1}, write)


@pytest.mark.parametrize(
    ("channel", "kind"), [("", UsageError), ("\ud800", UsageError), ("c" * (NAME_SIZE_BYTES_MAX + 1), LimitError)]
)
def test_invalid_channel_names_are_refused(refused, store, channel, kind):
    thread = store.thread("u")
    thread.commit({"c" * NAME_SIZE_BYTES_MAX: 1})
    with refused(store, kind):
        thread.commit({"x": 1, channel: 1})


@pytest.mark.parametrize(
    ("metadata", "kind"),
    [
        (5, UsageError),
        ([1, 2], UsageError),
        ("text", UsageError),
        ({1: 2}, ValueTypeError),
        ({"x": object()}, ValueTypeError),
        ({"x": "y" * METADATA_SIZE_BYTES_MAX}, LimitError),
        ({"x": nested(DEPTH_MAX)}, LimitError),
    ],
    ids=named,
)
def test_metadata_that_cannot_be(refused, store, thread, metadata, kind):
    for act in (
        lambda: thread.commit({"any": 1}, metadata=metadata),
        lambda: thread.rollback(0, metadata=metadata),
        lambda: thread.fork("new", update={"any": 1}, metadata=metadata),
    ):
        with refused(store, kind):
            act()


@pytest.mark.parametrize(
    ("thread_id", "kind"),
    [("", UsageError), (5, UsageError), (None, UsageError), ("\ud800", UsageError), ("t" * 401, LimitError)],
)
def test_invalid_thread_ids_are_refused(refused, store, thread_id, kind):
    with refused(store, kind):
        store.thread(thread_id)


NAMES = [("", UsageError), (5, UsageError), ("\ud800", UsageError), ("n" * (NAME_SIZE_BYTES_MAX + 1), LimitError)]


@pytest.mark.parametrize(("name", "kind"), NAMES)
def test_invalid_names_are_refused_everywhere(refused, store, thread, name, kind):
    for act in (
        lambda: thread.commit({"any": 1}, id=name),
        lambda: thread.fork(name),
        lambda: thread.tag(name),
        lambda: thread.untag(name),
    ):
        with refused(store, kind):
            act()


@pytest.mark.parametrize("name", ["3~0123456789abcdef", "1~ffffffffffffffff"])
def test_ids_in_the_form_of_the_stores_own_are_refused(refused, store, thread, name):
    for act in (lambda: thread.commit({"any": 1}, id=name), lambda: thread.tag(name)):
        with refused(store, UsageError):
            act()


@pytest.mark.parametrize("after", [-1, 1.5, "1", None, True])
def test_invalid_lsns_are_refused(refused, store, after):
    with refused(store, UsageError):
        store.log(after)


@pytest.mark.parametrize("limit", [-1, "x", 1.5, True])
def test_invalid_limits_of_a_history_are_refused(refused, store, thread, limit):
    with refused(store, UsageError) as caught:
        thread.history(limit=limit)
    assert repr(limit) in str(caught.value)


@pytest.mark.parametrize("version", ["0", 0.0, False, b"0"])
def test_invalid_versions_are_refused(refused, store, thread, version):
    for act in (
        lambda: thread.history(before=version),
        lambda: thread.commit({"any": 1}, expected_version=version),
        lambda: thread.rollback(0, expected_version=version),
        lambda: store.thread("new").commit({"any": 1}, expected_version=version),
    ):
        with refused(store, UsageError) as caught:
            act()
        assert repr(version) in str(caught.value)


@pytest.mark.parametrize("target", ["path", None, 5, io.StringIO()], ids=lambda target: type(target).__name__)
@pytest.mark.parametrize("threads", [None, ["t"]])
@pytest.mark.usefixtures("thread")
def test_invalid_targets_of_an_export_are_refused(refused, store, target, threads):
    with refused(store, UsageError) as caught:
        store.export(target, threads=threads)
    assert repr(target) in str(caught.value)


@pytest.mark.parametrize("source", ["path", None, 5, io.StringIO("text")], ids=lambda source: type(source).__name__)
@pytest.mark.usefixtures("thread")
def test_invalid_sources_of_an_import_are_refused(refused, store, source):
    with refused(store, UsageError):
        store.import_(source)


# --- what is not there, or not as expected -------------------------------------------------


@pytest.mark.parametrize("expected", [-1, 5, 2**70])
def test_a_stale_version(refused, store, thread, expected):
    for act in (
        lambda: thread.commit({"any": 1}, expected_version=expected),
        lambda: thread.rollback(0, expected_version=expected),
    ):
        with refused(store, ConflictError, thread="t", expected_version=expected, actual_version=0):
            act()


def test_a_version_expected_of_a_thread_that_is_not(refused, store):
    with refused(store, ConflictError, thread="new", expected_version=0, actual_version=-1):
        store.thread("new").commit({"x": 1}, expected_version=0)
    assert store.thread("new").commit({"x": 1}, expected_version=-1).version == 0


@pytest.mark.parametrize(
    "target",
    [
        1,
        -2,
        2**32,
        2**40,
        2**70,
        -(2**70),
        "no such",
        "1971-01-01",
        "2026-13-99",
        "",
        "\ud800",
        "x" * 5000,
        "2~0123456789abcdef",
        "9999~0123456789abcdef",
        "99999999999999999999~0123456789abcdef",
        datetime(1971, 1, 1, tzinfo=UTC),
        datetime.min.replace(tzinfo=UTC),
        datetime.min,  # noqa: DTZ901 - naive is local time
    ],
    ids=named,
)
def test_checkpoints_that_are_not(refused, store, thread, target):
    for act in (
        lambda: thread.at(target),
        lambda: thread.rollback(target),
        lambda: thread.fork("new", at=target),
        lambda: thread.tag("new", target),
    ):
        with refused(store, CheckpointNotFoundError, thread="t", branch="main"):
            act()


@pytest.mark.parametrize("target", [True, 1.0, None, b"first", object()], ids=named)
def test_invalid_targets_are_refused(refused, store, thread, target):
    with refused(store, UsageError):
        thread.at(target)
    with refused(store, UsageError):
        thread.rollback(target)


def test_a_cycle_is_told_in_a_line(refused, store, thread):
    value = {"a": 1}
    value["itself"] = [value]
    with refused(store, LimitError, actual=129, limit=128) as caught:
        thread.commit({"any": value})
    assert str(caught.value).startswith("any.itself[0].itself[0].")
    assert "..." in str(caught.value)
    assert len(str(caught.value)) < 120
    assert caught.value.path.count("[0]") == 64


def test_a_checkpoint_of_another_thread_or_store(refused, store, thread, tmp_path):
    other = store.thread("other")
    theirs = other.commit({"x": 1}, id="first")
    with refused(store, CheckpointNotFoundError):
        thread.at(theirs)
    with statelog.open(tmp_path / "other.state") as another, refused(store, CheckpointNotFoundError):
        thread.rollback(another.thread("t").commit({"x": 1}))


def test_a_thread_that_is_not(refused, store):
    thread = store.thread("ghost")
    for act in (
        lambda: thread.at(0),
        lambda: thread.rollback(0),
        lambda: thread.fork("new"),
        lambda: thread.tag("new"),
        lambda: thread.untag("new"),
        lambda: store.delete_thread("ghost"),
    ):
        with refused(store, ThreadNotFoundError, thread="ghost"):
            act()
    assert thread.head is None
    assert (list(thread.history()), thread.branches(), thread.tags()) == ([], [], {})
    assert thread.state == {}


def test_a_branch_that_is_not(refused, store, thread):
    for act in (lambda: thread.checkout("ghost"), lambda: store.thread("t", branch="ghost")):
        with refused(store, BranchNotFoundError, thread="t", branch="ghost"):
            act()
    with refused(store, BranchNotFoundError, thread="nobody", branch="ghost"):
        store.thread("nobody", branch="ghost")


def test_a_tag_that_is_not(refused, store, thread):
    with refused(store, CheckpointNotFoundError, thread="t", target="ghost"):
        thread.untag("ghost")


def test_names_that_are_taken(refused, store, thread):
    thread.fork("branch")
    with refused(store, AlreadyExistsError, thread="t", name="branch"):
        thread.fork("branch")
    with refused(store, AlreadyExistsError, thread="t", name="main"):
        thread.fork("main")
    with refused(store, AlreadyExistsError, thread="t", name="first"):
        thread.commit({"any": 2}, id="first")


def test_a_fork_whose_update_is_refused_makes_no_branch(refused, store, thread):
    with refused(store, ReducerTypeError):
        thread.fork("new", update={"total": "text"})
    assert [branch.name for branch in thread.branches()] == ["main"]


@pytest.mark.usefixtures("thread")
def test_a_refused_transaction_leaves_every_thread_as_it_was(refused, store):
    with refused(store, ReducerTypeError), store.transaction() as transaction:
        transaction.thread("t", schema=SCHEMA).commit({"any": "changed"})
        transaction.thread("new").commit({"x": 1})
        transaction.thread("t", schema=SCHEMA).commit({"total": "text"})
    assert [info.id for info in store.threads()] == ["t", "another"]
