"""An attacker without a key removes the content of a record, like retention: `verify` reports it (R2).

The attacker can write the file, and computes every checksum and the index again. He has no key, so he could also append
records, or compute the chain again: see `test_anchor.py`.
"""

from __future__ import annotations

import gzip
import io
from contextlib import nullcontext
from pathlib import Path

import pytest
from forger import forging, with_fields

import statelog
from statelog import kernels
from statelog.errors import ForgeryError
from statelog.fleet import connect
from statelog.fleet.head import Cut
from statelog.fleet.segments import about, expand, made_of
from statelog.format import cbor
from statelog.format.header import HEADER_KEY
from statelog.format.record import (
    ENVELOPE_SIZE_BYTES,
    FLAG_REDACTED,
    FLAGS_AT,
    NO_DIGEST,
    TYPE_AT,
    TYPE_MASK,
    decode_record,
    encode_record,
    encode_short_record,
    part_digest,
    record_chain_digest,
    redact_record,
    sealed,
    with_previous_chain,
)
from statelog.log.care.vacuum import append_events
from statelog.log.kinds.removals import removals_of
from statelog.log.kinds.table import KINDS
from statelog.portable.frames import RECORD, FrameReader
from statelog.portable.log_export import export_records
from statelog.portable.salvage import salvage

GOLDEN = Path(__file__).parent.parent / "compat"
NOBODY = 0


def fill(path, count=5):
    """Make a store of two threads, one of which is deleted, and a board. Return the anchor of its end."""
    with statelog.open(path) as store:
        thread = store.thread("t")
        for number in range(count):
            thread.commit({"n": number, "text": f"text {number} " * 500})
        thread.tag("good", 0)
        store.thread("gone").commit({"n": 1})
        store.delete_thread("gone")
        store.board().set("key", "value")
        return store.anchor()


def redacted(record, lsn, owner=NOBODY, alive=None):
    """Return a record without its content."""
    field = KINDS[record[TYPE_AT] & TYPE_MASK].borrowed_field
    alive = kernels.record_rows(record) if alive is None else alive
    return redact_record(record, lsn, owner, alive=alive, borrowed_field=field)


def redact(path, *lsns, owner=NOBODY, alive=None):
    """Remove the content of records, and rebuild the index, as an attacker without a key can do."""
    with forging(path) as forger:
        for lsn in lsns:
            forger.put_record(lsn, redacted(forger.record(lsn), lsn, owner, alive))
    with statelog.open(path) as store:
        store.rebuild_index()


def found(path, **options):
    """Return what `verify` reports of a store: invariants and LSNs."""
    with statelog.open(path, read_only=True) as store:
        for deep in (False, True):
            problems = {(each.invariant, each.lsn) for each in store.verify(deep=deep, **options).problems}
        return problems


def lsn_of(path, version=1, thread="t"):
    with statelog.open(path, read_only=True) as store:
        return store.thread(thread).at(version).lsn


# --- what is found ----------------------------------------------------------------------


@pytest.mark.parametrize("owner", ["its thread", "a deleted thread", "nobody"])
@pytest.mark.parametrize("keeps_nodes", [True, False])
def test_verify_reports_a_version_redacted_by_an_attacker(path, owner, keeps_nodes):
    anchor = fill(path)
    lsn = lsn_of(path)
    with statelog.open(path) as store:
        gone = next(each.body["removed"][0] for each in store.log() if each.type == "removal")
    assert found(path, expect=anchor) == set()
    redact(path, lsn, owner={"its thread": 1, "a deleted thread": gone, "nobody": NOBODY}[owner],
           alive=None if keeps_nodes else ())  # fmt: skip
    assert found(path) == {("R2", lsn)}
    assert found(path, expect=anchor) == {("R2", lsn)}


