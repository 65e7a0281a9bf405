"""Exports, imports and salvages of short records, which lack their LSN and usually the previous chain digest."""

import pytest
import xxhash
from damage import PAGE_SIZE_BYTES, kinds, page_of, wipe

import statelog
from statelog import reducers
from statelog.errors import ConflictError, CorruptionError
from statelog.format.record import FLAG_VACUUMED, FLAGS_AT, decode_record, encode_record
from statelog.portable import log_export, log_import
from statelog.portable.pages import PageFile
from statelog.portable.record_search import ASTRAY, IN_TREE, FoundRecord, RecordFinder

TURNS = 140


def chat(store, size=300, turns=TURNS):
    thread = store.thread("chat", schema={"messages": reducers.extend})
    for turn in range(turns):
        thread.commit({"messages": [f"message {turn} ".ljust(size, "m"), f"reply {turn} ".ljust(90, "r")]})
    store.prune(keep_last=2)
    store.compact()


@pytest.fixture
def retained(open_store):
    store = open_store("retained.state", durability="interval")
    chat(store)
    assert len(short(store)) > TURNS - 10
    return store


def records(store):
    with store._engine.read() as view:
        return {lsn: bytes(view.transaction.get_log(lsn)) for lsn in range(1, store.last_lsn + 1)}


def short(store):
    return {lsn: data for lsn, data in records(store).items() if data[FLAGS_AT] & FLAG_VACUUMED}


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 7, 512])
def test_a_copy_has_the_same_records_and_the_same_chain(retained, open_store, export, take, monkeypatch, batch):
    monkeypatch.setattr(log_import, "BATCH_RECORDS", batch)
    monkeypatch.setattr(log_export, "_PAGE_RECORDS", batch)
    new = open_store()
    take(new, export(retained))
    assert records(new) == records(retained)
    assert list(new.log()) == list(retained.log())


@pytest.mark.slow
@pytest.mark.parametrize("last", [2, 3, 30, 63, 64, 65, 130])
def test_an_import_that_ends_in_a_short_record_can_be_continued(retained, open_store, export, take, split, join, last):
    whole = export(retained)
    pieces = split(whole)
    new, other = open_store(), open_store("other.state")
    for store in (new, other):
        with pytest.raises(CorruptionError):  # It was cut off.
            take(store, join(pieces[: last + 1]))
        assert list(store.log()) == list(retained.log())[:last]
    take(new, export(retained, since=last))
    take(other, whole)
    assert records(new) == records(other) == records(retained)


@pytest.mark.slow
def test_a_log_that_ends_in_a_short_record_accepts_commits(retained, open_store, export, take, split, join):
    new = open_store()
    with pytest.raises(CorruptionError):
        take(new, join(split(export(retained))[:41]))
    new.thread("other").commit({"x": 1})
    assert new.thread("other").state == {"x": 1}
    with pytest.raises(ConflictError):
        take(new, export(retained))
    close_incomplete(new)


def close_incomplete(store):
    """Close a store whose import was interrupted before the removal that lists the redacted records."""
    assert {problem.invariant for problem in store.verify().problems} == {"R2"}
    store.close()


@pytest.mark.slow
def test_a_replaced_short_record_is_refused_at_the_next_record_with_the_chain(
    retained, open_store, export, take, split, join, piece
):
    whole = export(retained)
    pieces = split(whole)
    data = bytearray(pieces[30].payload)
    data[19] ^= 1  # Of its time.
    checksum = xxhash.xxh3_64_intdigest(bytes(data[8:])) + 30 * 0x9E3779B97F4A7C15
    data[:8] = (checksum % 2**64).to_bytes(8)
    pieces[30] = piece(pieces[30].kind, bytes(data))
    new = open_store()
    with pytest.raises(CorruptionError, match="record 64 does not continue the chain") as caught:
        take(new, join(pieces))
    assert caught.value.lsn == new.last_lsn == 63
    with pytest.raises(ConflictError, match="they differ"):
        take(new, whole)
    close_incomplete(new)


def test_a_short_record_at_the_place_of_another_is_refused(retained, open_store, export, take, split, join):
    pieces = split(export(retained))
    pieces[30] = pieces[31]
    new = open_store()
    with pytest.raises(CorruptionError, match="record 30: checksum mismatch"):
        take(new, join(pieces))
    close_incomplete(new)


