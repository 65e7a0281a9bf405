"""Threads through a stream into any store: the same visible content, with LSNs of that store."""

import io
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings

import statelog
from statelog.errors import ConflictError, CorruptionError, ThreadDeletedError, ThreadNotFoundError, UsageError
from statelog.portable import thread_export, thread_import
from statelog.portable.event_builder import TIME_KEY
from statelog.portable.streams import export_store, import_stream
from statelog.testing import assert_matches, histories


def test_a_thread_imported_into_a_new_store_has_the_same_visible_content(rich, open_store, export, take, snapshot):
    new = open_store()
    report = take(new, export(rich, threads=["one"]))
    assert report.threads == ("one",)
    assert [info.id for info in new.threads()] == ["one"]
    assert snapshot(new, "one") == snapshot(rich, "one")
    assert new.thread("one").state == rich.thread("one").state


def test_a_thread_can_be_imported_into_a_store_with_other_threads(rich, open_store, export, take, snapshot, fill):
    new = open_store()
    fill(new, "zero")
    before = snapshot(new, "zero")
    take(new, export(rich, threads=["one", "two"]))
    assert snapshot(new, "one") == snapshot(rich, "one")
    assert snapshot(new, "two") == snapshot(rich, "two")
    assert snapshot(new, "zero") == before


def test_all_threads_are_imported_in_order_of_their_events(rich, open_store, export, take):
    new = open_store()
    report = take(new, export(rich, threads=["two", "one"]))
    assert report.threads == ("one", "two")
    assert [record.type for record in new.log()] == [record.type for record in rich.log()]
    assert [record.continues for record in new.log()] == [record.continues for record in rich.log()]


def test_every_id_of_the_source_finds_its_checkpoint(rich, open_store, export, take, fill):
    """Ids made by the store become ids like those given by callers."""
    new = open_store()
    fill(new, "zero")
    take(new, export(rich, threads=["one"]))
    for checkpoint in rich.thread("one").history():
        found = new.thread("one").at(checkpoint.id)
        assert (found.version, found.state_digest) == (checkpoint.version, checkpoint.state_digest)


def test_times_of_imported_records_are_kept_in_a_new_store(rich, open_store, export, take):
    new = open_store()
    take(new, export(rich, threads=["one"]))
    old_times = [checkpoint.time for checkpoint in rich.thread("one").history()]
    assert [checkpoint.time for checkpoint in new.thread("one").history()] == old_times
    assert new.thread("one").at(old_times[3]).version == rich.thread("one").at(old_times[3]).version
    assert all(TIME_KEY not in checkpoint.metadata for checkpoint in new.thread("one").history())


def test_times_of_imported_records_are_kept_after_later_ones(rich, open_store, export, take, fill):
    """Threads do not order one another."""
    new = open_store()
    fill(new, "zero")
    take(new, export(rich, threads=["one"]))
    old, imported = list(rich.thread("one").history()), list(new.thread("one").history())
    assert [checkpoint.time for checkpoint in imported] == [checkpoint.time for checkpoint in old]
    assert new.verify().problems == []


@pytest.mark.slow
def test_times_that_cannot_be_kept_are_in_the_metadata(open_store, export, take, fill, monkeypatch):
    far = open_store("far.state")
    with monkeypatch.context() as clock:
        clock.setattr("time.time_ns", lambda: 200 * 365 * 86_400 * 10**9)
        fill(far, "one")
    new = open_store()
    take(new, export(far, threads=["one"]))
    old, imported = list(far.thread("one").history()), list(new.thread("one").history())
    assert [checkpoint.metadata[TIME_KEY] for checkpoint in imported] == [checkpoint.time for checkpoint in old]
    again = open_store("again.state")
    fill(again, "zero")
    take(again, export(new, threads=["one"]))
    first = [checkpoint.metadata[TIME_KEY] for checkpoint in again.thread("one").history()]
    assert first == [checkpoint.time for checkpoint in old]


def test_a_time_in_the_future_does_not_spoil_the_clock_of_the_store(open_store, export, take, monkeypatch):
    far = open_store("far.state")
    monkeypatch.setattr("time.time_ns", lambda: 200 * 365 * 86_400 * 10**9)
    far.thread("t").commit({"x": 1})
    monkeypatch.undo()
    new = open_store()
    take(new, export(far, threads=["t"]))
    assert abs((new.thread("t").head.time - datetime.now(UTC)).total_seconds()) < 60
    assert new.thread("t").head.metadata[TIME_KEY] == far.thread("t").head.time


