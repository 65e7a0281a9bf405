"""Who drives a run: of two workers one wins, and the other one stops without a trace."""

from __future__ import annotations

from contextvars import Context

import pytest

from statelog import durable
from statelog.errors import NondeterminismError
from statelog.store.board import own_board

CALLS = []


@pytest.fixture(autouse=True)
def _no_calls():
    CALLS.clear()


def note(value):
    CALLS.append(value)
    return value


def lapse(store):
    """Let the claims run out of processes that are paused, or were killed."""
    board = own_board(store)
    for entry in board.list("durable/tasks/**"):
        if entry.claim is not None:
            board.claim_of(entry.key, entry.claim.token).renew(1e-6)


class Overtaking:
    """Has another process drive the runs of a store, once, while the caller is paused for longer than its lease."""

    def __init__(self, store):
        self.store, self.workflows, self.is_done = store, [], False

    def __call__(self):
        if not self.is_done:
            self.is_done = True
            lapse(self.store)
            Context().run(durable.work, self.store, self.workflows, until_idle=True)


@pytest.fixture
def overtake(store):
    return Overtaking(store)


def test_a_run_that_another_process_has_ended_ends_here_too(store, overtake):
    @durable.workflow(name="w")
    def ends(run):
        run.step(note, 1)
        overtake()
        return "ended"

    overtake.workflows = [ends]
    assert durable.run(store, ends, id="evt-1").value == "ended"
    assert CALLS == [1]


def test_a_run_that_another_process_has_ended_is_not_put_to_rest(store, overtake):
    @durable.workflow(name="w")
    def receives(run):
        overtake()
        return run.recv("chat")

    overtake.workflows = [receives]
    durable.start(store, receives, id="evt-1")
    durable.send(store, "evt-1", "hello", topic="chat")
    assert durable.run(store, receives, id="evt-1").value == "hello"


def test_a_child_that_another_process_drives_is_waited_for_and_undoes_nothing(store, overtake):
    @durable.workflow(name="kid")
    def kid(run):
        run.step(note, "kid")
        overtake()
        return "grown"

    @durable.workflow(name="w")
    def parent(run):
        run.step(note, "parent", compensate=lambda *_args: note("undone"))
        return run.child(kid)

    overtake.workflows = [kid]
    assert durable.run(store, parent, id="evt-1").value == "grown"
    assert CALLS == ["parent", "kid"]


def test_a_child_whose_code_is_another_stops_and_its_parent_waits_and_undoes_nothing(store):
    @durable.workflow(name="kid")
    def old(run):
        run.step(note, 1)
        return run.recv("chat")

    @durable.workflow(name="kid")
    def new(run):
        run.step(note, 2)
        return run.recv("chat")

    def parent(kid):
        @durable.workflow(name="w")
        def made(run):
            run.step(note, "parent", compensate=lambda *_args: note("undone"))
            return run.child(kid, id="kid")

        return made

    durable.run(store, parent(old), id="evt-1")
    durable.send(store, "kid", "hello", topic="chat")
    durable.resume(store, "evt-1")
    info = durable.run(store, parent(new), id="evt-1")
    assert (info.status, info.waiting_for) == ("suspended", ("run kid",))
    with pytest.raises(NondeterminismError):
        durable.run(store, new, id="kid") if durable.resume(store, "kid") else None
    durable.resume(store, "kid")
    assert durable.run(store, old, id="kid").value == "hello"
    assert durable.run(store, parent(old), id="evt-1").value == "hello"
    assert CALLS == ["parent", 1]
