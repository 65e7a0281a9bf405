"""The journal beside a store: what was committed since the steady snapshot. FORMAT.md section 8.

Two slots, written in turn, each naming a steady snapshot of the data file (all of whose pages are on the disk, and are
kept there); behind them, in order, the records of every commit since. A flush of such an append moves no metadata: the
file is filled with zeros ahead of it.
"""

from __future__ import annotations

import contextlib
import os
import struct
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from xxhash import xxh3_64_digest

from statelog.limits import JOURNAL_SIZE_BYTES_MAX
from statelog.storage.faults import armed, point
from statelog.storage.file.disk import flush_file, write_all, write_zeros

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from mmap import mmap
    from pathlib import Path

_MAGIC = b"stlgjrn1"
_PAGE_SIZE_BYTES = 4096
RECORDS_AT = 2 * _PAGE_SIZE_BYTES
"""Slots stand on a page each; so one that is torn leaves the other whole."""

_SLOT = struct.Struct(">8s16s16sQQI")
_EPOCH_AT = 8 + 16 + 16

_GROUP = struct.Struct(">8sIIQQQ")
_GROUP_REST = struct.Struct(">IIQQQ")
_GROUP_EPOCH_AT = 8 + 4 + 4
_CHECKSUM_SIZE_BYTES = 8
_META_SIZE_BYTES_MAX = 1024
_SLOTS_AT = (0, _PAGE_SIZE_BYTES)
_BROKEN_AT = _PAGE_SIZE_BYTES - 1
"""Behind the first slot: not zero when a flush has failed, in whichever process. It is for those who run, not for the
disk: recovery does not ask."""

STATE = struct.Struct(f">{_EPOCH_AT}xQ{_BROKEN_AT - _EPOCH_AT - 8}xB{_EPOCH_AT}xQ")
"""Epoch of the first slot, whether a flush has failed, epoch of the second slot: of both in memory, and unchecked."""

_READ_SIZE_BYTES = 16 * 1024
"""Groups are read by so much at a time, or one that is larger."""

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


def journal_path(path: Path) -> Path:
    """Return where the journal of a store lies."""
    return path.with_name(f"{path.name}-journal")


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


def find_slot(descriptor: int, epoch: int) -> Slot | None:
    """Return the slot of an epoch, if it is there still, and whole."""
    return next((slot for slot in read_slots(descriptor) if slot.epoch == epoch), None)


def is_journal_of(descriptor: int, store_id: bytes) -> bool:
    """Tell whether a file is a journal of a store, of whichever session, or the beginning of one: zeros."""
    start = _MAGIC + store_id
    slots = [os.pread(descriptor, _PAGE_SIZE_BYTES, at) for at in _SLOTS_AT]
    is_one = [slot.startswith(start) for slot in slots]
    return all(is_own or not any(slot[:_BROKEN_AT]) for is_own, slot in zip(is_one, slots, strict=True)) and (
        any(is_one) or _is_empty(descriptor, RECORDS_AT)
    )


def _is_empty(descriptor: int, at: int) -> bool:
    """Tell whether nothing but zeros stands behind a place."""
    while data := os.pread(descriptor, _FILLED_SIZE_BYTES_MAX, at):
        if any(data):
            return False
        at += len(data)
    return True


def newest_epoch(slots: bytes | mmap) -> int:
    """Return the epoch of the newer slot."""
    even, _is_failed, odd = STATE.unpack_from(slots)
    newest: int = max(even, odd)
    return newest


def write_slot(descriptor: int, slot: Slot) -> None:
    """Write a slot over the one before the last, and flush it. Raises OSError."""
    write_all(descriptor, encode_slot(slot), _PAGE_SIZE_BYTES * (slot.epoch & 1))
    if armed:
        point("steady.before_slot_flush")
    flush_file(descriptor)


def is_broken(slots: bytes | mmap) -> bool:
    """Tell whether a flush has failed: then nobody writes until all have closed the store."""
    return slots[_BROKEN_AT] != 0


def write_broken(descriptor: int) -> None:
    """Tell all who have the journal open that a flush has failed. Raises OSError."""
    write_all(descriptor, b"\1", _BROKEN_AT)


def fill(descriptor: int, end: int, size_bytes: int) -> int:
    """See to it that a file of that size reaches beyond `end`; return its size then. Raises OSError."""
    if end <= size_bytes:
        return size_bytes
    ahead = min(max(size_bytes, _FILLED_SIZE_BYTES_MIN), _FILLED_SIZE_BYTES_MAX)
    wanted = -(-max(end, size_bytes + ahead) // _PAGE_SIZE_BYTES) * _PAGE_SIZE_BYTES
    write_zeros(descriptor, size_bytes, wanted)
    return wanted


def encode_group(session: bytes, epoch: int, lsn: int, records: Sequence[bytes], *, flushed: int) -> bytes:
    """Return the records of one commit, from `lsn` on, as they stand in the journal.

    Up to record `flushed` all that is committed was flushed before. The checksum begins with the session, which nobody
    knows who writes into a store: so no text in a record can pass for a group.
    """
    rest = b"".join((struct.pack(f">{len(records)}I", *map(len, records)), *records))
    rest = _GROUP_REST.pack(len(rest), len(records), epoch, lsn, flushed) + rest
    return xxh3_64_digest(session + rest) + rest


def shorten(descriptor: int, size_bytes: int) -> int:
    """After an advance, give the room back that one long epoch has taken, and return the journal's size."""
    if size_bytes > JOURNAL_SIZE_BYTES_MAX:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, JOURNAL_SIZE_BYTES_MAX)
            return JOURNAL_SIZE_BYTES_MAX
    return size_bytes


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


