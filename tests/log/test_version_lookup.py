"""Versions looked up in one call: what it finds is what the look-ups by key find, and damage is none of it."""

from __future__ import annotations

import gc
import mmap
import random
import struct
from contextlib import contextmanager
from functools import partial

import pytest

import statelog
from statelog.format import keys
from statelog.kernels import (
    address_of,
    checkpoint_find,
    found_checkpoint,
    is_page_free,
    version_checkpoint,
    version_find,
)
from statelog.log.view import View
from statelog.storage.file.checks import read_live_meta

PAGE = 4096
META_ROOT_AT, META_LAST_PAGE_AT, META_TRANSACTION_AT = 128, 136, 144
VERSIONS = 70


class ByKey:
    """A transaction in which nothing can be found but by its key."""

    def __init__(self, transaction):
        self.get_index, self.get_log = transaction.get_index, transaction.get_log
        self.last_lsn, self.last_index = transaction.last_lsn, transaction.last_index


def fill(path):
    """Make a store of several branches, and of records of many sizes."""
    with statelog.open(path) as store:
        store.thread("other").commit({"n": 0})
        thread = store.thread("t")
        for number in range(VERSIONS):
            name = f"mine {number}" if number % 7 == 1 else None
            thread.commit({"n": "x" * (number % 5 * 1500), "m": number}, id=name, metadata={"k": (number,)})
        thread.rollback(3)
        branch = thread.fork("branch", at=40, update={"n": 1})
        branch.rollback(2)
        branch.fork("of branch").commit({"n": "y" * 30_000})
    return path


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    return fill(tmp_path_factory.mktemp("lookup") / "agent.state")


def find_version(transaction, thread, branch, version):
    return version_find(*transaction.mapped(), thread, branch, version)


def is_mapped(transaction):
    """Whether the system tells where LMDB's map lies, once something was looked up by key."""
    return transaction._environment.map_address != 0


def test_it_finds_what_is_found_by_key(filled):
    with statelog.open(filled) as store, store.read() as view:
        transaction = view.transaction
        found = 0
        for row in view.threads():
            for branch in view.branches(row.lsn):
                for version in range(view.head_version(row.lsn, branch.number) + 1):
                    known = View(ByKey(transaction)).checkpoint_of(row.lsn, branch.number, version)
                    assert view.checkpoint_of(row.lsn, branch.number, version) == known
                    own = find_version(transaction, row.lsn, branch.number, version)
                    if own is not None:
                        found += 1
                        place = (*transaction.mapped(), row.lsn, branch.number, version)
                        assert found_checkpoint(own) == known == version_checkpoint(*place)
                        assert found_checkpoint(checkpoint_find(*transaction.mapped(), known[0].lsn)) == known
        assert not is_mapped(transaction) or found == VERSIONS + 4, "but for one of 30 KB"


def test_versions_that_are_not_there_are_not_found(filled):
    with statelog.open(filled) as store, store.read() as view:
        thread = view.thread_lsn("t")
        for version in (VERSIONS + 1, VERSIONS + 100, 2**32 - 1):
            assert find_version(view.transaction, thread, 0, version) is None
            assert view.checkpoint_of(thread, 0, version) is None
        assert find_version(view.transaction, thread, 7, 0) is None
        assert find_version(view.transaction, thread + 1, 0, 0) is None


def test_expired_versions_are_not_found(store):
    thread = store.thread("t")
    for number in range(40):
        thread.commit({"n": number})
    store.retain(keep_last=5)
    with store.read() as view:
        lsn = view.thread_lsn("t")
        found = [view.checkpoint_of(lsn, 0, version) is not None for version in range(40)]
        assert found == [False] * 35 + [True] * 5
        assert not any(find_version(view.transaction, lsn, 0, version) for version in range(35))
        lsns = range(1, store.last_lsn + 1)
        assert sum(view.checkpoint_in_use(each) is not None for each in lsns) in (0, 5)


def test_keys_far_apart_and_side_by_side_are_found_in_trees_of_several_pages(tmp_path):
    """Where a key may lie is guessed from its neighbours: that must hold for any."""
    rng = random.Random(3)
    made = {}
    with statelog.open(tmp_path / "agent.state", durability="interval") as store:
        threads = [store.thread(f"thread {number}") for number in range(30)]
        for _ in range(4000):
            thread = threads[int(30 * rng.random() ** 4)]
            checkpoint = thread.commit({"n": "x" * rng.choice((1, 1, 1, 300, 3000))})
            made[checkpoint.place, checkpoint.version] = checkpoint.lsn
        store.retain(threads="thread 0", keep_last=3)  # the thread of most: its records go from among the others
        with store.read() as view:
            transaction = view.transaction
            kept, oldest = (view.thread_lsn("thread 0"), 0), threads[0].version - 2
            for (place, version), lsn in made.items():
                known = View(ByKey(transaction)).checkpoint_of(*place, version)
                assert (known is None) == (place == kept and version < oldest)
                assert view.checkpoint_of(*place, version) == known
                own = find_version(transaction, *place, version)
                assert own == checkpoint_find(*transaction.mapped(), lsn)
                assert (own is not None) == (known is not None and is_mapped(transaction))
            for lsn in set(range(store.last_lsn + 50)) - set(made.values()):
                assert checkpoint_find(*transaction.mapped(), lsn) is None


