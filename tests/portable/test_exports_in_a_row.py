"""Imports of several consecutive exports of a log, and imports that end early."""

import io

import forks
import pytest

from statelog.errors import ConflictError, CorruptionError, UsageError


def grow(store, turns=3):
    """Return consecutive exports, one for each turn, and the LSNs at which they end."""
    exports, ends = [], [0]
    for turn in range(turns):
        store.thread("a").commit({"n": turn})
        with store.transaction() as transaction:
            transaction.thread("a").commit({"n": -turn})
            transaction.thread("b").commit({"n": turn})
        target = io.BytesIO()
        store.export(target, since=ends[-1])
        exports.append(target.getvalue())
        ends.append(store.last_lsn)
    return exports, ends


@pytest.fixture
def source(open_store):
    return open_store("source.state")


def take(store, *exports, **options):
    return store.import_(io.BytesIO(b"".join(exports)), **options)


def test_consecutive_exports_can_be_imported_together(source, open_store):
    exports, ends = grow(source)
    new = open_store()
    report = take(new, *exports)
    assert list(new.log()) == list(source.log())
    assert (report.records_read, report.records_added, report.last_lsn) == (ends[-1], ends[-1], ends[-1])
    assert report.size_bytes == sum(map(len, exports))


def test_exports_can_overlap_and_be_imported_before(source, open_store):
    exports, ends = grow(source)
    whole = io.BytesIO()
    source.export(whole)
    new = open_store()
    take(new, exports[0])
    report = take(new, exports[0], whole.getvalue(), exports[1], exports[2])
    assert list(new.log()) == list(source.log())
    assert report.records_added == ends[-1] - ends[1]


def test_a_gap_a_foreign_export_and_trailing_bytes_are_refused(source, open_store):
    exports, ends = grow(source)
    foreign, _ends = grow(open_store("foreign.state"))
    new = open_store()
    with pytest.raises(ConflictError, match=f"begins after LSN {ends[2]}"):
        take(new, exports[0], exports[2])
    with pytest.raises(ConflictError, match="not an earlier state"):
        take(open_store("b.state"), exports[0], foreign[1])
    with pytest.raises(CorruptionError, match="is followed by further data") as caught:
        take(open_store("c.state"), *exports, b"x")
    assert caught.value.facts["lsn"] == ends[-1]
    with pytest.raises(CorruptionError) as caught:
        take(open_store("d.state"), exports[0], exports[1][: len(exports[1]) // 2])
    assert ends[1] <= caught.value.facts["lsn"] < ends[2]
    threads = io.BytesIO()
    source.export(threads, threads=["a"])
    with pytest.raises(CorruptionError, match="an export of threads after an export of a log"):
        take(open_store("e.state"), exports[0], threads.getvalue())


@pytest.mark.slow
def test_upto_ends_with_the_last_complete_transaction(source, open_store):
    exports, ends = grow(source)
    ending = [0]
    with source.snapshot():
        for lsn in range(1, ends[-1] + 1):
            one = open_store(f"{lsn}.state")
            report = take(one, *exports, upto=lsn)
            assert report.last_lsn == one.last_lsn <= lsn
            assert list(one.log()) == list(source.log())[: one.last_lsn]
            ending.append(one.last_lsn)
            assert take(one, *exports).last_lsn == ends[-1]
    assert any(end < lsn for lsn, end in enumerate(ending)), "a transaction of several records was met"
    assert any(end == lsn for lsn, end in enumerate(ending) if lsn)


def test_small_imports_use_the_journal_without_a_checkpoint_each(source, open_store):
    exports, _ends = grow(source, turns=20)
    new = open_store()
    take(new, exports[0])
    epoch = new._engine.store_file.wal.shared_state.epoch
    for export in exports[1:]:
        take(new, export)
    assert new._engine.store_file.wal.shared_state.epoch <= epoch + 2


def test_imported_records_survive_a_kill(source, open_store, tmp_path):
    """Only the journal has the record. Recovery replays it with its index entries."""
    import sys

    exports, _ends = grow(source)
    for number, export in enumerate(exports):
        (tmp_path / f"{number}.export").write_bytes(export)
    program = (
        "import os, statelog\n"
        "store = statelog.open('killed.state')\n"
        "for number in range(3):\n"
        "    store.import_(open(f'{number}.export', 'rb'))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    forks.run([sys.executable, "-c", program], cwd=tmp_path, check=False)
    killed = open_store("killed.state")
    assert list(killed.log()) == list(source.log())


def test_upto_must_be_an_lsn_and_needs_an_export_of_a_log(source, open_store):
    grow(source)
    target = io.BytesIO()
    source.export(target, threads=["a"])
    new = open_store()
    for bad in (-1, True, "7"):
        with pytest.raises(UsageError):
            new.import_(io.BytesIO(), upto=bad)
    with pytest.raises(UsageError, match="threads"):
        take(new, target.getvalue(), upto=3)
    assert new.last_lsn == 0
