"""Version pages with versions taken out. FORMAT.md section 6; the kernels append and read."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from statelog import kernels

if TYPE_CHECKING:
    from collections.abc import Collection

_HEAD = struct.Struct(">II")
_ENTRY_SIZE_BYTES = 16


def without_versions(payload: bytes, versions: Collection[int]) -> bytes:
    """Return a page without some of its versions; empty if none is left."""
    first, last = kernels.page_range(payload)
    left: list[tuple[int, bytes]] = []
    for version in range(first, last + 1):
        at = _HEAD.size + (version - first) * _ENTRY_SIZE_BYTES
        entry = payload[at : at + _ENTRY_SIZE_BYTES]
        if any(entry) and version not in versions:
            left.append((version, entry))
    if not left:
        return b""
    start, stop = left[0][0], left[-1][0] + 1
    entries = dict(left)
    expired = bytes(_ENTRY_SIZE_BYTES)
    return _HEAD.pack(start, stop - start) + b"".join(entries.get(v, expired) for v in range(start, stop))
