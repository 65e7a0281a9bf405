"""Removes a version from a version page.

FORMAT.md, section 6, has the layout of a page. The C kernels append to pages and read pages.
"""

from __future__ import annotations

import struct

_HEAD = struct.Struct(">II")
_ENTRY_SIZE_BYTES = 16
_EXPIRED = bytes(_ENTRY_SIZE_BYTES)


def without_version(payload: bytes, version: int, lsn: int) -> bytes:
    """Return `payload` with the entry of `version` removed.

    If the page has no such entry, or the entry's LSN differs from `lsn`, return the page unchanged.

    Args:
        payload: the page, or empty bytes if there is no page.
        version: the version.
        lsn: the LSN of the version's record.

    Returns:
        The new page, or empty bytes if no version is left.
    """
    if not payload:
        return b""
    first, count = _HEAD.unpack_from(payload)
    entries = [payload[at : at + _ENTRY_SIZE_BYTES] for at in range(_HEAD.size, len(payload), _ENTRY_SIZE_BYTES)]
    if not first <= version < first + count or int.from_bytes(entries[version - first][:8]) != lsn:
        return payload
    entries[version - first] = _EXPIRED
    there = [number for number, entry in enumerate(entries) if entry != _EXPIRED]
    if not there:
        return b""
    start, stop = there[0], there[-1] + 1
    return _HEAD.pack(first + start, stop - start) + b"".join(entries[start:stop])
