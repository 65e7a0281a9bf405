"""A complete store through a stream: identical records, all of them checked."""

import io
import os
import threading

import pytest
from hypothesis import HealthCheck, given, settings

import statelog
from statelog.errors import ConflictError, CorruptionError, FormatError, ReadOnlyError, StoreFullError, UsageError
from statelog.portable import log_export, log_import
from statelog.testing import assert_matches, histories


def records(store):
    return list(store.log())


def test_an_imported_store_has_the_same_records(rich, open_store, export, take):
    new = open_store()
    report = take(new, export(rich))
    assert records(new) == records(rich)
    assert (report.kind, report.records_read, report.records_added) == ("log", rich.last_lsn, rich.last_lsn)
    for info in rich.threads():
        assert list(new.thread(info.id).history()) == list(rich.thread(info.id).history())
        assert new.thread(info.id).state == rich.thread(info.id).state
    assert new._engine.store_file.lmdb_file.store_id != rich._engine.store_file.lmdb_file.store_id


def test_repeated_exports_and_exports_of_the_copy_differ_only_in_the_store_id(rich, open_store, export, take, split):
    data = export(rich)
    assert export(rich) == data
    new = open_store()
    take(new, data)
    assert split(export(new))[1:-1] == split(data)[1:-1]


def test_an_empty_store_can_be_exported_and_imported(open_store, export, take):
    empty = open_store("empty.state")
    assert take(open_store(), export(empty)).records_read == 0


def test_the_index_after_imports_equals_a_rebuilt_index(rich, open_store, export, take):
    new = open_store()
    take(new, export(rich))
    with new._engine.read() as view:
        before = list(view.transaction.scan_index(b""))
    new.rebuild_index()
    with new._engine.read() as view:
        assert list(view.transaction.scan_index(b"")) == before


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_transactions_of_any_size_have_the_same_result(rich, open_store, export, take, monkeypatch, batch):
    monkeypatch.setattr(log_import, "BATCH_RECORDS", batch)
    monkeypatch.setattr(log_export, "_PAGE_RECORDS", batch)
    new = open_store()
    take(new, export(rich))
    assert records(new) == records(rich)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(history=histories(max_size=8))
def test_the_copy_of_any_store_is_equal(tmp_path_factory, performed, export, take, history):
    with performed(tmp_path_factory.mktemp("histories"), history) as (old, model, new):
        take(new, export(old))
        assert_matches(new, model)
        assert new.verify().problems == []
        assert [record.digest for record in new.log()] == [record.digest for record in old.log()]


# --- incremental, and resumed -----------------------------------------------------


def test_an_export_since_an_lsn_continues_the_copy(rich, open_store, export, take):
    new = open_store()
    take(new, export(rich))
    since = new.last_lsn
    rich.thread("one").commit({"query": "more"})
    rich.thread("three").commit({"x": 1})
    report = take(new, export(rich, since=since))
    assert (report.records_read, report.records_added) == (3, 3)
    assert records(new) == records(rich)


def test_existing_records_are_skipped(rich, open_store, export, take):
    new = open_store()
    data = export(rich)
    take(new, data)
    assert take(new, data).records_added == 0
    assert take(new, export(rich, since=5)).records_added == 0
    assert records(new) == records(rich)


def test_a_store_that_is_ahead_of_the_export_is_unchanged(rich, open_store, export, take):
    data = export(rich)
    rich.thread("one").commit({"query": "later"})
    new = open_store()
    take(new, export(rich))
    report = take(new, data)
    assert (report.records_added, report.last_lsn) == (0, rich.last_lsn)


def test_an_export_that_begins_after_the_end_is_a_conflict(rich, open_store, export, take):
    with pytest.raises(ConflictError, match="import an export since 0 or earlier"):
        take(open_store(), export(rich, since=5))


def test_an_lsn_beyond_the_log_is_a_usage_error(rich, export):
    with pytest.raises(UsageError, match="it has no record 9999"):
        export(rich, since=9999)
    with pytest.raises(UsageError):
        export(rich, since=-1)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_an_interrupted_import_continues_where_it_ended(rich, open_store, export, take, monkeypatch, share):
    monkeypatch.setattr(log_import, "BATCH_RECORDS", 4)
    data = export(rich)
    new = open_store()
    with pytest.raises(CorruptionError, match="ends within") as caught:
        take(new, data[: int(len(data) * share)])
    assert new.last_lsn == caught.value.lsn <= rich.last_lsn
    assert records(new) == records(rich)[: new.last_lsn]
    report = take(new, data)
    assert report.records_added == rich.last_lsn - caught.value.lsn
    assert records(new) == records(rich)


def test_a_transaction_is_imported_completely_or_not_at_all(rich, open_store, export, take, monkeypatch):
    """The export is cut between the two records of a transaction of the source."""
    monkeypatch.setattr(log_import, "BATCH_RECORDS", 1)
    together = [record.lsn for record in rich.log() if record.continues]
    assert together
    data = export(rich)
    new = open_store()
    for length in range(len(data) - 400, len(data), 40):
        with pytest.raises(CorruptionError):
            take(new, data[:length])
        assert new.last_lsn not in together


def test_an_interrupted_source_keeps_earlier_records(rich, open_store, export, monkeypatch):
    class Interrupted(io.BytesIO):
        def read(self, size):
            if self.tell() > len(self.getvalue()) - 2000:
                raise KeyboardInterrupt
            return super().read(min(size, 100))

    monkeypatch.setattr(log_import, "BATCH_RECORDS", 3)
    new = open_store()
    with pytest.raises(KeyboardInterrupt):
        log_import_of(new, Interrupted(export(rich)))
    assert 0 < new.last_lsn < rich.last_lsn
    assert records(new) == records(rich)[: new.last_lsn]


