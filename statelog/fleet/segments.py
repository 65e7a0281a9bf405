"""Segments: compressed exports that continue each other. FLEET.md draws their bytes."""

from __future__ import annotations

import io
import struct
from hmac import compare_digest
from typing import TYPE_CHECKING, NamedTuple

import zstandard
from xxhash import xxh64_intdigest

from statelog.errors import CorruptionError, ForgeryError, KeyMissingError, StatelogError
from statelog.fleet.head import Cut
from statelog.format import cbor
from statelog.format.mac import SEGMENT_MAC_SIZE_BYTES
from statelog.format.record import decode_record
from statelog.portable.bodies import read_event
from statelog.portable.frames import RECORD, FrameReader
from statelog.portable.log_export import export_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from statelog import Store
    from statelog.format.mac import StoreKey
    from statelog.format.record import Redacted
    from statelog.log.events import Event

_MAGIC = b"stlgseg1"
_MAGIC_KEYED = b"stlgsegk"
"""The beginning of a shipped segment of a store that has a key. The MAC and the segment follow."""

_SIZE = struct.Struct(">I")
_LEVEL = 3
"""Compression level of zstd: a record of 2 KB of prose takes 25 us."""

EXPANDED_SIZE_BYTES_MAX = 1 << 31
"""The maximum size of an expanded segment or list of pieces."""

_WINDOW_SIZE_BYTES_MAX = 8 * 1024 * 1024
"""The maximum window that zstd may allocate to expand. It is four times the window of `_LEVEL`."""

_CHUNK_SIZE_BYTES = 1024 * 1024


class SegmentHeader(NamedTuple):
    """The description of a segment, which precedes its export.

    Attributes:
        since: the LSN before its first record.
        last: its last LSN.
        chain: chain digest of the last record.
        first_us: time of its first record, in microseconds since 1970.
        last_us: greatest time of its records.
    """

    since: int
    last: int
    chain: bytes
    first_us: int
    last_us: int


def make(store: Store, since: int) -> tuple[SegmentHeader, bytes] | None:
    """Return a segment of all records after an LSN, or None if there are none."""
    if store.last_lsn == since:
        return None
    target = io.BytesIO()
    store.export(target, since=since)
    data = target.getvalue()
    about = _about_export(data)
    return about, _packed(about, data)


def made_of(records: Sequence[bytes], store_id: bytes, behind: Cut) -> tuple[SegmentHeader, bytes]:
    """Return a segment of records that follow a position in the log."""
    target = io.BytesIO()
    chain = export_records(target, store_id=store_id, since=behind.lsn, chain=behind.chain, records=records)
    times = [decode_record(data, lsn).time_us for lsn, data in enumerate(records, behind.lsn + 1)]
    about = SegmentHeader(behind.lsn, behind.lsn + len(records), chain, times[0], max(times))
    return about, _packed(about, target.getvalue())


def _about_export(data: bytes) -> SegmentHeader:
    reader = FrameReader(io.BytesIO(data))
    times = [decode_record(payload, lsn).time_us for lsn, payload in _records(reader)]
    return SegmentHeader(reader.header.since, reader.trailer["last"], reader.trailer["chain"], times[0], max(times))


def _packed(about: SegmentHeader, data: bytes) -> bytes:
    header = cbor.encode(list(about))
    compressed = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(data)
    return _MAGIC + _SIZE.pack(len(header)) + header + compressed


def _records(reader: FrameReader) -> Iterator[tuple[int, bytes]]:
    lsn = reader.header.since
    while (frame := reader.read()) is not None:
        if frame.kind == RECORD:
            lsn += 1
            yield lsn, frame.payload


def seal_segment(segment: bytes, key: StoreKey | None) -> bytes:
    """Return a segment in its shipped form: with the MAC before it if the store has a key."""
    return segment if key is None else _MAGIC_KEYED + key.segment_mac(segment) + segment


def open_segment(name: str, data: bytes, key: StoreKey | None) -> bytes:
    """Return the segment in a shipped object. The inverse of `seal_segment`.

    Raises:
        KeyMissingError: the object has a MAC, and there is no key. Facts: object.
        ForgeryError: the MAC is missing or does not match, because the object is damaged or forged, or was shipped with
            another key. Facts: object.
    """
    is_keyed = data.startswith(_MAGIC_KEYED)
    if key is None:
        if is_keyed:
            message = f"{name} belongs to a store that has a key: connect to the fleet with key="
            raise KeyMissingError(message, object=name)
        return data
    start = len(_MAGIC_KEYED) + SEGMENT_MAC_SIZE_BYTES
    segment = data[start:]
    if not is_keyed or not compare_digest(data[len(_MAGIC_KEYED) : start], key.segment_mac(segment)):
        message = f"{name} is damaged or forged, or was shipped with another key: its MAC does not match"
        raise ForgeryError(message, object=name)
    return segment


