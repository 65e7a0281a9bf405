"""Kernels for items of the CBOR profile (FORMAT.md 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog._kernels import lib
from statelog.errors import CorruptionError
from statelog.kernels.calls import ABSENT, MALFORMED, NUMBERS, OK, fail, new, reuse, take, unpack_numbers

if TYPE_CHECKING:
    from collections.abc import Callable

_cbor_check: Callable[..., int] = lib.sl_cbor_check
_cbor_children: Callable[..., int] = lib.sl_cbor_children
_cbor_split: Callable[..., int] = lib.sl_cbor_split
_cbor_map_get: Callable[..., int] = lib.sl_cbor_map_get


def cbor_check(data: bytes) -> None:
    """Check that ``data`` is exactly one item of the profile (FORMAT.md 7).

    Raises:
        CorruptionError: the data is not one valid item. The fact ``offset`` is the beginning of the innermost invalid
            item.
    """
    offset = new("size_t *")
    if _cbor_check(data, len(data), offset) != OK:
        at = int(offset[0])
        message = f"invalid CBOR item at byte {at}"
        raise CorruptionError(message, offset=at)


def cbor_split(data: bytes) -> tuple[int, int, list[int]]:
    """Find the children of the list, tuple, dict, set or frozenset in ``data``.

    Returns:
        The kind, or -1 if the item is not a container; the offset of the first child; and the end offset of every
        child. In a dict, keys and values alternate.

    Raises:
        CorruptionError: ``data`` is not one item of the profile.
    """
    scratch = take()
    status = _cbor_children(data, len(data), scratch.kind, scratch.numbers, scratch.count)
    kind, first, count = scratch.kind[0], scratch.numbers[0], scratch.count[0]
    if status == OK:
        ends = scratch.numbers if count <= NUMBERS else new("uint64_t[]", count)
        status = _cbor_split(data, len(data), ends, count)
    if status == ABSENT:
        cbor_check(data)
        return (-1, 0, [])
    if status != OK:
        fail(status, "CBOR container")
    result = (kind, first, unpack_numbers(ends, count))
    reuse(scratch)
    return result


def cbor_map_get(data: bytes, key_item: bytes) -> tuple[int, int] | None:
    """Find the value of a key in an encoded dict, without reading the rest of the dict.

    Args:
        data: one item.
        key_item: the encoded key.

    Returns:
        The start and end of the value, or None if the key is absent or ``data`` is not a dict.
    """
    scratch = take()
    status = _cbor_map_get(data, len(data), key_item, len(key_item), scratch.numbers)
    if status == MALFORMED:
        fail(status, "CBOR map")
    span = None if status == ABSENT else (scratch.numbers[0], scratch.numbers[1])
    reuse(scratch)
    return span
