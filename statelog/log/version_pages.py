"""Version pages with a version taken out. FORMAT.md section 6 draws a page; kernels append to pages and read them."""

from __future__ import annotations

import struct

_HEAD = struct.Struct(">II")
_ENTRY_SIZE_BYTES = 16
_EXPIRED = bytes(_ENTRY_SIZE_BYTES)


def without_version(payload: bytes, version: int, lsn: int) -> bytes:
    """Return a page without a version, or the same page if its entry of that version has another LSN.

    Args:
        payload: the page; empty if there is none.
        version: the version.
        lsn: of the version's record.

    Returns:
        The page, empty if no version is left.

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