def test_threads_in_a_new_store_keep_even_their_digests(open_store, export, take, fill):
    """LSNs are the same, so generated ids stay valid and nothing changes."""
    old = open_store("old.state")
    fill(old, "one")
    new = open_store()
    take(new, export(old, threads=["one"]))
    assert list(new.log()) == list(old.log())


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(history=histories(max_size=8))
def test_the_copy_of_any_threads_matches_the_model(tmp_path_factory, performed, export, take, history):
    with performed(tmp_path_factory.mktemp("histories"), history) as (old, model, new):
        take(new, export(old, threads=[info.id for info in old.threads()]))
        assert_matches(new, model)
        assert new.verify().problems == []


def test_the_index_after_imports_equals_a_rebuilt_index(rich, open_store, export, take, fill):
    new = open_store()
    fill(new, "zero")
    take(new, export(rich, threads=["one", "two"]))
    with new._engine.read() as view:
        before = list(view.transaction.scan_index(b""))
    new.rebuild_index()
    with new._engine.read() as view:
        assert list(view.transaction.scan_index(b"")) == before


def test_an_imported_thread_can_be_used(rich, open_store, export, take):
    new = open_store()
    take(new, export(rich, threads=["one"]))
    thread = new.thread("one")
    version = thread.version
    thread.commit({"findings": ["more"]}, expected_version=version)
    thread.rollback(version)
    assert thread.state == rich.thread("one").state
    assert thread.head.common_ancestor(thread.at(version)).version == version
    thread.fork("branch of the copy", at=3)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 3])
def test_transactions_of_any_size_have_the_same_result(rich, open_store, export, take, monkeypatch, batch, snapshot):
    monkeypatch.setattr(thread_import, "BATCH_RECORDS", batch)
    new = open_store()
    take(new, export(rich, threads=["one", "two"]))
    assert snapshot(new, "one") == snapshot(rich, "one")
    assert snapshot(new, "two") == snapshot(rich, "two")


def test_metadata_with_an_unregistered_codec_is_copied(open_store, tmp_path, export, take):
    """In a process that does not know the codec: exports and imports need not decode it."""

    class Own:
        pass

    statelog.register_codec(Own, name="own-of-this-test", encode=lambda _own: 1, decode=lambda _one: Own())
    old = open_store("old.state")
    old.thread("t").commit({"x": 1}, metadata={"own": Own()})
    from statelog.format import cbor

    decoder = cbor._codecs_by_name.pop("own-of-this-test")
    try:
        new = statelog.open(tmp_path / "new.state")
        take(new, export(old, threads=["t"]))
        whole = statelog.open(tmp_path / "whole.state")
        take(whole, export(old))
    finally:
        cbor._codecs_by_name["own-of-this-test"] = decoder
    for store in (new, whole):
        assert isinstance(store.thread("t").head.metadata["own"], Own)
        store.close()


# --- sharing -----------------------------------------------------------------


def test_values_that_the_store_has_are_not_stored_again(open_store, export, take):
    text = "a long prompt " * 20_000
    old, new = open_store("old.state"), open_store()
    old.thread("t").commit({"prompt": text, "x": 1})
    new.thread("mine").commit({"prompt": text})
    before = sum(record.size_bytes for record in new.log())
    take(new, export(old, threads=["t"]))
    assert sum(record.size_bytes for record in new.log()) - before < 2000
    assert new.thread("t").state["prompt"] == text


