"""Salvage makes a new store from the remains of a damaged file, reports what is lost, and adds nothing else."""

import os
import random

import lmdb
import pytest
import xxhash
from damage import PAGE_SIZE_BYTES, index_pages, kinds, leaves, occurrences, record_places, wipe, without

import statelog
from statelog import reducers
from statelog.errors import AlreadyExistsError, FormatError, StoreFullError, StoreLockedError, StoreNotFoundError
from statelog.format import cbor
from statelog.format.record import decode_record
from statelog.limits import MAX_SIZE_BYTES_MIN
from statelog.portable.salvage import salvage

# --- nothing lost -----------------------------------------------------------------


def test_a_sound_file_is_salvaged_unchanged(source, rescue):
    data, log = source
    report, store = rescue(data)
    assert list(store.log()) == log
    assert report.is_complete
    assert (report.records, report.recovered, report.lost, report.versions_lost) == (len(log), len(log), [], [])


def test_an_empty_store_is_salvaged_as_empty(tmp_path, rescue):
    with statelog.open(tmp_path / "empty.state"):
        pass
    report, store = rescue((tmp_path / "empty.state").read_bytes())
    assert (report.records, report.is_complete, store.last_lsn) == (0, True, 0)


@pytest.mark.parametrize("flags", [0x01, 0x08, 0x09], ids=["all branch pages", "both meta pages", "branches and metas"])
def test_records_are_found_without_the_pages_above_them(source, rescue, flags):
    data, log = source
    wiped = [page for page, kind in kinds(data).items() if kind & flags and kind & 0x0F in (1, 8)]
    assert wiped
    report, store = rescue(wipe(data, wiped))
    assert list(store.log()) == log
    assert report.is_complete


@pytest.mark.slow
def test_one_meta_page_is_enough(source, rescue):
    data, log = source
    for page in (0, 1):
        _report, store = rescue(wipe(data, [page]), f"new{page}.state")
        assert list(store.log()) == log


def test_a_large_record_is_found_without_any_reference_to_it(tmp_path, rescue):
    path = tmp_path / "large.state"
    with statelog.open(path) as store:
        store.thread("t").commit({"x": os.urandom(50_000).hex()})
        log = list(store.log())
    data = path.read_bytes()
    report, store = rescue(wipe(data, leaves(data)))
    assert report.lost == [(1, 1)]
    assert [info.versions for info in store.threads()] == [1]
    assert next(iter(store.log(after=1))).body == log[1].body | {"branch": "main"}


def test_swapped_pages_lose_nothing(source, rescue):
    data, log = source
    a, b = leaves(data)[1] * PAGE_SIZE_BYTES, leaves(data)[3] * PAGE_SIZE_BYTES
    swapped = bytearray(data)
    swapped[a : a + PAGE_SIZE_BYTES], swapped[b : b + PAGE_SIZE_BYTES] = (
        data[b : b + PAGE_SIZE_BYTES],
        data[a : a + PAGE_SIZE_BYTES],
    )
    _report, store = rescue(bytes(swapped))
    assert list(store.log()) == log


# --- something lost ------------------------------------------------------------------


def test_a_lost_record_loses_its_version_and_versions_that_need_its_nodes(source, rescue):
    data, log = source
    lost = next(record for record in log if record.body.get("version") == 5 and record.thread_id == "two")
    report, store = rescue(without(data, lost.lsn))
    assert report.lost == [(lost.lsn, lost.lsn)]
    assert report.recovered == len(log) - 1
    by_lsn = {loss.lsn: loss for loss in report.versions_lost}
    assert (by_lsn[lost.lsn].thread, by_lsn[lost.lsn].branch, by_lsn[lost.lsn].version) == ("two", "main", 5)
    kept = {record.lsn for record in store.log() if record.thread_id is not None}
    assert kept | set(by_lsn) == {record.lsn for record in log}
    assert all(loss.why for loss in report.versions_lost)
    for version in range(5):
        assert store.thread("two").at(version).state_digest
    assert list(store.log())[: lost.lsn - 1] == log[: lost.lsn - 1]