def test_verify_reports_every_kind_of_record_redacted_by_an_attacker(path):
    fill(path)
    with statelog.open(path) as store:
        store.copy_thread("t", "copy")
        store.thread("t").fork("other", at=0)
        store.thread("t").commit({"more": 1})
        store.set_retention(keep_last=100, threads="t")
        kinds = {each.type: each.lsn for each in store.log() if each.body or each.type == "delete"}
    assert {*kinds} >= {"thread", "checkpoint", "fork", "tag", "delete", "policy", "loan", "entry", "removal"}
    for lsn in kinds.values():
        with forging(path) as forger:
            stored = forger.record(lsn)
            forger.put_record(lsn, redacted(stored, lsn))
        assert ("R2", lsn) in found(path) or any(invariant == "L5" for invariant, _lsn in found(path)), lsn
        with forging(path) as forger:
            forger.put_record(lsn, stored)
    assert found(path) == set()


def test_verify_reports_the_first_record_and_all_others(path):
    """The first record states that the log names every redaction, even if it is redacted itself."""
    fill(path)
    with statelog.open(path) as store:
        mine = [each.lsn for each in store.log() if each.thread_id == "t"]
    redact(path, *mine)
    assert found(path) == {("R2", lsn) for lsn in mine}


def test_an_earlier_format_in_the_header_hides_nothing(path):
    anchor = fill(path)
    lsn = lsn_of(path)
    redact(path, lsn)
    with forging(path) as forger:
        forger.put(b"meta", HEADER_KEY, with_fields(forger.get(b"meta", HEADER_KEY), format=5))
    assert found(path, expect=anchor) == {("R2", lsn)}
    with statelog.open(path) as store:  # upgrades it again
        store.compact()
    assert found(path, expect=anchor) == {("R2", lsn)}


def test_a_log_that_is_made_an_older_one_breaks_the_chain(path):
    anchor = fill(path)
    redact(path, lsn_of(path))
    with forging(path) as forger:
        first = bytearray(forger.record(1))
        first[TYPE_AT] &= TYPE_MASK
        forger.put_record(1, sealed(bytes(first[8:])))
    assert ("L3", 2) in found(path, expect=anchor)


def test_a_flag_of_the_first_record_is_refused_in_any_other(path):
    fill(path)
    with forging(path) as forger:
        record = bytearray(forger.record(3))
        record[TYPE_AT] |= 128
        forger.put_record(3, sealed(bytes(record[8:])))
    assert ("R1", 3) in found(path)


def test_a_version_with_the_root_of_a_deleted_copy_is_reported(path):
    """The deletion names the records of the copy, and not those of the thread whose states it shares."""
    fill(path)
    with statelog.open(path) as store:
        store.copy_thread("t", "copy")
        store.delete_thread("copy")
        anchor = store.anchor()
    assert found(path, expect=anchor) == set()
    lsn = lsn_of(path)
    redact(path, lsn)
    assert found(path, expect=anchor) == {("R2", lsn)}


def test_a_record_cannot_pass_for_one_that_only_brings_nodes(path):
    """Such a record has another digest of its event, which the chain covers."""
    anchor = fill(path)
    lsn = lsn_of(path)
    with forging(path) as forger:
        record = decode_record(forger.record(lsn), lsn)
        forged = redacted(forger.record(lsn), lsn)
        redone = decode_record(forged, lsn).redacted()
        body = cbor.encode([0, part_digest(b""), redone.borrowed])
        at = ENVELOPE_SIZE_BYTES
        size = len(decode_record(forged, lsn).body)
        envelope = forged[8:12] + len(body).to_bytes(4) + forged[16:at]
        forger.put_record(lsn, sealed(envelope + body + forged[at + size :]))
    assert ("L3", lsn + 1) in found(path, expect=anchor)
    with forging(path) as forger:
        body = cbor.encode([0, NO_DIGEST, []])
        short = encode_short_record(
            record.type, 0, lsn, record.time_us, previous_chain=record.previous_chain, body=body, nodes={}
        )
        forger.put_record(lsn, short)
    assert ("L3", lsn + 1) in found(path, expect=anchor)