@pytest.mark.parametrize("size", [5000, 100_000])
def test_a_thread_with_borrowed_nodes_survives_the_deletion_of_their_owner(open_store, export, take, size):
    """Leaves and trees alike: deletion must know of the import's references."""
    text = "a long prompt " * (size // 14)
    old, new = open_store("old.state"), open_store()
    old.thread("t").commit({"prompt": text})
    old.thread("t").commit({"prompt": text + "!"})
    new.thread("mine").commit({"prompt": text})
    take(new, export(old, threads=["t"]))
    new.delete_thread("mine")
    assert new.thread("t").state["prompt"] == text + "!"
    assert new.thread("t").at(0).state["prompt"] == text
    assert new.verify().problems == []


@pytest.mark.parametrize("size", [5000, 100_000])
def test_threads_of_one_export_that_share_nodes_survive_each_others_deletion(open_store, export, take, size):
    text = "a long prompt " * (size // 14)
    old, new = open_store("old.state"), open_store()
    old.thread("a").commit({"prompt": text})
    old.thread("b").commit({"prompt": text})
    old.thread("b").commit({"prompt": text + "!"})
    take(new, export(old, threads=["a", "b"]))
    new.delete_thread("a")
    assert new.thread("b").at(0).state["prompt"] == text
    assert new.thread("b").state["prompt"] == text + "!"
    assert new.verify().problems == []


def test_nodes_in_records_of_other_threads_are_copied(open_store, export, take):
    text = "a long prompt " * 20_000
    old, new = open_store("old.state"), open_store()
    old.thread("a").commit({"prompt": text})
    old.thread("b").commit({"prompt": text})
    take(new, export(old, threads=["b"]))
    assert new.thread("b").state["prompt"] == text


# --- retention -----------------------------------------------------------------------


def test_expired_versions_are_not_copied_and_kept_ones_are_complete(rich, open_store, export, take, snapshot):
    rich.thread("one").tag("kept", 6)
    rich.prune(keep_last=2, threads="one")
    new = open_store()
    take(new, export(rich, threads=["one"]))
    assert snapshot(new, "one") == snapshot(rich, "one")
    assert new.thread("one").state == rich.thread("one").state
    assert new.thread("one").version == rich.thread("one").version


def test_an_imported_thread_expires_and_is_vacuumed_like_others(rich, open_store, export, take):
    new = open_store()
    take(new, export(rich, threads=["one", "two"]))
    new.prune(keep_last=1, keep_tags=False)
    assert new.thread("one").state == rich.thread("one").state
    new.delete_thread("one")
    assert new.thread("two").state == rich.thread("two").state


def test_a_large_state_is_exported_in_portions(open_store, export, take, monkeypatch):
    """Nodes that do not fit beside their event go before it in further records, which a vacuum removes later."""
    monkeypatch.setattr(thread_export, "CARRIED_SIZE_BYTES", 20_000)
    old, new = open_store("old.state"), open_store()
    for turn in range(30):
        old.thread("t").commit({f"text {turn}": chr(65 + turn) * 3000})
    old.prune(keep_last=1)
    take(new, export(old, threads=["t"]))
    assert new.thread("t").state == old.thread("t").state
    assert new.last_lsn > 3
    new.thread("t").commit({f"text {turn}": None for turn in range(30)})
    new.prune(keep_last=1)
    assert sum(record.size_bytes for record in new.log()) < 10_000


def test_a_deleted_thread_is_neither_exported_nor_resurrected(rich, open_store, export, take):
    data = export(rich, threads=["two"])
    rich.delete_thread("two")
    with pytest.raises(ThreadDeletedError):
        export(rich, threads=["two"])
    with pytest.raises(ThreadDeletedError, match="was deleted from this store"):
        take(rich, data)
    assert take(open_store(), data).records_added > 0


# --- repeated imports -------------------------------------------------------------------------


def test_an_import_can_be_repeated(rich, open_store, export, take, snapshot):
    new = open_store()
    data = export(rich, threads=["one", "two"])
    take(new, data)
    last = new.last_lsn
    assert take(new, data).records_added == 0
    assert new.last_lsn == last
    assert snapshot(new, "one") == snapshot(rich, "one")


def test_a_longer_export_adds_only_new_records(rich, open_store, export, take, snapshot, fill):
    new = open_store()
    fill(new, "zero")
    take(new, export(rich, threads=["one"]))
    rich.thread("one").commit({"findings": ["new"], "query": "x" * 20_000})
    rich.thread("one").tag("newer")
    new.thread("zero").commit({"query": "meanwhile"})
    take(new, export(rich, threads=["one", "two"]))
    assert snapshot(new, "one") == snapshot(rich, "one")
    assert snapshot(new, "two") == snapshot(rich, "two")


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8, 0.95])
def test_an_interrupted_import_continues_where_it_ended(
    rich, open_store, export, take, monkeypatch, share, snapshot, fill
):
    monkeypatch.setattr(thread_import, "BATCH_RECORDS", 4)
    data = export(rich, threads=["one", "two"])
    new = open_store()
    fill(new, "zero")
    with pytest.raises(CorruptionError, match="ends within"):
        take(new, data[: int(len(data) * share)])
    assert new.verify().problems == []
    take(new, data)
    assert snapshot(new, "one") == snapshot(rich, "one")
    assert snapshot(new, "two") == snapshot(rich, "two")


