"""The byte format of the write-ahead log (WAL): slots, and groups of records. FORMAT.md section 8.

The WAL begins with two slots, which are written in turn. A slot names a durable snapshot of the data file. All pages of
that snapshot are on the disk, and are not overwritten. Two halves follow, which epochs use in turn. They contain the
records of every commit since that snapshot. The file is filled with zeros in advance, so that flushing an append writes
no metadata.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, NamedTuple

from xxhash import xxh3_64_digest

from statelog.storage.faults import armed, point
from statelog.storage.file.disk import flush_file, write_all, write_zeros
from statelog.storage.file.sidecar_files import in_the_way_error, journal_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_MAGIC = b"stlgjrn2"
_MAGIC_BEFORE = b"stlgjrn1"
_PAGE_SIZE_BYTES = 4096
RECORDS_AT = 2 * _PAGE_SIZE_BYTES
"""The end of the two slots. Each slot has its own page, so that a torn slot leaves the other one intact."""

HALF_SIZE_BYTES = 3 * 1024 * 1024
"""The size of a half, which is part of the format. An epoch with more than JOURNAL_SIZE_BYTES_MAX bytes ends as soon as
the previous epoch is not needed. Until then, the half has space for as many bytes again, and for the largest commit.
"""

HALVES_AT = (RECORDS_AT, RECORDS_AT + HALF_SIZE_BYTES)
"""The offsets at which the groups of even and of odd epochs begin."""

_SLOT = struct.Struct(">8s16s16sQQI")

_GROUP = struct.Struct(">8sIIQQQ")
_GROUP_REST = struct.Struct(">IIQQQ")
_GROUP_EPOCH_AT = 8 + 4 + 4
_CHECKSUM_SIZE_BYTES = 8
_META_SIZE_BYTES_MAX = 1024
_SLOTS_AT = (0, _PAGE_SIZE_BYTES)
_READ_SIZE_BYTES = 16 * 1024
"""The number of bytes that one read from the file fetches, unless a group is larger."""

_ZEROS = bytes(64 * 1024)
"""A block of zeros, for finding the end of the data in a half. Its size divides the size of a half. Comparing blocks is
faster than `strip`.
"""

_FILLED_SIZE_BYTES_MIN = 64 * 1024
_FILLED_SIZE_BYTES_MAX = 1024 * 1024
"""The largest number of zeros that one step writes in advance. Each step doubles the filled part, within this limit."""


class SnapshotSlot(NamedTuple):
    """A slot, which names a durable snapshot.

    Attributes:
        store_id: the id of the store.
        session: 16 random bytes that identify the session of the WAL. Until the store is closed, the dirty flag of the
            data file also contains them.
        epoch: the number of the snapshot in its session. A reader of one epoch skips the groups of other epochs.
        lsn: the LSN of the last record in the snapshot.
        meta: the beginning of the snapshot's LMDB meta page.
    """

    store_id: bytes
    session: bytes
    epoch: int
    lsn: int
    meta: bytes


def encode_slot(slot: SnapshotSlot) -> bytes:
    """Return the bytes of a slot."""
    head = _SLOT.pack(_MAGIC, slot.store_id, slot.session, slot.epoch, slot.lsn, len(slot.meta))
    return head + slot.meta + xxh3_64_digest(head + slot.meta)


def decode_slot(data: bytes) -> SnapshotSlot | None:
    """Return the slot in `data`, or None if there is none or it is torn."""
    magic, store_id, session, epoch, lsn, meta_size = _SLOT.unpack_from(data)
    end = _SLOT.size + meta_size
    if magic != _MAGIC or meta_size > _META_SIZE_BYTES_MAX:
        return None
    if xxh3_64_digest(data[:end]) != data[end : end + _CHECKSUM_SIZE_BYTES]:
        return None
    return SnapshotSlot(store_id, session, epoch, lsn, data[_SLOT.size : end])


def read_slots(descriptor: int) -> list[SnapshotSlot]:
    """Return the intact slots, the newest first."""
    data = os.pread(descriptor, RECORDS_AT, 0).ljust(RECORDS_AT, b"\0")
    slots = [decode_slot(data[at : at + _PAGE_SIZE_BYTES]) for at in _SLOTS_AT]
    return sorted((slot for slot in slots if slot is not None), key=lambda slot: slot.epoch, reverse=True)


def is_of_older_build(descriptor: int) -> bool:
    """Return True if a file is a WAL of an earlier build."""
    return any(os.pread(descriptor, len(_MAGIC), at) == _MAGIC_BEFORE for at in _SLOTS_AT)


def is_journal_of(descriptor: int, store_id: bytes) -> bool:
    """Return True if a file is a WAL of the store, in any session, or a new WAL with only zeros."""
    start = _MAGIC + store_id
    slots = [os.pread(descriptor, _PAGE_SIZE_BYTES, at) for at in _SLOTS_AT]
    is_one = [slot.startswith(start) for slot in slots]
    return all(is_own or not any(slot) for is_own, slot in zip(is_one, slots, strict=True)) and (
        any(is_one) or _is_empty(descriptor, RECORDS_AT)
    )


def check_leftover(path: Path, descriptor: int, store_id: bytes) -> None:
    """Raise FormatError if the open file is neither a WAL of the store nor an unfinished new WAL."""
    if not is_journal_of(descriptor, store_id):
        raise in_the_way_error(path, journal_path(path), "is not a journal of this store")


def _is_empty(descriptor: int, at: int) -> bool:
    """Return True if the file has only zeros from `at` on."""
    while data := os.pread(descriptor, _FILLED_SIZE_BYTES_MAX, at):
        if data != bytes(len(data)):
            return False
        at += len(data)
    return True


def write_slot(descriptor: int, slot: SnapshotSlot) -> None:
    """Write a slot over the older of the two slots, and flush it. Raises OSError."""
    write_all(descriptor, encode_slot(slot), _PAGE_SIZE_BYTES * (slot.epoch & 1))
    if armed:
        point("checkpoint.before_slot_flush")
    flush_file(descriptor)


def fill(descriptor: int, start: int, end: int, filled: int) -> int:
    """Fill a half with zeros from `filled` to at least `end`, and return the new end of the zeros.

    Nothing is written after the half, because the bytes there belong to a different epoch and may be needed.

    Args:
        descriptor: a descriptor of the WAL.
        start: the offset of the half.
        end: the offset that the zeros have to reach.
        filled: the offset that the zeros already reach.

    Raises:
        OSError: the operating system reports an error.
    """
    if end <= filled:
        return filled
    ahead = min(max(filled - start, _FILLED_SIZE_BYTES_MIN), _FILLED_SIZE_BYTES_MAX)
    wanted = max(end, min(filled + ahead, start + HALF_SIZE_BYTES))
    wanted = -(-wanted // _PAGE_SIZE_BYTES) * _PAGE_SIZE_BYTES
    write_zeros(descriptor, filled, wanted)
    return wanted


def encode_group(session: bytes, epoch: int, lsn: int, records: Sequence[bytes], *, flushed: int) -> bytes:
    """Encode the group of one commit. Its first record has the LSN `lsn`.

    All commits up to record `flushed` were flushed before. The checksum also covers the session. Users of a store do
    not know the session, so they cannot write bytes that look like a group.
    """
    rest = b"".join((struct.pack(f">{len(records)}I", *map(len, records)), *records))
    rest = _GROUP_REST.pack(len(rest), len(records), epoch, lsn, flushed) + rest
    return xxh3_64_digest(session + rest) + rest


class CommitGroup(NamedTuple):
    """The records of one commit.

    Attributes:
        lsn: the LSN of the first record.
        records: at least one record.
        flushed: the LSN up to which all commits had been flushed when the group was written.
        size_bytes: the size of the group.
    """

    lsn: int
    records: tuple[bytes, ...]
    flushed: int
    size_bytes: int


class Groups:
    """Iterates over the groups of an epoch, in order, up to a group that is torn or does not continue the log.

    Attributes:
        at: the offset of the next group.
        lsn: the LSN of the last record so far.
    """

    def __init__(self, descriptor: int, session: bytes, epoch: int, lsn: int) -> None:
        self.at, self.lsn = HALVES_AT[epoch & 1], lsn
        self._session, self._epoch = session, epoch
        self._descriptor = descriptor
        self._size_bytes = os.fstat(descriptor).st_size
        self._data, self._data_at = b"", self.at
        """The bytes of the last read, and their offset."""

    def __iter__(self) -> Groups:
        """Return this iterator."""
        return self

    def __next__(self) -> CommitGroup:
        """Return the next group."""
        group = self.read(self.at)
        if group is None or group.lsn != self.lsn + 1:
            raise StopIteration
        self.at, self.lsn = self.at + group.size_bytes, self.lsn + len(group.records)
        return group

    def read(self, at: int) -> CommitGroup | None:
        """Return the group at the offset `at`, or None. `at` must not be lower than in the last call."""
        if not self._has(at, _GROUP.size) or not self._has(at, self._size_at(at)):
            return None
        return _decode_group(self._data, at - self._data_at, self._session, self._epoch)

    def _size_at(self, at: int) -> int:
        rest_size: int = _GROUP.unpack_from(self._data, at - self._data_at)[1]
        return _GROUP.size + rest_size

    def _has(self, at: int, size_bytes: int) -> bool:
        """Read `size_bytes` at `at` into memory. Return False if the file is too short."""
        end = at + size_bytes
        if end > self._size_bytes:
            return False
        if end > self._data_at + len(self._data):
            self._data, self._data_at = os.pread(self._descriptor, max(size_bytes, _READ_SIZE_BYTES), at), at
        return end <= self._data_at + len(self._data)


def find_groups(descriptor: int, session: bytes, epoch: int, at: int = 0) -> Iterator[CommitGroup]:
    """Yield every intact group of an epoch that begins at or after the offset `at`, even after a damaged group."""
    start = HALVES_AT[epoch & 1]
    at, end = max(at, start), start + HALF_SIZE_BYTES
    while end > at and _ZEROS.startswith(os.pread(descriptor, len(_ZEROS), end - len(_ZEROS))):
        end -= len(_ZEROS)  # Skip the zeros at the end, which usually fill most of a half.
    data = os.pread(descriptor, max(end - at, 0), at)
    wanted = epoch.to_bytes(8)
    found = data.find(wanted)
    groups = Groups(descriptor, session, epoch, 0)
    while found >= 0:
        group = groups.read(at + found - _GROUP_EPOCH_AT) if found >= _GROUP_EPOCH_AT else None
        if group is not None:
            yield group
        found = data.find(wanted, found + 1)


def find_records(descriptor: int, slot: SnapshotSlot) -> dict[int, bytes]:
    """Return, by LSN, all intact records after the snapshot of `slot`, from its epoch and the epoch after it."""
    records: dict[int, bytes] = {}
    for epoch in (slot.epoch, slot.epoch + 1):
        for group in find_groups(descriptor, slot.session, epoch):
            # If two groups have the same LSN, the later one has the larger offset, so it overwrites the earlier one.
            if group.lsn > slot.lsn:
                records.update(enumerate(group.records, group.lsn))
    return records


def _decode_group(data: bytes, start: int, session: bytes, epoch: int) -> CommitGroup | None:
    """Return the group at `start`, or None if it is damaged or belongs to a different session or epoch."""
    if len(data) - start < _GROUP.size:
        return None
    checksum, rest_size, count, stored_epoch, lsn, flushed = _GROUP.unpack_from(data, start)
    at, end = start + _GROUP.size, start + _GROUP.size + rest_size
    if stored_epoch != epoch or end > len(data) or count < 1 or 4 * count > rest_size:
        return None
    if xxh3_64_digest(session + data[start + _CHECKSUM_SIZE_BYTES : end]) != checksum:
        return None
    sizes = struct.unpack_from(f">{count}I", data, at)
    records, at = [], at + 4 * count
    for size in sizes:
        records.append(data[at : at + size])
        at += size
    return CommitGroup(lsn, tuple(records), flushed, end - start) if at == end else None
