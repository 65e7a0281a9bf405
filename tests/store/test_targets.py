from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

import statelog
from statelog.errors import CheckpointNotFoundError


@pytest.fixture
def thread(store):
    """A thread with four versions and a branch."""
    thread = store.thread("t")
    for number in range(4):
        thread.commit({"n": number})
    thread.fork("aside", at=1, update={"n": 10})
    return thread


@pytest.mark.parametrize(("target", "version"), [(-1, 3), (-2, 2), (-4, 0)])
def test_a_version_below_zero_counts_from_the_head(thread, target, version):
    assert thread.at(target).version == version
    assert thread.rollback(target).state["n"] == version
    assert thread.tag("here", -1).version == 4


def test_a_version_below_zero_counts_on_its_branch(thread):
    aside = thread.checkout("aside")
    assert [aside.at(target).state["n"] for target in (-1, -2, -3)] == [10, 1, 0]
    assert aside.fork("further", at=-2).head.state["n"] == 1
    with pytest.raises(CheckpointNotFoundError) as raised:
        aside.at(-4)
    assert raised.value.facts["target"] == -4


def test_negative_versions_count_commits_of_the_transaction(store, thread):
    with store.transaction() as transaction:
        inside = transaction.thread("t")
        inside.commit({"n": 4})
        assert (inside.at(-1).state["n"], inside.at(-2).state["n"]) == (4, 3)
        assert inside.tag("before", -2).version == 3
    assert thread.at("before").version == 3


def test_a_negative_version_of_an_expired_checkpoint_is_not_found(store, thread):
    store.prune(keep_last=1)
    assert thread.at(-1).version == 3
    with pytest.raises(CheckpointNotFoundError):
        thread.at(-2)


@pytest.mark.parametrize("form", [str, datetime.isoformat, lambda moment: f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z"])
def test_a_time_as_text_means_the_last_checkpoint_up_to_it(thread, form):
    for version in range(4):
        moment = thread.at(version).time
        assert thread.at(form(moment)).version == version
        assert thread.at(form(moment)) == thread.at(moment)
    with pytest.raises(CheckpointNotFoundError):
        thread.at(form(thread.at(0).time - timedelta(microseconds=1)))


def test_a_time_as_text_without_an_offset_is_local(thread, monkeypatch):
    moment = thread.at(2).time
    monkeypatch.setenv("TZ", "UTC-9")  # Nine hours ahead, in the notation of POSIX.
    time.tzset()
    try:
        assert thread.at((moment + timedelta(hours=9)).replace(tzinfo=None).isoformat()).version == 2
        with pytest.raises(CheckpointNotFoundError):
            thread.at(moment.replace(tzinfo=None).isoformat())
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_tag_or_id_that_looks_like_a_time_comes_first(thread):
    thread.tag("2999-01-01", 0)
    assert thread.at("2999-01-01").version == 0
    assert thread.at("2999-01-02").version == 3
    made = thread.commit({"n": 5}, id=datetime.now(UTC).isoformat())
    thread.commit({"n": 6})
    assert thread.at(made.id) == made


def test_every_way_to_name_a_checkpoint_accepts_a_time_as_text(thread):
    text = thread.at(1).time.isoformat()
    assert thread.fork("then", at=text).version == 1
    assert thread.tag("then", text).version == 1
    assert thread.rollback(text).state["n"] == 1
    assert statelog.diff(thread.at(text), thread.at(-1)).changes == ()
