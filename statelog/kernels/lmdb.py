"""Pages of LMDB's file, looked at without LMDB.

The only functions that read beside their input are `page_in_use`, `find_page`, `rows_read`, `check_leaf_at`,
`is_page_free` and `last_page`: they take what LMDB has lent, or where its map is, and look at the pages there. Their
caller answers for the map.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from statelog._kernels import ffi, lib
from statelog.kernels.calling import NUMBERS, OK, fail, from_buffer, new, reuse, take, unpack_bytes, unpack_numbers

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE_BRANCH: Final = 1
PAGE_LEAF: Final = 2
NODE_LONG: Final = 1
NODE_TABLE: Final = 2

_FAULTS: Final = (
    "",
    "its kind is none of a tree",
    "its bounds do not fit its nodes",
    "a node does not lie inside it",
    "a node has flags that are never set",
    "a key is out of order",
    "it is another page",
)
_NODE_SIZE_MIN: Final = 10
"""Of a node with its pointer: by it the most nodes of a page."""

_lmdb_page: Callable[..., int] = lib.sl_lmdb_page
_leaf_at: Callable[..., int] = lib.sl_lmdb_leaf_at
_is_free_at: Callable[..., int] = lib.sl_lmdb_is_free_at
_page_in_use: Callable[..., int] = lib.sl_lmdb_page_in_use
_rows_read: Callable[..., int] = lib.sl_lmdb_rows_read

ROWS_MAX: Final = (NUMBERS - 2) // 2
"""Rows that one call of `rows_read` returns at most."""

lend_bytes: Callable[[memoryview], Any] = from_buffer
"""Returns what `find_page` takes. A view stays lent out until that is let go."""

find_page: Callable[[Any, int, int, int, bool, Any], int] = _page_in_use
"""As `page_in_use`, with the arguments in the order of C's function, in no frame of Python's: look-ups call it."""


class PageNode(NamedTuple):
    """A node of a page; offsets count from the page's first byte. `value`: child page, or size of the value."""

    key_at: int
    key_size: int
    flags: int
    value: int
    data_at: int


class PageFacts(NamedTuple):
    """A page: the number it bears, its kind, how many nodes; what is wrong with it, or empty; the nodes asked for."""

    number: int
    kind: int
    node_count: int
    fault: str
    nodes: list[PageNode]


class PageReader:
    """Looks at pages of a mapped file.

    Args:
        file: the whole file, mapped or in memory; `close` before it is released.
        page_size_bytes: as the meta pages say.

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
        """Give the map back."""
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
        """Look at a page that lies inside the file.

        Args:
            number: of the page.
            low: no key is below it; None: any may be.
            high: every key is below it; None: none need be.
            has_integer_keys: keys are 64-bit integers in native byte order (the free list).
            lists_all: return all nodes; else all of a branch page, and of a leaf those with flags.

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
    """Return where a key or value lies that LMDB has lent."""
    return int(ffi.cast("uintptr_t", from_buffer("uint8_t[]", lent)))


PAGE_OWN: Final = -1
PAGE_FREE: Final = -2


def new_seen() -> Any:
    """Return a memory of the pages that were found in use, for one opening of a file."""
    return new("sl_lmdb_seen *")


def page_in_use(
    lent: memoryview, page_size_bytes: int, map_address: int, transaction_id: int, seen: Any, *, may_be_own: bool
) -> int:
    """Return the number of the page that a key or inline value, lent by LMDB, lies in.

    Args:
        lent: what LMDB has lent.
        page_size_bytes: of a page.
        map_address: of LMDB's map; 0 where it is not known, and nothing can be told.
        transaction_id: see `is_page_free`.
        seen: what `new_seen` made.
        may_be_own: the page may be one that a write transaction has made, and lie elsewhere.

    Returns:
        `PAGE_OWN` if it is such a page, or may be; `PAGE_FREE` if it is free.
    """
    return _page_in_use(from_buffer("uint8_t[]", lent), page_size_bytes, map_address, transaction_id, may_be_own, seen)


last_page: Callable[[int, int, int], int] = lib.sl_lmdb_last_page
"""Returns the last page ever taken as of the last commit, from the address of LMDB's map, the size of a page in bytes
and the commit's transaction id; `NO_LAST_PAGE` if the last commit is another."""

NO_LAST_PAGE: Final = 2**64 - 1


def check_leaf_at(lent: memoryview, page_size_bytes: int, number: int) -> str:
    """Return what is wrong with the leaf page of LMDB's map that a key lies in, empty if nothing is.

    Args:
        lent: the key.
        page_size_bytes: of a page.
        number: the one it should bear.

    """
    return _FAULTS[_leaf_at(from_buffer("uint8_t[]", lent), page_size_bytes, number)]


def is_page_free(address: int, page_size_bytes: int, transaction_id: int, number: int) -> bool:
    """Whether a page is on the free list of a commit; False also where that cannot be told.

    It can be told of the last commit, and while the list has no more than 4,096 entries, about one a transaction.

    Args:
        address: of LMDB's map.
        page_size_bytes: of a page.
        transaction_id: of the commit; the caller reads it, or writes after it.
        number: of the page.

    """
    return _is_free_at(address, page_size_bytes, transaction_id, number) != 0


def rows_read(
    lent: memoryview,
    page_size_bytes: int,
    map_address: int,
    transaction_id: int,
    seen: Any,
    prefix: bytes,
    count_max: int,
    *,
    downwards: bool,
) -> tuple[list[tuple[bytes, bytes]], bool] | None:
    """Read the rows of the index on one page of LMDB's map, while their keys begin with a prefix.

    Args:
        lent: the key of the first row, as LMDB has lent it.
        page_size_bytes: of a page.
        map_address: of LMDB's map; 0 where it is not known.
        transaction_id: see `is_page_free`.
        seen: what `new_seen` made.
        prefix: of the keys.
        count_max: at most so many rows, and at most `ROWS_MAX`.
        downwards: read from that key down.

    Returns:
        (key, payload) of each row, and whether the page has a row behind them without the prefix. None if the page is
        damaged or free, or a seal does not hold, or the page cannot be looked at: then read the rows one by one.

    """
    scratch = take()
    numbers = scratch.numbers
    status = _rows_read(
        from_buffer(lent), page_size_bytes, map_address, transaction_id, seen, prefix, len(prefix), downwards,
        min(count_max, ROWS_MAX), scratch.output, numbers + 2, scratch.rows,
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
