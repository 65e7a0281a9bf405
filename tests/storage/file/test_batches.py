"""Scans of the index page by page, compared with scans row by row."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelog.errors import CorruptionError
from statelog.log.commit import committer_of
from statelog.storage import StoreFile
from statelog.storage.read_transaction import ReadTransaction

PARTS = st.binary(min_size=1, max_size=12).map(lambda part: part.replace(b"\xfe", b""))
TABLES = st.dictionaries(
    st.builds(lambda parts: b"k" + b"/".join(parts), st.lists(PARTS, max_size=4)),
    st.one_of(st.binary(max_size=40), st.just(b"x" * 1200), st.just(b"x" * 5000)),
    max_size=400,
)


def rows_of(store_file, prefix, **options):
    with store_file.read() as transaction:
        return list(transaction.scan_index(prefix, **options))


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Fill new files with tables."""
    opened = []

    def fill(table):
        path = tmp_path_factory.mktemp("table") / "agent.state"
        store_file = StoreFile.open(path, replay=lambda *_: False, max_size_bytes=1 << 26)
        opened.append(store_file)
        committer_of(store_file).submit(lambda transaction: [transaction.put_index(*row) for row in table.items()])
        return store_file

    yield fill
    for store_file in opened:
        store_file.close()


@pytest.mark.slow
@given(
    table=TABLES,
    scans=st.lists(
        st.tuples(st.sampled_from([b"", b"k", b"ka", b"k/"]), PARTS | st.just(b""), st.booleans()), max_size=9
    ),
    choice=st.randoms(use_true_random=False),
)
def test_scans_by_pages_and_by_rows_return_the_same_rows(tables, table, scans, choice):
    store_file = tables(table)
    for prefix, start, reverse in scans:
        options = {"start": b"k" + start if start else b"", "reverse": reverse}
        if table and choice.random() < 0.5:
            options["start"] = choice.choice(sorted(table))
        found = rows_of(store_file, prefix, **options)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ReadTransaction, "_read_rows", lambda *_arguments, **_options: None)
            assert rows_of(store_file, prefix, **options) == found
        inside = [key for key in table if key.startswith(prefix)]
        start = options["start"]
        wanted = sorted(key for key in inside if not start or (key <= start if reverse else key >= start))
        assert found == [(key, table[key]) for key in (reversed(wanted) if reverse else wanted)]


@pytest.mark.skipif(sys.platform != "linux", reason="where the file is mapped cannot be told")
@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_reads_page_by_page(tables, monkeypatch, reverse):
    store_file = tables({b"k%05d" % number: b"row" for number in range(1000)})
    calls = []
    read_rows = ReadTransaction._read_rows

    def counted(*arguments, **options):
        calls.append(arguments)
        return read_rows(*arguments, **options)

    monkeypatch.setattr(ReadTransaction, "_read_rows", counted)
    assert len(rows_of(store_file, b"k", reverse=reverse)) == 1000
    assert len(calls) < 60


def test_a_row_with_a_wrong_checksum_is_named_and_the_rows_before_it_are_returned(tables):
    table = {b"k%05d" % number: b"row" for number in range(300)}
    store_file = tables(table)
    key = b"k00123"

    def damage(transaction):
        transaction._raw.put(key, b"row" + bytes(8), db=transaction._index)
        transaction.changes += 1

    store_file.committer.submit(damage)
    for reverse, count in ((False, 123), (True, 176)):
        found = []
        with store_file.read() as transaction, pytest.raises(CorruptionError) as caught:
            found.extend(transaction.scan_index(b"k", reverse=reverse))
        assert caught.value.key == key
        with store_file.read() as transaction:
            rows = transaction.scan_index(b"k", reverse=reverse)
            assert len([next(rows) for _ in range(count)]) == count
