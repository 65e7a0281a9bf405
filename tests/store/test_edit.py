"""Changes inside a commit, on the state at that time."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor

import forks
import pytest
from hypothesis import given
from hypothesis import strategies as st

import statelog
from statelog import Encoded, aio, reducers
from statelog.errors import ConflictError, LimitError, UsageError, ValueTypeError

TIMES = 30
COUNT_APART = """
import sys, statelog
with statelog.open(sys.argv[1]) as store:
    thread = store.thread("t")
    for _ in range(int(sys.argv[2])):
        thread.edit(lambda state: state.update(count=state.get("count", 0) + 1))
"""


def add_one(state):
    state["count"] = state.get("count", 0) + 1


def test_edits_of_concurrent_threads_and_processes_lose_no_change(path):
    command = [sys.executable, "-c", COUNT_APART, str(path), str(TIMES)]
    with statelog.open(path) as store, ThreadPoolExecutor(8) as pool:
        others = [forks.Popen(command) for _ in range(2)]
        for done in [pool.submit(store.thread("t").edit, add_one) for _ in range(TIMES)]:
            assert done.result() is None
        assert [other.wait() for other in others] == [0, 0]
        assert store.thread("t").state == {"count": 3 * TIMES}
        assert store.thread("t").version == 3 * TIMES - 1


_KEYS = st.sampled_from("abcdef")
_VALUES = st.one_of(
    st.none(), st.integers(), st.text(max_size=3), st.just("x" * 5000), st.just({"k": ["y" * 3000] * 3})
)


@pytest.mark.slow
@given(
    st.lists(st.lists(st.tuples(_KEYS, _KEYS, st.none() | st.tuples(_VALUES, st.booleans())), max_size=6), max_size=5)
)
def test_an_edited_state_equals_an_edited_dict(shared_store, edits):
    thread = shared_store.thread(f"edited {len(list(shared_store.threads()))}")
    plain = {}

    def apply(state, changes):
        for channel, key, value in changes:
            if value is not None:
                kept, is_encoded = value
                state.setdefault(channel, {})[key] = Encoded(kept) if is_encoded and state is not plain else kept
            elif key in state.get(channel, {}):
                del state[channel][key]

    for changes in edits:
        apply(plain, changes)
        version = thread.version
        before = thread.state.to_python()
        thread.edit(lambda state, changes=changes: apply(state, changes))
        assert thread.state == plain
        assert (thread.version == version) == (before == plain)
    scratch = shared_store.thread(f"scratch {len(list(shared_store.threads()))}").commit(plain)
    assert thread.head is None or thread.head.state_digest == scratch.state_digest


def test_an_encoded_value_reads_and_changes_like_the_value(store):
    thread = store.thread("t")

    def change(state):
        state["a"] = Encoded([1, 2])
        state["a"].append(3)
        state["b"] = Encoded({"deep": {"x": 1}})
        state["list"] = [Encoded("one")]

    thread.edit(change)
    assert thread.state == {"a": [1, 2, 3], "b": {"deep": {"x": 1}}, "list": ["one"]}
    thread.edit(lambda state: state["list"].append(Encoded("two")))
    assert thread.state["list"] == ["one", "two"]
    with pytest.raises(ValueTypeError, match=r"mine\.x"):
        Encoded({"x": object()}, path="mine")


@pytest.mark.slow
@pytest.mark.parametrize("lazy", [False, True])
def test_an_edit_writes_only_its_changes(store, lazy):
    thread = store.thread("t")
    thread.commit({"items": {f"key {number}": {"text": "x" * 300} for number in range(20_000)}})

    def change(state):
        state["items"]["key 777"] = {"text": "new"}

    thread.edit(change, lazy=lazy)
    record = next(store.log(after=thread.head.lsn - 1))
    assert thread.state["items"]["key 777"] == {"text": "new"}
    assert record.size_bytes < 8_192


def test_an_edit_that_changes_nothing_creates_no_checkpoint(store):
    thread = store.thread("t")
    assert thread.edit(lambda _state: None) is None
    assert thread.version == -1
    thread.commit({"a": {"b": [1]}})
    assert thread.edit(lambda state: state["a"].update(b=[1])) is None
    assert thread.version == 0


def test_an_edit_that_raises_writes_nothing(store):
    thread = store.thread("t")
    with pytest.raises(ZeroDivisionError):
        thread.edit(lambda state: state.update(a=1 / 0))
    with pytest.raises(ValueTypeError, match=r"a\.b: cannot store object"):
        thread.edit(lambda state: state.update(a={"b": object()}))
    with pytest.raises(UsageError):
        thread.edit(lambda state: state.update(a=thread.commit({"b": 1}).version))
    assert (store.last_lsn, list(store.threads())) == (0, [])


def test_an_edit_returns_the_result_of_its_function(store):
    thread = store.thread("t")
    thread.commit({"jobs": [{"name": "a"}, {"name": "b"}], "step": 0})
    assert thread.edit(lambda state: state["jobs"].pop()) == {"name": "b"}
    assert thread.edit(lambda state: state["jobs"]) == [{"name": "a"}]
    assert thread.edit(lambda _state: {}) == {}
    assert thread.state == {"jobs": [{"name": "a"}], "step": 0}


@pytest.mark.parametrize(
    "change",
    [
        lambda _state: {"step": 5},
        lambda _state: {"stpe": 5},
        lambda state: state["jobs"].append(1) or {"step": 5},
        lambda state: {**state, "step": 5},
    ],
    ids=["update", "misspelled", "beside a change", "whole state"],
)
def test_an_edit_that_returns_an_update_is_refused(store, change):
    """It would be lost."""
    thread = store.thread("t")
    thread.commit({"jobs": [], "step": 0})
    with pytest.raises(UsageError, match=r"write state\.update"):
        thread.edit(change)
    assert (thread.version, thread.state) == (0, {"jobs": [], "step": 0})


def test_an_async_function_is_refused_and_edits_nothing(store):
    async def change(state):
        state["step"] = 5

    with pytest.raises(UsageError, match="a function that is not async"):
        store.thread("t").edit(change)
    assert store.thread("t").version == -1


def test_a_state_refuses_changes_after_the_end_of_its_block_or_function(store):
    """It would be lost."""
    thread, kept = store.thread("t"), []
    with thread.mount() as state:
        state["step"] = 1
    thread.edit(lambda state: kept.append(state) or state.update(step=2))
    with pytest.raises(ZeroDivisionError), thread.mount() as failed:
        failed["step"] = 1 / 0
    for ended in (state, kept[0], failed):
        for change in (
            lambda ended: ended.update(step=3),
            lambda ended: ended.setdefault("new", 3),
            lambda ended: ended.pop("step"),
            lambda ended: ended.clear(),
            lambda ended: ended.__ior__({"step": 3}),
        ):
            with pytest.raises(UsageError, match="would be lost"):
                change(ended)
    assert state["step"] == 1
    assert thread.state == {"step": 2}


def test_a_mount_used_without_a_block_raises_an_error_that_explains_it(store):
    mount = store.thread("t").mount()
    with pytest.raises(UsageError, match=r"with thread\.mount\(\) as state"):
        mount["step"] = 1
    with pytest.raises(AttributeError):
        mount.step = 1


def test_an_edit_accepts_the_options_of_a_commit(store):
    thread = store.thread("t", schema={"count": int, "log": reducers.append})
    thread.commit({"count": 1})
    thread.edit(add_one, metadata={"why": "test"}, expected_version=0, id="mine")
    made = thread.head
    assert (made.id, made.metadata, made.channels_written, made.state) == (
        "mine", {"why": "test"}, ("count",), {"count": 2}
    )  # fmt: skip
    with pytest.raises(ConflictError):
        thread.edit(add_one, expected_version=0)
    thread.edit(lambda state: state["log"].append("first"))
    assert thread.state["log"] == ["first"]


def test_in_a_transaction_an_edit_sees_earlier_operations(store):
    with store.transaction() as tx:
        tx.thread("t").commit({"count": 5})
        tx.thread("t").edit(add_one)
        assert tx.thread("t").edit(lambda state: state["count"]) == 6
    head = store.thread("t").head
    assert (head.version, head.state) == (2, {"count": 6})


def test_asyncio_can_edit_and_take_snapshots(path):
    async def main():
        async with aio.open(path) as store:
            thread = store.thread("t")
            await asyncio.gather(*[thread.edit(add_one) for _ in range(20)])
            return await store.snapshot(lambda snapshot: snapshot.thread("t").state.to_python())

    assert asyncio.run(main()) == {"count": 20}


# --- snapshots ------------------------------------------------------------------------


@pytest.mark.slow
def test_a_snapshot_is_unchanged_while_versions_expire(store):
    thread = store.thread("t")
    store.set_retention(keep_last=1, threads="t")
    thread.commit({"items": {f"{number}": f"{number} " + "x" * 200 for number in range(1000)}})
    with store.snapshot() as snapshot:
        head = snapshot.thread("t").head
        for number in range(70):
            thread.edit(lambda state, number=number: state["items"].update({f"{number}": "new"}))
        store.prune(keep_last=1)
        assert (head.version, thread.version) == (0, 70)
        assert head.state["items"]["7"].startswith("7 xxx")
        assert all(value.startswith(key) for key, value in head.state["items"].items())
        assert snapshot.thread("t").version == 0
    assert thread.state["items"]["7"] == "new"


def test_a_snapshot_refuses_commits_and_ends_with_its_block(store):
    store.thread("t").commit({"items": {f"{number}": "x" * 200 for number in range(2000)}})
    with store.snapshot() as snapshot:
        thread = snapshot.thread("t")
        with pytest.raises(UsageError, match="snapshot is read-only"):
            thread.commit({"a": 1})
        with pytest.raises(UsageError, match="snapshot is read-only"):
            thread.tag("a")
        state = thread.state
        assert snapshot.thread("none").head is None
    with pytest.raises(UsageError, match="snapshot has ended"):
        state["items"].to_python()
    with pytest.raises(UsageError, match="snapshot has ended"):
        _ = thread.head


def test_encoded_values_have_the_limits_of_ordinary_values():
    deep = []
    for _ in range(200):
        deep = [deep]
    with pytest.raises(LimitError):
        Encoded(deep)
