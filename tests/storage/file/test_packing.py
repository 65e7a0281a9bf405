"""Records that replace other records fill LMDB's pages."""

import itertools
import mmap

import lmdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelog.storage.file.page_order import PackedPages, packing_order


@given(st.dictionaries(st.integers(1, 1 << 40), st.integers(0, 5000).map(bytes), max_size=90))
def test_every_record_is_returned_once_and_the_first_ones_in_order(records):
    order = packing_order(records)
    assert sorted(order) == sorted(records)
    descents = sum(low > high for low, high in itertools.pairwise(order))
    assert descents <= 1


@pytest.mark.parametrize(("size_bytes", "fit"), [(1900, 2), (1300, 3), (700, 5), (100, 34)])
@pytest.mark.parametrize("at_once", [12, 64, 400])
def test_pages_are_full_after_records_have_shrunk(store_file, size_bytes, fit, at_once):
    count = 400

    def fill(transaction):
        for lsn in range(1, count + 1):
            transaction.put_log(lsn, bytes(size_bytes + 900))

    store_file.committer.submit(fill)
    for stop in range(count, 0, -at_once):
        lsns = range(max(stop - at_once, 0) + 1, stop + 1)
        store_file.committer.submit(
            lambda transaction, lsns=lsns: transaction.replace_logs(dict.fromkeys(lsns, bytes(size_bytes)))
        )
    log = store_file.statistics().tables["log"]
    assert log.entries == count
    boundaries = count / at_once  # The last page of each batch is half full.
    assert log.pages - log.branch_pages <= 1.2 * count / fit + boundaries + 3


@pytest.mark.parametrize(
    "sizes", [range(40, 60), range(500, 2300, 7), range(1900, 20_000, 611)], ids=["tiny", "short", "long"]
)
def test_pages_are_counted_as_lmdb_fills_them(tmp_path, sizes):
    count = 4000
    packed = PackedPages(mmap.PAGESIZE)
    with lmdb.open(str(tmp_path / "packed"), map_size=1 << 30, sync=False) as raw, raw.begin(write=True) as transaction:
        for number, size_bytes in zip(range(count), itertools.cycle(sizes), strict=False):
            transaction.put(number.to_bytes(8), bytes(size_bytes), append=True)
            packed.add(8, size_bytes)
        found = transaction.stat()
    pages = found["leaf_pages"] + found["overflow_pages"] + found["branch_pages"]
    assert packed.count(count) == pytest.approx(pages, abs=2)
    assert packed.count(10 * count) == pytest.approx(10 * pages, rel=0.01)  # Of a sample.
