"""A policy holds for threads to come, too: they have what they would have if they had been there all the time."""

from __future__ import annotations

import asyncio
import collections
import io
import itertools
import sys

import forks
import pytest
from elsewhere import elsewhere

import statelog
from statelog import aio
from statelog.errors import LimitError, StatelogError, StoreFullError, UsageError
from statelog.limits import POLICIES_MAX
from statelog.portable.salvage import salvage

TURN = 64


def policy(keep_last):
    return {"keep_last": keep_last, "max_age_s": None, "keep_tags": True}


def policies(store):
    return {info.id: info.policy for info in store.threads()}


def begin(store, *ids):
    for id in ids:
        store.thread(id).commit({"n": 0})


def export(store, **options):
    stream = io.BytesIO()
    store.export(stream, **options)
    return stream.getvalue()


def index_of(store):
    with store._engine.read() as view:
        return dict(view.transaction.scan_index(b""))


@pytest.fixture
def checked(store):
    """A store whose index must come out the same of a rebuild."""
    yield store
    before = index_of(store)
    store.rebuild_index()
    assert index_of(store) == before
    assert store.verify().problems == []


@pytest.mark.slow
def test_a_policy_set_before_the_first_commit_is_applied_as_the_thread_commits(checked):
    checked.set_retention(keep_last=10, threads="chat-*")
    chat, job = checked.thread("chat-1"), checked.thread("job")
    for number in range(3 * TURN):
        chat.commit({"n": number})
        job.commit({"n": number})
    assert len(list(chat.history())) == 10
    assert len(list(job.history())) == 3 * TURN
    assert policies(checked) == {"chat-1": policy(10), "job": {}}


def test_before_and_after_come_to_the_same(checked):
    begin(checked, "chat-1")
    checked.set_retention(keep_last=10, threads="chat-*")
    begin(checked, "chat-2")
    assert policies(checked) == {"chat-1": policy(10), "chat-2": policy(10)}


def test_of_two_patterns_the_last_counts(checked):
    checked.set_retention(keep_last=10, threads="chat-*")
    checked.set_retention(keep_last=20, threads="*-vip")
    begin(checked, "chat-1", "chat-vip", "job-vip", "job")
    assert policies(checked) == {"chat-1": policy(10), "chat-vip": policy(20), "job-vip": policy(20), "job": {}}
    checked.set_retention(keep_last=10, threads="chat-*")
    begin(checked, "chat-2-vip")
    assert policies(checked)["chat-vip"] == policies(checked)["chat-2-vip"] == policy(10)


def test_a_policy_is_replaced_and_removed(checked):
    checked.set_retention(keep_last=10, threads="chat-*")
    checked.set_retention(keep_last=5, threads="chat-*")
    begin(checked, "chat-1")
    checked.set_retention(threads="chat-*")
    begin(checked, "chat-2")
    assert policies(checked) == {"chat-1": {}, "chat-2": {}}
    assert checked.statistics().policies == ()


def test_removed_for_some_it_holds_for_the_others(checked):
    checked.set_retention(keep_last=10)
    checked.set_retention(threads="job-*")
    begin(checked, "job-1", "chat-1")
    assert policies(checked) == {"job-1": {}, "chat-1": policy(10)}
    checked.set_retention()
    begin(checked, "chat-2")
    assert policies(checked)["chat-2"] == {}


@pytest.mark.parametrize("pattern", ["chat-*", "chat-1"])
def test_the_same_again_writes_nothing(checked, pattern):
    for keep_last in (10, None):
        checked.set_retention(keep_last=keep_last, threads=pattern)
        last = checked.last_lsn
        checked.set_retention(keep_last=keep_last, threads=pattern)
        assert checked.last_lsn == last
        begin(checked, "chat-1")
        last = checked.last_lsn
        checked.set_retention(keep_last=keep_last, threads=pattern)
        assert checked.last_lsn == last


def test_a_policy_that_is_set_at_every_start_is_written_once(checked):
    begin(checked, "chat-1", "job-1")
    lengths = []
    for _start in range(3):
        checked.set_retention(keep_last=10, threads="chat-*")
        checked.set_retention(keep_last=20, threads="job-*")
        lengths.append(checked.last_lsn)
    assert len(set(lengths)) == 1


def test_the_id_of_one_thread_is_a_pattern_until_the_thread_is_there(checked):
    checked.set_retention(keep_last=10, threads="chat-1")
    (stored,) = checked.statistics().policies
    assert (stored.pattern, len(stored.id_digest), stored.policy) == (None, 40, policy(10))
    begin(checked, "chat-2", "chat-1")
    assert policies(checked) == {"chat-2": {}, "chat-1": policy(10)}
    assert checked.statistics().policies == ()
    checked.set_retention(keep_last=5, threads="chat-1")
    assert policies(checked)["chat-1"] == policy(5)
    assert checked.statistics().policies == ()


