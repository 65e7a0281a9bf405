"""Events of another kind in exports, imports and salvages."""

from __future__ import annotations

import io

import pytest
from notes import check_whole, fill, index_of, large, log_of, note_key, read, thread_lsn, write
from xxhash import xxh3_64_intdigest

import statelog
from statelog.errors import CorruptionError
from statelog.format import cbor, keys
from statelog.format.record import FLAG_REDACTED, decode_record, encode_record
from statelog.log.care.vacuum import NOBODY
from statelog.log.kinds.table import decode_event
from statelog.portable.frames import RECORD
from statelog.portable.salvage import salvage

pytestmark = pytest.mark.usefixtures("kinds")


# --- out of one store, into another ---------------------------------------------------


def export(store, **options):
    stream = io.BytesIO()
    store.export(stream, **options)
    return stream.getvalue()


@pytest.fixture
def other(tmp_path):
    with statelog.open(tmp_path / "other.state") as opened:
        yield opened
        check_whole(opened)


def test_an_export_of_the_log_keeps_it_unchanged(store, owner, other):
    fill(store, owner)
    other.import_(io.BytesIO(export(store)))
    assert log_of(other) == log_of(store)
    assert read(other, owner, "a") == (3, {**large(1), "text": "other"})


def test_an_export_after_retention_has_the_kept_versions(store, owner, other):
    fill(store, owner)
    store.prune(keep_last=1)
    other.import_(io.BytesIO(export(store)))
    assert index_of(other) == index_of(store)


@pytest.mark.slow
def test_a_thread_is_exported_with_all_its_parts(store, other):
    store.thread("owner").commit({"n": 0})
    owner = thread_lsn(store, "owner")
    fill(store, owner)
    other.thread("in the way").commit({"text": large(1)["text"]})
    stream = export(store, threads=["owner"])
    other.import_(io.BytesIO(stream))
    theirs = thread_lsn(other, "owner")
    assert theirs != owner
    assert read(other, theirs, "a") == (3, {**large(1), "text": "other"})
    assert read(other, theirs, "b") == (2, None)
    assert read(other, theirs, "gone") is None
    with other._engine.read() as view:
        last = decode_event(view.record(keys.decode_lsn(view.transaction.get_index(note_key(theirs, "a")))))
        assert decode_event(view.record(last.before)).item == cbor.encode(1)
    assert other.import_(io.BytesIO(stream)).records_added == 0
    write(store, owner, "b", 5)
    assert other.import_(io.BytesIO(export(store, threads=["owner"]))).records_added == 1
    assert read(other, theirs, "b") == (5, None)
    store.prune(keep_last=1)
    with statelog.open(other.path.with_name("third.state")) as third:
        third.import_(io.BytesIO(export(store, threads=["owner"])))
        assert read(third, thread_lsn(third, "owner"), "a") == (3, {**large(1), "text": "other"})
        check_whole(third)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ([0, "a"], "2 fields instead of 8"),
        ([0, 1, 0, 0, None, 0, 0, []], "field 1"),
        ([0, "a", 0, 0, b"short", 0, 0, []], "field 4"),
        ([0, "a", 0, 9, None, 0, 0, []], "what comes later"),
        ([0, "a", 0, 0, bytes(20), 0, 0, []], "not at the stated location"),
        ([7, "a", 0, 0, None, 0, 0, []], "no thread 7"),
    ],
)
def test_a_forged_event_is_refused(store, other, body, why):
    write(store, NOBODY, "a", 1)
    record, _chain = encode_record(101, lsn=1, time_us=1, previous_chain=bytes(20), body=cbor.encode(body))
    with pytest.raises(CorruptionError, match=why):
        other.import_(io.BytesIO(forged(export(store), record)))


def forged(stream, record):
    """Return an export whose only record is replaced by another one."""
    header_end = 8 + 5 + int.from_bytes(stream[9:13]) + 8
    payload = bytes((RECORD,)) + len(record).to_bytes(4) + record
    return stream[:header_end] + payload + xxh3_64_intdigest(payload, seed=1).to_bytes(8)


# --- salvage ------------------------------------------------------------------------


@pytest.mark.slow
def test_a_salvage_saves_readable_records_and_reports_lost_ones(path, tmp_path):
    with statelog.open(path) as store:
        store.thread("owner").commit({"n": 0})
        owner = thread_lsn(store, "owner")
        for each in (owner, NOBODY):
            fill(store, each)
        lost = write(store, owner, "lost", "to be damaged")
        before = log_of(store)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"to be damaged", b"TO be damaged"))
    report = salvage(path, tmp_path / "new.state")
    assert report.lost == [(lost, lost)]
    with statelog.open(tmp_path / "new.state") as store:
        for each in (owner, NOBODY):
            assert read(store, each, "a") == (3, {**large(1), "text": "other"})
            assert read(store, each, "gone") is None
        assert read(store, owner, "lost") is None
        assert log_of(store)[: lost - 1] == before[: lost - 1]
        check_whole(store)


def test_a_salvage_omits_an_event_whose_nodes_are_lost(path, tmp_path):
    with statelog.open(path) as store:
        first = write(store, NOBODY, "a", "first", large(1))
        second = write(store, NOBODY, "b", "second", {**large(1), "list": []})
        with store._engine.read() as view:
            assert decode_event(view.record(second)).root_lsn == second
    data = bytearray(path.read_bytes())
    at = data.index(b"text 1 text 1")
    while at >= 0:
        data[at] ^= 1
        at = data.find(b"text 1 text 1", at + 14 * 1024)
    path.write_bytes(data)
    report = salvage(path, tmp_path / "new.state")
    assert {loss.lsn for loss in report.versions_lost} >= {second}
    assert report.lost == [(first, first)]
    with statelog.open(tmp_path / "new.state") as store:
        assert read(store, NOBODY, "b") is None
        with store._engine.read() as view:
            assert decode_record(view.transaction.get_log(second), second).flags & FLAG_REDACTED
        check_whole(store)


def test_a_lost_thread_is_replaced_with_its_remaining_versions(path, tmp_path):
    with statelog.open(path) as store:
        store.thread("lost owner").commit({"n": 0})
        owner = thread_lsn(store, "lost owner")
        write(store, owner, "a", 1, large(1))
    data = path.read_bytes()
    path.write_bytes(data.replace(b"lost owner", b"LOST owner"))
    salvage(path, tmp_path / "new.state")
    with statelog.open(tmp_path / "new.state") as store:
        assert read(store, owner, "a") == (1, large(1))
        check_whole(store)
