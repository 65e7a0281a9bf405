"""What `durable.run` of a parent does for the children that it waits for."""

from __future__ import annotations

import pytest

from statelog import durable


@durable.workflow
def asks(run):
    return run.gate("ok").approved


@durable.workflow
def between(run):
    return [run.child(asks, id="kid")]


@durable.workflow
def parent(run):
    return [run.child(between, id="middle")]


@pytest.mark.parametrize(("workflow", "value"), [(between, [True]), (parent, [[True]])])
def test_running_a_parent_again_drives_a_child_that_can_continue(store, workflow, value):
    assert durable.run(store, workflow, id="evt-1").status == "suspended"
    assert durable.run(store, workflow, id="evt-1").status == "suspended"
    durable.answer(store, durable.gates(store)[0].id, approved=True)
    assert durable.run(store, workflow, id="evt-1").value == value


def test_a_run_is_purged_in_one_commit(store):
    durable.run(store, asks, id="evt-1")
    durable.answer(store, durable.gates(store)[0].id, approved=True)
    durable.run(store, asks, id="evt-1")
    before = store.last_lsn
    durable.purge_run(store, "evt-1")
    assert sum(not record.continues for record in store.log(after=before)) == 1
    assert store.board().list("durable/**") == []