class Place(NamedTuple):
    """Where the next group goes.

    Attributes:
        epoch: of the groups before it.
        lsn: the last record so far.
        at: its offset.
        lsn_before: the last record before the epoch's first.
    """

    epoch: int
    lsn: int
    at: int
    lsn_before: int


class Groups:
    """Iterates over the groups of a session's epoch, in order, up to the first that is torn, or is not the next.

    Attributes:
        place: where the next group stands, behind those so far.
    """

    def __init__(self, descriptor: int, session: bytes, place: Place) -> None:
        self.place = place
        self._session = session
        self._descriptor = descriptor
        self._size_bytes = os.fstat(descriptor).st_size
        self._data, self._data_at = b"", place.at
        """What was read, and from where."""

    @classmethod
    def of_slot(cls, descriptor: int, slot: Slot) -> Groups:
        """Begin with the first of a slot's epoch."""
        return cls(descriptor, slot.session, Place(slot.epoch, slot.lsn, RECORDS_AT, slot.lsn))

    def __iter__(self) -> Groups:
        """Return itself."""
        return self

    def __next__(self) -> Group:
        """Return the next group."""
        epoch, lsn, at, lsn_before = self.place
        group = self._read(at)
        if group is None or group.lsn != lsn + 1:
            raise StopIteration
        self.place = Place(epoch, lsn + len(group.records), at + group.size_bytes, lsn_before)
        return group

    def _read(self, at: int) -> Group | None:
        if not self._has(at, _GROUP.size) or not self._has(at, self._size_at(at)):
            return None
        return _decode_group(self._data, at - self._data_at, self._session, self.place.epoch)

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


def find_end(descriptor: int, epoch: int, lsn: int) -> Place | None:
    """Return where the next group of an epoch goes behind record `lsn`.

    None if `lsn` is not the last of a group, nor the one before the first.
    """
    slot = find_slot(descriptor, epoch)
    if lsn < 0 or slot is None:
        return None
    groups = Groups.of_slot(descriptor, slot)
    while groups.place.lsn < lsn and next(groups, None) is not None:
        pass
    return groups.place if groups.place.lsn == lsn else None


def find_behind(
    descriptor: int, session: bytes, places: tuple[Place, Place | None], lsn: int, number: int
) -> tuple[list[bytes], Place] | None:
    """Return the records of so many groups behind record `lsn`, and where the next goes in the present epoch.

    None if there are not so many.

    Args:
        descriptor: of the journal.
        session: of it.
        places: one in its present epoch, and one in an earlier epoch; behind one of them `lsn` comes last.
        lsn: that one.
        number: of groups. Those of the epoch before the present one are read as far as they are there still.

    """
    now, before = places
    place = now
    if lsn != now.lsn and before is not None and before.epoch + 1 == now.epoch:
        place = before
    if place.lsn != lsn or lsn < 0:
        return None
    records: list[bytes] = []
    groups = Groups(descriptor, session, place)
    for epoch in range(place.epoch, now.epoch + 1):
        if epoch > place.epoch:
            slot = find_slot(descriptor, epoch)
            if slot is None or slot.lsn != groups.place.lsn:  # a group was not committed, or more was done
                return None
            groups = Groups.of_slot(descriptor, slot)
        for group in islice(groups, number):
            records += group.records
            number -= 1
    return None if number else (records, groups.place)


def find_groups(descriptor: int, session: bytes, epoch: int, at: int) -> Iterator[Group]:
    """Yield whatever groups of an epoch stand behind `at`, wherever they begin."""
    data = os.pread(descriptor, max(os.fstat(descriptor).st_size - at, 0), at)
    wanted = epoch.to_bytes(8)
    found = data.find(wanted)
    while found >= 0:
        start = found - _GROUP_EPOCH_AT
        group = _decode_group(data, start, session, epoch) if start >= 0 else None
        if group is not None:
            yield group
        found = data.find(wanted, found + 1)


def find_records(descriptor: int, slot: Slot) -> dict[int, bytes]:
    """Return, by LSN, whatever whole records of a slot's epoch there are behind its snapshot."""
    records: dict[int, bytes] = {}
    for group in find_groups(descriptor, slot.session, slot.epoch, RECORDS_AT):
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
