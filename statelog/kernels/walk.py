"""The kernel that finds an item of a list through the nodes of whole records."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from statelog._kernels import lib
from statelog.kernels.calls import from_buffer, reuse, take, unpack_numbers

if TYPE_CHECKING:
    from collections.abc import Callable

_RECORDS_MAX: Final = 70
"""The maximum number of records on the way to an item. A list has at most 64 levels, and roots and item may be in other
records.
"""

_pack_walk = Struct("=7Q20s4x").pack

_item_find: Callable[..., int] = lib.sl_item_find


def item_find(
    lend: Callable[[int], memoryview | None],
    digest: bytes,
    lsn: int,
    number: int,
    *,
    key: bytes,
    position: int,
    mark: bytes,
) -> tuple[bytes, bool] | None:
    """Find the item at `position` in the list that a dict stores under `key`.

    Args:
        lend: a function that returns a view of the record with an LSN, or None. The view must not be released during
            the call.
        digest: digest of the dict's root.
        lsn: LSN of the record of the dict's root.
        number: the node number of the dict's root.
        key: the encoded key.
        position: the position, from 0.
        mark: a second encoded key, whose presence is reported.

    Returns:
        The item, and True if the dict has the key `mark`. None if there is no such item, if a record or node is missing
        or damaged, or if a value on the path is small or very large. The caller then reads node by node, which reports
        damage.
    """
    scratch = take()
    walk = scratch.walk
    scratch.walk_bytes[:] = _pack_walk(0, 0, 0, 0, 0, number, position, digest)
    found = None
    for _ in range(_RECORDS_MAX):
        record = lend(lsn)
        if record is None or _item_find(from_buffer(record), len(record), lsn, key, len(key), mark, len(mark), walk):
            break
        item_at, item_size, lsn, is_marked = unpack_numbers(scratch.numbers, 4)
        if item_size:
            found = bytes(record[item_at : item_at + item_size]), is_marked == 1
            break
    reuse(scratch)
    return found
