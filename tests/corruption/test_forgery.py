"""Changes made without the key to a store with a key are refused on reading. FORMAT.md section 10."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys

import pytest
from forger import MAC_SIZE_BYTES, SEAL_SIZE_BYTES, forging, make_unkeyed, with_checksum, with_fields
from xxhash import xxh3_64_digest

import statelog
from statelog import kernels, reducers
from statelog.errors import (
    CorruptionError,
    ForgeryError,
    HeaderLostError,
    KeyMissingError,
    NewerFormatError,
    ReadOnlyError,
    UnkeyedStoreError,
    WrongKeyError,
)
from statelog.format import cbor
from statelog.format.header import HEADER_KEY
from statelog.format.record import redact_record
from statelog.format.seal import seal
from statelog.portable.salvage import salvage
from statelog.storage.file.sidecar_files import journal_path
from statelog.storage.wal.dirty_flag import read_dirty_flag
from statelog.storage.wal.wal_format import HALVES_AT, Groups, encode_group

KEY = "the key of these stores"
OTHER_KEY = "another key of these stores"
FAR_AWAY_US = 7_250_000_000_000_000
"""A time in the year 2199."""

FIELDS = {
    "checksum": 0,
    "fmt": 8,
    "type": 9,
    "flags": 11,
    "body size": 15,
    "LSN": 23,
    "time": 31,
    "prev chain": 40,
    "node count": 55,
    "body": 60,
    "MAC": -1,
}
"""An offset in each field of a record; the table and the nodes are at the offsets that `places` returns."""


def fill(path, key=KEY):
    """Make a store that has a row of nearly every kind; return the anchor of its end."""
    with statelog.open(path, key=key) as store:
        thread = store.thread("t", schema={"log": reducers.extend, "n": reducers.replace})
        for number in range(5):
            thread.commit({"n": number, "log": [f"text {number} " * 1000]}, id=f"id {number}")
        thread.tag("good", 0)
        thread.fork("other", at=1)
        store.thread("gone").commit({"n": 1})
        store.delete_thread("gone")
        store.copy_thread("t", "copy")
        store.set_retention(keep_last=100, threads="x*")
        board = store.board()
        board.set("queue/a", {"v": 1}, ttl_s=3600.0)
        board.set("queue/b", {"v": 2})
        board.claim("queue/*", lease_s=60.0)
        board.set("gone", 1)
        board.delete("gone")
        return store.anchor()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "agent.state"
    fill(path)
    return path


def read_all(path, key=KEY):
    """Read what a user reads of a store."""
    with statelog.open(path, key=key) as store:
        for info in store.threads():
            for branch in store.thread(info.id).branches():
                for checkpoint in store.thread(info.id, branch=branch.name).history():
                    dict(checkpoint.state)
        list(store.board().list("*"))
        list(store.log())
        return store.verify()


def read_everything(store):
    """Read every record and every row."""
    with store._engine.read() as view:
        transaction = view.transaction
        for lsn in range(1, transaction.last_lsn() + 1):
            transaction.get_log(lsn)
        list(transaction.scan_index(b""))


def refused(path):
    """Check that reading finds the forgery, and that verify reports it. Return the error."""
    with statelog.open(path, key=KEY) as store:
        with pytest.raises(ForgeryError) as caught:
            read_everything(store)
        assert not store.verify().ok
    return caught.value


def test_an_unchanged_store_is_read(path):
    assert read_all(path).ok
    with statelog.open(path, key=KEY) as store:
        list(store.log())


# --- records -----------------------------------------------------------------------


def last_of_t(path):
    with statelog.open(path, key=KEY) as store:
        return store.thread("t").head.lsn


@pytest.mark.parametrize("field", [*FIELDS, "table", "nodes"])
def test_a_changed_field_of_a_record_is_refused(path, field):
    lsn = last_of_t(path)
    with forging(path) as forger:
        stored = forger.record(lsn)
        record, mac = stored[:-MAC_SIZE_BYTES], stored[-MAC_SIZE_BYTES:]
        table_at = 56 + int.from_bytes(record[12:16])
        at = {"table": table_at + 3, "nodes": len(record) - 3}.get(field, FIELDS.get(field))
        changed = bytearray(stored)
        changed[at] ^= 1
        if field not in ("MAC", "checksum"):
            changed = with_checksum(bytes(changed[:-MAC_SIZE_BYTES])) + mac
        forger.put_record(lsn, bytes(changed))
    error = refused(path)
    assert error.lsn == lsn
    with pytest.raises(ForgeryError), statelog.open(path, key=KEY) as store:
        dict(store.thread("t").state)


def test_verify_reports_a_forged_record_at_the_anchor(path):
    with statelog.open(path, key=KEY) as store:
        anchor, last = store.anchor(), store.last_lsn
    with forging(path) as forger:
        stored = forger.record(last)
        forger.put_record(last, stored[:-1] + bytes((stored[-1] ^ 1,)))
    with statelog.open(path, key=KEY) as store:
        report = store.verify(expect=anchor)
        assert {(problem.invariant, problem.lsn) for problem in report.problems} == {("R1", last)}
    with pytest.raises(ForgeryError):
        statelog.open(path, key=KEY, expect=anchor)


def test_a_record_redacted_without_the_key_is_refused(path):
    """In a store without a key, `verify` reports the record: see `test_redactions.py`."""
    lsn = last_of_t(path)
    with forging(path) as forger:
        stored = forger.record(lsn)
        record, mac = stored[:-MAC_SIZE_BYTES], stored[-MAC_SIZE_BYTES:]
        rows = kernels.record_rows(record)
        forger.put_record(lsn, redact_record(record, lsn, 1, alive=rows, borrowed_field=16) + mac)
    assert refused(path).lsn == lsn


@pytest.mark.parametrize("mac", [b"", bytes(16), bytes(8), b"x" * 16])
def test_a_record_without_its_mac_is_refused(path, mac):
    lsn = last_of_t(path)
    with forging(path) as forger:
        forger.put_record(lsn, forger.record(lsn)[:-MAC_SIZE_BYTES] + mac)
    assert refused(path).lsn == lsn


def test_a_record_that_is_nearly_empty_is_refused(path):
    with forging(path) as forger:
        forger.put_record(2, b"short")
    assert refused(path).lsn == 2


def test_two_records_that_have_changed_places_are_refused(path):
    with forging(path) as forger:
        one, two = forger.record(2), forger.record(3)
        forger.put_record(2, two)
        forger.put_record(3, one)
    assert refused(path).lsn == 2


def test_a_record_of_another_store_with_the_same_key_is_refused(path, tmp_path):
    fill(tmp_path / "other.state")
    with forging(tmp_path / "other.state") as other, forging(path) as forger:
        forger.put_record(3, other.record(3))
    assert refused(path).lsn == 3


def test_an_appended_record_is_refused(path):
    with forging(path) as forger:
        last = len(forger.rows(b"log"))
        record = bytearray(forger.record(last))
        record[16:24] = (last + 1).to_bytes(8)
        forger.put_record(last + 1, with_checksum(bytes(record[:-MAC_SIZE_BYTES])) + record[-MAC_SIZE_BYTES:])
    assert refused(path).lsn == last + 1


# --- rows --------------------------------------------------------------------------


def kinds_of_rows(path):
    with forging(path) as forger:
        return {key[:1]: (key, value) for key, value in forger.rows(b"index")}


def test_the_store_of_these_tests_has_rows_of_most_kinds(path):
    assert {*kinds_of_rows(path)} >= {each.encode() for each in "tTpxebBvigkKqQElLd"}


@pytest.mark.parametrize("kind", [*"tTpxebBvigkKqQElLd"])
def test_a_changed_row_of_the_index_is_refused(path, kind):
    key, value = kinds_of_rows(path)[kind.encode()]
    with forging(path) as forger:
        payload = bytearray(value[:-SEAL_SIZE_BYTES] or b"\0")
        payload[-1] ^= 1
        forger.put(b"index", key, seal(key, bytes(payload)))
    assert refused(path).key == key


def test_the_rows_of_two_keys_cannot_change_places(path):
    with forging(path) as forger:
        (one, first), (two, second) = [row for row in forger.rows(b"index") if row[0][:1] == b"T"][:2]
        forger.put(b"index", one, second)
        forger.put(b"index", two, first)
    assert refused(path).key == one


def test_a_row_with_a_byte_moved_from_its_payload_to_its_key_is_refused(path):
    """The joined key and payload are unchanged, but the MAC covers the size of the key."""
    key, value = kinds_of_rows(path)[b"g"]
    with forging(path) as forger:
        forger.delete(b"index", key)
        forger.put(b"index", key + value[:1], value[1:])
    assert refused(path).key == key + value[:1]


def test_negative_control_the_same_changes_of_a_store_without_a_key_are_not_noticed(tmp_path):
    path = tmp_path / "agent.state"
    fill(path, key=None)
    key, value = kinds_of_rows(path)[b"g"]
    with forging(path) as forger:
        payload = bytearray(value[:-SEAL_SIZE_BYTES])
        payload[-1] ^= 1
        forger.put(b"index", key, seal(key, bytes(payload)))
        record = forger.record(3)
        body_end = 56 + int.from_bytes(record[12:16])
        at = record.index(b"id 1", 56, body_end)
        forger.put_record(3, with_checksum(record[:at] + b"id X" + record[at + 4 :]))
    with statelog.open(path) as store, store._engine.read() as view:
        assert view.transaction.get_index(key) == bytes(payload)
        assert view.checkpoint(3).id == "id X"


# --- header and guard ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"created_us": 1}, ForgeryError),
        ({"mac": bytes(16)}, ForgeryError),
        ({"key_check": bytes(16)}, WrongKeyError),
        ({"store_id": bytes(16)}, WrongKeyError),
        ({"format": 5}, CorruptionError),
        ({"format": 6}, ForgeryError),
        ({"format": 8}, NewerFormatError),
        ({"checksum": "xxh3-64"}, CorruptionError),
    ],
    ids=str,
)
def test_a_changed_header_is_refused(path, fields, kind):
    with forging(path) as forger:
        forger.put(b"meta", HEADER_KEY, with_fields(forger.get(b"meta", HEADER_KEY), **fields))
    with pytest.raises(kind) as caught:
        statelog.open(path, key=KEY)
    assert type(caught.value) is kind
    assert caught.value.path == str(path)


def test_a_store_that_was_made_one_without_a_key_is_refused(path):
    make_unkeyed(path)
    with pytest.raises(UnkeyedStoreError):
        statelog.open(path, key=KEY)
    with statelog.open(path) as store:  # negative control: the attack has made a whole store
        assert store.verify().ok


def test_a_changed_mark_of_a_guard_is_refused(path):
    pytest.importorskip("re2")
    with statelog.open(path, key=KEY, guard=statelog.Guard()) as store:
        store.thread("t").commit({"n": 7})
    with statelog.open(path, key=KEY, guard=statelog.Guard()):
        pass
    with forging(path) as forger:
        forger.put(b"meta", b"guard", seal(b"guard", cbor.encode({"fingerprint_key": bytes(32)})))
    with pytest.raises(ForgeryError):
        statelog.open(path, key=KEY, guard=statelog.Guard())


# --- what reading does not find --------------------------------------------------------


def test_an_older_file_is_detected_only_by_the_anchor(path, tmp_path):
    shutil.copy(path, tmp_path / "older")
    with statelog.open(path, key=KEY) as store:
        store.thread("t").commit({"n": 99})
        anchor = store.anchor()
    shutil.copy(tmp_path / "older", path)
    assert read_all(path).ok
    with pytest.raises(statelog.RollbackError):
        statelog.open(path, key=KEY, expect=anchor)


def test_an_older_row_is_detected_by_verify(path):
    with forging(path) as forger:
        older = {key: value for key, value in forger.rows(b"index") if key[:1] == b"v"}
    with statelog.open(path, key=KEY) as store:
        store.thread("t").commit({"n": 99})
    with forging(path) as forger:
        for key, value in older.items():
            forger.put(b"index", key, value)
    with statelog.open(path, key=KEY) as store:
        assert store.thread("t").state["n"] == 4
        assert {problem.invariant for problem in store.verify().problems} == {"L4"}


def test_a_removed_row_is_detected_by_verify(path):
    with forging(path) as forger:
        for key, _value in forger.rows(b"index"):
            if key[:1] == b"g":
                forger.delete(b"index", key)
    with statelog.open(path, key=KEY) as store:
        assert {problem.invariant for problem in store.verify().problems} == {"L4"}


# --- the write-ahead log ----------------------------------------------------------------


CRASH = """
import os, sys, statelog
store = statelog.open(sys.argv[1], key=os.environ["KEY"])
for number in range(6):
    store.thread("crash").commit({"n": number})
