"""A deleted thread can be re-created on purpose. The two threads of one id never mix."""

from __future__ import annotations

import asyncio

import pytest

import statelog
import statelog.aio
from statelog.errors import ConflictError, ThreadDeletedError, UsageError


@pytest.fixture
def store(tmp_path):
    with statelog.open(tmp_path / "a.state") as store:
        yield store


def test_a_deleted_id_is_re_created_only_on_purpose(store):
    old = store.thread("t")
    old.commit({"n": 1})
    store.delete_thread("t")
    with pytest.raises(ThreadDeletedError):
        store.thread("t").commit({"n": 2})
    new = store.thread("t", recreate=True)
    assert (new.head, dict(new.state)) == (None, {})
    assert new.commit({"n": 3}).version == 0
    assert store.thread("t").commit({"m": 4}).version == 1
    assert store.thread("t").state.to_python() == {"n": 3, "m": 4}
    assert [info.id for info in store.threads()] == ["t"]
    assert store.verify().ok


def test_objects_of_a_deleted_thread_do_not_write_to_the_new_one(store):
    old = store.thread("t")
    checkpoint = old.commit({"n": 1})
    opened = store.thread("t", schema={"n": int})
    store.delete_thread("t")
    store.thread("t", recreate=True).commit({"n": 2})
    before = store.last_lsn
    for late in (
        lambda: old.commit({"n": 9}),
        lambda: opened.commit({"n": 9}),
        lambda: old.edit(lambda state: state.update(n=9)),
        lambda: old.rollback(checkpoint),
        lambda: old.fork("f"),
        lambda: old.tag("x", checkpoint),
    ):
        with pytest.raises(ThreadDeletedError):
            late()
    assert store.last_lsn == before
    assert (old.head, old.version) == (None, -1)
    assert store.thread("t").state["n"] == 2


def test_an_expected_head_of_the_deleted_thread_does_not_match_the_new_one_of_its_version(store):
    old = store.thread("t").commit({"n": 1})
    store.delete_thread("t")
    new = store.thread("t", recreate=True)
    seen = new.commit({"n": 2})
    assert seen.version == old.version
    writes = [
        lambda thread, head: thread.commit({"n": 9}, expected_version=head),
        lambda thread, head: thread.edit(lambda state: state.update(n=9), expected_version=head),
        lambda thread, head: thread.rollback(0, expected_version=head),
    ]
    for write in writes:
        with pytest.raises(ConflictError, match="not at the expected checkpoint") as caught:
            write(new, old)
        assert caught.value.facts["actual_version"] == 0
        with pytest.raises(ConflictError), store.transaction() as tx:
            write(tx.thread("t"), old)
    assert new.state["n"] == 2
    for write in writes:
        write(new, new.head)
    fork = new.fork("f")
    assert fork.commit({"n": 10}, expected_version=new.head).version == 3
    with pytest.raises(ConflictError):
        fork.commit({"n": 11}, expected_version=new.head)


def test_one_object_re_creates_a_thread_once(store):
    store.thread("t").commit({"n": 1})
    store.delete_thread("t")
    new = store.thread("t", recreate=True)
    new.commit({"n": 2})
    store.delete_thread("t")
    with pytest.raises(ThreadDeletedError):
        new.commit({"n": 3})
    assert store.thread("t").head is None


def test_re_creating_an_existing_thread_is_refused_and_an_unknown_id_is_created(store):
    store.thread("t").commit({"n": 1})
    with pytest.raises(UsageError, match="thread 't' is not deleted") as caught:
        store.thread("t", recreate=True)
    assert caught.value.facts == {"argument": "recreate", "thread": "t"}
    store.thread("unknown", recreate=True).commit({"n": 1})
    assert store.thread("unknown").version == 0


def test_two_concurrent_re_creations_share_one_thread(store):
    store.thread("t").commit({"n": 1})
    store.delete_thread("t")
    first, second = store.thread("t", recreate=True), store.thread("t", recreate=True)
    first.commit({"a": 1})
    second.commit({"b": 2})
    assert store.thread("t").state.to_python() == {"a": 1, "b": 2}


def test_the_log_distinguishes_both_threads_and_a_rebuilt_index_has_both(store):
    for life in range(3):
        store.thread("t", recreate=life > 0).commit({"life": life})
        if life < 2:
            store.delete_thread("t")
    said = [(record.thread_id, record.body.get("anew", False)) for record in store.log() if record.type == "thread"]
    assert said == [(None, False), (None, False), ("t", True)]
    store.rebuild_index()
    assert store.verify().ok
    assert store.thread("t").state["life"] == 2
    store.compact()
    assert store.verify().ok
    store.delete_thread("t")
    with pytest.raises(ThreadDeletedError):
        store.thread("t").commit({"n": 1})


def test_a_transaction_re_creates_a_thread_with_all_else_or_not_at_all(store):
    store.thread("t").commit({"n": 1})
    store.delete_thread("t")

    def aborted():
        with store.transaction() as tx:
            tx.thread("t", recreate=True).commit({"n": 2})
            raise KeyError

    with pytest.raises(KeyError):
        aborted()
    assert store.thread("t").head is None
    with store.transaction() as tx:
        tx.thread("t", recreate=True).commit({"n": 3})
        tx.thread("other").commit({"n": 3})
    assert store.thread("t").state["n"] == 3


def test_a_thread_can_be_re_created_on_asyncio(tmp_path):
    async def run():
        async with await statelog.aio.open(tmp_path / "b.state") as store:
            await store.thread("t").commit({"n": 1})
            await store.delete_thread("t")
            await store.thread("t", recreate=True).commit({"n": 2})
            return await store.thread("t").state["n"]

    assert asyncio.run(run()) == 2


def test_text_of_both_threads_is_removed_by_deletion(tmp_path):
    path = tmp_path / "c.state"
    with statelog.open(path) as store:
        for life in ("first", "second"):
            store.thread("t", recreate=life == "second").commit({"text": f"of the {life} life " * 20})
            store.delete_thread("t")
        store.compact()
    assert b"life" not in path.read_bytes()


def test_a_re_created_thread_can_be_exported_to_another_store(store, tmp_path):
    store.thread("t").commit({"n": 1})
    store.delete_thread("t")
    store.thread("t", recreate=True).commit({"n": 2})
    with (tmp_path / "t.export").open("wb") as target:
        store.export(target, threads=["t"])
    with statelog.open(tmp_path / "other.state") as other, (tmp_path / "t.export").open("rb") as source:
        other.import_(source)
        assert other.thread("t").state["n"] == 2
        assert other.verify().ok
