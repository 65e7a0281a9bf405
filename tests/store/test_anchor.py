"""Anchors: operations that keep them valid, and changes that they detect. FORMAT.md section 9."""

from __future__ import annotations

import io
import shutil
import sys
import threading

import forks
import pytest
from authors import Author
from forger import forging, with_checksum
from xxhash import xxh3_64_digest

import statelog
from statelog import kernels
from statelog.errors import (
    AnchorError,
    ClosedError,
    CorruptionError,
    FencedError,
    ForgeryError,
    FormatError,
    NewerFormatError,
    OtherStoreError,
    RollbackError,
    StoreNotFoundError,
)
from statelog.fleet import connect
from statelog.format import cbor
from statelog.format.anchor import Anchor, decode_anchor, encode_anchor
from statelog.format.record import (
    ENVELOPE_SIZE_BYTES,
    FLAG_VACUUMED,
    TYPE_AT,
    decode_record,
    encode_record,
    record_chain_digest,
    redact_record,
    with_previous_chain,
)
from statelog.log import anchors
from statelog.log.kinds.table import KINDS
from statelog.portable.salvage import salvage
from statelog.storage.file.creation import create_store


def fill(path, count=5):
    """Make a store with a thread of 4 + 1 versions and a tag in the middle. Return the anchor at its end."""
    with statelog.open(path) as store:
        thread = store.thread("t")
        for number in range(count):
            thread.commit({"n": number, "text": f"text {number} " * 1000})
            if number == 1:
                thread.tag("good", 0)
        return store.anchor()


def anchors_of(store):
    """Return the anchor of every LSN of a store."""
    store_id = store._engine.store_file.lmdb_file.store_id
    return [encode_anchor(Anchor(store_id, 0, bytes(20)))] + [
        encode_anchor(Anchor(store_id, record.lsn, bytes.fromhex(record.digest))) for record in store.log()
    ]


def rewrite(path, lsn, body, *, redo=True):
    """Rewrite the body of a record without nodes. Also recompute the later chain, if requested, and the index."""
    with statelog.open(path) as store:

        def work(transaction):
            old = decode_record(transaction.get_log(lsn), lsn)
            data, chain = encode_record(
                old.type, lsn=lsn, time_us=old.time_us, previous_chain=old.previous_chain, body=body, flags=old.flags
            )
            records = {lsn: data}
            for each in range(lsn + 1, transaction.last_lsn() + 1 if redo else 0):
                records[each] = with_previous_chain(bytes(transaction.get_log(each)), chain)
                chain = record_chain_digest(records[each], decode_record(records[each], each), chain)
            transaction.replace_logs(records)

        store._engine.care(work)
        store.rebuild_index()


def retarget_tag(path, *, redo=True):
    """Move the tag of `fill` to another version, as an attacker who can write the file may do."""
    with statelog.open(path, read_only=True) as store:
        tag = next(record.lsn for record in store.log() if record.type == "tag")
        thread, name, target = cbor.decode(decode_record(read_record(store, tag), tag).body)
    rewrite(path, tag, cbor.encode([thread, name, target + 1]), redo=redo)


def read_record(store, lsn):
    with store._engine.read() as view:
        return bytes(view.transaction.get_log(lsn))


def files_in(folder):
    return {each.name: each.read_bytes() for each in folder.iterdir() if not each.name.endswith("-lock")}


# --- what an anchor is ---------------------------------------------------------------


def test_an_anchor_has_the_bytes_of_the_format(path):
    with statelog.open(path) as store:
        store.thread("t").commit({"n": 1})
        anchor = store.anchor()
        last = list(store.log())[-1]
        store_id = store._engine.store_file.lmdb_file.store_id
    start = b"\x01" + store_id + last.lsn.to_bytes(8) + bytes.fromhex(last.digest)
    assert anchor == start + xxh3_64_digest(start)
    assert len(anchor) == 53