def log_import_of(store, source):
    from statelog.portable.streams import import_stream

    return import_stream(store._engine, source)


# --- refusals -----------------------------------------------------------------------


def test_another_store_is_a_conflict_and_unchanged(rich, open_store, export, take, fill):
    other = open_store()
    fill(other, "one")
    before = records(other)
    with pytest.raises(ConflictError, match="not an earlier state"):
        take(other, export(rich))
    assert records(other) == before


def test_a_copy_with_its_own_commits_is_a_conflict(rich, open_store, export, take):
    new = open_store()
    take(new, export(rich))
    new.thread("one").commit({"query": "mine"})
    rich.thread("one").commit({"query": "theirs"})
    rich.thread("one").commit({"query": "theirs"})
    with pytest.raises(ConflictError, match="not an earlier state"):
        take(new, export(rich))


def test_a_concurrent_writer_is_a_conflict(rich, open_store, export, monkeypatch):
    class Meddling(io.BytesIO):
        def read(self, size):
            if self.tell() > len(self.getvalue()) // 2 and new.thread("mine").version < 0:
                new.thread("mine").commit({"x": 1})
            return super().read(min(size, 100))

    monkeypatch.setattr(log_import, "BATCH_RECORDS", 3)
    new = open_store()
    with pytest.raises(ConflictError, match="another writer"):
        log_import_of(new, Meddling(export(rich)))


def test_a_read_only_store_refuses_imports(rich, open_store, export, take, tmp_path):
    open_store().close()
    with pytest.raises(ReadOnlyError):
        take(open_store(read_only=True), export(rich))
    assert tmp_path.exists()


@pytest.mark.slow
def test_a_store_without_room_refuses_commits_and_keeps_its_contents(open_store, export, take):
    old = open_store("old.state")
    for turn in range(40):
        old.thread("t").commit({"text": chr(65 + turn) * 60_000})
    new = open_store(max_size_bytes=1024 * 1024)
    with pytest.raises(StoreFullError):
        take(new, export(old))
    assert records(new) == records(old)[: new.last_lsn]


def test_a_damaged_record_is_not_exported(open_store, export, tmp_path):
    store = open_store("damaged.state")
    store.thread("t").commit({"needle": "in a haystack"})
    store.close()
    path = tmp_path / "damaged.state"
    path.write_bytes(path.read_bytes().replace(b"haystack", b"haystock"))
    damaged = statelog.open(path)
    with pytest.raises(CorruptionError):
        export(damaged)
    damaged.close()


# --- retention and deletion ---------------------------------------------------------


@pytest.mark.slow
def test_remains_of_expired_versions_and_deleted_threads_are_copied(rich, open_store, export, take):
    rich.prune(keep_last=2, threads="one")
    rich.delete_thread("two")
    new = open_store()
    take(new, export(rich))
    assert records(new) == records(rich)
    assert [info.id for info in new.threads()] == ["one"]
    assert list(new.thread("one").history()) == list(rich.thread("one").history())
    with pytest.raises(statelog.errors.ThreadDeletedError):
        new.thread("two").commit({"query": "late"})


def test_a_copy_continues_to_expire_and_vacuum(rich, open_store, export, take):
    rich.prune(keep_last=4)
    new = open_store()
    take(new, export(rich))
    new.prune(keep_last=1)
    new.delete_thread("two")
    assert new.verify().problems == []
    assert new.thread("one").state == rich.thread("one").state


def test_policies_are_copied(rich, open_store, export, take):
    rich.set_retention(keep_last=3, threads="one")
    new = open_store()
    take(new, export(rich))
    with new._engine.read() as view:
        assert view.thread(view.thread_lsn("one")).policy["keep_last"] == 3


# --- a record that is well-formed and wrong -----------------------------------------


def test_a_newer_record_format_is_named(rich, open_store, export, take, split, join, piece):
    import xxhash

    pieces = split(export(rich))
    payload = bytearray(pieces[3].payload)
    payload[8] = 9
    payload[:8] = xxhash.xxh3_64_digest(payload[8:])
    pieces[3] = piece(pieces[3].kind, bytes(payload))
    with pytest.raises(FormatError, match="format 9") as caught:
        take(open_store(), join(pieces))
    assert caught.value.needed == 9
    assert caught.value.lsn == open_store().last_lsn


@pytest.mark.slow
def test_an_import_leaves_the_reserve_of_the_quota_to_retention(open_store, export, take, monkeypatch):
    monkeypatch.setattr(log_import, "BATCH_RECORDS", 2)
    old = open_store("old.state")
    for _ in range(60):
        old.thread("t").commit({"text": os.urandom(60_000)})
    new = open_store(max_size_bytes=2 * 1024 * 1024)
    with pytest.raises(StoreFullError):
        take(new, export(old))
    assert new.last_lsn > 1
    assert new.delete_thread("t").pending_records == 0
    new.thread("u").commit({"text": "there is room again"})


@pytest.mark.slow
def test_an_import_does_not_disturb_concurrent_commits_of_the_process(rich, open_store, export):
    """Works of several kinds share one transaction. Each sees the log as the previous work has left it."""
    new = open_store()
    threads = [threading.Thread(target=commit_often, args=(new, name)) for name in "ab"]
    for thread in threads:
        thread.start()
    data = export(rich, threads=["one", "two"])
    log_import_of(new, io.BytesIO(data))
    for thread in threads:
        thread.join()
    assert new.verify().problems == []
    assert {info.id: info.versions for info in new.threads()}["a"] == 50


def commit_often(store, name):
    for turn in range(50):
        store.thread(name).commit({"turn": turn})
