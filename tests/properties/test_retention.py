"""Retention removes exactly what it may, after and before any other operations."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import statelog
from statelog.errors import CheckpointNotFoundError
from statelog.testing import SCHEMA, Commit, StoreModel, histories, identical, perform, perform_all, writes

ROUNDS = st.tuples(histories(min_size=3, max_size=15), st.integers(1, 4), st.booleans(), st.booleans())
LATER = st.lists(st.tuples(st.sampled_from(["a", "b"]), writes()), max_size=5)


def must_be_kept(thread, keep_last, keep_tags):
    """Return (branch, version) of the versions that retention must keep."""
    kept = set()
    for name, parent, base, head in thread.branches():
        line = thread.checkout(name)
        versions = [*range(max(head - keep_last + 1, 0), head + 1)]
        kept |= {(line.at(version).branch, version) for version in versions}
        if parent is not None:
            kept.add((thread.checkout(parent).at(base).branch, base))
    if keep_tags:
        kept |= {(checkpoint.branch, checkpoint.version) for checkpoint in thread.tags().values()}
    return kept


def compare(store, model, kept_by_thread):
    """Check that each version is unchanged or removed, and that kept ones exist. Return the number of removed ones."""
    gone = 0
    for thread_id, kept in kept_by_thread.items():
        for name, _parent, _base, head in model.thread(thread_id).branches():
            mine, theirs = store.thread(thread_id, branch=name), model.thread(thread_id, branch=name)
            assert identical(mine.state, theirs.state)
            there = {}
            for version in range(head + 1):
                expected = theirs.at(version)
                try:
                    there[version] = mine.at(version)
                except CheckpointNotFoundError:
                    assert (expected.branch, version) not in kept
                    gone += 1
                    continue
                assert identical(there[version].state, expected.state)
                assert identical(there[version].metadata, expected.metadata)
            assert [checkpoint.version for checkpoint in mine.history()] == sorted(there, reverse=True)
    return gone


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples // 3)
@given(ROUNDS, LATER)
def test_kept_versions_are_unchanged_and_the_others_are_removed(tmp_path_factory, round_, later):
    history, keep_last, keep_tags, reopen = round_
    model = StoreModel()
    perform_all(history, model, schema=SCHEMA)
    path = tmp_path_factory.mktemp("retention") / "a.state"
    store = statelog.open(path, durability="interval")
    try:
        perform_all(history, store, schema=SCHEMA)
        chain = [record.digest for record in store.log()]
        store.prune(keep_last=keep_last, keep_tags=keep_tags)
        if reopen:
            store.close()
            store = statelog.open(path)
        kept = {
            thread_id: must_be_kept(model.thread(thread_id), keep_last, keep_tags) for thread_id in model.thread_ids()
        }
        compare(store, model, kept)
        digests = [record.digest for record in store.log()]
        assert digests[: len(chain)] == chain, "the chain outlives the records it is of"
        assert {record.type for record in store.log(after=len(chain))} <= {"removal"}
        assert store.verify().problems == []
        for thread_id, write in later:
            operation = Commit(thread_id, (write,))
            assert perform(operation, store, schema=SCHEMA) == perform(operation, model, schema=SCHEMA)
        heads = {thread_id: must_be_kept(model.thread(thread_id), 1, keep_tags) for thread_id in model.thread_ids()}
        compare(store, model, heads)
        store.rebuild_index()
        assert store.verify().problems == []
        store.prune(keep_last=1, keep_tags=keep_tags)
        compare(store, model, heads)
        assert store.verify().problems == []
    finally:
        store.close()


@pytest.mark.slow
def test_most_of_a_long_history_goes(store):
    thread, model = store.thread("t"), StoreModel()
    for number in range(200):
        for target in (store, model):
            target.thread("t").commit({"n": number, "text": f"{number} " * 50})
    store.prune(keep_last=10)
    kept = {"t": must_be_kept(model.thread("t"), 10, keep_tags=True)}
    assert compare(store, model, kept) == 190
    assert thread.commit({"n": 200}).version == 200
