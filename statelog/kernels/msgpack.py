"""Kernels that split msgpack arrays of other serialisers into their items, and join them again.

The kernels never decode an item. The code that decodes it must check extension types, and text that is not UTF-8.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from statelog._kernels import lib
from statelog.errors import LimitError
from statelog.kernels.calls import NUMBERS, OK, new, reuse, take, unpack_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_msgpack_array: Callable[..., int] = lib.sl_msgpack_array
_msgpack_split: Callable[..., int] = lib.sl_msgpack_split

_FIXARRAY_COUNT_MAX = 15
_ARRAY16_COUNT_MAX = 0xFFFF
_ARRAY32_COUNT_MAX = 0xFFFFFFFF


def split_array(data: bytes) -> list[bytes] | None:
    """Return the encoded items of the msgpack array in ``data``.

    The whole array is checked, to any depth. ``join_array`` of the result equals ``data`` byte for
    byte.

    Returns:
        The items, in order. None if ``data`` is not an array, is truncated or malformed, has extra bytes at the end, or
        has a head that is not the shortest for its count.
    """
    scratch = take()
    status = _msgpack_array(data, len(data), scratch.numbers, scratch.count)
    if status == OK:
        first, count = scratch.numbers[0], scratch.count[0]
        ends = scratch.numbers if count <= NUMBERS else new("uint64_t[]", count)
        status = _msgpack_split(data, len(data), ends, count)
    bounds = [first, *unpack_numbers(ends, count)] if status == OK else None
    reuse(scratch)
    if bounds is None:
        return None
    return [data[start:end] for start, end in itertools.pairwise(bounds)]


def array_head(count: int) -> bytes:
    """Return the shortest head of a msgpack array with ``count`` items.

    Raises:
        LimitError: the count is 2**32 or more.
    """
    if count <= _FIXARRAY_COUNT_MAX:
        return bytes([0x90 | count])
    if count <= _ARRAY16_COUNT_MAX:
        return b"\xdc" + count.to_bytes(2, "big")
    if count <= _ARRAY32_COUNT_MAX:
        return b"\xdd" + count.to_bytes(4, "big")
    message = f"a msgpack array has fewer than 2**32 items, not {count}"
    raise LimitError(message)


def join_array(items: Sequence[bytes]) -> bytes:
    """Return the msgpack array of encoded items, with the shortest head. This is the inverse of ``split_array``.

    Args:
        items: whole msgpack items, which are not checked.

    Raises:
        LimitError: there are 2**32 items or more.
    """
    return b"".join((array_head(len(items)), *items))
