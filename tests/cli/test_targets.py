from __future__ import annotations

import pytest

import statelog
from statelog.cli.targets import find_checkpoint, find_side, find_thread, parse_object
from statelog.errors import (
    BranchNotFoundError,
    CheckpointNotFoundError,
    ThreadDeletedError,
    ThreadNotFoundError,
    UsageError,
)


@pytest.fixture
def thread(store):
    """A thread with names that are as misleading as possible."""
    thread = store.thread("t")
    for number in range(4):
        thread.commit({"n": number})
    thread.tag("2", 0)
    thread.tag("2026-01-01", 1)
    thread.tag("time:noon", 2)
    thread.fork("a@b", at=1, update={"n": 10})
    return thread


def test_a_number_is_a_version_even_if_a_tag_has_that_name(thread):
    assert find_checkpoint(thread, "2").version == 2
    assert find_checkpoint(thread, "tag:2").version == 0


def test_a_tag_that_looks_like_a_time_is_found(thread):
    assert find_checkpoint(thread, "2026-01-01").version == 1
    assert find_checkpoint(thread, "tag:time:noon").version == 2


def test_a_branch_name_can_contain_the_separator(thread):
    assert find_side(thread, "a@b").state["n"] == 10
    assert find_side(thread, "a@b@0").version == 0


def test_the_most_similar_thread_is_suggested(store, thread):
    store.thread("research-2026").commit({"x": 1})
    with pytest.raises(ThreadNotFoundError, match="did you mean 'research-2026'"):
        find_thread(store, "reserch-2026", "main")
    with pytest.raises(ThreadNotFoundError, match="`statelog threads"):
        find_thread(store, "zzz", "main")
    with pytest.raises(BranchNotFoundError, match=r"\(there is main, a@b\)$"):
        find_thread(store, thread.id, "nope")


def test_the_most_similar_branch_or_tag_is_suggested(run, state):
    for arguments, name in (
        (["show", state, "ticket-42", "--branch", "what-fi"], "what-if"),
        (["show", state, "ticket-42", "--at", "goood"], "good"),
        (["show", state, "ticket-42", "--at", "tag:goood"], "good"),
        (["rollback", state, "ticket-42", "goood"], "good"),
        (["diff", state, "ticket-42", "what-fi"], "what-if"),
        (["diff", state, "ticket-42", "what-fi@2"], "what-if"),
        (["diff", state, "ticket-42", "0", "goood"], "good"),
    ):
        answer = run(*arguments)
        assert (answer.code, answer.out, answer.err.count("\n")) == (3, "", 1)
        assert answer.err.endswith(f": did you mean {name!r}?\n")


def test_a_prefix_restricts_the_kind_of_name(thread):
    thread.tag("3", 0)
    assert find_checkpoint(thread, "3").version == 3
    first = thread.at(0)
    assert find_checkpoint(thread, f"id:{first.id}").version == 0
    for text in ("tag:2026-01-02", f"tag:{first.id}", "id:2026-01-01"):
        with pytest.raises(CheckpointNotFoundError):
            find_checkpoint(thread, text)


def test_an_age_selects_the_newest_version_of_that_age(thread):
    assert find_checkpoint(thread, "0s ago") == thread.head
    assert find_checkpoint(thread, "time:0s ago") == thread.head
    with pytest.raises(CheckpointNotFoundError):
        find_checkpoint(thread, "2h ago")
    with pytest.raises(UsageError, match="is not a valid age"):
        find_checkpoint(thread, f"{10**9}w ago")


def test_a_deleted_thread_is_reported_as_deleted(run, state):
    with statelog.open(state) as store:
        store.delete_thread("other")
    deleted = f"statelog: thread 'other' in {state} was deleted\n"
    for arguments in (["show"], ["history"], ["rollback", "0"], ["fork", "b"], ["tag", "x"], ["diff", "0", "1"]):
        answer = run(arguments[0], state, "other", *arguments[1:])
        assert (answer.code, answer.out, answer.err) == (ThreadDeletedError.exit_code, "", deleted), arguments
    assert run("log", state, "--thread", "other").err == deleted


def test_without_the_option_no_object_is_read():
    assert parse_object(None, "--update") is None


def test_an_object_is_read_with_its_types():
    assert parse_object('{"x": {"$tuple": [1]}}', "--update") == {"x": (1,)}
    with pytest.raises(UsageError, match="--update must be a JSON object"):
        parse_object("null", "--update")


def test_reading_never_creates_a_store(tmp_path):
    from statelog.cli.opened_stores import open_for_reading, open_for_writing

    for open_ in (open_for_reading, open_for_writing):
        with pytest.raises(statelog.errors.StoreNotFoundError):
            open_(tmp_path / "none.state")
    assert list(tmp_path.iterdir()) == []