@pytest.mark.slow
@pytest.mark.parametrize("is_anew", [False, True])
def test_the_policy_of_one_thread_does_not_come_back_with_the_index(checked, is_anew):
    """L4: the thread's beginning took it out, and is erased with the thread."""
    for number in range(POLICIES_MAX + 5):
        checked.set_retention(keep_last=10, threads=f"chat-{number}")
        begin(checked, f"chat-{number}")
        checked.delete_thread(f"chat-{number}")
    checked.set_retention(keep_last=20, threads="job-1")
    if is_anew:
        checked.thread("chat-1", recreate=True).commit({"n": 0})
        assert policies(checked) == {"chat-1": {}}
    (left,) = checked.statistics().policies
    checked.rebuild_index()
    assert checked.statistics().policies == (left,)


def test_an_id_that_had_a_policy_leaves_the_file_with_its_thread(path):
    with statelog.open(path) as store:
        store.set_retention(keep_last=10, threads="ada-lovelace")
        assert b"ada-lovelace" not in path.read_bytes()
        begin(store, "ada-lovelace")
        store.delete_thread("ada-lovelace")
        store.set_retention(keep_last=10, threads="ada-lovelace")
        assert store.statistics().policies == ()
        store.compact()
    assert b"ada-lovelace" not in path.read_bytes()


def test_reads_and_refused_writes_do_not_begin_a_thread(checked):
    checked.set_retention(keep_last=10, threads="chat-1")
    thread = checked.thread("chat-1")
    for refused in (lambda: thread.fork("b"), lambda: thread.rollback(0), lambda: thread.tag("t")):
        with pytest.raises(StatelogError):
            refused()
    with pytest.raises(StatelogError):
        thread.commit({"n": 0}, expected_version=3)
    assert len(checked.statistics().policies) == 1
    begin(checked, "chat-1")
    assert policies(checked) == {"chat-1": policy(10)}


def test_a_transaction_begins_threads_under_a_policy(checked):
    checked.set_retention(keep_last=10, threads="chat-*")
    checked.set_retention(keep_last=5, threads="chat-2")
    with checked.transaction() as tx:
        for number in range(1, 4):
            tx.thread(f"chat-{number}").commit({"n": number})
    with pytest.raises(ZeroDivisionError), checked.transaction() as tx:
        tx.thread("chat-9").commit({"n": 1 / 0})
    assert policies(checked) == {"chat-1": policy(10), "chat-2": policy(5), "chat-3": policy(10)}


def test_a_policy_that_is_set_while_a_transaction_is_open_counts(checked):
    with checked.transaction() as tx:
        tx.thread("chat-1").commit({"n": 0})
        elsewhere(checked.set_retention, keep_last=10)
    assert policies(checked) == {"chat-1": policy(10)}


def test_a_mount_begins_a_thread_under_a_policy(checked):
    checked.set_retention(keep_last=10)
    with checked.thread("chat-1").mount() as state:
        state["n"] = 1
    assert policies(checked) == {"chat-1": policy(10)}


def test_a_policy_outlives_the_store_and_holds_in_other_processes(path):
    with statelog.open(path) as store:
        store.set_retention(keep_last=10, threads="chat-*")
        program = "import statelog, sys\nstatelog.open(sys.argv[1]).thread('chat-1').commit({'n': 0})"
        forks.run([sys.executable, "-c", program, str(path)], check=True)
        assert policies(store) == {"chat-1": policy(10)}
    with statelog.open(path) as store:
        begin(store, "chat-2")
        assert policies(store)["chat-2"] == policy(10)
        store.compact()
        begin(store, "chat-3")
        assert policies(store)["chat-3"] == policy(10)


def test_a_copy_of_the_store_has_its_policies(checked, tmp_path):
    checked.set_retention(keep_last=10, threads="chat-*")
    checked.set_retention(keep_last=5, threads="job")
    begin(checked, "chat-1")
    with statelog.open(tmp_path / "copy.state") as copy:
        copy.import_(io.BytesIO(export(checked)))
        assert list(copy.log()) == list(checked.log())
        assert index_of(copy) == index_of(checked)
        begin(copy, "chat-2", "job")
        assert policies(copy) == {"chat-1": policy(10), "chat-2": policy(10), "job": policy(5)}
        assert copy.verify().problems == []