@pytest.mark.slow
def test_other_threads_keep_everything(source, rescue, tmp_path, snapshot):
    data, log = source
    lost = next(record for record in log if record.body.get("version") == 1 and record.thread_id == "two")
    _report, store = rescue(without(data, lost.lsn))
    with statelog.open(tmp_path / "source.state") as original:
        assert snapshot(store, "one") == snapshot(original, "one")


def test_lsns_ids_and_tags_are_kept(source, rescue):
    data, log = source
    lost = next(record for record in log if record.thread_id == "one" and record.type == "rollback").lsn
    _report, store = rescue(without(data, lost))
    for record in log:
        if record.body.get("id") and record.lsn != lost:
            assert store.thread(record.thread_id).at(record.body["id"]).lsn == record.lsn
    assert store.thread("one").tags()["good"].version == 2


def test_a_lost_beginning_of_a_thread_is_restored_from_the_index(source, rescue):
    data, log = source
    beginning = next(record for record in log if record.type == "thread" and record.thread_id == "two")
    report, store = rescue(without(data, beginning.lsn))
    assert [info.id for info in store.threads()] == ["one", "two"]
    assert store.thread("two").version == 7
    assert report.names_made_up == []
    assert report.lost == [(beginning.lsn, beginning.lsn)]


def test_a_lost_beginning_of_a_branch_is_restored_from_the_index(source, rescue):
    data, log = source
    fork = next(record for record in log if record.type == "fork" and record.thread_id == "one")
    _report, store = rescue(without(data, fork.lsn))
    assert [branch.name for branch in store.thread("one").branches()] == ["main", "what-if"]
    assert store.thread("one", branch="what-if").state["query"] == "other"


def test_unknown_names_are_invented(source, rescue, tmp_path):
    """The records of a thread and a branch, and every page of the index."""
    data, log = source
    beginnings = [record.lsn for record in log if record.type in ("thread", "fork") and record.thread_id == "one"]
    damaged = without(data, *beginnings)
    report, store = rescue(wipe(damaged, index_pages(data, tmp_path)))
    assert report.names_made_up == ["1/salvaged-1", "salvaged-1"]
    assert [info.id for info in store.threads()] == ["salvaged-1", "two"]
    thread = store.thread("salvaged-1")
    assert [branch.name for branch in thread.branches()] == ["main", "salvaged-1"]
    assert thread.checkout("salvaged-1").state["query"] == "other"


def test_a_branch_whose_base_is_lost_gets_no_versions_of_its_parent(tmp_path, rescue):
    path = tmp_path / "forked.state"
    with statelog.open(path) as store:
        thread = store.thread("t")
        for turn in range(4):
            thread.commit({f"x{turn}": turn})
        thread.fork("f", at=3, update={"y": 1})
        lsn = thread.at(3).lsn
    _report, store = rescue(without(path.read_bytes(), lsn))
    store.thread("t").commit({"new": "version 3"})
    assert store.thread("t").version == 3
    with pytest.raises(statelog.errors.CheckpointNotFoundError):
        store.thread("t", branch="f").at(3)


