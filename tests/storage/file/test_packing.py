"""Records that are put in others' places fill LMDB's pages."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelog.storage.file.packing import packing_order


@given(st.dictionaries(st.integers(1, 1 << 40), st.integers(0, 5000).map(bytes), max_size=90))
def test_every_record_comes_once_and_those_that_come_first_in_order(records):
    order = packing_order(records)
    assert sorted(order) == sorted(records)
    descents = sum(low > high for low, high in itertools.pairwise(order))
    assert descents <= 1


@pytest.mark.parametrize(("size_bytes", "fit"), [(1900, 2), (1300, 3), (700, 5), (100, 34)])
@pytest.mark.parametrize("at_once", [12, 64, 400])
def test_pages_are_full_of_records_that_have_become_smaller(environment, size_bytes, fit, at_once):
    count = 400

    def fill(transaction):
        for lsn in range(1, count + 1):
            transaction.put_log(lsn, bytes(size_bytes + 900))

    environment.committer.submit(fill)
    for stop in range(count, 0, -at_once):
        lsns = range(max(stop - at_once, 0) + 1, stop + 1)
        environment.committer.submit(
            lambda transaction, lsns=lsns: transaction.replace_logs(dict.fromkeys(lsns, bytes(size_bytes)))
        )
    log = environment.statistics().tables["log"]
    assert log.entries == count
    boundaries = count / at_once  # of what is put at once the last page is half full
    assert log.pages - log.branch_pages <= 1.2 * count / fit + boundaries + 3
