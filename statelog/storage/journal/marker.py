"""The mark of a store in use, in the data file itself, behind the first meta page, where LMDB never writes.

It is set before the first commit after an opening is acknowledged, and cleared when all of it is flushed. Who finds it
and no journal knows that something is missing; behind it stands how far the journal had come.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

from xxhash import xxh3_64_digest

from statelog.storage.faults import armed, point
from statelog.storage.file.disk import flush_file, write_all

_AT = 4096 - 64
_MAGIC = b"stlguse1"
_SIZE_BYTES = 32
_REACH = struct.Struct(">QQQ")
_REACH_SIZE_BYTES = 32


class Reach(NamedTuple):
    """What the journal of the marked session had on the disk: it never has less."""

    epoch: int
    size_bytes: int
    lsn: int
    """Up to this record all that is committed was flushed."""


NO_REACH = Reach(0, 0, 0)


def read_marker(descriptor: int) -> bytes | None:
    """Return the session that was not closed, None if there is none; empty if the mark is damaged."""
    stored = os.pread(descriptor, _SIZE_BYTES, _AT)
    if stored == bytes(_SIZE_BYTES) or len(stored) < _SIZE_BYTES:
        return None
    magic, session, checksum = stored[:8], stored[8:24], stored[24:]
    return session if magic == _MAGIC and xxh3_64_digest(magic + session) == checksum else b""


def set_marker(descriptor: int, session: bytes, reach: Reach = NO_REACH) -> None:
    """Mark the file, durably, with what its journal has on the disk. Raises OSError."""
    mark = _MAGIC + session + xxh3_64_digest(_MAGIC + session)
    write_all(descriptor, mark + _encode_reach(session, reach), _AT)
    if armed:
        point("steady.before_mark_flush")
    flush_file(descriptor)


def clear_marker(descriptor: int) -> None:
    """Take the mark out, and the reach; whoever calls flushes. Raises OSError."""
    write_all(descriptor, bytes(_SIZE_BYTES + _REACH_SIZE_BYTES), _AT)


def write_reach(descriptor: int, session: bytes, reach: Reach) -> None:
    """Note what the journal has on the disk; the next flush of the data file takes it along. Raises OSError."""
    write_all(descriptor, _encode_reach(session, reach), _AT + _SIZE_BYTES)


def read_reach(descriptor: int, session: bytes) -> Reach:
    """Return what a session's journal had on the disk at least: nothing, if none was noted."""
    stored = os.pread(descriptor, _REACH_SIZE_BYTES, _AT + _SIZE_BYTES)
    data, checksum = stored[: _REACH.size], stored[_REACH.size :]
    return Reach(*_REACH.unpack(data)) if xxh3_64_digest(session + data) == checksum else NO_REACH


def _encode_reach(session: bytes, reach: Reach) -> bytes:
    data = _REACH.pack(*reach)
    return data + xxh3_64_digest(session + data)