@pytest.mark.slow
def test_a_store_has_the_history_of_each_of_its_anchors(path):
    fill(path)
    with statelog.open(path) as store:
        found = anchors_of(store)
        assert store.anchor() == found[-1]
    for anchor in found:
        with statelog.open(path, expect=anchor) as store:
            assert store.verify(expect=anchor).ok
            assert store.verify(expect=anchor, deep=False).ok


def test_records_after_an_anchor_can_be_any(path):
    anchor = fill(path)
    with statelog.open(path, expect=anchor) as store:
        store.thread("t").commit({"n": 7})
        assert store.anchor() != anchor
        assert store.verify(expect=anchor).ok


def test_an_anchor_of_an_empty_store_is_valid_only_for_that_store(path, tmp_path):
    with statelog.open(path) as store:
        anchor = store.anchor()
        store.thread("t").commit({"n": 1})
    statelog.open(path, expect=anchor).close()
    other = tmp_path / "other.state"
    statelog.open(other).close()
    with pytest.raises(OtherStoreError):
        statelog.open(other, expect=anchor)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_read_only_opening_makes_the_same_checks(path, tmp_path, read_only):
    fill(path, 2)
    shutil.copy(path, tmp_path / "older.state")
    anchor = fill(path)
    statelog.open(path, expect=anchor, read_only=read_only).close()
    with pytest.raises(RollbackError):
        statelog.open(tmp_path / "older.state", expect=anchor, read_only=read_only)


@pytest.mark.slow
def test_an_anchor_covers_only_durable_records(path):
    with statelog.open(path, durability="interval", interval_ms=60_000) as writer:
        writer.thread("t").commit({"n": 1})
        writer.flush()
        before = anchor_elsewhere(path)
        writer.thread("t").commit({"n": 2})
        assert writer.last_lsn == 3
        assert anchor_elsewhere(path) == before
        after = writer.anchor()
        assert writer._engine.store_file.flushed_lsn() == 3
        assert anchor_elsewhere(path) == after
    assert after[17:25] == (3).to_bytes(8)
    assert before[17:25] == (2).to_bytes(8)


def anchor_elsewhere(path):
    """Return the anchor that a reader in another process takes."""
    command = [sys.executable, "-m", "statelog", "anchor", str(path)]
    return bytes.fromhex(forks.run(command, check=True, capture_output=True, text=True).stdout)


def test_an_anchor_is_not_given_if_the_flush_fails(path, monkeypatch):
    with statelog.open(path, durability="interval", interval_ms=60_000) as store:
        store.thread("t").commit({"n": 1})

        def fail():
            raise statelog.StorageError("the disk refuses")

        monkeypatch.setattr(store._engine, "flush", fail)
        with pytest.raises(statelog.StorageError):
            store.anchor()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_closed_store_gives_no_anchor(path, read_only):
    fill(path)
    store = statelog.open(path, read_only=read_only)
    store.close()
    with pytest.raises(ClosedError):
        store.anchor()


def test_a_fenced_store_gives_its_anchor(path):
    with statelog.open(path) as store:
        store.thread("t").commit({"n": 1})
        store.shut_off(FencedError("another owner"))
        anchor = store.anchor()
    with statelog.open(path, expect=anchor) as store:
        assert store.verify(expect=anchor).ok


_TAKER = """
import os, sys, statelog
store = statelog.open(sys.argv[1], durability="interval", interval_ms=60_000)
for number in range(3):
    store.thread("t").commit({"n": number})
print(store.anchor().hex(), flush=True)
store.thread("t").commit({"n": 3})
os._exit(9)
"""


def anchor_of_a_killed_process(path):
    """Return the anchor that a process has taken before it ended without closing the store."""
    found = forks.run([sys.executable, "-c", _TAKER, str(path)], capture_output=True, text=True)
    assert found.returncode == 9
    return bytes.fromhex(found.stdout)


@pytest.mark.parametrize("read_only", [False, True])
def test_an_anchor_stays_valid_after_a_kill_of_its_process(path, read_only):
    anchor = anchor_of_a_killed_process(path)
    with statelog.open(path, expect=anchor, read_only=read_only) as store:
        assert store.thread("t").state["n"] == 3
        assert store.verify(expect=anchor).ok


