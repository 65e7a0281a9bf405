"""Sizes of channels and states, and limits on them."""

from __future__ import annotations

import asyncio
import warnings

import pytest

from statelog import SizeWarning, aio
from statelog.errors import ReducerTypeError, SizeLimitError, UsageError
from statelog.format import cbor
from statelog.reducers import add, append, extend, upsert

VALUES = {
    "messages": [{"role": "user", "text": "a" * 90, "n": n} for n in range(200)],
    "plan": {"step": 1, "notes": "b" * 5000},
    "text": "c" * 100_000,
    "short": "hi",
    "few": {1, 2, 3},
    "flag": None,
}


def test_sizes_are_those_of_the_encoded_values(store):
    thread = store.thread("t")
    thread.commit(VALUES)
    size = thread.size()
    assert {name: each.size_bytes for name, each in size.channels.items()} == {
        name: len(cbor.encode(value)) for name, value in VALUES.items()
    }
    assert {name: each.items for name, each in size.channels.items()} == {
        "messages": 200, "plan": 2, "text": 1, "short": 1, "few": 3, "flag": 1
    }  # fmt: skip
    assert size.size_bytes == len(cbor.encode(VALUES)) == thread.head.state_size_bytes
    assert list(size.channels)[:2] == ["text", "messages"]
    assert size.shared_size_bytes == 0


def test_the_size_of_a_keyed_list_counts_its_items(store):
    thread = store.thread("t", schema={"docs": upsert})
    thread.commit({"docs": [{"id": str(n), "text": "d" * 100} for n in range(50)]})
    assert thread.size().channels["docs"].items == 50


def test_a_thread_without_a_checkpoint_has_no_size(store):
    size = store.thread("t").size()
    assert (size.channels, size.size_bytes, size.shared_size_bytes) == ({}, 0, 0)


def test_a_branch_shares_the_stored_size_of_its_parent(store):
    main = store.thread("t")
    main.commit(VALUES)
    branch = main.fork("b", update={"short": "ho"})
    size = branch.size()
    assert size.channels["text"].shared_size_bytes == size.channels["text"].size_bytes
    assert size.channels["short"].shared_size_bytes == 0
    assert main.size().shared_size_bytes == 0
    copied = store.copy_thread("t", "copy").size()
    assert copied.channels["messages"].shared_size_bytes > 0.9 * copied.channels["messages"].size_bytes


def test_transactions_snapshots_and_earlier_versions_have_sizes(store):
    thread = store.thread("t", schema={"n": append})
    thread.commit({"n": 1})
    with store.transaction() as tx:
        inside = tx.thread("t", schema={"n": append})
        inside.commit({"n": 2})
        assert inside.size().channels["n"].items == 2
    with store.snapshot() as snapshot:
        thread.commit({"n": 3})
        assert snapshot.thread("t").size().channels["n"].items == 2
    assert [thread.at(version).size().channels["n"].items for version in range(3)] == [1, 2, 3]


def test_asyncio_can_read_sizes(tmp_path):
    async def main():
        async with await aio.open(tmp_path / "a.state") as store:
            store.limit(channel="n", items_max=1)
            thread = store.thread("t", schema={"n": append})
            await thread.commit({"n": 1})
            with pytest.raises(SizeLimitError):
                await thread.commit({"n": 2})
            return await thread.size()

    assert asyncio.run(main()).channels["n"].items == 1


# --- limits --------------------------------------------------------------------


def test_a_commit_past_a_limit_raises_and_writes_nothing(store):
    store.limit(channel="messages", items_max=3)
    thread = store.thread("t", schema={"messages": extend})
    thread.commit({"messages": ["a", "b", "c"]})
    before = store.last_lsn
    with pytest.raises(SizeLimitError, match="channel 'messages' has 4 items") as raised:
        thread.commit({"messages": ["d"]})
    error = raised.value
    assert (error.thread, error.path, error.unit, error.limit, error.actual) == ("t", "messages", "items", 3, 4)
    assert store.last_lsn == before
    assert list(thread.state["messages"]) == ["a", "b", "c"]
    store.thread("u").commit({"other": list(range(99))})