# --- removals appended by an attacker ---------------------------------------------------------


def append_removal(path, lsns):
    with statelog.open(path) as store:
        store._engine.care(lambda transaction: append_events(transaction, removals_of(lsns)))


def test_a_removal_appended_by_an_attacker_is_counted(path):
    anchor = fill(path)
    lsn = lsn_of(path)
    append_removal(path, [lsn])
    redact(path, lsn)
    assert found(path) == set()
    with statelog.open(path) as store:
        report = store.verify(expect=anchor)
        assert (report.ok, report.removed_since_anchor) == (True, 1)
        later = store.anchor()
        assert store.verify(expect=later).removed_since_anchor == 0


@pytest.mark.parametrize("redoes_chain", [False, True])
def test_a_removal_changed_by_an_attacker_before_the_anchor_is_detected(path, redoes_chain):
    """The attacker adds a record to the removal of a deletion.

    Without the anchor, a recomputed chain hides the change.
    """
    anchor = fill(path)
    lsn = lsn_of(path)
    with statelog.open(path) as store:
        removal = next(each for each in store.log() if each.type == "removal")
    with forging(path) as forger:
        record = decode_record(forger.record(removal.lsn), removal.lsn)
        kind = KINDS[record.type]
        [event] = removals_of([lsn, *removal.body["removed"]])
        data, chain = encode_record(
            record.type,
            lsn=record.lsn,
            time_us=record.time_us,
            previous_chain=record.previous_chain,
            body=kind.encode(event, record.lsn),
            flags=record.flags,
        )
        forger.put_record(record.lsn, data)
        for each in range(record.lsn + 1, len(forger.rows(b"log")) + 1) if redoes_chain else ():
            data = with_previous_chain(forger.record(each), chain)
            chain = record_chain_digest(data, decode_record(data, each), chain)
            forger.put_record(each, data)
    redact(path, lsn)
    assert found(path) == (set() if redoes_chain else {("L3", removal.lsn + 1)})
    with pytest.raises(ForgeryError) if redoes_chain else nullcontext(), statelog.open(path, expect=anchor) as store:
        assert not store.verify(expect=anchor).ok


def test_a_removal_that_is_cut_out_leaves_its_records_unnamed(path):
    fill(path)
    with statelog.open(path) as store:
        store.prune(keep_last=1)
        removed = next(each.body["removed"] for each in reversed(list(store.log())) if each.type == "removal")
        last = store.last_lsn
    assert found(path) == set()
    with forging(path) as forger:
        forger.delete(b"log", last.to_bytes(8))
    with statelog.open(path) as store:
        store.rebuild_index()
    assert found(path) == {("R2", lsn) for lsn in removed}


# --- negative controls: what the store itself removes ---------------------------------------------


def expire(store):
    store.expire(list(store.thread("t").history())[1:3])


def lease(store):
    held = store.board(agent="a").lease("turn", auto_renew=False)
    held.renew()
    held.release()
    store.compact()


def board(store):
    for number in range(5):
        store.board().set("key", number)
    store.board().delete("key")
    store.board().prune("**", keep_last=1)
    store.board().prune("**", max_age=0)


def delete(store):
    store.delete_thread("t")
    store.compact()


def together(store):
    with store.transaction() as transaction:
        transaction.thread("t").commit({"n": 7})
        transaction.thread("u").commit({"n": 7})
    store.delete_thread("u")
    store.thread("u", recreate=True).commit({"n": 1})
    store.delete_thread("u")


def copies(store):
    store.copy_thread("t", "copy")
    store.delete_thread("t")
    store.delete_thread("copy")
    store.compact()


def policy(store):
    store.set_retention(keep_last=2)
    for number in range(200):
        store.thread("t").commit({"n": number})


