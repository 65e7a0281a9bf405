"""Fixtures: stores with varied content, and exports that are split and joined."""

from __future__ import annotations

import io
import operator
from contextlib import contextmanager

import pytest
from apart import Piece, join, split, with_header

import statelog
from statelog import reducers
from statelog.portable.salvage import salvage
from statelog.portable.streams import export_store, import_stream
from statelog.testing import SCHEMA as MODEL_SCHEMA
from statelog.testing import StoreModel, perform_all

SCHEMA = {
    "query": reducers.replace,
    "findings": operator.add,
    "notes": reducers.merge,
    "messages": reducers.upsert("id"),
    "seen": reducers.union,
}

PROMPT = "You are an agent. " * 1500


def fill(store, thread_id, turns=12):
    """Fill a thread with all kinds of data: long texts, sets, trees, ids, branches, tags, a rollback."""
    thread = store.thread(thread_id, schema=SCHEMA)
    thread.commit({"query": PROMPT, "messages": [{"id": "0", "text": "hello"}]}, metadata={"node": "start"})
    for turn in range(turns):
        thread.commit(
            {
                "findings": [f"finding {turn} of {thread_id} " * 5],
                "notes": {f"key {turn}": "v" * turn},
                "messages": [{"id": str(turn % 5), "text": "t" * turn * 20}],
                "seen": {turn, str(turn)},
            },
            metadata={"turn": turn},
            id=f"turn-{turn}" if turn % 3 == 0 else None,
        )
    thread.tag("good", 2)
    thread.tag("moved", 1)
    thread.rollback(4)
    thread.fork("what-if", at=3, update={"query": "other"})
    thread.checkout("what-if").commit({"notes": {"on": "branch"}})
    thread.tag("moved")
    thread.tag("gone")
    thread.untag("gone")
    return thread


@pytest.fixture
def rich(tmp_path):
    """A store with two threads that share a long text."""
    with statelog.open(tmp_path / "rich.state") as store:
        fill(store, "one")
        fill(store, "two", turns=5)
        with store.transaction() as transaction:
            transaction.thread("one").commit({"query": "together"})
            transaction.thread("two").commit({"query": "together"})
        yield store
        assert store.verify().problems == []


@pytest.fixture
def open_store(tmp_path):
    """Open stores by name. In those still open at the end, `verify` must find no problem."""
    opened = []

    def open_one(name="new.state", **options):
        store = statelog.open(tmp_path / name, **options)
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        if not store.closed:
            assert store.verify().problems == []
            store.close()


@contextmanager
def performed(directory, history):
    """Perform a history on a store and on its model. Yield both, and an empty store."""
    model = StoreModel()
    perform_all(history, model, schema=MODEL_SCHEMA)
    with (
        statelog.open(directory / "old", durability="interval") as old,
        statelog.open(directory / "new", durability="interval") as new,
    ):
        perform_all(history, old, schema=MODEL_SCHEMA)
        yield old, model, new


def export(store, **options):
    """Return an export as bytes."""
    stream = io.BytesIO()
    export_store(store._engine, stream, **options)
    return stream.getvalue()


def take(store, data, **options):
    """Import bytes."""
    return import_stream(store._engine, io.BytesIO(data), **options)


def snapshot(store, thread_id):
    """Return the visible content of a thread, without LSNs, digests of checkpoints, and times."""
    thread = store.thread(thread_id)
    branches = {}
    for info in thread.branches():
        branches[info] = [
            (
                checkpoint.version,
                checkpoint.branch,
                checkpoint.id,
                checkpoint.kind,
                checkpoint.channels_written,
                {key: value for key, value in checkpoint.metadata.items() if key != "statelog:time"},
                checkpoint.state_digest,
                checkpoint.parent and checkpoint.parent.id,
            )
            for checkpoint in thread.checkout(info.name).history()
        ]
    return branches, {name: checkpoint.id for name, checkpoint in thread.tags().items()}


def _session_fixture(function):
    """Make a function of this file available to tests, which cannot import the file."""
    return pytest.fixture(scope="session", name=function.__name__)(lambda: function)


for _function in (fill, performed, export, take, split, join, with_header, snapshot):
    globals()[f"{_function.__name__}_fixture"] = _session_fixture(_function)


@pytest.fixture(scope="session")
def piece():
    """The type of a split frame."""
    return Piece


@pytest.fixture
def source(tmp_path, fill):
    """A closed store as bytes, and the content of its log."""
    path = tmp_path / "source.state"
    with statelog.open(path) as store:
        fill(store, "one")
        fill(store, "two", turns=6)
        log = list(store.log())
    return path.read_bytes(), log


@pytest.fixture
def rescue(tmp_path):
    """Salvage bytes. Return the report and the new store, which must verify and be readable."""
    opened = []

    def run(data, name="new.state"):
        damaged = tmp_path / "damaged.state"
        damaged.write_bytes(data)
        report = salvage(damaged, tmp_path / name)
        assert damaged.read_bytes() == data
        store = statelog.open(tmp_path / name)
        opened.append(store)
        assert store.verify().problems == []
        read_everything(store)
        return report, store

    yield run
    for store in opened:
        store.close()


def read_everything(store):
    versions = 0
    for info in store.threads():
        thread = store.thread(info.id)
        for branch in thread.branches():
            for checkpoint in thread.checkout(branch.name).history():
                checkpoint.state.to_python()
                versions += 1
    return versions
