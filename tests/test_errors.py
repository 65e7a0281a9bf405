"""Every exception: where it stands, what it carries, and that something raises it."""

from __future__ import annotations

import copy
import inspect
import io
import os
import pickle
from datetime import UTC, datetime
from pathlib import Path

import pydantic
import pytest
import xxhash

import statelog
from statelog import errors, reducers
from statelog.format import cbor
from statelog.format.anchor import Anchor, encode_anchor

GROUPS = {
    errors.UsageError: 2,
    errors.ConflictError: 4,
    errors.LimitError: 5,
    errors.FormatError: 6,
    errors.CorruptionError: 7,
    errors.StorageError: 8,
    errors.AccessError: 10,
    errors.ExecutionError: 13,
}
CLASSES = [
    each for _name, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, errors.StatelogError)
]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_belongs_to_one_group_by_what_the_caller_does_next(kind):
    if kind is not errors.StatelogError:
        assert len([group for group in GROUPS if issubclass(kind, group)]) == 1


@pytest.mark.parametrize(("group", "code"), GROUPS.items())
def test_groups_have_exit_codes_of_their_own(group, code):
    assert group.exit_code == code


@pytest.mark.parametrize("kind", CLASSES)
def test_facts_are_attributes_and_survive_copies_and_pickles(kind):
    error = kind("a message", thread="t", actual_version=5)
    for same in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(same) is kind
        assert (str(same), same.message) == ("a message", "a message")
        assert (same.thread, same.actual_version) == ("t", 5)
        assert same.facts == {"thread": "t", "actual_version": 5}


def test_errors_are_also_instances_of_pythons_errors():
    assert issubclass(errors.NotFoundError, LookupError)
    assert issubclass(errors.ReducerTypeError, TypeError)
    assert issubclass(errors.ValueTypeError, TypeError)
    assert issubclass(errors.ValidationError, ValueError)
    assert issubclass(errors.LimitError, ValueError)


# --- something raises each ----------------------------------------------------------


def usage(store):
    store.thread("")


def closed(store):
    store.close()
    store.thread("t")


def forked(store):
    store._engine.store_file.lmdb_file.process_id += 1
    try:
        store.thread("t")
    finally:
        store._engine.store_file.lmdb_file.process_id -= 1


def read_only(store):
    store.close()
    with statelog.open(store.path, read_only=True) as opened:
        opened.thread("t").commit({"x": 1})


def thread_not_found(store):
    store.thread("t").at(0)


def thread_deleted(store):
    store.thread("t").commit({"x": 1})
    store.delete_thread("t")
    store.thread("t").commit({"x": 2})


def branch_not_found(store):
    store.thread("t", branch="no such branch")


def checkpoint_not_found(store):
    store.thread("t").commit({"x": 1})
    store.thread("t").at(5)


def expired(store):
    thread = store.thread("t")
    first = thread.commit({"x": list(range(1000))})
    thread.commit({"x": 1})
    state = first.state
    store.prune(keep_last=1)
    store._engine.cache.clear()
    list(state["x"])


def lease_held(store):
    store.board().lease("name")
    store.board().lease("name")


def lease_lost(store):
    lease = store.board().lease("name")
    lease.release()
    store.board().set("key", 1, fence=lease)


def cursor(store):
    store.board().watch(after="7-of another store")


def cursor_expired(store):
    board = store.board()
    for number in range(3):
        board.set("key", number)
    board.prune(keep_last=1)
    board.watch(after=0)


def store_not_found(store):
    statelog.open(store.path.with_name("no such file"), create=False)


def anchor(store):
    statelog.open(store.path, expect=b"no anchor")


def rollback(store):
    anchor = Anchor(store._engine.store_file.lmdb_file.store_id, store.last_lsn + 1, bytes(20))
    store.verify(expect=encode_anchor(anchor))


def forgery(store):
    store.thread("t").commit({"x": 1})
    anchor = Anchor(store._engine.store_file.lmdb_file.store_id, store.last_lsn, bytes(20))
    store.verify(expect=encode_anchor(anchor))


