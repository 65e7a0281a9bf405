"""What waits finds its pages in LMDB (D4): what it is taken for is what LMDB takes at the most."""

import contextlib
import itertools
import operator

import lmdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

import statelog
from statelog.errors import StoreFullError
from statelog.kernels import log_share
from statelog.storage.commit.deferred import Deferred
from statelog.storage.file.reading import encode_lsn

PAGE_SIZE_BYTES = 4096
OVERFLOW_SIZE_BYTES_MIN = 2023


def pages_taken(directory, sizes):
    """How many pages of a table's the records take, in one transaction behind another."""
    with lmdb.open(str(directory), map_size=1 << 30, sync=False) as environment:
        first, counts = 1, []
        for some in ([10], sizes):
            with environment.begin(write=True) as transaction:
                records = zip(map(encode_lsn, itertools.count(first)), map(bytes, some), strict=False)
                transaction.cursor().putmulti(records, append=True)
                stat = transaction.stat()
                counts.append(stat["leaf_pages"] + stat["overflow_pages"])
            first += len(some)
        return counts[1] - counts[0]


around = st.sampled_from([0, 1, 60, 500, 1000, 1341, 1342, 2000, 2022, 2023, 4000, 4080, 4081, 8176, 8177])
record_sizes = st.one_of(around, st.integers(0, 2100), st.integers(0, 17_000))


@given(st.lists(record_sizes, min_size=1, max_size=200))
def test_records_take_no_more_pages_than_they_are_taken_for(tmp_path_factory, sizes):
    taken = pages_taken(tmp_path_factory.mktemp("lmdb"), sizes)
    assert taken <= sum(map(log_share, sizes)) // PAGE_SIZE_BYTES + 1


@pytest.mark.parametrize("size", [100, 1000, 1341, 1342, 2022, 2023, 4080, 4081, 9000])
def test_records_of_one_size_take_more_than_half_of_what_they_are_taken_for(tmp_path, size):
    taken = pages_taken(tmp_path, [size] * 300)
    assert taken > 300 * log_share(size) / PAGE_SIZE_BYTES / 2.5
    if size >= OVERFLOW_SIZE_BYTES_MIN:
        assert taken > 300 * log_share(size) / PAGE_SIZE_BYTES / 1.1


@pytest.mark.parametrize("durability", ["interval", "commit"])
@pytest.mark.parametrize("quota_bytes", [1 << 20, 3 << 20])
@pytest.mark.parametrize("size", [300, 1300, 1700, 1900, 2500, 4200, 9000])
def test_a_full_store_has_room_for_all_that_waits(tmp_path, monkeypatch, size, quota_bytes, durability):
    refused = []
    put_all = Deferred._put_all

    def watched(self, waiting):
        try:
            return put_all(self, waiting)
        except lmdb.Error as error:
            refused.append(error)
            raise

    monkeypatch.setattr(Deferred, "_put_all", watched)
    path, made = tmp_path / "a.state", 0
    with statelog.open(path, max_size_bytes=quota_bytes, durability=durability) as store:
        thread = store.thread("t", schema={"log": operator.add})
        with contextlib.suppress(StoreFullError):
            for number in itertools.count():
                thread.commit({"log": [f"{number:07}" * (size // 7)]})
                made += 1
        assert len(thread.state["log"]) == made
    assert refused == []
    assert not any("journal" in each.name for each in tmp_path.iterdir())
    with statelog.open(path, max_size_bytes=quota_bytes) as store:
        assert len(store.thread("t").state["log"]) == made
        assert store.verify().ok
