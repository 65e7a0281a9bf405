"""Pending writes are removed from the file with their checkpoints."""

import pytest

pytest.importorskip("langgraph")

from langgraph.checkpoint.base import empty_checkpoint

from statelog.adapters.langgraph import StatelogSaver

COUNT, KEPT = 30, 10


def marker(number):
    return f"<{number:08}>" * 40


@pytest.mark.parametrize("policy", [False, True], ids=["once", "as a policy"])
def test_text_of_removed_writes_is_not_in_a_compacted_file(tmp_path, policy):
    """The branch of writes keeps as many versions as others. Its earlier ones would have the removed writes."""
    with StatelogSaver.open(tmp_path / "agent.state") as saver:
        if policy:
            saver.store.set_retention(keep_last=KEPT)
        at = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        for number in range(COUNT):
            at = saver.put(at, empty_checkpoint(), {}, {})
            saver.put_writes(at, [("x", marker(number))], "task")
        saver.store.prune(keep_last=None if policy else KEPT)
        kept = [each.pending_writes[0][2] for each in saver.list(at)]
        assert kept == [marker(COUNT - 1)]
        assert len(list(saver.list({"configurable": {"thread_id": "t"}}))) == KEPT
        saver.store.compact()
        assert saver.store.verify().ok
    data = (tmp_path / "agent.state").read_bytes()
    assert [number for number in range(COUNT) if marker(number)[:10].encode() in data] == list(
        range(COUNT - KEPT, COUNT)
    )