def test_an_opening_with_an_anchor_reads_one_record(path, monkeypatch):
    anchor = fill(path)
    read = []
    get_log = statelog.storage.read_transaction.ReadTransaction.get_log

    def watched(self, lsn):
        read.append(lsn)
        return get_log(self, lsn)

    monkeypatch.setattr(statelog.storage.read_transaction.ReadTransaction, "get_log", watched)
    statelog.open(path).close()
    bare, read[:] = list(read), []
    statelog.open(path, expect=anchor).close()
    assert read == [*bare, int.from_bytes(anchor[17:25])]


# --- what keeps an anchor valid -----------------------------------------------------------


def retain(store):
    store.prune(keep_last=1)


def expire(store):
    store.expire(list(store.thread("t").history())[1:])


def delete(store):
    store.delete_thread("t")


def delete_and_compact(store):
    store.delete_thread("t")
    store.compact()


def retain_board(store):
    store.board().prune("**", keep_last=1)


def release_leases(store):
    lease = store.board(agent="a").lease("name")
    lease.renew()
    lease.release()
    store.prune(keep_last=1)


def copy_and_delete(store):
    store.copy_thread("t", "copy")
    store.delete_thread("t")
    store.compact()
    store.delete_thread("copy")
    store.compact()


def take_threads_in(store):
    target = io.BytesIO()
    store.export(target, threads=["t"])
    store.delete_thread("t")
    store.thread("t", recreate=True).commit({"n": 1})
    with pytest.raises(statelog.ConflictError):
        store.import_(io.BytesIO(target.getvalue()))


def go_back(store):
    store.thread("t").rollback(1)
    store.thread("t").fork("branch", at=0)


def rebuild(store):
    store.rebuild_index()


def compact(store):
    store.compact()


