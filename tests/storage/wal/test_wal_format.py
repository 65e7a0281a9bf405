"""The bytes of the WAL: reading returns what was written, or nothing."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelog.storage.file import disk
from statelog.storage.wal import wal_format
from statelog.storage.wal.wal_format import (
    HALVES_AT,
    RECORDS_AT,
    Groups,
    SnapshotSlot,
    decode_slot,
    encode_group,
    encode_slot,
    fill,
    find_groups,
    read_slots,
)

SLOT = SnapshotSlot(b"s" * 16, b"n" * 16, 7, 42, b"meta" * 38)


@pytest.fixture
def descriptor(tmp_path):
    number = os.open(tmp_path / "journal", os.O_RDWR | os.O_CREAT)
    fill(number, 0, RECORDS_AT + 1, 0)
    yield number
    os.close(number)


def scan(descriptor, epoch, lsn):
    return Groups(descriptor, SLOT.session, epoch, lsn)


def write(descriptor, *groups, epoch=1, lsn=1, at=None, flushed=0, session=SLOT.session):
    at = HALVES_AT[epoch & 1] if at is None else at
    for records in groups:
        group = encode_group(session, epoch, lsn, records, flushed=flushed)
        fill(descriptor, 0, at + len(group), os.fstat(descriptor).st_size)
        disk.write_all(descriptor, group, at)
        at, lsn = at + len(group), lsn + len(records)
    return at


def test_a_slot_comes_back():
    assert decode_slot(encode_slot(SLOT).ljust(4096, b"\0")) == SLOT


def test_a_slot_with_any_byte_changed_is_none():
    stored = encode_slot(SLOT)
    for at in range(len(stored)):
        damaged = bytearray(stored.ljust(4096, b"\0"))
        damaged[at] ^= 0x10
        assert decode_slot(bytes(damaged)) is None


def test_the_newest_whole_slot_is_first(descriptor):
    for epoch in (1, 2, 3):
        wal_format.write_slot(descriptor, SLOT._replace(epoch=epoch, lsn=epoch))
    assert [slot.epoch for slot in read_slots(descriptor)] == [3, 2]
    os.pwrite(descriptor, b"torn", 4096 + 100)
    assert [slot.epoch for slot in read_slots(descriptor)] == [2]


def test_an_empty_file_has_no_slot_and_no_group(tmp_path):
    number = os.open(tmp_path / "empty", os.O_RDWR | os.O_CREAT)
    assert read_slots(number) == []
    assert list(scan(number, 1, 0)) == []
    os.close(number)


@given(st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=4), max_size=6))
def test_groups_come_back_in_order(tmp_path_factory, groups):
    number = os.open(tmp_path_factory.mktemp("j") / "journal", os.O_RDWR | os.O_CREAT)
    try:
        end = write(number, *groups)
        found = scan(number, 1, 0)
        assert [list(group.records) for group in found] == groups
        assert (found.at, found.lsn) == (end, sum(map(len, groups)))
    finally:
        os.close(number)


def test_a_scan_ends_where_an_older_epoch_goes_on(descriptor):
    write(descriptor, [b"old 1" * 20], [b"old 2" * 20], [b"old 3" * 20], epoch=1)
    write(descriptor, [b"new 1" * 20], epoch=3)
    assert [group.records for group in scan(descriptor, 3, 0)] == [(b"new 1" * 20,)]


def test_a_scan_ends_where_another_session_goes_on(descriptor):
    at = write(descriptor, [b"one"])
    write(descriptor, [b"two"], lsn=2, at=at, session=b"o" * 16)
    assert [group.lsn for group in scan(descriptor, 1, 0)] == [1]


def test_groups_are_found_wherever_they_begin(descriptor):
    at = write(descriptor, [b"one"], [b"two"], flushed=1)
    write(descriptor, [b"three" * 1000], lsn=3, at=at + 77, flushed=2)
    write(descriptor, [b"older"], lsn=1, at=at + 9000, epoch=5)
    write(descriptor, [bytes(40_000)], lsn=4, at=at + 12_000, flushed=3)
    found = list(find_groups(descriptor, SLOT.session, 1, RECORDS_AT))
    assert [(group.lsn, group.flushed) for group in found] == [(1, 1), (2, 1), (3, 2), (4, 3)]
    assert list(find_groups(descriptor, b"o" * 16, 1, RECORDS_AT)) == []


def test_text_in_a_record_does_not_pass_for_a_group(descriptor):
    """Who writes into a store does not know its session."""
    forged = encode_group(bytes(16), 1, 2, [b"forged"], flushed=2)
    write(descriptor, [forged])
    assert [group.lsn for group in find_groups(descriptor, SLOT.session, 1, RECORDS_AT)] == [1]


def test_a_scan_ends_where_an_lsn_is_not_the_next(descriptor):
    at = write(descriptor, [b"one"])
    write(descriptor, [b"three"], lsn=3, at=at)
    assert [group.lsn for group in scan(descriptor, 1, 0)] == [1]


@pytest.mark.parametrize("cut", range(0, 130, 7))
def test_a_torn_group_is_not_read(descriptor, cut):
    at = write(descriptor, [b"a" * 50])
    end = write(descriptor, [b"b" * 100], lsn=2, at=at)
    os.pwrite(descriptor, bytes(end - at - cut), at + cut)
    assert [group.lsn for group in scan(descriptor, 1, 0)] == [1]


def test_a_file_that_ends_within_a_group_ends_before_it(descriptor):
    at = write(descriptor, [b"a" * 50])
    write(descriptor, [b"b" * 100], lsn=2, at=at)
    os.ftruncate(descriptor, at + 60)
    assert [group.lsn for group in scan(descriptor, 1, 0)] == [1]


@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_at_most_no_group(tmp_path_factory, data):
    number = os.open(tmp_path_factory.mktemp("j") / "journal", os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(number, data, RECORDS_AT)
        assert list(scan(number, 1, 0)) == []
        read_slots(number)
    finally:
        os.close(number)


def test_zeros_are_written_ahead(descriptor):
    size = os.fstat(descriptor).st_size
    assert size >= 64 * 1024
    assert fill(descriptor, 0, size, size) == size
    assert fill(descriptor, 0, size + 1, size) >= 2 * size


@pytest.mark.parametrize("size", [500_000, 1_048_576, 3_333_333])
def test_no_zeros_are_written_into_the_other_half(tmp_path, size):
    """Groups of another epoch may be there, and still be needed."""
    number = os.open(tmp_path / "journal", os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(number, b"\1" * 100, HALVES_AT[1])
        end = filled = HALVES_AT[0]
        while (end := end + size) <= HALVES_AT[1]:
            filled = fill(number, HALVES_AT[0], end, filled)
            assert end <= filled <= HALVES_AT[1]
        assert fill(number, HALVES_AT[0], HALVES_AT[1], filled) == HALVES_AT[1]
        assert os.pread(number, 100, HALVES_AT[1]) == b"\1" * 100
    finally:
        os.close(number)