def other_store(store):
    with statelog.open(store.path.with_name("other.state")) as other:
        anchor = other.anchor()
    store.verify(expect=anchor)


KEY = "the key of a store"


def key_argument(store):
    statelog.open(store.path, key="too short")


def open_keyed(store, key):
    path = store.path.with_name("keyed.state")
    statelog.open(path, key=KEY).close()
    statelog.open(path, key=key)


def key_missing(store):
    open_keyed(store, None)


def wrong_key(store):
    open_keyed(store, "another key of a store")


def unkeyed_store(store):
    store.close()
    statelog.open(store.path, key=KEY)


def schema(store):
    store.thread("t", schema={"x": reducers.add}).commit({"x": 1})
    store.thread("t", schema={"x": reducers.append})


def channel(store):
    store.thread("t", schema={"x": reducers.add}).commit({"y": 1})


def reducer_type(store):
    thread = store.thread("t", schema={"x": reducers.add})
    thread.commit({"x": 1})
    thread.commit({"x": "text"})


def value_type(store):
    store.thread("t").commit({"x": object()})


def validation(store):
    model = pydantic.create_model("State", x=(int, 0))
    store.thread("t", schema=model).commit({"x": "no number"})


def conflict(store):
    store.thread("t").commit({"x": 1}, expected_version=3)


def already_exists(store):
    store.thread("t").commit({"x": 1}, id="mine")
    store.thread("t").commit({"x": 2}, id="mine")


def limit(store):
    store.thread("t" * 401)


def store_full(store):
    path = store.path.with_name("small.state")
    with statelog.open(path, max_size_bytes=1 << 20) as small:
        small.thread("t").commit({"x": os.urandom(2 << 20)})


def wrong_format(store):
    path = store.path.with_name("foreign.txt")
    path.write_text("this is no store\n" * 100)
    statelog.open(path)


def newer_export():
    header = cbor.encode({"magic": "statelog export", "format": 1000})
    frame = b"H" + len(header).to_bytes(4) + header
    return b"\x89STLGX\r\n" + frame + xxhash.xxh3_64_digest(frame)


def newer_format(store):
    store.import_(io.BytesIO(newer_export()))


def corruption(store):
    store.thread("t").commit({"x": 1})
    path = store.path
    store.close()
    path.write_bytes(path.read_bytes()[:5000])
    statelog.open(path)


def replaced(store):
    path = store.path.with_name("moved.state")
    moved = statelog.open(path)
    path.rename(path.with_name("elsewhere.state"))
    try:
        statelog.open(path)
    finally:
        moved.close()


