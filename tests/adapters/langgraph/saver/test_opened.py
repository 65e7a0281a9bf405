"""`open` returns a saver that also is a context manager, and that closes the store it has opened."""

import asyncio

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="needs langgraph")

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, StateGraph

import statelog
from statelog.adapters.langgraph import StatelogCache, StatelogSaver, StatelogStore
from statelog.errors import UsageError

CONFIG = {"configurable": {"thread_id": "1"}}


def graph_on(saver):
    builder = StateGraph(dict)
    builder.add_node("n", lambda state: {**state, "done": True})
    builder.add_edge(START, "n")
    return builder.compile(checkpointer=saver)


def test_a_saver_can_be_used_without_a_block(tmp_path):
    saver = StatelogSaver.open(tmp_path / "a.state")
    assert isinstance(saver, BaseCheckpointSaver)
    graph_on(saver).invoke({"n": 1}, CONFIG)
    assert not saver.store.closed
    saver.close()
    saver.close()
    assert saver.store.closed
    with StatelogSaver.open(tmp_path / "a.state") as again:
        assert again.get_tuple(CONFIG).checkpoint["channel_values"]["__root__"] == {"n": 1, "done": True}


def test_the_end_of_a_block_closes_the_store(tmp_path):
    with StatelogSaver.open(tmp_path / "a.state") as saver:
        assert not saver.store.closed
    assert saver.store.closed
    with pytest.raises(KeyError, match="mine"), StatelogSaver.open(tmp_path / "a.state") as saver:
        raise KeyError("mine")
    assert saver.store.closed


def test_the_end_of_an_async_block_closes_the_store(tmp_path):
    async def main():
        async with StatelogSaver.open(tmp_path / "a.state") as saver:
            await graph_on(saver).ainvoke({"n": 1}, CONFIG)
            assert (await saver.aget_tuple(CONFIG)) is not None
        return saver

    assert asyncio.run(main()).store.closed


def test_a_store_of_the_caller_stays_open(tmp_path):
    with statelog.open(tmp_path / "a.state") as store:
        with StatelogSaver(store) as saver:
            graph_on(saver).invoke({"n": 1}, CONFIG)
        assert not store.closed


@pytest.mark.parametrize(
    "options", [{"serde": 5}, {"conflict": "maybe"}, {"cache_size_bytes": -1}, {"durability": "x"}]
)
def test_a_saver_with_invalid_arguments_leaves_no_store_open(tmp_path, options):
    with pytest.raises(UsageError):
        StatelogSaver.open(tmp_path / "a.state", **options)
    with statelog.open(tmp_path / "a.state", durability="interval"):  # It would differ from an open one.
        pass


@pytest.mark.parametrize("kind", [StatelogSaver, StatelogStore, StatelogCache])
@pytest.mark.parametrize("name", [":memory:", "file:x.state?mode=memory", "postgresql://host/db"])
def test_names_of_other_databases_are_refused(tmp_path, monkeypatch, kind, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="not the path of a file"):
        kind.open(name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [StatelogSaver, StatelogStore])
def test_connection_strings_of_other_savers_open_a_file(tmp_path, kind):
    with kind.from_conn_string(tmp_path / "s") as opened:
        opened.setup()
        assert opened.store.path.exists()
    assert opened.store.closed

    async def awaited():
        async with kind.from_conn_string(str(tmp_path / "s"), durability="interval") as other:
            assert await other.setup() is None
        return other.store.closed

    assert asyncio.run(awaited())


@pytest.mark.parametrize("given", [":memory:", "postgresql://ann@host/db", "redis://host:6379/0"])
def test_names_that_are_not_paths_of_files_are_refused(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="needs the path of a file") as caught:
        StatelogSaver.from_conn_string(given)
    assert caught.value.value == given
    assert ("import-langgraph" in str(caught.value)) == ("://" in given)
    assert [*tmp_path.iterdir()] == []
