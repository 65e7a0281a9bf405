"""Kernels that read pages of LMDB's file directly, without calling LMDB.

Four functions read memory outside their arguments: `page_in_use`, `find_page`, `rows_read` and
`check_leaf_at`. They receive a view of LMDB's memory ("lent"), or the address of LMDB's map, and
read the pages there. The caller must keep the map open during the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from statelog._kernels import ffi, lib
from statelog.kernels.calls import NUMBERS, OK, fail, from_buffer, new, reuse, take, unpack_bytes, unpack_numbers

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE_BRANCH: Final = 1
PAGE_LEAF: Final = 2
NODE_LONG: Final = 1
NODE_TABLE: Final = 2

_FAULTS: Final = (
    "",
    "its type is not that of a tree page",
    "its bounds do not match its nodes",
    "a node extends outside the page",
    "a node has invalid flags",
    "a key is out of order",
    "it has a different page number",
)
_NODE_SIZE_MIN: Final = 10
"""The minimum size of a node and its pointer, which limits the number of nodes on a page."""

_lmdb_page: Callable[..., int] = lib.sl_lmdb_page
_leaf_at: Callable[..., int] = lib.sl_lmdb_leaf_at
_page_in_use: Callable[..., int] = lib.sl_lmdb_page_in_use
_rows_read: Callable[..., int] = lib.sl_lmdb_rows_read

ROWS_MAX: Final = (NUMBERS - 2) // 2
"""The maximum number of rows that one call of `rows_read` returns."""

NO_MAC_KEY: Final = ffi.NULL
"""The value of `mac_key` in `rows_read` for an index without MACs."""

lend_bytes: Callable[[memoryview], Any] = from_buffer
"""A function that converts a memoryview to the argument `at` of `find_page`, and keeps it from being released."""

find_page: Callable[[Any, int, int, int, bool, Any], int] = _page_in_use
"""The C function behind `page_in_use`. Every look-up calls it directly, because a Python frame would cost time."""


class PageNode(NamedTuple):
    """A node of a page. Offsets are relative to the page. `value` is the child page, or the size of the value."""

    key_at: int
    key_size: int
    flags: int
    value: int
    data_at: int


class PageFacts(NamedTuple):
    """The facts about a page: the number in its header, its kind, node count, fault (empty if none), and nodes."""

    number: int
    kind: int
    node_count: int
    fault: str
    nodes: list[PageNode]


class PageReader:
    """Reads pages of a mapped file.

    Args:
        file: the whole file, mapped or in memory. Call `close` before releasing it.
        page_size_bytes: the page size in the meta pages.
    """

    __slots__ = ("_capacity", "_facts", "_file", "_nodes", "_numbers", "_page_size")

    def __init__(self, file: memoryview, page_size_bytes: int) -> None:
        self._file: Any = from_buffer("uint8_t[]", file)
        self._page_size = page_size_bytes
        self._capacity = page_size_bytes // _NODE_SIZE_MIN
        self._nodes = new("sl_lmdb_node[]", self._capacity)
        self._numbers = ffi.cast("uint64_t *", self._nodes)
        self._facts = new("sl_lmdb_page_facts *")

    def close(self) -> None:
        """Release the file."""
        ffi.release(self._file)

    def read(
        self,
        number: int,
        *,
        low: bytes | None = None,
        high: bytes | None = None,
        has_integer_keys: bool = False,
        lists_all: bool = False,
    ) -> PageFacts:
        """Read and check a page. The page must be inside the file.

        Args:
            number: the number of the page.
            low: the lower bound of the keys, inclusive; None for no bound.
            high: the upper bound of the keys, exclusive; None for no bound.
            has_integer_keys: True if keys are 64-bit integers in native byte order (the free list).
            lists_all: True to return all nodes. Otherwise a leaf page returns only its nodes with flags.
        """
        facts = self._facts
        status = _lmdb_page(
            self._file + number * self._page_size,
            self._page_size,
            has_integer_keys,
            ffi.NULL if low is None else low,
            0 if low is None else len(low),
            ffi.NULL if high is None else high,
            0 if high is None else len(high),
            lists_all,
            self._nodes,
            self._capacity,
            facts,
        )
        if status != OK:
            fail(status, "page")
        fault, listed = facts.fault, facts.listed
        nodes: list[PageNode] = []
        if listed and not fault:
            numbers = iter(unpack_numbers(self._numbers, 5 * listed))
            nodes = list(map(PageNode._make, zip(*[numbers] * 5, strict=True)))
        return PageFacts(facts.number, facts.kind, facts.count, _FAULTS[fault], nodes)


def address_of(lent: memoryview) -> int:
    """Return the address of a key or value that LMDB has lent."""
    return int(ffi.cast("uintptr_t", from_buffer("uint8_t[]", lent)))


PAGE_OWN: Final = -1
PAGE_FREE: Final = -2


def new_seen() -> Any:
    """Return an empty cache for pages that were found in use. Each open file needs its own cache."""
    return new("sl_lmdb_seen *")


def page_in_use(
    lent: memoryview, page_size_bytes: int, map_address: int, transaction_id: int, seen: Any, *, may_be_own: bool
) -> int:
    """Return the number of the page that contains a key or an inline value.

    Args:
        lent: the key or value that LMDB has lent.
        page_size_bytes: the size of a page.
        map_address: the address of LMDB's map. With 0, no page is reported as free.
        transaction_id: the transaction id of the commit that the caller reads, or after which it writes. A page is
            reported as free only if this is the last commit and its free list has up to 4,096 entries. The list has
            about one entry per transaction.
        seen: a cache from `new_seen`.
        may_be_own: True if the page may belong to a write transaction that has created it outside the map.

    Returns:
        The number of the page; `PAGE_OWN` if the page may belong to a write transaction; `PAGE_FREE` if it is free.
    """
    return _page_in_use(from_buffer("uint8_t[]", lent), page_size_bytes, map_address, transaction_id, may_be_own, seen)


def check_leaf_at(lent: memoryview, page_size_bytes: int, number: int) -> str:
    """Return the fault of the leaf page of LMDB's map that contains a key, or an empty string if the page is sound.

    Args:
        lent: the key that LMDB has lent.
        page_size_bytes: the size of a page.
        number: the number that the header of the page should have.
    """
    return _FAULTS[_leaf_at(from_buffer("uint8_t[]", lent), page_size_bytes, number)]


def rows_read(
    lent: memoryview,
    page_size_bytes: int,
    map_address: int,
    transaction_id: int,
    seen: Any,
    mac_key: Any,
    prefix: bytes,
    count_max: int,
    *,
    downwards: bool,
) -> tuple[list[tuple[bytes, bytes]], bool] | None:
    """Read rows of the index from one page of LMDB's map: from a key on, while the keys begin with a prefix.

    Args:
        lent: the key of the first row, as LMDB has lent it.
        page_size_bytes: the size of a page.
        map_address: the address of LMDB's map; 0 if it is not known.
        transaction_id: see `page_in_use`.
        seen: a cache from `new_seen`.
        mac_key: the key of the MACs of the rows, 32 bytes; `NO_MAC_KEY` if the rows have checksums.
        prefix: the prefix of the keys.
        count_max: the maximum number of rows to return, up to `ROWS_MAX`.
        downwards: True to read in descending order.

    Returns:
        (key, payload) of each row, and True if the next row on the page does not have the prefix. None if the address
        is not known, the page is damaged or free, or the first row is damaged or large. The caller then reads the rows
        one by one.
    """
    scratch = take()
    numbers = scratch.numbers
    status = _rows_read(
        from_buffer(lent), page_size_bytes, map_address, transaction_id, seen, mac_key, prefix, len(prefix),
        downwards, min(count_max, ROWS_MAX), scratch.output, numbers + 2, scratch.rows,
    )  # fmt: skip
    if status != OK:
        reuse(scratch)
        return None
    count, is_end = numbers[0], numbers[1]
    data = unpack_bytes(scratch.characters, scratch.output.size)
    ends = unpack_numbers(numbers + 2, 2 * count)
    reuse(scratch)
    starts = [0, *ends[1::2]]
    pairs = [
        (data[start:middle], data[middle:end])
        for start, middle, end in zip(starts, ends[::2], ends[1::2], strict=False)
    ]
    return pairs, is_end == 1