RAISERS = {
    errors.UsageError: usage,
    errors.ClosedError: closed,
    errors.ForkedError: forked,
    errors.ReadOnlyError: read_only,
    errors.ThreadNotFoundError: thread_not_found,
    errors.ThreadDeletedError: thread_deleted,
    errors.BranchNotFoundError: branch_not_found,
    errors.CheckpointNotFoundError: checkpoint_not_found,
    errors.ExpiredError: expired,
    errors.LeaseHeldError: lease_held,
    errors.LeaseLostError: lease_lost,
    errors.CursorError: cursor,
    errors.CursorExpiredError: cursor_expired,
    errors.AnchorError: anchor,
    errors.KeyArgumentError: key_argument,
    errors.KeyMissingError: key_missing,
    errors.WrongKeyError: wrong_key,
    errors.UnkeyedStoreError: unkeyed_store,
    errors.RollbackError: rollback,
    errors.ForgeryError: forgery,
    errors.OtherStoreError: other_store,
    errors.StoreNotFoundError: store_not_found,
    errors.SchemaError: schema,
    errors.ChannelError: channel,
    errors.ReducerTypeError: reducer_type,
    errors.ValueTypeError: value_type,
    errors.ValidationError: validation,
    errors.ConflictError: conflict,
    errors.AlreadyExistsError: already_exists,
    errors.LimitError: limit,
    errors.StoreFullError: store_full,
    errors.FormatError: wrong_format,
    errors.NewerFormatError: newer_format,
    errors.CorruptionError: corruption,
    errors.StoreReplacedError: replaced,
}
ELSEWHERE = {
    errors.StatelogError: "the root",
    errors.NotFoundError: "raised by subclasses only",
    errors.StoreKeyError: "raised by subclasses only",
    errors.CommitOutcomeUnknownError: "tests/storage/test_commit_failures.py",
    errors.StoreLockedError: "tests/storage/file/test_locks.py",
    errors.SchemaVersionError: "tests/store/test_versions.py",
    errors.MissingMigrationError: "tests/store/test_versions.py",
    errors.MigrationError: "tests/store/test_versions.py",
    errors.StorageError: "tests/storage/wal/test_checkpointer.py",
    errors.HeaderLostError: "tests/corruption/test_forgery.py",
    errors.JournalMissingError: "tests/storage/wal/test_checkpointer.py",
    errors.FencedError: "tests/store/test_fence.py",
    errors.RemoteError: "tests/fleet/test_buckets.py",
    errors.RemoteLagError: "tests/fleet/test_fleet.py",
    errors.UnsafeStorageError: "tests/fleet/test_opening.py",
    errors.AccessError: "tests/storage/test_store_file.py",
    errors.ExecutionError: "raised by subclasses only",
    errors.RunNotFoundError: "tests/durable/test_runs.py",
    errors.RunEndedError: "tests/durable/test_runs.py",
    errors.RunFailedError: "tests/durable/test_runs.py",
    errors.RunCancelledError: "tests/durable/test_runs.py",
    errors.NondeterminismError: "tests/durable/test_runs.py",
    errors.StepVersionError: "tests/durable/test_versions.py",
    errors.NodeNotFoundError: "tests/adapters/langgraph/test_changed_graphs.py",
    errors.SizeLimitError: "tests/store/test_sizes.py",
    errors.GateNotFoundError: "tests/durable/test_waits.py",
    errors.MessageNotFoundError: "tests/durable/test_outbox.py",
    errors.StepFailedError: "tests/durable/test_steps.py",
    errors.StepTimeoutError: "tests/durable/test_steps.py",
    errors.StepInterruptedError: "tests/durable/test_steps.py",
    errors.EmbeddingError: "tests/memory/test_facts.py",
    errors.WebhookError: "tests/durable/test_webhook.py",
    errors.GuardError: "tests/guard/test_handles.py",
    errors.SecretError: "tests/guard/test_rules.py",
    errors.CheckError: "tests/guard/test_checks.py",
}


@pytest.mark.parametrize(("kind", "act"), RAISERS.items(), ids=lambda part: part.__name__)
def test_every_error_is_raised_by_something(path, kind, act):
    with statelog.open(path) as store, pytest.raises(kind) as caught:
        act(store)
    assert type(caught.value) is kind
    assert caught.value.message


def test_no_error_is_without_a_test():
    assert set(CLASSES) == RAISERS.keys() | ELSEWHERE.keys()
    here = Path(__file__).parent.parent
    for kind, where in ELSEWHERE.items():
        if where.startswith("tests/"):
            assert kind.__name__ in (here / where).read_text()


def test_messages_are_one_line_for_a_person(store):
    thread = store.thread("ticket-42")
    thread.commit({"x": 1})
    for act in (
        lambda: thread.at(9),
        lambda: thread.at(datetime(1980, 1, 1, tzinfo=UTC)),
        lambda: thread.commit({"x": 1}, expected_version=7),
        lambda: thread.commit({"x": object()}),
        lambda: store.thread("no such").at(0),
    ):
        with pytest.raises(errors.StatelogError) as caught:
            act()
        assert "\n" not in str(caught.value)
        assert 10 < len(str(caught.value)) < 200