os._exit(1)
"""


def crash(path, code):
    environment = {"KEY": KEY, "PYTHONPATH": ":".join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code, str(path)], env=environment, check=False).returncode == 1


@pytest.fixture
def crashed(path):
    """A store whose process has died; returns its path."""
    crash(path, CRASH)
    assert journal_path(path).exists()
    return path


def forge_journal(path, change):
    """Change the last group of the journal, as `change` says of its records, and compute its checksum again."""
    with path.open("rb") as data:
        session = read_dirty_flag(data.fileno())
    with journal_path(path).open("r+b") as file:
        for epoch in range(1, 50):
            groups = Groups(file.fileno(), session, epoch, 0)
            first = groups.read(HALVES_AT[epoch & 1])
            if first is not None:
                break
        at, group = HALVES_AT[epoch & 1], first
        while (following := groups.read(at + group.size_bytes)) is not None:
            at, group = at + group.size_bytes, following
        new = encode_group(session, epoch, group.lsn, change(group.records), flushed=group.flushed)
        file.seek(at)
        file.write(new)


def change_record(records):
    *others, stored = records
    record, mac = stored[:-MAC_SIZE_BYTES], stored[-MAC_SIZE_BYTES:]
    return [*others, with_checksum(record[:-1] + bytes((record[-1] ^ 1,))) + mac]


@pytest.mark.slow
def test_a_store_with_a_key_is_recovered(crashed):
    with statelog.open(crashed, key=KEY) as store:
        assert store.thread("crash").state["n"] == 5
        assert store.verify().ok


@pytest.mark.slow
def test_a_reader_has_a_store_with_a_key_recovered(crashed):
    with statelog.open(crashed, key=KEY, read_only=True) as store:
        assert store.thread("crash").state["n"] == 5
        with pytest.raises(ReadOnlyError):
            store.rekey(OTHER_KEY)


@pytest.mark.slow
def test_a_changed_record_of_the_journal_is_refused_and_nothing_is_written(crashed):
    sound = journal_path(crashed).read_bytes()
    forge_journal(crashed, change_record)
    before = crashed.read_bytes(), journal_path(crashed).read_bytes()
    for _again in range(2):
        with pytest.raises(ForgeryError) as caught:
            statelog.open(crashed, key=KEY)
        assert caught.value.path == str(crashed)
        assert (crashed.read_bytes(), journal_path(crashed).read_bytes()) == before
    journal_path(crashed).write_bytes(sound)  # negative control: it was the record alone
    with statelog.open(crashed, key=KEY) as store:
        assert store.thread("crash").state["n"] == 5


@pytest.mark.slow
@pytest.mark.parametrize(("key", "kind"), [(None, KeyMissingError), (OTHER_KEY, WrongKeyError)])
def test_a_store_that_was_not_closed_is_unchanged_without_its_key(crashed, key, kind):
    before = crashed.read_bytes(), journal_path(crashed).read_bytes()
    for options in ({}, {"read_only": True}):
        with pytest.raises(kind):
            statelog.open(crashed, key=key, **options)
    assert (crashed.read_bytes(), journal_path(crashed).read_bytes()) == before
    with statelog.open(crashed, key=KEY) as store:
        assert store.thread("crash").state["n"] == 5


@pytest.mark.slow
def test_negative_control_a_changed_group_of_a_store_without_a_key_is_taken(tmp_path):
    path = tmp_path / "agent.state"
    code = CRASH.replace(', key=os.environ["KEY"]', "")
    crash(path, code)

    def change(records):
        return [xxh3_64_digest(each[8:]) + each[8:] for each in records[:-1]] + [
            with_checksum(records[-1][:24] + FAR_AWAY_US.to_bytes(8) + records[-1][32:])
        ]

    forge_journal(path, change)
    with statelog.open(path) as store:
        assert store.thread("crash").head.time.year == 2199


# --- ways around ------------------------------------------------------------------------


def test_compaction_and_rekey_refuse_a_forged_record(path):
    lsn = last_of_t(path)
    with forging(path) as forger:
        stored = forger.record(lsn)
        forger.put_record(lsn, with_checksum(stored[:-17] + b"\0") + stored[-MAC_SIZE_BYTES:])
    before = path.read_bytes()
    with statelog.open(path, key=KEY) as store:
        with pytest.raises(ForgeryError):
            store.compact()
        with pytest.raises(ForgeryError):
            store.rekey(OTHER_KEY)
        with pytest.raises(ForgeryError):
            store.export(io.BytesIO())
        with pytest.raises(ForgeryError):
            store.rebuild_index()
    assert path.read_bytes()[8192:] == before[8192:]


def test_rekey_refuses_a_forged_row(path):
    key, value = kinds_of_rows(path)[b"g"]
    with forging(path) as forger:
        forger.put(b"index", key, seal(key, value[:-SEAL_SIZE_BYTES]))
    with statelog.open(path, key=KEY) as store, pytest.raises(ForgeryError):
        store.rekey(OTHER_KEY)
    with statelog.open(path, key=KEY):  # it has the key that it had
        pass


def test_salvage_leaves_out_a_forged_record(path, tmp_path):
    lsn = last_of_t(path)
    with forging(path) as forger:
        stored = forger.record(lsn)
        forger.put_record(lsn, with_checksum(stored[:-17] + b"\0") + stored[-MAC_SIZE_BYTES:])
    salvage(path, tmp_path / "new.state", key=KEY)  # the page before the change is still in the file
    with statelog.open(tmp_path / "new.state", key=KEY) as store:
        assert store.verify().ok
        assert store.thread("t").state["n"] == 4
    forged = path.read_bytes().replace(stored[-MAC_SIZE_BYTES:], bytes(MAC_SIZE_BYTES))
    path.write_bytes(forged)
    assert salvage(path, tmp_path / "newer.state", key=KEY).lost == [(lsn, lsn)]
    with pytest.raises(KeyMissingError):
        salvage(path, tmp_path / "unkeyed.state")


def test_salvage_without_the_header_needs_an_anchor(path, tmp_path):
    with statelog.open(path, key=KEY) as store:
        anchor = store.anchor()
    with forging(path) as forger:
        forger.delete(b"meta", HEADER_KEY)
    path.write_bytes(path.read_bytes().replace(b"key_check", b"key_chEck"))  # on free pages
    with pytest.raises(HeaderLostError) as caught:
        salvage(path, tmp_path / "new.state", key=KEY)
    assert caught.value.path == str(path)
    assert salvage(path, tmp_path / "new.state", key=KEY, anchor=anchor).is_complete
    with statelog.open(tmp_path / "new.state", key=KEY) as store:
        assert store.verify().ok


@pytest.mark.slow
def test_salvage_of_a_crashed_store_reads_its_journal(crashed, tmp_path):
    assert salvage(crashed, tmp_path / "new.state", key=KEY).is_complete
    with statelog.open(tmp_path / "new.state", key=KEY) as store:
        assert store.thread("crash").state["n"] == 5


# --- damage -----------------------------------------------------------------------------

FLIP = """
import json, os, random, shutil, sys
import statelog
source, copy, first, last = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
data = open(source, "rb").read()

