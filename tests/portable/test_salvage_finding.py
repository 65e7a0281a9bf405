"""The choice between several records, and pages with invalid references."""

import os
import struct

import pytest
import xxhash
from damage import PAGE_SIZE_BYTES, kinds, wipe

import statelog
from statelog.format import cbor
from statelog.format.record import ENVELOPE_SIZE_BYTES, encode_record
from statelog.portable.pages import PageFile
from statelog.portable.record_search import RecordFinder
from statelog.store.session import session_of

# --- the choice between records ---------------------------------------------------------------


@pytest.fixture
def retained(tmp_path):
    """A closed store after retention, as bytes, and the content of its log."""
    path = tmp_path / "retained.state"
    with statelog.open(path) as store:
        for turn in range(6):
            store.thread("t").commit({"secret": f"secret {turn} " * 20})
        store.prune(keep_last=1)
        log = list(store.log())
    return path.read_bytes(), log


def test_salvage_with_an_intact_tree_restores_no_removed_versions(retained, rescue):
    """Free pages still have it."""
    data, log = retained
    assert b"secret 1 " in data
    _report, store = rescue(data)
    assert list(store.log()) == log
    assert b"secret 1 " not in store.path.read_bytes()


def test_the_newest_of_stray_records_is_used(retained, rescue):
    """Pages have a record with and without its event. Without a tree, the record without its event counts."""
    data, log = retained
    _report, store = rescue(wipe(data, [0, 1]))
    assert list(store.log()) == log


@pytest.mark.slow
def test_a_short_record_at_the_end_of_the_file_is_found(tmp_path):
    """The remains of a record after retention are shorter than the envelope of a complete one."""
    path = tmp_path / "short.state"
    with statelog.open(path) as store:
        for turn in range(600):
            store.thread("t").commit({"turn": turn})
        store.prune(keep_last=1)
        store.compact()
        with session_of(store).read() as view:
            records = {lsn: bytes(view.transaction.get_log(lsn)) for lsn in range(1, store.last_lsn + 1)}
    data = path.read_bytes()
    short = {lsn: data.index(record) for lsn, record in records.items() if len(record) < ENVELOPE_SIZE_BYTES}
    last_on_page = {lsn: at for lsn, at in short.items() if -at % PAGE_SIZE_BYTES < ENVELOPE_SIZE_BYTES}
    assert last_on_page
    for lsn, at in last_on_page.items():
        path.write_bytes(data[: at - at % PAGE_SIZE_BYTES + PAGE_SIZE_BYTES])
        with path.open("rb") as file:
            finder = RecordFinder(PageFile(file.fileno()))
            finder.find()
        assert lsn in finder.choose()[0]


def test_an_uncommitted_record_is_not_restored(tmp_path, rescue):
    """The commit was written to the file, except for the meta page."""
    path = tmp_path / "aborted.state"
    with statelog.open(path) as store:
        store.thread("t").commit({"x": 1})
        before = path.read_bytes()
        store.thread("t").commit({"x": 2})
    data = path.read_bytes()
    torn = before[: 2 * PAGE_SIZE_BYTES] + data[2 * PAGE_SIZE_BYTES :]
    report, store = rescue(torn)
    assert store.thread("t").state["x"] == 1
    assert report.is_complete


def test_a_record_inside_a_value_is_not_read_as_a_record(tmp_path, rescue):
    """A value has bytes that look like a page with a record of this store. Then the tree is lost."""
    path = tmp_path / "embedded.state"
    with statelog.open(path) as store:
        store.thread("t").commit({"x": 1})
        with store._engine.read() as view:
            last = store.last_lsn
            forged = bytes(view.transaction.get_log(last))
    forged = forged.replace(b"ax", b"ay")
    forged = bytearray(forged)
    forged[16:24] = struct.pack(">Q", last + 2)
    forged[:8] = xxhash.xxh3_64_digest(bytes(forged[8:]))
    page = struct.pack("=QHHHH", 0, 0, 4, 1, 0) + bytes(forged)
    with statelog.open(path) as store:
        store.thread("t").commit({"evil": page.ljust(PAGE_SIZE_BYTES, b"\0") * 3})
        store.thread("t").commit({"x": 3})
        log = list(store.log())
    _report, store = rescue(wipe(path.read_bytes(), [0, 1]))
    assert list(store.log()) == log


def test_a_forged_excessive_lsn_is_ignored(tmp_path, rescue):
    """Its checksum is valid, but filling the gap before it would take for ever."""
    path = tmp_path / "forged.state"
    with statelog.open(path) as store:
        store.thread("t").commit({"x": 1})
        forged, _chain = encode_record(
            1, lsn=1 << 50, time_us=1 << 50, previous_chain=bytes(20), body=cbor.encode(["u", {}])
        )
        store._engine.care(lambda transaction: transaction.put_log(1 << 50, forged))
    report, store = rescue(path.read_bytes())
    assert store.last_lsn == 2
    assert report.recovered == 2


# --- pages -----------------------------------------------------------------------------


def test_a_tree_with_a_cycle_ends(source, tmp_path):
    data, _log = source
    path = tmp_path / "circle"
    path.write_bytes(data)
    descriptor = os.open(path, os.O_RDONLY)
    pages = PageFile(descriptor)
    branch = next(page for page, kind in kinds(data).items() if kind & 0x01)
    circle = bytearray(data)
    at = branch * PAGE_SIZE_BYTES
    lower = struct.unpack_from("=H", data, at + 12)[0]
    for slot in range(16, lower, 2):
        node = at + struct.unpack_from("=H", data, at + slot)[0]
        struct.pack_into("=HHH", circle, node, branch & 0xFFFF, branch >> 16, 0)
    path.write_bytes(circle)
    assert list(pages.entries(branch)) == []
    os.close(descriptor)


@pytest.mark.parametrize("size", [0, 1, 15, 4095, 4096, 5000, 8192])
def test_files_of_any_length_are_read(tmp_path, size):
    path = tmp_path / "short"
    path.write_bytes(os.urandom(size))
    with path.open("rb") as file:
        finder = RecordFinder(PageFile(file.fileno()))
        finder.find()
        assert finder.choose() == ({}, 0)


def test_pages_of_another_size_are_read(tmp_path):
    """The meta pages have the page size."""
    path = tmp_path / "store.state"
    statelog.open(path).close()
    data = bytearray(path.read_bytes())
    for at in (0, PAGE_SIZE_BYTES):
        struct.pack_into("=I", data, at + 16 + 24, 2 * PAGE_SIZE_BYTES)
    path.write_bytes(data[:PAGE_SIZE_BYTES] + bytes(PAGE_SIZE_BYTES) + data[PAGE_SIZE_BYTES : 2 * PAGE_SIZE_BYTES])
    with path.open("rb") as file:
        assert PageFile(file.fileno()).page_size_bytes == 2 * PAGE_SIZE_BYTES