@pytest.mark.parametrize("share", [0.3, 0.5])
def test_a_truncated_file_yields_its_remaining_records(source, rescue, share):
    data, log = source
    pages = sorted(leaves(data))
    report, store = rescue(data[: pages[int(len(pages) * share)] * PAGE_SIZE_BYTES])
    assert 0 < report.recovered < len(log)
    assert not (report.is_complete and report.end_is_known)
    by_lsn = {record.lsn: record for record in log}
    kept = {record.lsn: record for record in store.log() if record.thread_id is not None}
    for lsn, record in kept.items():
        if record.type in ("checkpoint", "rollback"):
            assert record.body == by_lsn[lsn].body


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_damaged_no_wrong_data_is_salvaged(source, rescue, seed):
    """Every version of the new store is a version of the old store with the same state."""
    data, log = source
    rng = random.Random(seed)
    damaged = bytearray(data)
    for _ in range(rng.choice((1, 5, 25))):
        page = rng.randrange(2, len(data) // PAGE_SIZE_BYTES) * PAGE_SIZE_BYTES
        if rng.random() < 0.5:
            damaged[page + rng.randrange(PAGE_SIZE_BYTES)] ^= 1 << rng.randrange(8)
        else:
            damaged[page : page + PAGE_SIZE_BYTES] = rng.choice(
                (bytes(PAGE_SIZE_BYTES), rng.randbytes(PAGE_SIZE_BYTES))
            )
    report, store = rescue(bytes(damaged))
    by_lsn = {record.lsn: record for record in log}
    versions = [record for record in store.log() if record.type in ("checkpoint", "rollback") and record.thread_id]
    for record in versions:
        assert record.body == by_lsn[record.lsn].body
    told = {loss.lsn for loss in report.versions_lost} | {lsn for a, b in report.lost for lsn in range(a, b + 1)}
    there = {record.lsn for record in versions}
    assert {record.lsn for record in log if record.type in ("checkpoint", "rollback")} <= there | told


@pytest.mark.slow
def test_ignored_damage_is_detected(source, rescue, monkeypatch):
    """Negative control: a salvage that accepts records with a wrong checksum."""
    data, log = source
    lost = next(record for record in log if record.body.get("version") == 3 and record.thread_id == "two")
    places = [
        at for at in occurrences(data, b"dturn\x02") if any(0 < at - p < 300 for p in record_places(data, lost.lsn))
    ]
    damaged = bytearray(data)
    for at in places:
        damaged[at + 5] = 7
    report, _store = rescue(bytes(damaged))
    assert report.lost == [(lost.lsn, lost.lsn)]

    def believe(data, lsn):
        return decode_record(xxhash.xxh3_64_digest(bytes(data[8:])) + bytes(data[8:]), lsn)

    monkeypatch.setattr("statelog.portable.record_search.decode_record", believe)
    monkeypatch.setattr("statelog.portable.salvage.decode_record", believe)
    monkeypatch.setattr("statelog.portable.salvage_plan.decode_record", believe)
    with pytest.raises(AssertionError):  # The new store has it, and does not verify.
        rescue(bytes(damaged), "believed.state")


# --- refused ------------------------------------------------------------------------------


def test_a_foreign_file_is_refused(tmp_path):
    (tmp_path / "foreign").write_text("hello " * 10_000)
    with pytest.raises(FormatError, match="no part of a statelog store"):
        salvage(tmp_path / "foreign", tmp_path / "new.state")
    assert not (tmp_path / "new.state").exists()


def test_another_lmdb_file_is_refused(tmp_path):
    with (
        lmdb.open(str(tmp_path / "foreign"), subdir=False) as environment,
        environment.begin(write=True) as transaction,
    ):
        transaction.put(b"key", b"value")
    with pytest.raises(FormatError):
        salvage(tmp_path / "foreign", tmp_path / "new.state")


def test_a_missing_file_is_not_found(tmp_path):
    with pytest.raises(StoreNotFoundError):
        salvage(tmp_path / "nothing", tmp_path / "new.state")


def test_a_path_where_no_file_can_be_created_is_named_as_given(source, tmp_path):
    new = tmp_path / "missing" / "new.state"
    with pytest.raises(StoreNotFoundError, match="a store cannot be created at") as caught:
        salvage(tmp_path / "source.state", new)
    assert caught.value.path == str(new)
    assert str(caught.value) == f"a store cannot be created at {new}: {new.parent}: No such file or directory"
    assert source


def test_a_full_disk_error_of_a_new_store_names_the_given_path(tmp_path):
    with statelog.open(tmp_path / "large.state") as store:
        store.thread("t").commit({"x": os.urandom(2 * MAX_SIZE_BYTES_MIN)})
    with pytest.raises(StoreFullError) as caught:
        salvage(tmp_path / "large.state", tmp_path / "new.state", max_size_bytes=MAX_SIZE_BYTES_MIN)
    assert str(tmp_path / "new.state") in str(caught.value)
    assert caught.value.path == str(tmp_path / "new.state")
    assert list(tmp_path.glob("*new.state*")) == []


def test_an_existing_file_is_never_replaced(source, tmp_path):
    (tmp_path / "new.state").write_text("precious")
    with pytest.raises(AlreadyExistsError):
        salvage(tmp_path / "source.state", tmp_path / "new.state")
    assert (tmp_path / "new.state").read_text() == "precious"
    assert source


def test_a_store_in_use_is_refused(source, tmp_path):
    assert source
    with statelog.open(tmp_path / "source.state"), pytest.raises(StoreLockedError):
        salvage(tmp_path / "source.state", tmp_path / "new.state")


def test_an_interrupted_salvage_leaves_no_file(source, tmp_path):
    def interrupt(_done, _whole):
        raise KeyboardInterrupt

    assert source
    with pytest.raises(KeyboardInterrupt):
        salvage(tmp_path / "source.state", tmp_path / "new.state", progress=interrupt)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["source.state", "source.state-lock"]


@pytest.mark.slow
def test_the_new_store_can_be_used(source, rescue):
    data, log = source
    lost = next(record for record in log if record.body.get("version") == 4 and record.thread_id == "one")
    _report, store = rescue(without(data, lost.lsn))
    thread = store.thread("one")
    thread.commit({"query": "on"})
    thread.rollback(1)
    thread.fork("after", at=2)
    store.prune(keep_last=2)
    store.delete_thread("two")
    store.rebuild_index()
    assert store.verify().problems == []


def test_metadata_with_an_unknown_codec_is_salvaged(tmp_path, monkeypatch):
    class Own:
        pass

    statelog.register_codec(Own, name="own-of-salvage", encode=lambda _own: 1, decode=lambda _one: Own())
    path = tmp_path / "coded.state"
    with statelog.open(path) as store:
        store.thread("t").commit({"x": ["first " * 20]}, metadata={"own": Own()})
        store.thread("t").commit({"y": 1}, metadata={"own": Own()})
        lsn = store.thread("t").at(0).lsn
    path.write_bytes(without(path.read_bytes(), lsn))
    with monkeypatch.context() as unknown:
        unknown.delitem(cbor._codecs_by_name, "own-of-salvage")
        report = salvage(path, tmp_path / "new.state")
    assert [loss.version for loss in report.versions_lost] == [0, 1]
    with statelog.open(tmp_path / "new.state") as store:
        assert store.verify().problems == []


@pytest.mark.parametrize("is_index_there", [True, False])
def test_a_lost_copy_reference_is_restored(tmp_path, rescue, is_index_there):
    """Otherwise, retention of the source would remove nodes that only the copy needs."""
    path = tmp_path / "lent.state"
    with statelog.open(path) as store:
        thread = store.thread("a", schema={"log": reducers.extend})
        for number in range(8):
            thread.commit({"log": [f"{number} " * 300]})
        states = [each.state.to_python() for each in store.copy_thread("a", "b").history()]
        loan = store.last_lsn
        thread.commit({"log": reducers.Overwrite([])})
    data = without(path.read_bytes(), loan)
    if not is_index_there:
        data = wipe(data, index_pages(data, tmp_path))
    report, salvaged = rescue(data)
    assert report.lost == [(loan, loan)]
    assert [record.type for record in salvaged.log(after=loan - 1)][:1] == ["loan"]
    salvaged.prune(keep_last=1, threads="a")
    salvaged.delete_thread("a")
    assert [each.state.to_python() for each in salvaged.thread("b").history()] == states
    assert salvaged.verify().problems == []


def test_a_text_is_kept_for_a_thread_whose_record_of_borrowing_it_is_lost(tmp_path, rescue):
    """The remaining versions of the thread refer to the text of another thread, but no record lists it as borrowed."""
    text = "".join(random.Random(1).choices("abcdefgh", k=9000))
    path = tmp_path / "source.state"
    with statelog.open(path) as store:
        store.thread("owner").commit({"text": text})
        thread = store.thread("borrower")
        thread.commit({"text": text})
        lsn = store.last_lsn
        thread.commit({"n": 1})
        with store._engine.read() as view:
            checksum = bytes(view.transaction.get_log(lsn)[:8])
    report, store = rescue(path.read_bytes().replace(checksum, bytes(8)))
    assert report.lost == [(lsn, lsn)]
    store.thread("owner").commit({"text": "another"})
    store.prune(keep_last=1)
    assert store.verify().problems == []
    store._engine.cache.clear()
    assert store.thread("borrower").state["text"] == text
    store.delete_thread("borrower")
    store.compact()
    assert text.encode()[:1000] not in store.path.read_bytes()