ACTS = [
    retain, expire, delete, delete_and_compact, retain_board, release_leases, copy_and_delete, take_threads_in, go_back,
    rebuild, compact,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_every_anchor_stays_valid_after(path, act):
    with statelog.open(path) as store:
        thread, board = store.thread("t"), store.board()
        for number in range(70):
            thread.commit({"log": [f"item {number}"], "text": f"text {number} " * 500})
            board.set("key", "value " * 1000 + str(number))
        found = anchors_of(store)
        act(store)
        for anchor in found:
            anchors.check_opened(store._engine, anchors.ExpectedHistory(anchor))
        assert [anchor for anchor in found[::20] if not store.verify(expect=anchor, deep=False).ok] == []
        assert store.verify(expect=found[-1]).ok
    for anchor in found[::20]:
        statelog.open(path, expect=anchor).close()


@pytest.mark.slow
def test_anchors_of_short_records_are_found_from_at_most_64(path, monkeypatch):
    with statelog.open(path) as store:
        for number in range(200):
            store.thread("t").commit({"text": f"text {number} " * 500})
        found = anchors_of(store)
        store.delete_thread("t")
        store.compact()
        vacuumed = [lsn for lsn in range(1, 201) if read_record(store, lsn)[11] & FLAG_VACUUMED]
        assert len(vacuumed) > 190
        counts = []
        read_chained = anchors.read_chained

        def counted(get_log, lsn):
            read = []
            result = read_chained(lambda each: read.append(each) or get_log(each), lsn)
            counts.append(len(read))
            return result

        monkeypatch.setattr(anchors, "read_chained", counted)
        for anchor in found:
            with store._engine.read() as view:
                anchors.ExpectedHistory(anchor).check(store._engine, view.transaction)
        assert max(counts) <= 64


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_every_copy_has_the_history_of_anchors_taken_at_any_moments(path, tmp_path, seed):
    taken, exports, since = [], [], 0
    with statelog.open(path, durability="interval") as store:
        author = Author(store, seed)
        for turn in range(120):
            author.act()
            if turn % 10 == 9:
                taken.append(store.anchor())
                exports.append(io.BytesIO())
                store.export(exports[-1], since=since)
                since = store.last_lsn
        whole = io.BytesIO()
        store.export(whole)
        store.image(tmp_path / "image.state")
    with statelog.open(tmp_path / "row.state") as row:
        for export in exports:
            row.import_(io.BytesIO(export.getvalue()))
    with statelog.open(tmp_path / "imported.state") as imported:
        imported.import_(io.BytesIO(whole.getvalue()))
    salvage(path, tmp_path / "salvaged.state")
    for copy in (path, *(tmp_path / f"{name}.state" for name in ("image", "row", "imported", "salvaged"))):
        for anchor in taken:
            with statelog.open(copy, expect=anchor) as store:
                assert anchor is not taken[-1] or store.verify(expect=anchor).ok


def test_a_copy_that_is_behind_an_anchor_is_refused_until_it_has_caught_up(path, tmp_path):
    fill(path, 2)
    first, second = io.BytesIO(), io.BytesIO()
    with statelog.open(path) as store:
        store.export(first)
        store.thread("t").commit({"n": 9})
        store.export(second)
        anchor = store.anchor()
    copy = tmp_path / "copy.state"
    with statelog.open(copy) as store:
        store.import_(io.BytesIO(first.getvalue()))
        with pytest.raises(OtherStoreError) as caught:
            store.verify(expect=anchor)
        assert caught.value.found is None
        store.import_(io.BytesIO(second.getvalue()))
        assert store.verify(expect=anchor).ok


def test_a_store_of_imported_threads_has_a_different_history(path, tmp_path):
    fill(path)
    target = io.BytesIO()
    with statelog.open(path) as store:
        store.thread("other").commit({"n": 1})
        anchor = store.anchor()
        store.export(target, threads=["t", "other"])
    with statelog.open(tmp_path / "copy.state") as copy:
        copy.thread("first").commit({"n": 1})
        copy.import_(io.BytesIO(target.getvalue()))
        with pytest.raises(OtherStoreError):
            copy.verify(expect=anchor)


def test_records_that_salvage_did_not_save_are_reported(path, tmp_path):
    fill(path)
    with statelog.open(path) as store:
        found = anchors_of(store)
        damaged = read_record(store, 4)
    data = path.read_bytes()
    assert damaged in data
    path.write_bytes(data.replace(damaged, damaged[:-1] + bytes((damaged[-1] ^ 1,))))
    salvage(path, tmp_path / "salvaged.state")
    for anchor in found[1:4]:
        statelog.open(tmp_path / "salvaged.state", expect=anchor).close()
    for anchor in found[4:]:
        with pytest.raises(ForgeryError):
            statelog.open(tmp_path / "salvaged.state", expect=anchor)


def test_anchors_of_shipped_records_stay_valid_in_a_fleet(tmp_path):
    (tmp_path / "bucket").mkdir()
    url = (tmp_path / "bucket").as_uri()
    with connect(url, cache=tmp_path / "here") as fleet, fleet.open("s") as store:
        store.thread("t").commit({"n": 1})
        early, early_lsn = store.anchor(), store.last_lsn
        store.remote.base()
        store.thread("t").commit({"n": 2}, durable="remote")
        late = store.anchor()
    with connect(url, cache=tmp_path / "there") as fleet:
        fleet.restore("s", tmp_path / "restored.state")
        for anchor in (early, late):
            statelog.open(tmp_path / "restored.state", expect=anchor).close()
            with fleet.open("s", expect=anchor) as store:
                assert store.verify(expect=anchor).ok
        fleet.restore("s", tmp_path / "earlier.state", at=early_lsn)
        statelog.open(tmp_path / "earlier.state", expect=early).close()
        with pytest.raises(RollbackError):
            statelog.open(tmp_path / "earlier.state", expect=late)


def test_a_fleets_store_with_an_unexpected_history_is_released_again(path, tmp_path):
    anchor = fill(path)
    (tmp_path / "bucket").mkdir()
    url = (tmp_path / "bucket").as_uri()
    with connect(url, cache=tmp_path / "here") as fleet:
        with fleet.open("s") as store:
            store.thread("t").commit({"n": 1})
        with pytest.raises(OtherStoreError):
            fleet.open("s", expect=anchor)
        with fleet.open("s", timeout_s=5) as store:
            assert store.thread("t").state["n"] == 1


def test_a_missing_store_of_a_fleet_is_not_created_with_an_expected_anchor(path, tmp_path):
    anchor = fill(path)
    (tmp_path / "bucket").mkdir()
    with connect((tmp_path / "bucket").as_uri(), cache=tmp_path / "here") as fleet:
        with pytest.raises(StoreNotFoundError):
            fleet.open("s", expect=anchor)
        assert fleet.stores() == []
        assert not fleet.path("s").exists()


# --- detected changes ------------------------------------------------------------------------


def test_an_older_copy_is_a_rollback(path, tmp_path):
    fill(path, 2)
    shutil.copy(path, tmp_path / "older.state")
    anchor = fill(path)
    (tmp_path / "older.state").replace(path)
    with pytest.raises(RollbackError, match="earlier copy") as caught:
        statelog.open(path, expect=anchor)
    with statelog.open(path) as store:
        last = list(store.log())[-1]
        with pytest.raises(RollbackError):
            store.verify(expect=anchor)
    facts = caught.value
    assert (facts.path, facts.last_lsn, facts.found) == (str(path), last.lsn, None)
    assert (facts.lsn, facts.expected) == (int.from_bytes(anchor[17:25]), anchor[25:45].hex())
    assert isinstance(facts, CorruptionError)


def test_an_older_copy_that_was_continued_is_a_different_history(path, tmp_path):
    fill(path, 2)
    shutil.copy(path, tmp_path / "older.state")
    anchor = fill(path)
    (tmp_path / "older.state").replace(path)
    fill(path, 6)
    with pytest.raises(ForgeryError) as caught:
        statelog.open(path, expect=anchor)
    assert type(caught.value) is ForgeryError


def test_a_truncated_log_is_a_rollback(path):
    anchor = fill(path)
    with statelog.open(path) as store:
        last = store.last_lsn

        def cut(transaction):
            transaction.changes += 1
            assert transaction._raw.delete(last.to_bytes(8), b"", transaction._log)

        store._engine.care(cut)
        store.rebuild_index()
        assert store.verify().ok
    with pytest.raises(RollbackError):
        statelog.open(path, expect=anchor)


def test_a_recomputed_chain_passes_without_an_anchor_and_is_detected_with_one(path):
    anchor = fill(path)
    retarget_tag(path)
    with statelog.open(path) as store:
        assert store.verify().problems == []
        with pytest.raises(ForgeryError) as caught:
            store.verify(expect=anchor)
        found = list(store.log())[-1]
    with pytest.raises(ForgeryError, match="a different history") as opened:
        statelog.open(path, expect=anchor)
    for error in (caught.value, opened.value):
        assert type(error) is ForgeryError
        assert (error.path, error.lsn) == (str(path), found.lsn)
        assert (error.expected, error.found) == (anchor[25:45].hex(), found.digest)


def test_a_recomputed_chain_is_detected_at_an_anchor_of_the_forged_record(path):
    fill(path)
    with statelog.open(path) as store:
        found = anchors_of(store)
        tag = next(record.lsn for record in store.log() if record.type == "tag")
    retarget_tag(path)
    for anchor in found[:tag]:
        statelog.open(path, expect=anchor).close()
    for anchor in found[tag:]:
        with pytest.raises(ForgeryError):
            statelog.open(path, expect=anchor)


def test_a_record_changed_without_its_chain_is_detected_only_by_verify(path):
    anchor = fill(path)
    retarget_tag(path, redo=False)
    with statelog.open(path, expect=anchor) as store:
        report = store.verify(expect=anchor)
    assert [problem.invariant for problem in report.problems] == ["L3"]


def test_a_forged_record_is_detected_despite_retention(path):
    with statelog.open(path) as store:
        for number in range(80):
            store.thread("t").commit({"text": f"text {number} " * 500})
            if number == 1:
                store.thread("t").tag("good", 0)
        anchor = store.anchor()
        store.prune(keep_last=1)
        store.compact()
    retarget_tag(path)
    with statelog.open(path) as store, pytest.raises(ForgeryError):
        store.verify(expect=anchor)
    with pytest.raises(ForgeryError):
        statelog.open(path, expect=anchor)


def test_another_store_at_the_same_path_is_reported(path, tmp_path):
    anchor = fill(path)
    other = tmp_path / "other.state"
    fill(other)
    path.unlink()
    other.replace(path)
    with pytest.raises(OtherStoreError) as caught:
        statelog.open(path, expect=anchor)
    error = caught.value
    assert isinstance(error, ForgeryError)
    assert (error.path, error.expected_store_id) == (str(path), anchor[1:17].hex())
    assert error.found_store_id != error.expected_store_id
    assert error.found not in (None, error.expected)


def test_another_store_with_the_id_of_the_first_is_a_forgery(path, tmp_path):
    anchor = fill(path)
    twin = tmp_path / "twin.state"
    create_store(twin, anchor[1:17])
    fill(twin)
    with pytest.raises(ForgeryError) as caught:
        statelog.open(twin, expect=anchor)
    assert type(caught.value) is ForgeryError


def test_a_missing_file_is_not_created_again(path):
    anchor = fill(path)
    path.unlink()
    with pytest.raises(StoreNotFoundError):
        statelog.open(path, expect=anchor)
    assert not path.exists()


def test_an_empty_store_at_the_same_path_is_reported(path, tmp_path):
    anchor = fill(path)
    create_store(tmp_path / "empty.state", anchor[1:17])
    with pytest.raises(RollbackError, match="ends at LSN 0"):
        statelog.open(tmp_path / "empty.state", expect=anchor)
    statelog.open(tmp_path / "new.state").close()
    with pytest.raises(OtherStoreError):
        statelog.open(tmp_path / "new.state", expect=anchor)


def test_an_empty_file_is_unchanged(tmp_path, path):
    anchor = fill(path)
    (tmp_path / "bytes.state").touch()
    with pytest.raises(FormatError):
        statelog.open(tmp_path / "bytes.state", expect=anchor)
    assert (tmp_path / "bytes.state").read_bytes() == b""


def test_a_refused_store_is_unchanged_and_can_be_opened(path, tmp_path):
    fill(path, 2)
    shutil.copy(path, tmp_path / "older.state")
    anchor = fill(path)
    (tmp_path / "older.state").replace(path)
    before = files_in(tmp_path)
    for read_only in (False, True):
        with pytest.raises(RollbackError):
            statelog.open(path, expect=anchor, read_only=read_only)
    assert files_in(tmp_path) == before
    with statelog.open(path) as store:
        assert store.thread("t").commit({"n": 5}).version == 2


def test_a_refusal_does_not_affect_a_store_that_the_process_has_open(path):
    anchor = fill(path)
    wrong = encode_anchor(Anchor(anchor[1:17], int.from_bytes(anchor[17:25]), bytes(20)))
    with statelog.open(path) as store:
        with pytest.raises(ForgeryError):
            statelog.open(path, expect=wrong)
        assert store.thread("t").commit({"n": 5}).version == 5


def test_damage_at_the_anchor_is_reported_as_damage(path):
    anchor = fill(path)
    lsn = int.from_bytes(anchor[17:25])
    with statelog.open(path) as store:
        data = read_record(store, lsn)
        store._engine.care(lambda transaction: transaction.replace_logs({lsn: data[:-1] + bytes((data[-1] ^ 1,))}))
    with pytest.raises(CorruptionError) as caught:
        statelog.open(path, expect=anchor, read_only=True)
    assert type(caught.value) is CorruptionError
    with statelog.open(path, read_only=True) as store:
        report = store.verify(expect=anchor)
    assert {problem.lsn for problem in report.problems} == {lsn}


def redact_by_force(path, lsn, *, owner):
    """Remove the content of a record like retention, but without a removal event. Rebuild the index."""
    with forging(path) as forger:
        stored = forger.record(lsn)
        rows = kernels.record_rows(stored)
        field = KINDS[stored[TYPE_AT]].borrowed_field
        forger.put_record(lsn, redact_record(stored, lsn, owner, alive=rows, borrowed_field=field))
    with statelog.open(path) as store:
        store.rebuild_index()


def test_negative_control_the_chain_keeps_the_digest_of_redacted_content(path):
    """Negative control: the digest of the content stays in the chain, so an attacker cannot change it."""
    anchor = fill(path)
    with statelog.open(path) as store:
        lsn = store.thread("t").at(1).lsn
    redact_by_force(path, lsn, owner=0)
    with forging(path) as forger:
        stored = bytearray(forger.record(lsn))
        stored[ENVELOPE_SIZE_BYTES + 10] ^= 1  # In the digest.
        forger.put_record(lsn, with_checksum(bytes(stored)))
    with statelog.open(path) as store:
        assert "L3" in {problem.invariant for problem in store.verify(expect=anchor).problems}


# --- invalid anchors --------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda _anchor: b"",
        lambda anchor: anchor[:-1],
        lambda anchor: anchor[:30],
        lambda anchor: anchor + b"\0",
        lambda _anchor: bytes(53),
        lambda anchor: anchor.hex(),
        lambda anchor: anchor.hex().encode(),
        bytearray,
        lambda _anchor: 3,
        lambda anchor: sealed(b"\0" + anchor[1:45]),
        lambda anchor: sealed(anchor[:45] + b"\0"),
        lambda anchor: sealed(anchor[:44]),
        lambda anchor: sealed(anchor[:17] + bytes(8) + anchor[25:45]),
    ],
)
def test_an_invalid_anchor_is_refused_before_the_file_is_touched(path, change):
    value = change(fill(path))
    missing = path.with_name("missing.state")
    with statelog.open(path) as store:
        for act in (
            lambda: statelog.open(path, expect=value),
            lambda: statelog.open(missing, expect=value),
            lambda: store.verify(expect=value),
        ):
            with pytest.raises(AnchorError) as caught:
                act()
            assert (caught.value.argument, caught.value.value) == ("expect", value)
    assert not missing.exists()


