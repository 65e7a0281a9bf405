"""Another process ends, removes, deletes or prunes what a call about runs reads, between two of its reads."""

import pytest
from executed import note
from meanwhile import delete_meanwhile, interrupted_before_each_read, preparing_copies

import statelog
from statelog import durable
from statelog.durable.erasure import erase_run
from statelog.errors import ConflictError, CorruptionError, RunNotFoundError, StatelogError, UsageError

LONG = ["x" * 3000] * 3
"""A value that is stored in several nodes. A call reads them one by one."""


def undone(run):
    run.step(note, LONG)
    run.step(note, LONG * 2)
    run.step(int, "no number")


def asking(run):
    run.step(note, 1)
    return run.gate("ok?").approved


UNDONE, ASKING = (durable.workflow(name=body.__name__)(body) for body in (undone, asking))


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """The file of a store with a failed run, its fork, a run that waits for an answer, and two that have not begun."""
    path = tmp_path_factory.mktemp("filled") / "agent.state"
    with statelog.open(path, durability="interval") as store:
        durable.run(store, UNDONE, id="failed", thread="t-failed")
        durable.fork(store, "failed", at=1, id="forked")
        durable.run(store, ASKING, id="asking", thread="t-asking")
        durable.start(store, ASKING, id="first", thread="t-line")
        durable.start(store, ASKING, id="second", thread="t-line")
        store.compact()
    return path


@pytest.fixture
def prepared(filled, tmp_path):
    return preparing_copies(tmp_path, filled)


def deleted(thread):
    return lambda store: delete_meanwhile(store, thread)


def re_created(thread):
    def act(store):
        delete_meanwhile(store, thread)
        again = store.thread(thread, recreate=True)
        for number in range(5):
            again.commit({"again": number})

    return act


def pruned(store):
    store.prune(keep_last=1)


def answered(store):
    durable.answer(store, "asking/1", approved=True)
    durable.resume_all(store, [ASKING])


def erased(run):
    return lambda store: erase_run(store, run)


def forks_of(run):
    def act(store):
        made = durable.fork(store, run, at=1, id="new")
        if run == "failed":
            assert [each.place for each in durable.steps(store, made.id)] in ([], ["0"])

    return act


def statuses(run, *known):
    def act(store):
        assert durable.get_run(store, run).status in known
        assert {each.id: each.status for each in durable.runs(store)}.get(run, known[0]) in known

    return act


def steps(store):
    assert len(durable.steps(store, "asking")) == 2


def comparison(store):
    assert durable.compare_runs(store, "asking", "asking") == []


def queued(store):
    assert [each.name for each in durable.queues(store)] == ["default"]


def retried(store):
    durable.retry(store, "failed")


CALLS = {
    "fork, thread deleted": (forks_of("failed"), deleted("t-failed")),
    "fork, thread re-created": (forks_of("failed"), re_created("t-failed")),
    "fork, pruned": (forks_of("failed"), pruned),
    "fork of a fork, thread deleted": (forks_of("forked"), deleted("t-failed")),
    "fork, run erased": (forks_of("failed"), erased("failed")),
    "retry, thread deleted": (retried, deleted("t-failed")),
    "status, run ended": (statuses("asking", "suspended", "completed"), answered),
    "status, run erased": (statuses("asking", "suspended"), erased("asking")),
    "steps, run ended": (steps, answered),
    "comparison, run ended": (comparison, answered),
    "queues, run erased": (queued, erased("asking")),
}


@pytest.mark.slow
@pytest.mark.parametrize(("act", "meanwhile"), CALLS.values(), ids=CALLS)
def test_a_call_succeeds_or_says_what_has_happened(prepared, act, meanwhile):
    for error in interrupted_before_each_read(prepared, act, meanwhile):
        assert error is None or (isinstance(error, StatelogError) and not isinstance(error, CorruptionError)), error


def test_a_retry_of_a_run_whose_record_is_pruned_meanwhile_is_a_conflict(prepared):
    errors = [error for error in interrupted_before_each_read(prepared, retried, pruned) if error is not None]
    assert {type(error) for error in errors} == {ConflictError}, errors


def test_a_fork_of_a_fork_whose_thread_was_deleted_is_refused(prepared):
    with prepared() as (store,):
        store.delete_thread("t-failed")
        with pytest.raises(UsageError, match="its thread is empty"):
            durable.fork(store, "forked", at=0, id="new")


def test_a_list_of_runs_omits_a_run_that_is_erased_meanwhile(prepared):
    def act(store):
        assert {each.id for each in durable.runs(store)} >= {"failed", "forked", "first", "second"}

    assert set(interrupted_before_each_read(prepared, act, erased("asking"))) == {None}


def test_a_run_that_is_erased_meanwhile_is_not_found(prepared):
    errors = interrupted_before_each_read(prepared, lambda store: durable.get_run(store, "first"), erased("first"))
    assert {type(error) for error in errors} == {type(None), RunNotFoundError}
