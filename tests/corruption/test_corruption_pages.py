"""The tables of the meaning of every byte of a store file."""

import pytest
from corruption import PAGE_SIZE_BYTES, is_explained, make_sample
from corruption_pages import PageMap

import statelog


@pytest.fixture(scope="module")
def sample():
    return make_sample()


@pytest.fixture(scope="module")
def pages(sample):
    return PageMap(sample)


@pytest.mark.slow
def test_every_byte_has_a_place(sample, pages):
    offsets = pages.offsets()
    assert sum(map(len, offsets.values())) == len(sample)
    assert {place.page.partition(",")[0] for place in offsets} == {
        "free page", "live meta page", "stale meta page", "free list", "main", "meta", "log", "index",
    }  # fmt: skip


def test_the_tables_equal_those_of_the_format(pages):
    assert set(pages.tables) == {"meta", "log", "index"}


def test_bytes_of_records_are_located(sample, pages, tmp_path):
    path = tmp_path / "agent.state"
    path.write_bytes(sample)
    with statelog.open(path) as store, store._engine.read() as view:
        record = bytes(view.transaction.get_log(2))
    at = sample.index(record)
    assert {str(pages.place(at + n)) for n in range(len(record))} <= {"log, leaf page: value", "log, long value: value"}


def test_the_live_meta_page_belongs_to_the_last_commit(sample, pages):
    numbers = [int.from_bytes(sample[at + 144 : at + 152], "little") for at in (0, PAGE_SIZE_BYTES)]
    live = numbers.index(max(numbers))
    assert str(pages.place(live * PAGE_SIZE_BYTES + 144)) == "live meta page: transaction id"


def test_explanations_are_of_places_where_a_flip_may_do_nothing():
    assert is_explained("free page: all")
    assert is_explained("log, leaf page: unused gap")
    assert not is_explained("log, leaf page: value")
    assert not is_explained("log, long value: value")
    assert not is_explained("index, leaf page: value")