@pytest.mark.parametrize("act", [expire, lease, board, delete, together, copies, policy], ids=lambda act: act.__name__)
def test_removals_by_the_store_itself_are_listed(path, act):
    anchor = fill(path)
    with statelog.open(path) as store:
        act(store)
        report = store.verify(expect=anchor)
        assert (report.problems, report.unnamed) == ([], 0)
        removed = [lsn for each in store.log() if each.type == "removal" for lsn in each.body["removed"]]
        redacted = [each.lsn for each in store.log() if read(store, each.lsn)[FLAGS_AT] & FLAG_REDACTED]
        assert {*redacted} <= {*removed}
        assert report.removed_since_anchor == sum(lsn <= int.from_bytes(anchor[17:25]) for lsn in removed[2:])
        store.rebuild_index()
        assert store.verify(expect=anchor).problems == []


def read(store, lsn):
    with store._engine.read() as view:
        return bytes(view.transaction.get_log(lsn))


@pytest.mark.parametrize("is_first", [False, True])
def test_records_that_only_bring_nodes_need_no_name_until_nodes_go(tmp_path, monkeypatch, is_first):
    """Such a record never had an event, and its digest shows that as long as all of its nodes are listed."""
    monkeypatch.setattr("statelog.portable.thread_export.CARRIED_SIZE_BYTES", 1000)
    target = io.BytesIO()
    with statelog.open(tmp_path / "source") as source:
        for number in range(3):
            source.thread("t").commit({"text": f"text {number} " * 3000, "list": list(range(3000 + number))})
        source.export(target, threads=["t"])
    with statelog.open(tmp_path / "copy") as copy:
        if not is_first:
            copy.thread("first").commit({"n": 1})
        copy.import_(io.BytesIO(target.getvalue()))
        copy.thread("t").commit({"text": "", "list": []})
        only_nodes = [each.lsn for each in copy.log() if read(copy, each.lsn)[FLAGS_AT] & FLAG_REDACTED]
        assert len(only_nodes) > 5
        assert copy.verify().problems == []
        copy.copy_thread("t", "copy")
        copy.delete_thread("copy")
        copy.prune(keep_last=2)
        assert copy.verify().problems == []
        copy.compact()
        assert copy.verify().problems == []
        copy.delete_thread("t")
        copy.compact()
        assert copy.verify().problems == []
        assert {*only_nodes} <= {lsn for each in copy.log() if each.type == "removal" for lsn in each.body["removed"]}


# --- copies -------------------------------------------------------------------------------------


def records_in(data):
    reader = FrameReader(io.BytesIO(data))
    records = []
    while (frame := reader.read()) is not None:
        if frame.kind == RECORD:
            records.append(frame.payload)
    return reader.header, records


def test_a_copy_of_a_forged_export_is_reported(path, tmp_path):
    anchor = fill(path)
    lsn = lsn_of(path)
    target = io.BytesIO()
    with statelog.open(path) as store:
        store.export(target)
    header, records = records_in(target.getvalue())
    records[lsn - 1] = redacted(records[lsn - 1], lsn)
    forged = io.BytesIO()
    export_records(forged, store_id=header.store_id, since=0, chain=NO_DIGEST, records=records)
    for data, problems in ((target.getvalue(), set()), (forged.getvalue(), {("R2", lsn)})):
        copy = tmp_path / f"copy {len(problems)}.state"
        with statelog.open(copy) as store:
            store.import_(io.BytesIO(data))
        assert found(copy, expect=anchor) == problems


def test_a_forged_segment_of_a_fleet_is_reported(tmp_path):
    (tmp_path / "storage").mkdir()
    url = f"file://{tmp_path}/storage"
    with connect(url, tmp_path / "one") as fleet, fleet.open("s") as store:
        for number in range(3):
            store.thread("t").commit({"n": number})
        store.remote.wait(timeout_s=10)
        lsn = store.thread("t").at(1).lsn
    with connect(url, tmp_path / "two") as fleet:
        assert fleet.check() == []
    for path in (tmp_path / "storage").rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        if data[:8] == b"stlgseg1" and about("a segment", data).since < lsn <= about("a segment", data).last:
            header, records = records_in(expand("a segment", data))
            at = lsn - header.since - 1
            records[at] = redacted(records[at], lsn)
            path.write_bytes(made_of(records, header.store_id, Cut(header.since, header.chain))[1])
    with connect(url, tmp_path / "two") as fleet:
        fleet.restore("s", tmp_path / "copy.state")
        [problem] = fleet.check()
        assert "no record lists it as removed" in problem.error.message
    assert found(tmp_path / "copy.state") == {("R2", lsn)}


