"""Where in a node something lies: a position, a key, a fingerprint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog._kernels import lib
from statelog.kernels.calling import ABSENT, OK, fail, from_buffer, reuse, take, unpack_numbers

if TYPE_CHECKING:
    from collections.abc import Callable

_find_position: Callable[..., int] = lib.sl_find_position
_fingerprint_find: Callable[..., int] = lib.sl_fingerprint_find
_find_key: Callable[..., int] = lib.sl_find_key
_prints_find: Callable[..., int] = lib.sl_prints_find


def find_position(
    data: bytes, content_size: int, home_lsn: int, *, is_root: bool, kind: int, position: int
) -> tuple[int, int, int, int, int, int, int]:
    """Find the entry of this chunk or tail that covers level-0 position ``position`` (relative to this node).

    Returns:
        (index, offset_inside, slot_at, end, lsn, node, covered); for the tail of a str or bytes root index is 0 and
        [slot_at, end) the whole tail.

    Raises:
        CorruptionError: also where the position lies outside.
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
        (index, found, slot_at, end, lsn, node, covered_before). Level 0: index where the key is or belongs
        (not found: slot_at and end are where its entry would begin). Level >= 1: the first entry whose last
        key is not below it, with slot_at of its digest; found is False, and index the number of entries, if
        there is none. covered_before: level-0 entries in the entries before index.
    """
    scratch = take()
    status = _find_key(data, len(data), content_size, home_lsn, is_root, kind, key_item, len(key_item), scratch.key_hit)
    if status != OK:
        fail(status, "node")
    index, found, slot_at, end, lsn, node, covered_before = unpack_numbers(scratch.numbers, 7)
    reuse(scratch)
    return index, found == 1, slot_at, end, lsn, node, covered_before


def fingerprint_find(data: bytes, content_size: int, *, is_root: bool, fingerprint: int, start: int) -> int:
    """Find a fingerprint in a keyed list's root tail or chunk of level 0 or 1.

    Returns:
        The smallest level-0 position >= start, relative to this node, that has it, or -1.
    """
    scratch = take()
    status = _fingerprint_find(data, len(data), content_size, is_root, fingerprint, start, scratch.count)
    if status not in (OK, ABSENT):
        fail(status, "node of a keyed list")
    position: int = scratch.count[0] if status == OK else -1
    reuse(scratch)
    return position


def prints_find(prints: bytes | bytearray, fingerprint: int, start: int) -> int:
    """Return the first index from ``start`` on of a 16-bit fingerprint in an array of them, or -1."""
    return _prints_find(from_buffer(prints), len(prints), fingerprint, start)