def test_every_way_to_commit_obeys_the_limits(store):
    store.limit(size_bytes_max=2000)
    thread = store.thread("t")
    thread.commit({"a": 1})
    large = {"b": "x" * 3000}
    with pytest.raises(SizeLimitError, match="the state has 3,0"):
        thread.commit(large)
    with pytest.raises(SizeLimitError), thread.mount() as state:
        state["b"] = large["b"]
    with pytest.raises(SizeLimitError):
        thread.edit(lambda state: state.update(large))
    with pytest.raises(SizeLimitError):
        thread.fork("b", update=large)
    with pytest.raises(SizeLimitError), store.transaction() as tx:
        tx.thread("t").commit(large)
    assert [branch.name for branch in thread.branches()] == ["main"]
    assert thread.version == 0


def test_a_refused_commit_within_a_transaction_has_no_effect(store):
    store.limit(size_bytes_max=2000)
    store.thread("t").commit({"a": 1})
    with store.transaction() as tx:
        tx.thread("t").commit({"a": 2})
        with pytest.raises(SizeLimitError):
            tx.thread("t").commit({"b": "x" * 3000})
        assert dict(tx.thread("t").state) == {"a": 2}
        tx.thread("t").commit({"c": 3})
    assert dict(store.thread("t").state) == {"a": 2, "c": 3}


def test_a_refused_fork_within_a_transaction_leaves_no_branch(store):
    store.thread("t", schema={"n": add}).commit({"n": 1})
    with store.transaction() as tx:
        with pytest.raises(ReducerTypeError):
            tx.thread("t").fork("b", update={"n": "text"})
        tx.thread("u").commit({"a": 1})
    assert [branch.name for branch in store.thread("t").branches()] == ["main"]
    assert dict(store.thread("u").state) == {"a": 1}


def test_a_thread_over_its_limit_can_be_reduced_and_written_in_other_channels(store):
    thread = store.thread("t")
    thread.commit({"list": list(range(100)), "n": 1})
    store.limit(channel="list", items_max=10)
    thread.commit({"n": 2})
    thread.commit({"list": list(range(50))})
    with pytest.raises(SizeLimitError):
        thread.commit({"list": list(range(51))})
    thread.commit({"list": list(range(5))})
    with pytest.raises(SizeLimitError):
        thread.commit({"list": list(range(11))})


def test_a_warning_limit_warns_once_until_the_size_has_fallen(store):
    store.limit(channel="n", items_max=1, warns=True, threads="chat-*")
    thread = store.thread("chat-1")
    store.thread("other").commit({"n": [1, 2, 3]})

    def commit(count):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            thread.commit({"n": list(range(count))})
        return [str(each.message) for each in caught]

    assert commit(1) == []
    assert commit(2) == ["thread 'chat-1': channel 'n' has 2 items, more than 1"]
    assert commit(3) == []
    assert commit(1) == []
    assert len(commit(2)) == 1
    with pytest.warns(SizeWarning):
        store.thread("chat-2").commit({"n": [1, 2]})


def test_a_limit_can_be_replaced_and_removed(store):
    thread = store.thread("t")
    store.limit(channel="n", items_max=1)
    store.limit(channel="n", items_max=2)
    thread.commit({"n": [1, 2]})
    store.limit(channel="n")
    thread.commit({"n": [1, 2, 3]})
    assert store._engine.limits is None


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"size_bytes_max": -1}, "size_bytes_max"),
        ({"size_bytes_max": 1.5}, "size_bytes_max"),
        ({"items_max": True}, "items_max"),
        ({"items_max": "1"}, "items_max"),
        ({"items_max": 1, "channel": ""}, "channel"),
        ({"items_max": 1, "channel": 1}, "channel"),
        ({"items_max": 1, "threads": None}, "threads"),
        ({"items_max": 1, "warns": 1}, "warns"),
    ],
)
def test_invalid_limits_are_refused(store, arguments, named):
    with pytest.raises(UsageError) as raised:
        store.limit(**arguments)
    assert raised.value.argument == named
    assert store._engine.limits is None
