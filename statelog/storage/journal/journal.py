"""The journal beside a store: what was committed since the steady snapshot. FORMAT.md section 8.

Two slots, written in turn, each naming a steady snapshot of the data file (all of whose pages are on the disk, and are
kept there); behind them two halves, in which epochs take turns, with the records of every commit since. A flush of such
an append moves no metadata: the file is filled with zeros ahead of it.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, NamedTuple

from xxhash import xxh3_64_digest

from statelog.storage.faults import armed, point
from statelog.storage.file.disk import flush_file, write_all, write_zeros
from statelog.storage.file.neighbours import in_the_way_error, journal_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_MAGIC = b"stlgjrn2"
_MAGIC_BEFORE = b"stlgjrn1"
_PAGE_SIZE_BYTES = 4096
RECORDS_AT = 2 * _PAGE_SIZE_BYTES
"""Slots stand on a page each; so one that is torn leaves the other whole."""

HALF_SIZE_BYTES = 3 * 1024 * 1024
"""Part of the format. An epoch longer than JOURNAL_SIZE_BYTES_MAX ends as soon as the one before it is not needed:
until then there is room for as much again, and for the largest commit."""

HALVES_AT = (RECORDS_AT, RECORDS_AT + HALF_SIZE_BYTES)
"""Where groups of even and of odd epochs begin."""

_SLOT = struct.Struct(">8s16s16sQQI")

_GROUP = struct.Struct(">8sIIQQQ")
_GROUP_REST = struct.Struct(">IIQQQ")
_GROUP_EPOCH_AT = 8 + 4 + 4
_CHECKSUM_SIZE_BYTES = 8
_META_SIZE_BYTES_MAX = 1024
_SLOTS_AT = (0, _PAGE_SIZE_BYTES)
_READ_SIZE_BYTES = 16 * 1024
"""Groups are read by so much at a time, or one that is larger."""

_ZEROS = bytes(64 * 1024)
"""The block size of the search for the end of a half, which it divides. Comparing is ten times faster than `strip`."""

_FILLED_SIZE_BYTES_MIN = 64 * 1024
_FILLED_SIZE_BYTES_MAX = 1024 * 1024
"""Zeros are written ahead: at first so many; then as many again as there are, up to so many at a time."""


class Slot(NamedTuple):
    """A steady snapshot.

    Attributes:
        store_id: of the data file.
        session: 16 bytes, drawn when the journal was made; the data file bears them, too, until it is closed.
        epoch: counts the snapshots of a session; records of another epoch are not read.
        lsn: the last record that the snapshot contains.
        meta: the beginning of LMDB's meta page that is the snapshot.
    """

    store_id: bytes
    session: bytes
    epoch: int
    lsn: int
    meta: bytes


def encode_slot(slot: Slot) -> bytes:
    """Return the bytes of a slot."""
    head = _SLOT.pack(_MAGIC, slot.store_id, slot.session, slot.epoch, slot.lsn, len(slot.meta))
    return head + slot.meta + xxh3_64_digest(head + slot.meta)


def decode_slot(data: bytes) -> Slot | None:
    """Inverse of `encode_slot`; None if there is none, or it was torn."""
    magic, store_id, session, epoch, lsn, meta_size = _SLOT.unpack_from(data)
    end = _SLOT.size + meta_size
    if magic != _MAGIC or meta_size > _META_SIZE_BYTES_MAX:
        return None
    if xxh3_64_digest(data[:end]) != data[end : end + _CHECKSUM_SIZE_BYTES]:
        return None
    return Slot(store_id, session, epoch, lsn, data[_SLOT.size : end])


def read_slots(descriptor: int) -> list[Slot]:
    """Return the slots that are whole, the newest first."""
    data = os.pread(descriptor, RECORDS_AT, 0).ljust(RECORDS_AT, b"\0")
    slots = [decode_slot(data[at : at + _PAGE_SIZE_BYTES]) for at in _SLOTS_AT]
    return sorted((slot for slot in slots if slot is not None), key=lambda slot: slot.epoch, reverse=True)


def is_of_older_build(descriptor: int) -> bool:
    """Tell whether a file is a journal as earlier builds wrote it."""
    return any(os.pread(descriptor, len(_MAGIC), at) == _MAGIC_BEFORE for at in _SLOTS_AT)


def is_journal_of(descriptor: int, store_id: bytes) -> bool:
    """Tell whether a file is a journal of a store, of whichever session, or the beginning of one: zeros."""
    start = _MAGIC + store_id
    slots = [os.pread(descriptor, _PAGE_SIZE_BYTES, at) for at in _SLOTS_AT]
    is_one = [slot.startswith(start) for slot in slots]
    return all(is_own or not any(slot) for is_own, slot in zip(is_one, slots, strict=True)) and (
        any(is_one) or _is_empty(descriptor, RECORDS_AT)
    )


def check_leftover(path: Path, descriptor: int, store_id: bytes) -> None:
    """Raise FormatError if what is open as a store's journal is none of it, nor the beginning of one."""
    if not is_journal_of(descriptor, store_id):
        raise in_the_way_error(path, journal_path(path), "is no journal of this store")


def _is_empty(descriptor: int, at: int) -> bool:
    """Tell whether nothing but zeros stands behind a place."""
    while data := os.pread(descriptor, _FILLED_SIZE_BYTES_MAX, at):
        if data != bytes(len(data)):
            return False
        at += len(data)
    return True