def test_a_store_restored_to_an_lsn_lists_records_that_its_segment_removes_later(tmp_path):
    (tmp_path / "storage").mkdir()
    url = f"file://{tmp_path}/storage"
    path = tmp_path / "own.state"
    with statelog.open(path) as store:
        for number in range(8):
            store.thread("t").commit({"n": number})
        store.expire([store.thread("t").at(1)])
        store.thread("t").commit({"n": 9})
    with connect(url, tmp_path / "one") as fleet:
        with fleet.open("s") as store:
            with statelog.open(path) as own:
                target = io.BytesIO()
                own.export(target)
            store.import_(io.BytesIO(target.getvalue()))
            store.remote.wait(timeout_s=10)
        fleet.restore("s", tmp_path / "copy.state", at=6)
    with statelog.open(tmp_path / "copy.state") as store:
        assert [each.type for each in store.log()][-2:] == ["checkpoint", "removal"]
        assert store.thread("t").version == 4
    assert found(tmp_path / "copy.state") == set()
    redact(tmp_path / "copy.state", 4)
    assert found(tmp_path / "copy.state") == {("R2", 4)}


def test_a_salvaged_store_lists_the_records_that_salvage_has_removed(path, tmp_path):
    fill(path, 40)
    with statelog.open(path) as store:
        store.prune(keep_last=30)
        lsns = [store.thread("t").at(version).lsn for version in (20, 25)]
        removal = next(each.lsn for each in reversed(list(store.log())) if each.type == "removal")
        records = [read(store, lsn) for lsn in (*lsns, removal)]
    data = path.read_bytes()
    for record in records:
        assert data.count(record[40:]) == 1
        data = data.replace(record[40:], record[40:-1] + bytes((record[-1] ^ 1,)))
    path.write_bytes(data)
    report = salvage(path, tmp_path / "new.state")
    assert report.lost
    assert found(tmp_path / "new.state") == set()
    lsn = lsn_of(tmp_path / "new.state", 30)
    redact(tmp_path / "new.state", lsn)
    assert found(tmp_path / "new.state") == {("R2", lsn)}


# --- older logs -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["format_1_retained", "format_2_copied", "format_4_board", "format_5_removed"])
def test_an_older_log_names_all_from_its_first_compaction_on(path, name):
    path.write_bytes(gzip.decompress((GOLDEN / f"{name}.state.gz").read_bytes()))
    with statelog.open(path) as store:
        thread = store.thread("later")
        for number in range(3):
            thread.commit({"n": number})
        anchor = store.anchor()
        count = sum(1 for each in store.log() if read(store, each.lsn)[FLAGS_AT] & FLAG_REDACTED)
        report = store.verify(expect=anchor)
        assert report.problems == []
        assert (report.unnamed > 0) == (count > 0 and name != "format_5_removed")
    redact(path, lsn_of(path, 0, "later"))
    assert found(path, expect=anchor) == set()  # nothing shows who has redacted it
    with statelog.open(path) as store:
        store.compact()
        last = store.last_lsn
        assert store.verify(expect=anchor).unnamed == 0
        store.compact()
        store.prune(keep_last=1)
        store.compact()
        assert store.verify(expect=anchor).problems == []
        assert sum(each.body == {"removed": []} for each in store.log()) == 1
        assert last <= store.last_lsn
        store.thread("later").commit({"n": 9})
    lsn = lsn_of(path, 2, "later")
    redact(path, lsn)
    assert found(path, expect=anchor) == {("R2", lsn)}
