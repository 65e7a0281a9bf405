"""Kernels that find a position, a key or a fingerprint in a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog._kernels import lib
from statelog.kernels.calls import ABSENT, OK, fail, from_buffer, reuse, take, unpack_numbers

if TYPE_CHECKING:
    from collections.abc import Callable

_find_position: Callable[..., int] = lib.sl_find_position
_fingerprint_find: Callable[..., int] = lib.sl_fingerprint_find
_find_key: Callable[..., int] = lib.sl_find_key
_prints_find: Callable[..., int] = lib.sl_prints_find


def find_position(
    data: bytes, content_size: int, home_lsn: int, *, is_root: bool, kind: int, position: int
) -> tuple[int, int, int, int, int, int, int]:
    """Find the entry of a chunk or tail that covers the level-0 position ``position``, relative to this node.

    Returns:
        (index, offset_inside, slot_at, end, lsn, node, covered). For the tail of a str or bytes
        root, index is 0 and [slot_at, end) is the whole tail.

    Raises:
        CorruptionError: the node is damaged, or the position is outside the node.
    """
    scratch = take()
    status = _find_position(data, len(data), content_size, home_lsn, is_root, kind, position, scratch.position_hit)
    if status != OK:
        fail(status, "node")
    index, offset_inside, slot_at, end, lsn, node, covered = unpack_numbers(scratch.numbers, 7)
    reuse(scratch)
    return index, offset_inside, slot_at, end, lsn, node, covered


def find_key(
    data: bytes, content_size: int, home_lsn: int, *, is_root: bool, kind: int, key_item: bytes
) -> tuple[int, bool, int, int, int, int, int]:
    """Find a key of a dict, or an element of a set.

    Returns:
        (index, found, slot_at, end, lsn, node, covered_before). At level 0, index is the position of the key; if it
        is not found, its entry would get this position, and would begin at slot_at (= end). At level >= 1, index is the
        first entry whose last key is not below the key, and slot_at is the offset of its digest. If there is no such
        entry, found is False and index is the number of entries. covered_before is the number of level-0 entries before
        index.
    """
    scratch = take()
    status = _find_key(data, len(data), content_size, home_lsn, is_root, kind, key_item, len(key_item), scratch.key_hit)
    if status != OK:
        fail(status, "node")
    index, found, slot_at, end, lsn, node, covered_before = unpack_numbers(scratch.numbers, 7)
    reuse(scratch)
    return index, found == 1, slot_at, end, lsn, node, covered_before


def fingerprint_find(data: bytes, content_size: int, *, is_root: bool, fingerprint: int, start: int) -> int:
    """Find a fingerprint in the root's tail, or in a chunk of level 0 or 1, of a keyed list.

    Returns:
        The smallest level-0 position >= start with the fingerprint, relative to this node, or -1.
    """
    scratch = take()
    status = _fingerprint_find(data, len(data), content_size, is_root, fingerprint, start, scratch.count)
    if status not in (OK, ABSENT):
        fail(status, "node of a keyed list")
    position: int = scratch.count[0] if status == OK else -1
    reuse(scratch)
    return position


def prints_find(prints: bytes | bytearray, fingerprint: int, start: int) -> int:
    """Return the first index >= ``start`` of a fingerprint in an array of 16-bit fingerprints, or -1."""
    return _prints_find(from_buffer(prints), len(prints), fingerprint, start)
