import os
import struct

import lmdb
import pytest

from statelog.errors import CorruptionError, FormatError
from statelog.storage.compaction import compact_file
from statelog.storage.file import preopen_checks

PAGE = 4096
PAGE_HEADER = 16
VERSION_AT = PAGE_HEADER + 4
FREE_AT = PAGE_HEADER + 24
MAIN_AT = FREE_AT + 48
LAST_PAGE_AT = MAIN_AT + 48
TRANSACTION_AT = LAST_PAGE_AT + 8


@pytest.fixture
def store(open_store_file, append, path):
    """A closed store with some commits and a free list on overflow pages."""
    store_file = open_store_file()
    for _ in range(5):
        store_file.committer.submit(append)
    store_file.close()
    return path


@pytest.fixture
def check(path):
    def run():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return preopen_checks.check_file(descriptor, path)
        finally:
            os.close(descriptor)

    return run


def overwrite(path, at, data):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def read(path, at, form):
    return struct.unpack_from(form, path.read_bytes(), at)


def live_slot(path):
    return max((0, 1), key=lambda slot: read(path, slot * PAGE + TRANSACTION_AT, "=Q"))


@pytest.mark.usefixtures("store")
def test_a_sound_file_is_described_by_its_live_meta_page(check, open_store_file):
    meta = check()
    store_file = open_store_file()
    info = store_file.lmdb_file.handles.raw.info()
    assert (meta.transaction_id, meta.last_page) == (info["last_txnid"], info["last_pgno"])
    assert meta.page_size_bytes == PAGE


@pytest.mark.parametrize("slot", [0, 1])
@pytest.mark.parametrize(
    ("at", "data"),
    [
        (0, b"\x07"),  # page number
        (10, b"\x02"),  # page flags
        (PAGE_HEADER, b"\x00"),  # magic
        (PAGE_HEADER + 8, b"\x01"),  # address
        (FREE_AT, struct.pack("=I", 12345)),  # page size
        (FREE_AT + 4, b"\x01"),  # flags of the free list: a fixed map address
        (MAIN_AT + 4, b"\x04"),  # flags of the main database
        (TRANSACTION_AT, struct.pack("=Q", 1 << 50)),
    ],
    ids=str,
)
def test_a_damaged_meta_page_is_corruption(store, check, slot, at, data):
    overwrite(store, slot * PAGE + at, data)
    with pytest.raises(CorruptionError) as caught:
        check()
    assert caught.value.path == str(store)


@pytest.mark.parametrize(
    ("at", "number"), [(FREE_AT + 40, 1 << 40), (MAIN_AT + 40, 1), (LAST_PAGE_AT, 0)], ids=["free", "main", "last"]
)
def test_a_wrong_page_number_on_the_live_meta_page_is_corruption(store, check, open_store_file, at, number):
    """On the other meta page it is not, because LMDB leaves it like this when writing that page has failed."""
    live = live_slot(store)
    overwrite(store, (1 - live) * PAGE + at, struct.pack("=Q", number))
    open_store_file().close()
    overwrite(store, live * PAGE + at, struct.pack("=Q", number))
    with pytest.raises(CorruptionError):
        check()


def flips_of_transaction_ids(path, check):
    """Flip every bit of both ids in turn. Yield the slot, the bit, and the meta page that is live then, if any."""
    sound = path.read_bytes()
    for slot in (0, 1):
        at = slot * PAGE + TRANSACTION_AT
        for bit in range(64):
            overwrite(path, at, struct.pack("=Q", read(path, at, "=Q")[0] ^ 1 << bit))
            try:
                yield slot, bit, check()
            except CorruptionError:
                yield slot, bit, None
            path.write_bytes(sound)


