"""Every invariant of LMDB's pages is broken once, and reported by its number."""

import struct

import pytest
from corruption import make_sample
from corruption_pages import PAGE_SIZE_BYTES, PageMap

import statelog
from statelog.errors import CorruptionError
from statelog.storage.page_walk import check_pages


@pytest.fixture(scope="module")
def sample():
    return make_sample()


@pytest.fixture(scope="module")
def places(sample):
    return {str(place): found for place, found in PageMap(sample).offsets().items()}


@pytest.fixture
def verify(path):
    """Return (invariant, message) of the problems of a file with these bytes."""

    def run(data):
        path.write_bytes(data)
        with statelog.open(path, max_size_bytes=1 << 26) as store:
            return [(problem.invariant, problem.message) for problem in store.verify().problems]

    return run


def changed(data, at, new):
    return data[:at] + new + data[at + len(new) :]


def test_a_sound_file_has_no_problem(sample, verify):
    assert verify(sample) == []


@pytest.mark.parametrize(
    ("place", "byte", "bit", "invariant"),
    [
        ("log, leaf page: page number", 0, 6, "E2"),
        ("log, leaf page: page flags", 0, 5, "E2"),
        ("log, leaf page: bounds", 0, 1, "E2"),
        ("log, leaf page: bounds", 2, 1, "E2"),
        ("log, leaf page: node pointers", 0, 2, "E2"),
        ("log, leaf page: node flags", 0, 3, "E2"),
        ("log, leaf page: size of a value", 0, 1, "E2"),
        ("log, branch page: key", 6, 7, "E2"),
        ("log, branch page: child's page number", 0, 0, "E3"),
        ("log, long value: page number", 0, 5, "E2"),
        ("log, long value: page flags", 0, 1, "E2"),
        ("log, long value: count of pages", 0, 6, "E3"),
        ("free list, leaf page: page flags", 0, 5, "E2"),
        ("free list, leaf page: value", 0, 2, "E3"),
        ("free list, leaf page: value", 8, 0, "E3"),
        ("live meta page: last page", 0, 0, "E3"),
        ("live meta page: free list: count of entries", 0, 0, "E4"),
        ("live meta page: free list: depth", 0, 1, "E4"),
        ("live meta page: main: count of pages", 8, 0, "E4"),
        ("main, leaf page: index: count of entries", 1, 0, "E4"),
        ("main, leaf page: index: page size", 0, 3, "E4"),
        ("main, leaf page: log: count of pages", 16, 1, "E4"),
    ],
)
def test_a_flipped_bit_in_lmdbs_structures_is_named(sample, places, verify, place, byte, bit, invariant):
    at = places[place][byte]
    try:
        problems = verify(changed(sample, at, bytes([sample[at] ^ 1 << bit])))
    except CorruptionError:
        if place != "live meta page: last page":
            raise
        return  # Refused at once, because a root page is now beyond the end.
    assert invariant in {number for number, _message in problems}
    assert all(message.startswith("page ") for number, message in problems if number.startswith("E"))


def test_e3_a_page_that_is_free_and_in_use_is_named_by_its_number(sample, places, verify):
    at = places["free list, leaf page: value"][8]
    live = places["index, leaf page: page number"][0] // PAGE_SIZE_BYTES
    problems = verify(changed(sample, at, struct.pack("=Q", live)))
    assert [message for number, message in problems if number == "E3"]
    assert any(str(live) in message for _number, message in problems)


def test_e3_a_page_that_is_in_no_tree_and_not_free_is_named(sample, places, verify):
    """A commit frees the page, and the free list is shortened by it."""
    at = places["free list, leaf page: value"][0]
    (count,) = struct.unpack_from("=Q", sample, at)
    problems = verify(changed(sample, at, struct.pack("=Q", count - 1)))
    assert [number for number, _message in problems] == ["E3"]
    assert "neither in a tree nor free" in problems[0][1]


def test_e2_a_page_written_to_the_place_of_another_is_named(sample, places, verify):
    """A misdirected write: complete, with a valid checksum, and of the same tree."""
    leaves = sorted({at // PAGE_SIZE_BYTES for at in places["log, leaf page: page number"]})
    one, other = leaves[:2]
    page = sample[one * PAGE_SIZE_BYTES : (one + 1) * PAGE_SIZE_BYTES]
    problems = verify(changed(sample, other * PAGE_SIZE_BYTES, page))
    assert ("E2", f"page {other}: log: it has the page number {one}") in problems


def test_damage_to_the_free_list_does_not_prevent_the_check_of_records(sample, places, path):
    at = places["free list, leaf page: value"][8]
    path.write_bytes(changed(sample, at, struct.pack("=Q", 1 << 40)))
    with statelog.open(path, max_size_bytes=1 << 26) as store:
        report = store.verify()
        assert [problem.invariant for problem in report.problems] == ["E3"]
        assert report.records == store.last_lsn


def test_a_damaged_tree_is_not_read_by_lmdb(sample, places, path):
    """LMDB ends the process if a page is not of the kind that it asserts."""
    at = places["log, branch page: page flags"][0]
    path.write_bytes(changed(sample, at, b"\x04"))
    with statelog.open(path, max_size_bytes=1 << 26) as store:
        report = store.verify()
        assert {problem.invariant for problem in report.problems} == {"E2"}
        assert report.records == 0


def test_a_shallow_check_reads_no_pages(sample, places, path):
    at = places["live meta page: main: count of pages"][8]
    path.write_bytes(changed(sample, at, bytes([sample[at] ^ 1])))
    with statelog.open(path, max_size_bytes=1 << 26) as store:
        assert store.verify(deep=False).ok
        assert not store.verify().ok


def test_a_snapshot_that_no_meta_page_names_cannot_be_walked(store):
    thread = store.thread("t")
    thread.commit({"x": 0})
    store_file = store._engine.store_file
    with store_file.read() as transaction:
        assert check_pages(store_file.lmdb_file, transaction) == []
        thread.commit({"x": 1})
        assert store_file.last_transaction_id() == transaction.id + 1  # No commit waits for LMDB.
        assert check_pages(store_file.lmdb_file, transaction) == []
        thread.commit({"x": 2})
        assert store_file.last_transaction_id() == transaction.id + 2
        assert check_pages(store_file.lmdb_file, transaction) is None


def test_a_store_verifies_during_concurrent_commits(store, monkeypatch):
    """The first snapshot ends before its pages are read, so a later one is used."""
    thread = store.thread("t")
    thread.commit({"x": 0})
    calls = []

    def check(file, transaction):
        calls.append(transaction.id)
        if len(calls) == 1:
            for value in (1, 2):
                thread.commit({"x": value})
                store._engine.store_file.last_transaction_id()  # No commit waits for LMDB.
        return check_pages(file, transaction)

    monkeypatch.setattr("statelog.log.care.verify.check_pages", check)
    assert store.verify().ok
    assert len(calls) == 2


@pytest.mark.slow
def test_large_trees_have_no_problem(store):
    """Nested branch pages, long values and shrinking tables: trees made by LMDB itself are sound."""
    threads = [store.thread(f"thread {number}" * 20) for number in range(60)]
    for number, thread in enumerate(threads):
        thread.commit({"x": "y" * (number * 997 % 30_000)}, id="a caller's id " * 15)
    for thread in threads[::2]:
        store.delete_thread(thread.id)
    assert store.verify().problems == []