def test_a_thread_with_the_same_id_and_another_history_is_a_conflict(rich, open_store, export, take, fill, snapshot):
    new = open_store()
    fill(new, "one", turns=6)
    before = snapshot(new, "one")
    with pytest.raises(ConflictError, match="but its record 2 differs") as caught:
        take(new, export(rich, threads=["one"]))
    assert caught.value.thread == "one"
    assert snapshot(new, "one") == before


def test_a_copy_with_its_own_commits_is_a_conflict(rich, open_store, export, take):
    new = open_store()
    take(new, export(rich, threads=["one"]))
    new.thread("one").commit({"query": "mine"})
    rich.thread("one").commit({"query": "theirs"})
    with pytest.raises(ConflictError):
        take(new, export(rich, threads=["one"]))
    assert new.thread("one").state["query"] == "mine"


def test_a_copy_that_has_expired_is_a_conflict(rich, open_store, export, take):
    new = open_store()
    take(new, export(rich, threads=["one"]))
    new.prune(keep_last=1)
    rich.thread("one").commit({"query": "more"})
    with pytest.raises(ConflictError):
        take(new, export(rich, threads=["one"]))


def test_a_concurrent_writer_is_a_conflict(rich, open_store, export, monkeypatch):
    class Meddling(io.BytesIO):
        def read(self, size):
            if new.thread("one").version == 4:
                new.thread("one").commit({"query": "mine"})
            return super().read(min(size, 500))

    monkeypatch.setattr(thread_import, "BATCH_RECORDS", 2)
    new = open_store()
    with pytest.raises(ConflictError, match="another writer has committed"):
        import_stream(new._engine, Meddling(export(rich, threads=["one"])))


@pytest.mark.slow
def test_concurrent_writers_of_other_threads_do_not_matter(rich, open_store, export, monkeypatch, snapshot):
    class Busy(io.BytesIO):
        def read(self, size):
            new.thread("mine").commit({"x": self.tell()})
            return super().read(min(size, 5000))

    monkeypatch.setattr(thread_import, "BATCH_RECORDS", 2)
    new = open_store()
    import_stream(new._engine, Busy(export(rich, threads=["one"])))
    assert snapshot(new, "one") == snapshot(rich, "one")


# --- refused ---------------------------------------------------------------------------


def test_an_unknown_thread_is_an_error_before_anything_is_written(rich):
    stream = io.BytesIO()
    with pytest.raises(ThreadNotFoundError) as caught:
        export_store(rich._engine, stream, threads=["one", "nobody"])
    assert caught.value.thread == "nobody"
    assert stream.getvalue() == b""


@pytest.mark.parametrize("options", [{"threads": "one"}, {"threads": ["one"], "since": 3}, {"since": True}], ids=str)
def test_invalid_options_are_usage_errors(rich, export, options):
    with pytest.raises(UsageError):
        export(rich, **options)


def test_a_damaged_node_is_not_exported(open_store, export, tmp_path):
    store = open_store("damaged.state")
    store.thread("t").commit({"needle": "in a haystack" * 100})
    store.close()
    path = tmp_path / "damaged.state"
    path.write_bytes(path.read_bytes().replace(b"haystackin", b"haystockin"))
    damaged = statelog.open(path)
    with pytest.raises(CorruptionError):
        export(damaged, threads=["t"])
    damaged.close()


def test_a_copied_rollback_whose_target_has_expired_is_imported(open_store, export, take):
    source, copy = open_store("source.state"), open_store("copy.state")
    thread = source.thread("a")
    thread.commit({"x": 1})
    thread.commit({"x": 2})
    thread.rollback(0)
    source.expire([thread.at(0)])
    source.copy_thread("a", "b")
    take(copy, export(source, threads=["b"]))
    assert copy.thread("b").state == {"x": 1}
    assert [each.version for each in copy.thread("b").history()] == [2, 1]
    assert copy.verify().problems == []