def read():
    with statelog.open(copy, key=os.environ["KEY"]) as store:
        found = []
        for info in store.threads():
            for branch in store.thread(info.id).branches():
                for version in store.thread(info.id, branch=branch.name).history():
                    found.append([info.id, branch.name, version.version, version.id, json.dumps(version.state.copy())])
        return [*found, sorted(entry.key for entry in store.board().list("*"))]

shutil.copy(source, copy)
sound = read()
for number in range(first, last):
    chance = random.Random(number)
    at = chance.randrange(8192, len(data))
    with open(copy, "wb") as file:
        file.write(data[:at] + bytes((data[at] ^ 1 << chance.randrange(8),)) + data[at + 1:])
    print(number, flush=True)
    try:
        result = "same" if read() == sound else "other"
    except statelog.StatelogError as error:
        result = "refused"
    print(result, flush=True)
    for name in os.listdir(os.path.dirname(copy)):
        if name.startswith(os.path.basename(copy)):
            os.unlink(os.path.join(os.path.dirname(copy), name))
"""


@pytest.mark.slow
def test_damage_to_a_store_with_a_key_is_refused_or_changes_nothing(path, tmp_path):
    with statelog.open(path, key=KEY) as store:
        store.compact()  # fewer free pages
    (tmp_path / "flips").mkdir()
    first, last, results = 0, 120, []
    while first < last:
        arguments = [sys.executable, "-c", FLIP, str(path), str(tmp_path / "flips" / "copy"), str(first), str(last)]
        environment = {"KEY": KEY, "PYTHONPATH": ":".join(sys.path)}
        ended = subprocess.run(arguments, env=environment, check=False, capture_output=True, text=True)
        said = ended.stdout.split()
        results += said[1::2]
        first += -(-len(said) // 2)
        if ended.returncode:
            assert ended.returncode < 0, ended.stderr  # LMDB has ended the process
            for left in (tmp_path / "flips").iterdir():
                left.unlink()
    assert "other" not in results
    assert {"same", "refused"} <= {*results}