def test_a_snapshot_that_is_not_the_last_is_left_alone(store):
    thread = store.thread("t")
    for number in range(4):
        thread.commit({"n": number})
    with store.read() as view:
        lsn = view.thread_lsn("t")
        known = view.checkpoint_of(lsn, 0, 2)
        for number in range(3):
            assert view.checkpoint_of(lsn, 0, 2) == known
            thread.commit({"n": number})
            store._engine.environment.deferred.settle()
            assert find_version(view.transaction, lsn, 0, 2) is None
        assert view.checkpoint_of(lsn, 0, 5) is None
    with store.read() as view:
        assert view.checkpoint_of(lsn, 0, 5) is not None


def test_a_transaction_that_has_changed_something_looks_itself(store):
    thread = store.thread("t")
    thread.commit({"n": 0})
    seen = []

    def work(transaction):
        view = View(transaction)
        lsn = view.thread_lsn("t")
        seen.append((is_mapped(transaction), find_version(transaction, lsn, 0, 0) is not None))
        transaction.put_index(keys.encode_tag_key(lsn, "tag"), keys.encode_lsn(2))
        assert find_version(transaction, lsn, 0, 0) is None
        assert view.checkpoint_of(lsn, 0, 0) is not None
        transaction.delete_index(keys.encode_tag_key(lsn, "tag"))

    store._engine.write_raw(work)
    assert seen[0][0] == seen[0][1]


def test_a_rollback_in_a_transaction_sees_what_it_has_staged(store):
    thread = store.thread("t")
    thread.commit({"n": 0})
    with store.transaction() as transaction:
        inside = transaction.thread("t")
        inside.commit({"n": 1})
        inside.commit({"n": 2})
        inside.rollback(1)
    assert thread.state == {"n": 1}
    assert [checkpoint.kind for checkpoint in thread.history()] == ["rollback", "commit", "commit", "commit"]


# --- on damaged pages -------------------------------------------------------------------


@contextmanager
def mapped(path):
    """Yield a store's bytes in memory, without its reserve; the id of its last commit; and a look-up in them."""
    with path.open("rb") as file:
        meta = read_live_meta(file.fileno(), path)
    data = path.read_bytes()[: (meta.last_page + 1) * PAGE]
    with mmap.mmap(-1, len(data)) as memory:
        memory[:] = data
        view = memoryview(memory)
        yield memory, meta.transaction_id, partial(version_find, address_of(view), PAGE, meta.transaction_id)
        view.release()
        gc.collect()  # cffi's buffer holds the map


def thread_of(path):
    with statelog.open(path) as store, store.read() as view:
        return view.thread_lsn("t")


def test_a_flipped_bit_hides_a_version_or_does_not_matter(filled):
    thread = thread_of(filled)
    rng = random.Random(7)
    with mapped(filled) as (memory, transaction_id, find):
        known = {version: find(thread, 0, version) for version in (0, 31, 32, 44)}
        assert all(known.values())
        lsns = {version: found_checkpoint(found)[0].lsn for version, found in known.items()}
        meta = (transaction_id & 1) * PAGE
        hidden = 0
        for at in range(0, len(memory), 7):
            if meta + META_LAST_PAGE_AT <= at < meta + META_LAST_PAGE_AT + 8:
                continue  # where the file ends is checked when it is opened
            before = memory[at]
            memory[at] = before ^ 1 << rng.randrange(8)
            for version, right in known.items():
                found = find(thread, 0, version)
                assert found in (None, right), at
                hidden += found is None
                assert checkpoint_find(*find.args, lsns[version]) in (None, right), at
            memory[at] = before
        assert hidden > 1000
        assert {version: find(thread, 0, version) for version in known} == known


def test_a_page_that_is_free_is_none_of_the_index(tmp_path):
    path = tmp_path / "agent.state"
    with statelog.open(path) as store:
        thread = store.thread("t")
        for number in range(12):
            thread.commit({"n": number})
    thread = thread_of(path)
    with mapped(path) as (memory, transaction_id, find):
        right = find(thread, 0, 3)
        pages = len(memory) // PAGE
        view = memoryview(memory)
        free = [number for number in range(pages) if is_page_free(address_of(view), PAGE, transaction_id, number)]
        view.release()
        main = struct.unpack_from("=Q", memory, (transaction_id & 1) * PAGE + META_ROOT_AT)[0] * PAGE
        root_at = memory.find(b"index", main, main + PAGE) + len(b"index") + 40
        before = memory[root_at : root_at + 8]
        bearing = [number for number in free if memory[number * PAGE :][:8] == struct.pack("=Q", number)]
        held = [
            number for number in bearing if b"v" + thread.to_bytes(8) in memory[number * PAGE : (number + 1) * PAGE]
        ]
        assert held, "older copies of the page, whole and sealed"
        for number in range(pages):
            memory[root_at : root_at + 8] = struct.pack("=Q", number)
            assert find(thread, 0, 3) in ((None,) if number in free else (None, right))
        memory[root_at : root_at + 8] = before
        assert find(thread, 0, 3) == right


def test_it_is_told_of_the_last_commit_alone(filled):
    thread = thread_of(filled)
    with mapped(filled) as (memory, transaction_id, find):
        assert find(thread, 0, 0)
        for other in (0, transaction_id - 1, transaction_id + 1):
            assert version_find(find.args[0], PAGE, other, thread, 0, 0) is None
        assert version_find(0, PAGE, transaction_id, thread, 0, 0) is None
        at = (~transaction_id & 1) * PAGE + META_TRANSACTION_AT
        memory[at : at + 8] = struct.pack("=Q", transaction_id + 1)
        assert find(thread, 0, 0) is None