def about(name: str, data: bytes) -> SegmentHeader:
    """Return the description in a segment's header. Only `expand` checks that the description is correct.

    Raises:
        CorruptionError: the data is not a segment. Facts: object.
    """
    try:
        size = _SIZE.unpack_from(data, len(_MAGIC))[0]
        fields = cbor.decode(data[len(_MAGIC) + _SIZE.size :][:size])
        found = SegmentHeader(*fields)
        is_sound = data.startswith(_MAGIC) and 0 <= found.since < found.last and type(found.chain) is bytes
    except (CorruptionError, struct.error, TypeError, ValueError):
        is_sound = False
    if not is_sound:
        raise _damaged(name)
    return found


def expand(name: str, data: bytes) -> bytes:
    """Return the export in a segment. Raises CorruptionError if the segment is damaged. Facts: object."""
    told = about(name, data)
    size = _SIZE.unpack_from(data, len(_MAGIC))[0]
    export = inflate(name, data[len(_MAGIC) + _SIZE.size + size :])
    try:
        is_so = told == _about_export(export)
    except (StatelogError, IndexError) as error:
        raise _damaged(name) from error
    if not is_so:
        raise _damaged(name)
    return export


def inflate(name: str, compressed: bytes, *, size_bytes_max: int = EXPANDED_SIZE_BYTES_MAX) -> bytes:
    """Expand compressed data. The memory use depends on the actual size, whatever size the frame's header claims.

    Raises:
        CorruptionError: the data is damaged, or its size exceeds the maximum. Facts: object.
    """
    found = io.BytesIO()
    try:
        frame = zstandard.get_frame_parameters(compressed)
        # This also refuses an unknown size, which zstd reports as a huge number.
        if not frame.has_checksum or frame.content_size > size_bytes_max:
            raise _damaged(name)
        expanding = zstandard.ZstdDecompressor(max_window_size=_WINDOW_SIZE_BYTES_MAX).stream_reader(compressed)
        while chunk := expanding.read(_CHUNK_SIZE_BYTES):
            found.write(chunk)
            if found.tell() > frame.content_size:
                raise _damaged(name)
    except (zstandard.ZstdError, MemoryError) as error:
        raise _damaged(name) from error
    data = found.getvalue()
    checksum = xxh64_intdigest(data) & 0xFFFFFFFF  # Check it: zstd accepts a truncated checksum.
    if len(data) != frame.content_size or compressed[-4:] != checksum.to_bytes(4, "little"):
        raise _damaged(name)
    return data


def cut_of(data: bytes) -> Cut:
    """Return the position in the log at the end of a segment. Raises CorruptionError if the segment is damaged."""
    expand("a segment", data)
    found = about("a segment", data)
    return Cut(found.last, found.chain)


def last_lsn_at(name: str, data: bytes, time_us: int) -> int:
    """Return the last LSN before the first record of the segment that is later than `time_us`; at least `since`."""
    reader = FrameReader(io.BytesIO(expand(name, data)))
    last = reader.header.since
    for lsn, payload in _records(reader):
        if decode_record(payload, lsn).time_us > time_us:
            break
        last = lsn
    return last


def events_behind(name: str, data: bytes, lsn: int) -> Iterator[Event | Redacted]:
    """Yield the events of the records after `lsn` in a segment."""
    records = _records(FrameReader(io.BytesIO(expand(name, data))))
    return (read_event(decode_record(payload, at)) for at, payload in records if at > lsn)


def _damaged(name: str) -> CorruptionError:
    return CorruptionError(f"{name} is damaged, or is not a segment of a log", object=name)


class Tail:
    """Reads consecutive segments one after the other, as the source of an import."""

    def __init__(self, names: list[str], read_all: Callable[[list[str]], list[bytes]]) -> None:
        self._names = names
        self._read_all = read_all
        self._data = io.BytesIO()

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, and no bytes at the end.

        Raises CorruptionError if a segment is missing or damaged.
        """
        while not (piece := self._data.read(size)) and self._names:
            some, self._names = self._names[:_SIDE_BY_SIDE], self._names[_SIDE_BY_SIDE:]
            found = zip(some, self._read_all(some), strict=True)
            self._data = io.BytesIO(b"".join(expand(name, data) for name, data in found))
        return piece


_SIDE_BY_SIDE = 32