def test_an_imported_thread_keeps_its_contents(checked, tmp_path):
    """A copy is not trimmed because of what holds for those who begin where it goes."""
    checked.set_retention(keep_last=10, threads="chat-*")
    begin(checked, "chat-1", "job-1")
    data = export(checked, threads=["chat-1", "job-1"])
    with statelog.open(tmp_path / "other.state") as other:
        other.set_retention(keep_last=3)
        other.import_(io.BytesIO(data))
        assert policies(other) == {"chat-1": policy(10), "job-1": {}}
        last = other.last_lsn
        other.import_(io.BytesIO(data))
        assert other.last_lsn == last
        begin(other, "chat-2")
        assert policies(other)["chat-2"] == policy(3)
        other.set_retention(keep_last=3)
        assert policies(other)["job-1"] == policy(3)
        other.rebuild_index()
        assert other.verify().problems == []


def test_a_salvaged_store_has_its_policies(checked, tmp_path):
    checked.set_retention(keep_last=10, threads="chat-*")
    begin(checked, "chat-1")
    log = list(checked.log())
    damaged, new = tmp_path / "damaged.state", tmp_path / "salvaged.state"
    damaged.write_bytes(checked.path.read_bytes())
    assert salvage(damaged, new).is_complete
    with statelog.open(new) as salvaged:
        assert list(salvaged.log()) == log
        begin(salvaged, "chat-2")
        assert policies(salvaged)["chat-2"] == policy(10)


def test_a_read_only_store_refuses_a_policy(path):
    with statelog.open(path):
        pass
    with statelog.open(path, read_only=True) as store, pytest.raises(UsageError):
        store.set_retention(keep_last=10, threads="chat-*")


@pytest.mark.slow
def test_a_full_store_takes_the_policy_that_helps_it(tmp_path):
    with statelog.open(tmp_path / "full.state", max_size_bytes=1 << 20) as store:
        thread = store.thread("chat-1")
        with pytest.raises(StoreFullError):
            collections.deque(thread.commit({"text": f"{number} " * 1000}) for number in itertools.count())
        assert store.set_retention(keep_last=2, threads="chat-*").expired_versions > 10
        begin(store, "chat-2")
        assert policies(store)["chat-2"] == policy(2)
        assert store.verify().problems == []


def test_the_log_and_the_statistics_tell_of_policies(checked):
    checked.set_retention(keep_last=10, threads="chat-*")
    begin(checked, "chat-1")
    first, _thread, own, _checkpoint = checked.log()
    assert (first.type, first.thread_id, first.body) == ("policy", None, {"policy": policy(10), "pattern": "chat-*"})
    assert (own.type, own.thread_id, own.body) == ("policy", "chat-1", {"policy": policy(10)})
    (stored,) = checked.statistics().policies
    assert (stored.pattern, stored.id_digest, stored.policy) == ("chat-*", None, policy(10))


def test_retain_without_a_rule_is_content_with_a_policy_for_threads_to_come(checked):
    checked.set_retention(keep_last=10, threads="chat-*")
    assert checked.prune().threads == 0
    begin(checked, "job")
    assert checked.prune().threads == 0


@pytest.mark.parametrize(("pattern", "kind"), [("", UsageError), (7, UsageError), ("\ud800*", UsageError)])
def test_invalid_patterns_are_refused(checked, pattern, kind):
    with pytest.raises(kind):
        checked.set_retention(keep_last=10, threads=pattern)


@pytest.mark.slow
def test_patterns_are_bounded_in_length_and_number(checked):
    with pytest.raises(LimitError):
        checked.set_retention(keep_last=10, threads="x" * 400 + "*")
    for number in range(POLICIES_MAX):
        checked.set_retention(keep_last=10, threads=f"{number}-*")
    with pytest.raises(LimitError) as caught:
        checked.set_retention(keep_last=10, threads="one-more-*")
    assert (caught.value.limit, caught.value.actual) == (POLICIES_MAX, POLICIES_MAX + 1)
    checked.set_retention(keep_last=5, threads="0-*")
    begin(checked, "0-1", "one-more-1")
    assert policies(checked) == {"0-1": policy(5), "one-more-1": {}}
    checked.set_retention(keep_last=5)
    assert len(checked.statistics().policies) == 1


def test_asyncio_sets_policies_for_threads_to_come(path):
    async def main():
        async with aio.open(path) as store:
            await store.set_retention(keep_last=10, threads="chat-*")
            await store.thread("chat-1").commit({"n": 0})
            return {info.id: info.policy async for info in store.threads()}, (await store.statistics()).policies

    found, stored = asyncio.run(main())
    assert found == {"chat-1": policy(10)}
    assert [each.pattern for each in stored] == ["chat-*"]


def test_a_commit_to_a_thread_that_is_there_asks_for_no_policies(checked, monkeypatch):
    """The cost of a commit stays what it was."""
    begin(checked, "chat-1")
    monkeypatch.delattr("statelog.log.view.View.policies")
    checked.thread("chat-1").commit({"n": 1})
    with pytest.raises(AttributeError):
        begin(checked, "chat-2")