@pytest.mark.slow
@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("commits", range(5))
def test_e1_no_flip_in_a_transaction_id_restores_an_earlier_commit(
    open_store_file, append, path, check, commits, is_compacted, monkeypatch
):
    """This is only true if the commit has grown the file. See the next test."""
    monkeypatch.setattr(preopen_checks, "_ATTEMPT_PAUSE_S", 0)  # No process writes during the test.
    store_file = open_store_file()
    store_file.committer.submit(append)
    if is_compacted:
        compact_file(store_file.lmdb_file, store_file.wal)
    for number in range(commits):
        store_file.committer.submit(lambda transaction, n=number: transaction.put_index(b"k%d" % n, bytes(9000)))
    store_file.close()
    live = check()
    found = [meta for _slot, _bit, meta in flips_of_transaction_ids(path, check)]
    assert {meta for meta in found if meta is not None} <= {live}
    assert found.count(None) >= 64


@pytest.mark.slow
def test_e1_the_one_flip_that_looks_like_a_refused_commit(open_store_file, append, path, check):
    """LMDB undoes a failed write of a meta page by restoring id and last page. Such a store must open."""
    store_file = open_store_file()
    store_file.committer.submit(append)
    while store_file.last_transaction_id() % 4 != 3:
        store_file.committer.submit(lambda transaction: transaction.put_index(b"k", b"v"))
    store_file.close()
    live = check()
    taken = {(slot, bit): meta for slot, bit, meta in flips_of_transaction_ids(path, check) if meta not in (None, live)}
    assert taken.keys() <= {(live.slot, 1)}


def test_e1_a_meta_page_that_was_never_written_is_not_damage(open_store_file, append, path, check):
    """A failed flush may leave the other page at any earlier commit."""
    store_file = open_store_file()
    store_file.committer.submit(append)
    number = store_file.last_transaction_id()
    slot = number % 2
    old = path.read_bytes()[slot * PAGE :][:PAGE]
    for _ in range(3):
        store_file.committer.submit(append)
    store_file.close()
    overwrite(path, slot * PAGE, old)
    assert check().transaction_id == number + 3


def test_a_swap_of_the_meta_pages_is_corruption(store, check):
    content = store.read_bytes()
    overwrite(store, 0, content[PAGE : 2 * PAGE] + content[:PAGE])
    with pytest.raises(CorruptionError):
        check()


def test_a_last_page_beyond_the_file_is_corruption(store, check):
    overwrite(store, live_slot(store) * PAGE + LAST_PAGE_AT, struct.pack("=Q", 1 << 30))
    with pytest.raises(CorruptionError):
        check()


@pytest.mark.parametrize("at", [FREE_AT, MAIN_AT])
def test_a_root_with_the_number_of_another_page_is_corruption(store, check, at):
    root_at = live_slot(store) * PAGE + at + 40
    (root,) = read(store, root_at, "=Q")
    overwrite(store, root * PAGE, struct.pack("=Q", root + 1))
    with pytest.raises(CorruptionError):
        check()


def test_every_truncation_that_removes_a_used_page_is_corruption(store, open_store_file):
    last_used = max(set(range(live_meta(store).last_page + 1)) - free_pages(store))
    for pages in range(last_used, 1, -1):
        os.truncate(store, pages * PAGE)
        with pytest.raises(CorruptionError):
            open_store_file()


@pytest.mark.parametrize("size", [PAGE * 2 - 1, PAGE + 151, PAGE + 20, PAGE, PAGE - 1, 500, 152, 100, 20])
def test_a_file_that_ends_within_its_meta_pages_is_corruption(store, check, size):
    os.truncate(store, size)
    with pytest.raises(CorruptionError):
        check()


def test_a_truncation_of_the_disk_reserve_loses_nothing(store, open_store_file):
    os.truncate(store, (live_meta(store).last_page + 1) * PAGE)
    assert open_store_file().statistics().pages_used > 0


