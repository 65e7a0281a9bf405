"""The writes of a task are committed with the next checkpoint, with the same effect as alone."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="needs langgraph")

from histories import IDS, config
from langgraph.checkpoint.base import empty_checkpoint

from statelog.adapters.langgraph import StatelogSaver
from statelog.adapters.langgraph.saver import saver as saver_module
from statelog.adapters.langgraph.saver import write_groups
from statelog.errors import ConflictError, LimitError


@pytest.fixture
def saver(tmp_path, monkeypatch):
    monkeypatch.setattr(write_groups, "_PATIENCE_S", 5)
    with StatelogSaver.open(tmp_path / "s", conflict="raise") as opened:
        yield opened


def commits(store, after):
    return sum(not record.continues for record in store.log(after))


def checkpoint(id):
    values = {"texts": [f"a text of some length, number {number}" for number in range(9)]}
    return {**empty_checkpoint(), "id": id, "channel_values": values, "channel_versions": {"texts": "1"}}


def put(saver, at, id):
    return saver.put(at, checkpoint(id), {"source": "loop", "step": 1, "parents": {}}, {"texts": "1"})


def start_writing(saver, at, value="written"):
    thread = threading.Thread(target=saver.put_writes, args=(at, [("texts", value)], "task"), daemon=True)
    thread.start()
    while not saver._gatherer._patient:
        pass
    return thread


def end(thread):
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_turn_of_a_chat_is_three_commits(saver, durability):
    graphs = pytest.importorskip("langgraph.graph")
    builder = graphs.StateGraph(graphs.MessagesState)
    builder.add_node("reply", lambda _state: {"messages": [("ai", "a reply")]})
    graph = builder.add_edge("__start__", "reply").compile(checkpointer=saver)
    counts = []
    for _ in range(4):
        before = saver.store.last_lsn
        graph.invoke({"messages": [("user", "a question")]}, config("t"), durability=durability)
        counts.append(commits(saver.store, before))
        found = saver.get_tuple(config("t"))
        assert found == StatelogSaver(saver.store).get_tuple(config("t"))
    assert sorted(counts)[1] <= 4  # Usually three. On a slow machine, writes may come after their checkpoint.
    assert len([*saver.list(config("t"))]) == 12
    assert [len(each.pending_writes) for each in saver.list(config("t"))][::3] == [0] * 4


def test_writes_are_committed_with_the_checkpoint_and_share_its_items(saver):
    at = put(saver, config("t"), IDS[0])
    before = saver.store.last_lsn
    thread = start_writing(saver, at, checkpoint(IDS[1])["channel_values"]["texts"])
    put(saver, at, IDS[1])
    end(thread)
    assert commits(saver.store, before) == 1
    texts = checkpoint(IDS[1])["channel_values"]["texts"]
    assert saver.get_tuple(at).pending_writes == [("task", "texts", texts)]
    assert saver.get_tuple(config("t")).checkpoint["channel_values"] == {"texts": texts}


def test_a_refused_put_keeps_the_writes(saver):
    at = put(saver, config("t"), IDS[0])
    put(saver, at, IDS[1])
    thread = start_writing(saver, at)
    with pytest.raises(ConflictError):
        put(saver, at, IDS[2])
    end(thread)
    assert saver.get_tuple(at).pending_writes == [("task", "texts", "written")]


def test_a_put_succeeds_although_its_writes_are_refused(saver, monkeypatch):
    def refused(_lineage, _bases, parts, _place):
        def work(_batch):
            message = "too large"
            raise LimitError(message)

        return work if parts else None

    monkeypatch.setattr(saver_module.tasks, "with_checkpoint", refused)
    at = put(saver, config("t"), IDS[0])
    thread = start_writing(saver, at)
    put(saver, at, IDS[1])
    end(thread)
    assert saver.get_tuple(config("t")).config == config("t", "", IDS[1])
    assert saver.get_tuple(at).pending_writes == [("task", "texts", "written")]