def test_a_header_with_a_chain_before_the_first_record_is_refused(retained, open_store, export, take, with_header):
    with pytest.raises(CorruptionError, match="no chain digest before"):
        take(open_store(), with_header(export(retained), chain=bytes(range(20))))


# --- salvage -----------------------------------------------------------------------------


@pytest.mark.slow
def test_short_records_are_found_without_the_tree(retained, rescue):
    log, held = list(retained.log()), records(retained)
    retained.close()
    report, new = rescue(wipe(retained.path.read_bytes(), [0, 1]))
    assert report.is_complete
    assert records(new) == held
    assert list(new.log()) == log


@pytest.fixture
def long_messages(tmp_path):
    """A closed store as bytes, whose short records have separate pages, and its records."""
    path = tmp_path / "long.state"
    with statelog.open(path, durability="interval") as store:
        chat(store, size=5000, turns=80)
        held = records(store)
    return path.read_bytes(), held


@pytest.mark.slow
def test_unreferenced_short_records_are_assigned_their_lsns(long_messages, rescue, tmp_path):
    data, held = long_messages
    path = tmp_path / "leaves"
    path.write_bytes(data)
    with path.open("rb") as file:
        pages = PageFile(file.fileno())
        leaves = [
            page
            for page, flags in kinds(data).items()
            if flags & 0x02 and any(len(entry[0]) == 8 for entry in pages.leaf_entries(page, page_of(data, page)))
        ]
    report, new = rescue(wipe(data, leaves))
    own_pages = {
        lsn for lsn, record in held.items() if len(record) > PAGE_SIZE_BYTES and record[FLAGS_AT] & FLAG_VACUUMED
    }
    assert len(own_pages) > 60
    found = records(new)
    assert {lsn for lsn in own_pages if lsn % 64 and found.get(lsn) == held[lsn]} == {
        lsn for lsn in own_pages if lsn % 64
    }
    assert report.recovered >= len(own_pages)


# --- the choice between records ---------------------------------------------------------------------


class Memory:
    """Replaces a file by records in memory."""

    size_bytes = 1 << 20
    page_count = 1
    page_size_bytes = PAGE_SIZE_BYTES

    def __init__(self):
        self.bytes = b""

    def read(self, offset, size):
        return self.bytes[offset : offset + size]


@pytest.fixture
def finder():
    return RecordFinder(Memory())


def found(finder, lsn, data, trust):
    """Let a finder find a record."""
    at = len(finder._pages.bytes)
    finder._pages.bytes += data
    each = FoundRecord(trust, 0, len(data), at)
    finder._found[lsn] = (*finder._found.get(lsn, ()), each)
    finder.committed_last = max(finder._found)
    return each


@pytest.mark.parametrize("lsn", [5, 63, 64, 70])
@pytest.mark.parametrize("is_right", [True, False])
def test_stray_short_records_are_selected_by_the_chain(retained, finder, lsn, is_right):
    """The chain is known before and after the record, through short records, and contains it or not."""
    held = records(retained)
    assert held[lsn][FLAGS_AT] & FLAG_VACUUMED
    for other, data in held.items():
        if other != lsn:
            found(finder, other, data, IN_TREE)
    old = decode_record(held[lsn], lsn)
    if is_right:
        data = held[lsn]
    else:
        before = next(record for record in retained.log(after=lsn - 2))
        data, _chain = encode_record(
            2, lsn=lsn, time_us=old.time_us, previous_chain=bytes.fromhex(before.digest), body=b"\x80"
        )
    wanted = found(finder, lsn, data, ASTRAY)
    chosen, last = finder.choose()
    assert last == max(held)
    assert chosen.keys() == (held.keys() if is_right else held.keys() - {lsn})
    assert not is_right or chosen[lsn] == wanted


@pytest.mark.slow
def test_a_record_whose_chain_is_unknown_can_be_selected(retained, finder):
    held = records(retained)
    found(finder, 30, held[30], ASTRAY)
    found(finder, 31, held[31], IN_TREE)
    assert finder.choose()[0].keys() == {30, 31}
