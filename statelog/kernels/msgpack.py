"""Arrays in msgpack, as serialisers of others emit them, cut into their items and put together again.

An item is never decoded: what stands in it (extension types, text that is no UTF-8) is its reader's business.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from statelog._kernels import lib
from statelog.errors import LimitError
from statelog.kernels.calling import NUMBERS, OK, new, reuse, take, unpack_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_msgpack_array: Callable[..., int] = lib.sl_msgpack_array
_msgpack_split: Callable[..., int] = lib.sl_msgpack_split

_FIXARRAY_COUNT_MAX = 15
_ARRAY16_COUNT_MAX = 0xFFFF
_ARRAY32_COUNT_MAX = 0xFFFFFFFF


def split_array(data: bytes) -> list[bytes] | None:
    """Return the encoded items of the one msgpack array that ``data`` is.

    All of it is checked, to any depth: ``join_array`` of the result is ``data`` again, byte for byte.

    Returns:
        The items, in order; None if ``data`` is no array, is cut off or not well-formed, has bytes behind its end,
        or begins with a head that is not the shortest for its count.
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
    """Return what stands before the items of a msgpack array of so many, at its shortest.

    Raises:
        LimitError: there are 2**32 of them or more.
    """
    if count <= _FIXARRAY_COUNT_MAX:
        return bytes([0x90 | count])
    if count <= _ARRAY16_COUNT_MAX:
        return b"\xdc" + count.to_bytes(2, "big")
    if count <= _ARRAY32_COUNT_MAX:
        return b"\xdd" + count.to_bytes(4, "big")
    message = f"an array of msgpack has fewer than 2**32 items; these are {count}"
    raise LimitError(message)


def join_array(items: Sequence[bytes]) -> bytes:
    """Return the msgpack array of encoded items, with the shortest head: what ``split_array`` takes apart.

    Args:
        items: each one whole msgpack item; that is not checked here.

    Raises:
        LimitError: there are 2**32 of them or more.
    """
    return b"".join((array_head(len(items)), *items))
