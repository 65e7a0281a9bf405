"""The keys and payloads of the board's rows in the index table. FORMAT.md section 6."""

from __future__ import annotations

import struct
from typing import NamedTuple

TAG_SIZE_BYTES = 8
NO_TAG = bytes(TAG_SIZE_BYTES)

_U64 = struct.Struct(">Q")
_EXPIRY = struct.Struct(">cQQQ")
_DEADLINE = struct.Struct(">cQ8sQQ")
_ROW = struct.Struct(">QQQB")
_CLAIMED_ROW = struct.Struct(">QQQB8sQ")
_ORDER = struct.Struct(">BQ")
_SKIPPED = 1 + _U64.size


class EntryRow(NamedTuple):
    """The index row of an entry or of a lease."""

    lsn: int
    """The LSN of the last record of the entry or lease."""
    expires_us: int = 0
    """The time of expiry, or 0 for never."""
    order_us: int = 0
    """The time from which the entry may be claimed, or else the time of its creation."""
    rank: int = 0
    """The rank of the entry's priority. The entry with the lowest rank is claimed first."""
    tag: bytes = NO_TAG
    """The tag of the deadline's clock, or zeros if nobody has claimed the entry."""
    deadline_us: int = 0
    """The end of the claim, by the clock that `tag` identifies."""


def encode_row(row: EntryRow) -> bytes:
    """Return the payload of a row."""
    return _ROW.pack(*row[:4]) if row.tag == NO_TAG else _CLAIMED_ROW.pack(*row)


def decode_row(payload: bytes) -> EntryRow:
    """Return the row in a payload: the inverse of `encode_row`."""
    return EntryRow(*(_ROW if len(payload) == _ROW.size else _CLAIMED_ROW).unpack(payload))


def encode_entry_key(board: int, key: str) -> bytes:
    """Return the key of the row of an existing entry."""
    return b"k" + _U64.pack(board) + key.encode()


def encode_gone_key(board: int, key: str) -> bytes:
    """Return the key of the row of an entry that no longer exists, or of a lease."""
    return b"K" + _U64.pack(board) + key.encode()


def decode_key(place: bytes) -> str:
    """Return the entry's key that an index key of type `k` or `K` contains."""
    return place[_SKIPPED:].decode()


def encode_expiry_key(board: int, expires_us: int, lsn: int) -> bytes:
    """Return the index key of an entry's expiry. `lsn` is the entry's last record. The payload is the entry's key."""
    return _EXPIRY.pack(b"E", board, expires_us, lsn)


def decode_expiry_us(place: bytes) -> int:
    """Return the time of expiry in an index key of type `E`."""
    return int(_EXPIRY.unpack(place)[2])


def encode_deadline_key(board: int, tag: bytes, deadline_us: int, lsn: int) -> bytes:
    """Return the index key of a claim's deadline. `lsn` is the entry's last record. The payload is the entry's key."""
    return _DEADLINE.pack(b"Q", board, tag, deadline_us, lsn)


def decode_deadline(place: bytes) -> tuple[bytes, int]:
    """Return the clock and the deadline in an index key of type `Q`."""
    _prefix, _board, tag, deadline_us, _lsn = _DEADLINE.unpack(place)
    return tag, deadline_us


def encode_directory(board: int, directory: str) -> bytes:
    """Return the prefix of the `q` keys of all entries directly below a directory.

    It ends with NUL, which no entry's key contains.
    """
    return b"q" + _U64.pack(board) + directory.encode() + b"\0"


def encode_queue_key(board: int, key: str, rank: int, order_us: int) -> bytes:
    """Return the `q` key of an entry that may be claimed: directory, rank, time, and last segment."""
    directory, _slash, name = key.rpartition("/")
    return encode_directory(board, directory) + _ORDER.pack(rank, order_us) + name.encode()


class Queued(NamedTuple):
    """The parts of a `q` key."""

    directory: str
    rank: int
    order_us: int
    key: str


def decode_queue_key(place: bytes) -> Queued:
    """Return the parts of a `q` key: the inverse of `encode_queue_key`."""
    end = place.index(b"\0", _SKIPPED)
    directory, at = place[_SKIPPED:end].decode(), end + 1
    rank, order_us = _ORDER.unpack_from(place, at)
    name = place[at + _ORDER.size :].decode()
    return Queued(directory, rank, order_us, f"{directory}/{name}" if directory else name)


def encode_rank(board: int, directory: str, rank: int) -> bytes:
    """Return the first possible `q` key of a rank in a directory."""
    return encode_directory(board, directory) + bytes((rank,))