def write_slot(descriptor: int, slot: Slot) -> None:
    """Write a slot over the one before the last, and flush it. Raises OSError."""
    write_all(descriptor, encode_slot(slot), _PAGE_SIZE_BYTES * (slot.epoch & 1))
    if armed:
        point("steady.before_slot_flush")
    flush_file(descriptor)


def fill(descriptor: int, start: int, end: int, filled: int) -> int:
    """See to it that a half that begins at `start`, and is filled that far, reaches to `end`; return how far it does.

    What lies behind the half is another epoch's, and may be needed.

    Raises:
        OSError: the system refuses.
    """
    if end <= filled:
        return filled
    ahead = min(max(filled - start, _FILLED_SIZE_BYTES_MIN), _FILLED_SIZE_BYTES_MAX)
    wanted = max(end, min(filled + ahead, start + HALF_SIZE_BYTES))
    wanted = -(-wanted // _PAGE_SIZE_BYTES) * _PAGE_SIZE_BYTES
    write_zeros(descriptor, filled, wanted)
    return wanted


def encode_group(session: bytes, epoch: int, lsn: int, records: Sequence[bytes], *, flushed: int) -> bytes:
    """Return the records of one commit, from `lsn` on, as they stand in the journal.

    Up to record `flushed` all that is committed was flushed before. The checksum begins with the session, which nobody
    knows who writes into a store: so no text in a record can pass for a group.
    """
    rest = b"".join((struct.pack(f">{len(records)}I", *map(len, records)), *records))
    rest = _GROUP_REST.pack(len(rest), len(records), epoch, lsn, flushed) + rest
    return xxh3_64_digest(session + rest) + rest


class Group(NamedTuple):
    """The records of one commit.

    Attributes:
        lsn: of the first.
        records: at least one.
        flushed: up to which record all that is committed had been flushed when it was written.
        size_bytes: of the group.
    """

    lsn: int
    records: tuple[bytes, ...]
    flushed: int
    size_bytes: int


class Groups:
    """Iterates over the groups of an epoch, in order, up to the first that is torn, or is not the next.

    Attributes:
        at: where the next group stands, behind those so far.
        lsn: the last record so far.
    """

    def __init__(self, descriptor: int, session: bytes, epoch: int, lsn: int) -> None:
        self.at, self.lsn = HALVES_AT[epoch & 1], lsn
        self._session, self._epoch = session, epoch
        self._descriptor = descriptor
        self._size_bytes = os.fstat(descriptor).st_size
        self._data, self._data_at = b"", self.at
        """What was read, and from where."""

    def __iter__(self) -> Groups:
        """Return itself."""
        return self

    def __next__(self) -> Group:
        """Return the next group."""
        group = self.read(self.at)
        if group is None or group.lsn != self.lsn + 1:
            raise StopIteration
        self.at, self.lsn = self.at + group.size_bytes, self.lsn + len(group.records)
        return group

    def read(self, at: int) -> Group | None:
        """Return the group at a place, not before the one that was read last; None if there is none."""
        if not self._has(at, _GROUP.size) or not self._has(at, self._size_at(at)):
            return None
        return _decode_group(self._data, at - self._data_at, self._session, self._epoch)

    def _size_at(self, at: int) -> int:
        rest_size: int = _GROUP.unpack_from(self._data, at - self._data_at)[1]
        return _GROUP.size + rest_size

    def _has(self, at: int, size_bytes: int) -> bool:
        """Have so many bytes read; False if the file ends before."""
        end = at + size_bytes
        if end > self._size_bytes:
            return False
        if end > self._data_at + len(self._data):
            self._data, self._data_at = os.pread(self._descriptor, max(size_bytes, _READ_SIZE_BYTES), at), at
        return end <= self._data_at + len(self._data)


def find_groups(descriptor: int, session: bytes, epoch: int, at: int = 0) -> Iterator[Group]:
    """Yield whatever groups of an epoch stand in its half behind `at`, wherever they begin."""
    start = HALVES_AT[epoch & 1]
    at, end = max(at, start), start + HALF_SIZE_BYTES
    while end > at and _is_zeros(os.pread(descriptor, len(_ZEROS), end - len(_ZEROS))):
        end -= len(_ZEROS)  # Most of a half is zeros.
    data = os.pread(descriptor, max(end - at, 0), at)
    wanted = epoch.to_bytes(8)
    found = data.find(wanted)
    groups = Groups(descriptor, session, epoch, 0)
    while found >= 0:
        group = groups.read(at + found - _GROUP_EPOCH_AT) if found >= _GROUP_EPOCH_AT else None
        if group is not None:
            yield group
        found = data.find(wanted, found + 1)


def _is_zeros(data: bytes) -> bool:
    """Return True if `data`, which is not longer than `_ZEROS`, consists of zeros."""
    return data == _ZEROS[: len(data)]


def find_records(descriptor: int, slot: Slot) -> dict[int, bytes]:
    """Return, by LSN, whatever whole records there are behind a slot's snapshot, of its epoch and the next."""
    records: dict[int, bytes] = {}
    for epoch in (slot.epoch, slot.epoch + 1):
        for group in find_groups(descriptor, slot.session, epoch):
            if group.lsn > slot.lsn:  # of two at one place the later one lies further on
                records.update(enumerate(group.records, group.lsn))
    return records


def _decode_group(data: bytes, start: int, session: bytes, epoch: int) -> Group | None:
    """Return the group that begins there; None if there is none of that session and epoch, or it is damaged."""
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
    return Group(lsn, tuple(records), flushed, end - start) if at == end else None