def sealed(data):
    return data + xxh3_64_digest(data)


@pytest.mark.slow
def test_each_flipped_bit_of_an_anchor_is_detected(path):
    anchor = fill(path)
    for bit in range(len(anchor) * 8):
        changed = bytearray(anchor)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(AnchorError):
            statelog.open(path, expect=bytes(changed))


def test_an_anchor_of_a_later_release_is_reported(path):
    later = sealed(b"\x02" + bytes(60))
    with pytest.raises(NewerFormatError) as caught:
        statelog.open(path, expect=later)
    assert (caught.value.needed, caught.value.supported) == (2, 1)
    assert not path.exists()


def test_an_anchor_names_no_record_that_is_still_being_written(path, monkeypatch):
    """The commit is in LMDB, but not yet marked as being in the write-ahead log."""
    at, may_go = threading.Event(), threading.Event()
    with statelog.open(path) as store:
        thread = store.thread("t")
        thread.commit({"n": 1})
        wal = store._engine.store_file.wal
        note_committed = wal.note_committed

        def note_late(*arguments):
            at.set()
            assert may_go.wait(20)
            note_committed(*arguments)

        monkeypatch.setattr(wal, "note_committed", note_late)
        committing = threading.Thread(target=thread.commit, args=({"n": 2},))
        committing.start()
        assert at.wait(20)
        lsn, flushed = decode_anchor(store.anchor()).lsn, wal.shared_state.flushed
        may_go.set()
        committing.join()
        assert lsn <= flushed == 2