def live_meta(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return preopen_checks.check_file(descriptor, path)
    finally:
        os.close(descriptor)


def free_pages(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        meta = preopen_checks.check_file(descriptor, path)
        return preopen_checks._read_free_list(descriptor, path, meta, path.stat().st_size // PAGE)
    finally:
        os.close(descriptor)


def test_a_short_file_that_lacks_only_free_pages_is_sound(open_store_file, append, path, check_whole):
    """LMDB counts pages that are allocated and freed in one transaction, and never writes them."""
    store_file = open_store_file()
    for _ in range(5):
        store_file.committer.submit(append)

    store_file.close()
    raw = lmdb.open(str(path), subdir=False, lock=False, map_size=2**26, max_dbs=4)
    index = raw.open_db(b"index")
    with raw.begin(write=True) as transaction:
        for number in range(300):
            transaction.put(b"big%d" % number, bytes(50_000), db=index)
        for number in range(300):
            transaction.delete(b"big%d" % number, db=index)
    last_page = raw.info()["last_pgno"]
    raw.close()
    assert path.stat().st_size < (last_page + 1) * PAGE
    store_file = open_store_file()
    assert check_whole(store_file) == 5
    store_file.committer.submit(append)
    assert check_whole(store_file) == 6


@pytest.mark.slow
def test_the_free_list_is_the_one_lmdb_keeps(open_store_file, path):
    """Also if it has several levels and overflow pages."""
    store_file = open_store_file(max_size_bytes=2**28, flush=False)
    for number in range(60):
        store_file.committer.submit(lambda transaction, n=number: transaction.put_index(b"k%d" % n, bytes(3_000_000)))
    with store_file.read():  # LMDB then reuses no freed page, and adds one entry for each commit.
        for number in range(60):
            store_file.committer.submit(lambda transaction, n=number: transaction.delete_index(b"k%d" % n))
            store_file.committer.submit(lambda transaction, n=number: transaction.put_index(b"s", b"%d" % n))
    statistics = store_file.statistics()
    store_file.close()
    free = free_pages(path)
    assert len(free) == statistics.pages_free > 60 * 700
    assert 0 not in free
    assert 1 not in free


def test_a_free_list_with_a_cycle_is_corruption(open_store_file, path, check):
    store_file = open_store_file()
    store_file.committer.submit(lambda transaction: transaction.put_index(b"k", bytes(10_000)))
    store_file.committer.submit(lambda transaction: transaction.delete_index(b"k"))
    store_file.close()
    root_at = live_slot(path) * PAGE + FREE_AT + 40
    (root,) = read(path, root_at, "=Q")
    node_at = root * PAGE + read(path, root * PAGE + PAGE_HEADER, "=H")[0]
    overwrite(path, root * PAGE + 10, struct.pack("=H", 1))  # A branch whose first child is itself.
    overwrite(path, node_at, struct.pack("=HHH", root, 0, 0))
    overwrite(path, live_slot(path) * PAGE + LAST_PAGE_AT, struct.pack("=Q", 10_000))
    with pytest.raises(CorruptionError):
        check()


def test_another_version_of_lmdb_is_a_format_error(store, check):
    for slot in (0, 1):
        overwrite(store, slot * PAGE + VERSION_AT, struct.pack("=I", 2))
    with pytest.raises(FormatError) as caught:
        check()
    assert (caught.value.needed, caught.value.supported) == (2, 1)


def test_the_other_byte_order_is_a_format_error(store, check):
    for slot in (0, 1):
        overwrite(store, slot * PAGE + PAGE_HEADER, bytes(reversed(struct.pack("=I", 0xBEEFC0DE))))
    with pytest.raises(FormatError, match="byte order"):
        check()


def test_meta_pages_that_differ_only_in_their_number_are_sound(store, check):
    """They are equal right after the creation of a file, and after both were set to one state."""
    slot = live_slot(store)
    page = store.read_bytes()[slot * PAGE : (slot + 1) * PAGE]
    overwrite(store, (1 - slot) * PAGE + 8, page[8:])
    assert check().transaction_id == read(store, TRANSACTION_AT, "=Q")[0]


@pytest.mark.slow
@pytest.mark.usefixtures("store_file")
def test_a_file_that_is_being_written_is_never_reported_as_damaged(start_child, check):
    child = start_child(
        """
        store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
        say("ready")
        while True:
            store_file.committer.submit(append)
        """
    )
    assert child.stdout.readline()
    seen = set()
    while len(seen) < 300:
        assert child.poll() is None, "the child writes without end"
        seen.add(check().transaction_id)


def test_a_plain_lmdb_file_passes_these_checks_and_is_refused_later(path, check):
    with lmdb.open(str(path), subdir=False) as raw, raw.begin(write=True) as transaction:
        transaction.put(b"k", b"v")
    assert check().transaction_id == 1
