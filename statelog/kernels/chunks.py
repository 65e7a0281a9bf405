"""Kernels that find the ends of chunks and pieces by their content (FORMAT.md 4.4 and 4.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog._kernels import ffi, lib
from statelog.kernels.calls import OK, fail, new, unpack_numbers

if TYPE_CHECKING:
    from collections.abc import Callable

_content_hash: Callable[..., int] = lib.sl_content_hash
_boundaries: Callable[..., int] = lib.sl_boundaries
_blob_cuts: Callable[..., int] = lib.sl_blob_cuts


def content_hash(data: bytes) -> int:
    """Return the 64-bit hash ``h(data)`` of FORMAT.md 4.5."""
    return _content_hash(data, len(data))


def boundaries(kind: int, level: int, entries: bytes, locators: bytes, count: int) -> list[int]:
    """Cut entries into chunks (FORMAT.md 4.5). The first entry begins a chunk.

    Returns:
        A flat list of three numbers for each closed chunk: the end of its entries as a count, as an
        offset in bytes, and as an offset in the locators.
    """
    # A closed chunk has at least 8 entries or 8192 bytes.
    capacity = min(count, len(entries)) // 8 + len(entries) // 8192 + 1
    closes = new("sl_boundary[]", capacity)
    found = new("uint64_t *")
    status = _boundaries(kind, level, entries, len(entries), locators, len(locators), count, closes, capacity, found)
    if status != OK:
        fail(status, "run of entries")
    return unpack_numbers(ffi.cast("uint64_t *", closes), 3 * found[0]) if found[0] else []


def blob_cuts(data: bytes) -> list[int]:
    """Return the ends of the closed pieces of a long string (FORMAT.md 4.4). The bytes after them are its open tail."""
    capacity = len(data) // 2048 + 1
    ends = new("uint64_t[]", capacity)
    found = new("uint64_t *")
    status = _blob_cuts(data, len(data), ends, capacity, found)
    if status != OK:
        fail(status, "string")
    return unpack_numbers(ends, found[0]) if found[0] else []
