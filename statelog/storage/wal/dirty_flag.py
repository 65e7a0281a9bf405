"""The dirty flag, which marks a store that is in use or was not closed. FORMAT.md section 8.

The flag is in the data file, after the first meta page, where LMDB never writes. A process sets it before it
acknowledges its first commit, and clears it after everything is flushed. If the flag is set and the WAL is missing,
commits are missing. After the flag, the data file records how much of the WAL was flushed.
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
_EXTENT = struct.Struct(">QQQ")
_EXTENT_SIZE_BYTES = 32


class FlushedExtent(NamedTuple):
    """The part of a session's WAL that is certainly on the disk. A shorter WAL is damaged.

    Attributes:
        epoch: the epoch of the newest flushed slot.
        size_bytes: the size of the WAL file.
        lsn: the LSN up to which all commits were flushed.
    """

    epoch: int
    size_bytes: int
    lsn: int


NO_EXTENT = FlushedExtent(0, 0, 0)


def read_dirty_flag(descriptor: int) -> bytes | None:
    """Return the session that the flag names, None if the flag is not set, or empty bytes if it is damaged."""
    stored = os.pread(descriptor, _SIZE_BYTES, _AT)
    if stored == bytes(_SIZE_BYTES) or len(stored) < _SIZE_BYTES:
        return None
    magic, session, checksum = stored[:8], stored[8:24], stored[24:]
    return session if magic == _MAGIC and xxh3_64_digest(magic + session) == checksum else b""


def set_dirty_flag(descriptor: int, session: bytes, extent: FlushedExtent = NO_EXTENT) -> None:
    """Set the flag and the extent, and flush the data file. Raises OSError."""
    flag = _MAGIC + session + xxh3_64_digest(_MAGIC + session)
    write_all(descriptor, flag + _encode_extent(session, extent), _AT)
    if armed:
        point("checkpoint.before_flag_flush")
    flush_file(descriptor)


def clear_dirty_flag(descriptor: int) -> None:
    """Clear the flag and the extent without a flush. Raises OSError."""
    write_all(descriptor, bytes(_SIZE_BYTES + _EXTENT_SIZE_BYTES), _AT)


def write_extent(descriptor: int, session: bytes, extent: FlushedExtent) -> None:
    """Write the extent. The next flush of the data file makes it durable. Raises OSError."""
    write_all(descriptor, _encode_extent(session, extent), _AT + _SIZE_BYTES)


def read_extent(descriptor: int, session: bytes) -> FlushedExtent:
    """Return the extent of a session's WAL, or `NO_EXTENT` if the data file has none for this session."""
    stored = os.pread(descriptor, _EXTENT_SIZE_BYTES, _AT + _SIZE_BYTES)
    data, checksum = stored[: _EXTENT.size], stored[_EXTENT.size :]
    return FlushedExtent(*_EXTENT.unpack(data)) if xxh3_64_digest(session + data) == checksum else NO_EXTENT


def _encode_extent(session: bytes, extent: FlushedExtent) -> bytes:
    data = _EXTENT.pack(*extent)
    return data + xxh3_64_digest(session + data)
