"""The compiled kernels, as Python functions: the only importer of ``statelog._kernels``.

Every function takes encoded bytes as FORMAT.md draws them and trusts none of it: what the page does not
allow raises ``CorruptionError``. None of them keeps a reference to its input, blocks (but ``wake_wait``),
or has state that a caller can see; all may be called from any thread, and the GIL is released inside.

A *node* is ``data`` (content, then locators) with its ``content_size``. ``home_lsn`` is the LSN of the
record that holds it: locators with LSN 0 leave these functions with ``home_lsn`` instead ("relocated"; with
``home_lsn`` 0, a node of the record being built, they stay 0). ``kind`` is one of the ``KIND_*`` constants;
``is_root`` tells a root, whose tail is meant, from a chunk.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from statelog._kernels import ffi, lib
from statelog.errors import CorruptionError, ReducerTypeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

KIND_LIST: Final = 0
KIND_TUPLE: Final = 1
KIND_DICT: Final = 2
KIND_SET: Final = 3
KIND_FROZENSET: Final = 4
KIND_STR: Final = 5
KIND_BYTES: Final = 6
KIND_KEYED: Final = 7

BATCH_DELETE: Final = b"\xfe"
"""After a key (dict) or element (set) in a batch of ``tail_merge``: remove it."""

BATCH_PUT: Final = b"\xff"
"""After an element in a batch of ``tail_merge`` on a set: put it."""


_SCRATCH_SIZE_BYTES: Final = 64 * 1024
"""Output room of most calls: a root is below 32 KiB unless its keys are of the largest."""

_NUMBERS: Final = 6 * 128
"""Numbers of most calls: an entry table of a chunk is the longest."""

_OK: Final = 0
_MALFORMED: Final = 1
_FALLBACK: Final = 2
_ABSENT: Final = 3
_TYPE: Final = 4
_USAGE: Final = 5

_ROOT_NUMBERS: Final = 8
_RECORD_ENVELOPE_SIZE: Final = 56
_NANOSECONDS: Final = 1_000_000_000
_WAIT_S_MAX: Final = 1e9

_unpack_bytes: Callable[[Any, int], bytes] = ffi.unpack
_unpack_numbers: Callable[[Any, int], list[int]] = ffi.unpack
_from_buffer: Callable[..., Any] = ffi.from_buffer
_new: Callable[..., Any] = ffi.new


class _Scratch:
    """Output room of one call at a time: bytes, and numbers seen through each result struct."""

    __slots__ = (
        "characters", "count", "entries", "key_hit", "kind", "numbers", "order", "output", "place",
        "position_hit", "root", "version_entry", "word",
    )  # fmt: skip

    def __init__(self, size_bytes: int) -> None:
        self.characters = _new("char[]", size_bytes)
        self.output = _new("sl_output *")
        self.output.bytes = ffi.cast("uint8_t *", self.characters)
        self.output.capacity = size_bytes
        self.numbers = _new("uint64_t[]", _NUMBERS)
        self.count = _new("uint64_t *")
        self.order = _new("int *")
        self.kind = _new("int *")
        self.word = _new("uint32_t[2]")
        self.root = ffi.cast("sl_root_head *", self.numbers)
        self.entries = ffi.cast("sl_entry *", self.numbers)
        self.key_hit = ffi.cast("sl_key_hit *", self.numbers)
        self.position_hit = ffi.cast("sl_position_hit *", self.numbers)
        self.place = ffi.cast("sl_node_place *", self.numbers)
        self.version_entry = ffi.cast("sl_version_entry *", self.numbers)


_pool: list[_Scratch] = []
"""Idle scratches. Taking and giving are one atomic list operation each: cheaper than thread-local storage,
and safe where a signal handler or finalizer calls a kernel in the middle of another call."""


def _take(size_bytes_max: int = 0) -> _Scratch:
    if size_bytes_max <= _SCRATCH_SIZE_BYTES:
        try:
            return _pool.pop()
        except IndexError:
            return _Scratch(_SCRATCH_SIZE_BYTES)
    return _Scratch(size_bytes_max)


def _give(scratch: _Scratch, size_bytes_max: int) -> None:
    if size_bytes_max <= _SCRATCH_SIZE_BYTES:
        _pool.append(scratch)


def _fail(status: int, what: str) -> NoReturn:
    if status == _MALFORMED:
        message = f"damaged {what}"
        raise CorruptionError(message)
    if status == _USAGE:
        message = f"these arguments do not go together for a {what}"
        raise UsageError(message)
    message = f"kernel answered {status} for a {what}"
    raise AssertionError(message)


# --- CBOR -------------------------------------------------------------------------------------------

_cbor_check: Callable[..., int] = lib.sl_cbor_check
_cbor_children: Callable[..., int] = lib.sl_cbor_children
_cbor_split: Callable[..., int] = lib.sl_cbor_split
_cbor_map_get: Callable[..., int] = lib.sl_cbor_map_get
_content_hash: Callable[..., int] = lib.sl_content_hash


def cbor_check(data: bytes) -> None:
    """Check that ``data`` is exactly one item of the profile (FORMAT.md 7).

    Raises:
        CorruptionError: it is not; ``offset`` is where the innermost item that is wrong begins.
    """
    offset = _new("size_t *")
    if _cbor_check(data, len(data), offset) != _OK:
        message = f"not a CBOR item of the profile: byte {offset[0]}"
        raise CorruptionError(message, offset=int(offset[0]))


def cbor_split(data: bytes) -> tuple[int, int, list[int]]:
    """Find the children of the list, tuple, dict, set or frozenset that fills ``data``.

    Returns:
        kind, or -1 if it is no container; offset of the first child; end offset of every child (dict: of
        key, value, key, ...).

    Raises:
        CorruptionError: not one item of the profile.
    """
    scratch = _take()
    status = _cbor_children(data, len(data), scratch.kind, scratch.numbers, scratch.count)
    kind, first, count = scratch.kind[0], scratch.numbers[0], scratch.count[0]
    if status == _OK:
        ends = scratch.numbers if count <= _NUMBERS else _new("uint64_t[]", count)
        status = _cbor_split(data, len(data), ends, count)
    if status == _ABSENT:
        cbor_check(data)
        return (-1, 0, [])
    if status != _OK:
        _fail(status, "CBOR container")
    result = (kind, first, _unpack_numbers(ends, count))
    _pool.append(scratch)
    return result


def cbor_map_get(data: bytes, key_item: bytes) -> tuple[int, int] | None:
    """Find the value of a key in an encoded dict, reading no further than it.

    Args:
        data: one item.
        key_item: the encoded key.

    Returns:
        Start and end of the value; None if the key is absent or ``data`` is no dict.
    """
    scratch = _take()
    status = _cbor_map_get(data, len(data), key_item, len(key_item), scratch.numbers)
    if status == _MALFORMED:
        _fail(status, "CBOR map")
    span = None if status == _ABSENT else (scratch.numbers[0], scratch.numbers[1])
    _pool.append(scratch)
    return span


def content_hash(data: bytes) -> int:
    """Return ``h(data)`` of FORMAT.md 4.5, 64 bits."""
    return _content_hash(data, len(data))


# --- nodes ------------------------------------------------------------------------------------------

_root_read: Callable[..., int] = lib.sl_root_read
_entries_table: Callable[..., int] = lib.sl_entries_table
_entries_copy: Callable[..., int] = lib.sl_entries_copy
_chunk_summary: Callable[..., int] = lib.sl_chunk_summary
_chunk_replace: Callable[..., int] = lib.sl_chunk_replace


class RootHead(NamedTuple):
    """What a root says before its tail; ``levels`` highest first, as (covered, digest, lsn, node)."""

    kind: int
    key: bytes
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a root
    levels: tuple[tuple[int, bytes | None, int, int], ...]
    tail_count: int
    tail_at: int
    tail_locators_at: int


def _levels(data: bytes, numbers: list[int]) -> tuple[tuple[int, bytes | None, int, int], ...]:
    levels = []
    for at in range(_ROOT_NUMBERS, len(numbers), 4):
        covered, digest_at, lsn, node = numbers[at : at + 4]
        levels.append((covered, data[digest_at : digest_at + 20] if covered else None, lsn, node))
    return tuple(levels)


def root_read(data: bytes, content_size: int, home_lsn: int) -> RootHead:
    """Read a root node up to its tail, locators of the levels relocated."""
    scratch = _take()
    status = _root_read(data, len(data), content_size, home_lsn, scratch.root)
    if status != _OK:
        _fail(status, "root")
    numbers = scratch.numbers
    kind, key_at, key_size, count, level_count, tail_count, tail_at, tail_locators_at = _unpack_numbers(
        numbers, _ROOT_NUMBERS
    )
    levels: tuple[tuple[int, bytes | None, int, int], ...] = ()
    if level_count:
        levels = _levels(data, _unpack_numbers(numbers, _ROOT_NUMBERS + 4 * level_count))
    _pool.append(scratch)
    key = data[key_at : key_at + key_size] if key_size else b""
    return tuple.__new__(RootHead, (kind, key, count, levels, tail_count, tail_at, tail_locators_at))


def entries_table(data: bytes, content_size: int, home_lsn: int, *, is_root: bool, kind: int) -> list[int]:
    """Tell where the entries of a chunk, or of a root's tail, lie.

    Returns:
        Flat, six numbers per entry: at, slot_at (of the slot; at level >= 1 of the digest; for sets the
        end), end, covered (1 at level 0), lsn, node (0, 0 where there is no ref).
    """
    scratch = _take()
    status = _entries_table(
        data, len(data), content_size, home_lsn, is_root, kind, scratch.entries, _NUMBERS // 6, scratch.count
    )
    if status != _OK:
        _fail(status, "node")
    table = _unpack_numbers(scratch.numbers, 6 * scratch.count[0])
    _pool.append(scratch)
    return table


def entries_copy(
    data: bytes, content_size: int, home_lsn: int, *, is_root: bool, kind: int, start: int, stop: int
) -> tuple[bytes, bytes]:
    """Copy entries [start, stop) out of a node, as (entries, locators), relocated.

    Raises:
        CorruptionError: also where the node has fewer than ``stop`` entries.
    """
    size_bytes_max = _relocated_size_max(data, content_size)
    scratch = _take(size_bytes_max)
    output = scratch.output
    status = _entries_copy(data, len(data), content_size, home_lsn, is_root, kind, start, stop, output)
    if status != _OK:
        _fail(status, "node")
    entries_size = output.content_size
    both = _unpack_bytes(scratch.characters, output.size)
    _give(scratch, size_bytes_max)
    return both[:entries_size], both[entries_size:]


def chunk_replace(
    data: bytes,
    content_size: int,
    home_lsn: int,
    *,
    kind: int,
    start: int,
    stop: int,
    entries: bytes,
    locators: bytes,
    added: int,
    is_closed: bool,
) -> tuple[bytes, int] | None:
    """Replace entries [start, stop) of a chunk by ``added`` others.

    Returns:
        The new chunk (data, content_size), old locators relocated; None unless it closes at its end
        (``is_closed``), or nowhere.
    """
    size_bytes_max = _relocated_size_max(data, content_size) + len(entries) + len(locators)
    scratch = _take(size_bytes_max)
    output = scratch.output
    status = _chunk_replace(
        data,
        len(data),
        content_size,
        home_lsn,
        kind,
        start,
        stop,
        entries,
        len(entries),
        locators,
        len(locators),
        added,
        is_closed,
        output,
    )
    if status != _OK:
        if status != _FALLBACK:
            _fail(status, "chunk, or entries for it")
        _give(scratch, size_bytes_max)
        return None
    chunk = (_unpack_bytes(scratch.characters, output.size), output.content_size)
    _give(scratch, size_bytes_max)
    return chunk


def chunk_summary(data: bytes, content_size: int, kind: int, digest: bytes) -> bytes:
    """Return the entry that stands for this chunk node in the level above (FORMAT.md 4.3).

    Args:
        data: node of a closed chunk or an open level, of content_size bytes of content.
        content_size: see the module.
        kind: of the tree.
        digest: the node's, 20 bytes.
    """
    if len(digest) != 20:
        _fail(_USAGE, "digest")
    size_bytes_max = content_size + 64
    scratch = _take(size_bytes_max)
    status = _chunk_summary(data, len(data), content_size, kind, digest, scratch.output)
    if status != _OK:
        _fail(status, "chunk")
    entry = _unpack_bytes(scratch.characters, scratch.output.size)
    _give(scratch, size_bytes_max)
    return entry


def _relocated_size_max(data: bytes, content_size: int) -> int:
    # A locator of LSN 0 takes at least 2 bytes, and relocation adds at most 9.
    return content_size + 6 * (len(data) - content_size) + 64


# --- sequences --------------------------------------------------------------------------------------

_find_position: Callable[..., int] = lib.sl_find_position
_fingerprint_find: Callable[..., int] = lib.sl_fingerprint_find
_tail_append: Callable[..., int] = lib.sl_tail_append
_boundaries: Callable[..., int] = lib.sl_boundaries
_blob_cuts: Callable[..., int] = lib.sl_blob_cuts
_prints_find: Callable[..., int] = lib.sl_prints_find


def find_position(
    data: bytes, content_size: int, home_lsn: int, *, is_root: bool, kind: int, position: int
) -> tuple[int, int, int, int, int, int]:
    """Find the entry of this chunk or tail that covers level-0 position ``position`` (relative to this node).

    Returns:
        (index, offset_inside, slot_at, end, lsn, node); for the tail of a str or bytes root index is 0 and
        [slot_at, end) the whole tail.

    Raises:
        CorruptionError: also where the position lies outside.
    """
    scratch = _take()
    status = _find_position(data, len(data), content_size, home_lsn, is_root, kind, position, scratch.position_hit)
    if status != _OK:
        _fail(status, "node")
    index, offset_inside, slot_at, end, lsn, node = _unpack_numbers(scratch.numbers, 6)
    _pool.append(scratch)
    return index, offset_inside, slot_at, end, lsn, node


def fingerprint_find(data: bytes, content_size: int, *, is_root: bool, fingerprint: int, start: int) -> int:
    """Find a fingerprint in a keyed list's root tail or chunk of level 0 or 1.

    Returns:
        The smallest level-0 position >= start, relative to this node, that has it, or -1.
    """
    scratch = _take()
    status = _fingerprint_find(data, len(data), content_size, is_root, fingerprint, start, scratch.count)
    if status not in (_OK, _ABSENT):
        _fail(status, "node of a keyed list")
    position: int = scratch.count[0] if status == _OK else -1
    _pool.append(scratch)
    return position


def tail_append(
    data: bytes, content_size: int, home_lsn: int, entries: bytes, locators: bytes, count: int
) -> tuple[bytes, int] | None:
    """Append level-0 entries to the tail of a list, tuple or keyed root.

    Args:
        data: the root node.
        content_size: see the module.
        home_lsn: see the module.
        entries: encoded level-0 entries (keyed lists: each with its fingerprint).
        locators: one per ref of ``entries``, taken over as they are.
        count: number of entries.

    Returns:
        The new root node (data, content_size), old locators relocated; None if a chunk would close.
    """
    size_bytes_max = content_size + 6 * (len(data) - content_size) + len(entries) + len(locators) + 64
    scratch = _take(size_bytes_max)
    output = scratch.output
    status = _tail_append(
        data, len(data), content_size, home_lsn, entries, len(entries), locators, len(locators), count, output
    )
    if status != _OK:
        if status != _FALLBACK:
            _fail(status, "root, or entries for it")
        _give(scratch, size_bytes_max)
        return None
    node = (_unpack_bytes(scratch.characters, output.size), output.content_size)
    _give(scratch, size_bytes_max)
    return node


def boundaries(kind: int, level: int, entries: bytes, locators: bytes, count: int) -> list[int]:
    """Cut entries, which begin where a chunk begins, into chunks (FORMAT.md 4.5).

    Returns:
        Flat, three numbers per chunk that closes: entries up to its end, bytes up to its end, bytes of
        locators up to its end.
    """
    # A chunk that closes has 8 entries, or 8192 bytes.
    capacity = min(count, len(entries)) // 8 + len(entries) // 8192 + 1
    closes = _new("sl_boundary[]", capacity)
    found = _new("uint64_t *")
    status = _boundaries(kind, level, entries, len(entries), locators, len(locators), count, closes, capacity, found)
    if status != _OK:
        _fail(status, "run of entries")
    return _unpack_numbers(ffi.cast("uint64_t *", closes), 3 * found[0]) if found[0] else []


def prints_find(prints: bytes, fingerprint: int, start: int) -> int:
    """Return the first index from ``start`` on of a 16-bit fingerprint in an array of them, or -1."""
    return _prints_find(prints, len(prints), fingerprint, start)


def blob_cuts(data: bytes) -> list[int]:
    """Return the ends of the pieces that close in a long string (FORMAT.md 4.4); the rest is its open tail."""
    capacity = len(data) // 2048 + 1
    ends = _new("uint64_t[]", capacity)
    found = _new("uint64_t *")
    status = _blob_cuts(data, len(data), ends, capacity, found)
    if status != _OK:
        _fail(status, "string")
    return _unpack_numbers(ends, found[0]) if found[0] else []


# --- maps -------------------------------------------------------------------------------------------

_find_key: Callable[..., int] = lib.sl_find_key
_tail_merge: Callable[..., int] = lib.sl_tail_merge


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
    scratch = _take()
    status = _find_key(data, len(data), content_size, home_lsn, is_root, kind, key_item, len(key_item), scratch.key_hit)
    if status != _OK:
        _fail(status, "node")
    index, found, slot_at, end, lsn, node, covered_before = _unpack_numbers(scratch.numbers, 7)
    _pool.append(scratch)
    return index, found == 1, slot_at, end, lsn, node, covered_before


def tail_merge(
    data: bytes, content_size: int, home_lsn: int, entries: bytes, locators: bytes, count: int
) -> tuple[bytes, int] | None:
    """Merge a batch into a dict, set or frozenset root that has no levels.

    Args:
        data: the root node.
        content_size: see the module.
        home_lsn: see the module.
        entries: the batch, strictly ascending by encoded key. Dicts: ``key ++ slot`` puts,
            ``key ++ BATCH_DELETE`` removes. Sets: ``element ++ BATCH_PUT``, ``element ++ BATCH_DELETE``.
            Removing what is absent does nothing. (The markers are bytes that no CBOR item begins with.)
        locators: one per ref of ``entries``, taken over as they are.
        count: number of entries in the batch.

    Returns:
        The new root node (data, content_size), old locators relocated; None if the root has levels or a
        chunk would close.
    """
    size_bytes_max = content_size + 6 * (len(data) - content_size) + len(entries) + len(locators) + 64
    scratch = _take(size_bytes_max)
    output = scratch.output
    status = _tail_merge(
        data, len(data), content_size, home_lsn, entries, len(entries), locators, len(locators), count, output
    )
    if status != _OK:
        if status != _FALLBACK:
            _fail(status, "root, or batch for it")
        _give(scratch, size_bytes_max)
        return None
    node = (_unpack_bytes(scratch.characters, output.size), output.content_size)
    _give(scratch, size_bytes_max)
    return node


# --- records ----------------------------------------------------------------------------------------

_RECORD_NODES_MAX: Final = 1 << 22

_record_node: Callable[..., int] = lib.sl_record_node
_record_nodes: Callable[..., int] = lib.sl_record_nodes


def record_node(record: bytes | memoryview, number: int) -> tuple[int, bytes, int, int, int]:
    """Find a node of a record.

    Returns:
        (type, digest, content_at, content_size, total_size): the node is ``total_size`` bytes at
        ``content_at``. For a vacuumed node all are zero or empty.

    Raises:
        CorruptionError: no such node, or its place is none.
    """
    scratch = _take()
    pointer = record if type(record) is bytes else _from_buffer("uint8_t[]", record)
    status = _record_node(pointer, len(record), number, scratch.place)
    if status != _OK:
        del pointer  # a traceback would keep the buffer lent out
        _fail(status, "node table")
    node_type, digest_at, content_at, content_size, total_size = _unpack_numbers(scratch.numbers, 5)
    _pool.append(scratch)
    if not node_type:
        return VACUUMED
    return node_type, bytes(record[digest_at : digest_at + 20]), content_at, content_size, total_size


VACUUMED: Final = (0, b"", 0, 0, 0)
"""What `record_node` and `record_nodes` say of a vacuumed node."""


def record_nodes(record: bytes | memoryview) -> list[tuple[int, bytes, int, int, int]]:
    """Find all nodes of a record: as ``record_node``, for each; they and the table fill the record."""
    whole = bytes(record)
    # What the envelope claims, up to what the kernel takes: a count beyond it is refused there.
    capacity = min(int.from_bytes(whole[52:_RECORD_ENVELOPE_SIZE]), _RECORD_NODES_MAX)
    places = _new("sl_node_place[]", max(capacity, 1))
    count = _new("uint64_t *")
    status = _record_nodes(whole, len(whole), places, capacity, count)
    if status != _OK:
        _fail(status, "node table")
    numbers = iter(_unpack_numbers(ffi.cast("uint64_t *", places), 5 * count[0]) if count[0] else ())
    return [
        (node_type, whole[digest_at : digest_at + 20], content_at, content_size, total_size) if node_type else VACUUMED
        for node_type, digest_at, content_at, content_size, total_size in zip(*[numbers] * 5, strict=True)
    ]


# --- reducers ---------------------------------------------------------------------------------------

_add: Callable[..., int] = lib.sl_add
_compare: Callable[..., int] = lib.sl_compare
_merge_maps: Callable[..., int] = lib.sl_merge_maps
_union: Callable[..., int] = lib.sl_union


def _reduce(kernel: Callable[..., int], name: str, a: bytes, b: bytes, *options: int) -> bytes | None:
    size_bytes_max = len(a) + len(b) + 32
    scratch = _take(size_bytes_max)
    output = scratch.output
    status = kernel(a, len(a), b, len(b), *options, output)
    result = _unpack_bytes(scratch.characters, output.size) if status == _OK else None
    _give(scratch, size_bytes_max)
    if status not in (_OK, _FALLBACK):
        _fail_reducer(status, name)
    return result


def _fail_reducer(status: int, name: str) -> NoReturn:
    if status == _TYPE:
        message = f"{name} cannot merge values of these types"
        raise ReducerTypeError(message, reducer=name)
    _fail(status, "CBOR item")


def add(a: bytes, b: bytes) -> bytes | None:
    """Return the encoded ``a + b`` of Python for two items; None where Python must be asked.

    Raises:
        ReducerTypeError: the two do not add up (str and int, list and tuple, two dicts, ...).
    """
    return _reduce(_add, "add", a, b)


def compare(a: bytes, b: bytes) -> int | None:
    """Return -1, 0 or 1 as Python orders two numbers, str or bytes; None where Python must be asked.

    Raises:
        ReducerTypeError: numbers, str and bytes have no order among each other.
    """
    scratch = _take()
    status = _compare(a, len(a), b, len(b), scratch.order)
    order: int | None = scratch.order[0] if status == _OK else None
    _pool.append(scratch)
    if status not in (_OK, _FALLBACK):
        _fail_reducer(status, "compare")
    return order


def merge_maps(a: bytes, b: bytes, *, deep: bool) -> bytes:
    """Merge two encoded dicts: ``b`` wins; with ``deep``, dicts under the same key are merged likewise.

    Raises:
        ReducerTypeError: one is no dict.
    """
    merged = _reduce(_merge_maps, "deep_merge" if deep else "merge", a, b, deep)
    assert merged is not None
    return merged


def union(a: bytes, b: bytes) -> bytes:
    """Return the union of two encoded sets, or of two encoded frozensets.

    Raises:
        ReducerTypeError: they are not of one kind, or no sets.
    """
    merged = _reduce(_union, "union", a, b)
    assert merged is not None
    return merged


# --- version pages ----------------------------------------------------------------------------------

_page_append: Callable[..., int] = lib.sl_page_append
_page_read: Callable[..., int] = lib.sl_page_read
_page_range: Callable[..., int] = lib.sl_page_range
_page_find_time: Callable[..., int] = lib.sl_page_find_time


class VersionEntry(NamedTuple):
    """Entry of a version page: the record of a version, and its time."""

    lsn: int
    time_us: int


def page_append(payload: bytes, version: int, entry: VersionEntry) -> bytes:
    """Return the page with the entry of ``version`` added; ``b""`` starts a page there.

    Versions passed over get entries of zeros: they have expired.

    Raises:
        UsageError: ``version`` is not above the page's last, or belongs on another page.
    """
    scratch = _take()
    output = scratch.output
    status = _page_append(payload, len(payload), version, *entry, output)
    if status != _OK:
        _fail(status, "version page")
    page = _unpack_bytes(scratch.characters, output.size)
    _pool.append(scratch)
    return page


def page_read(payload: bytes, version: int) -> VersionEntry:
    """Return the entry of ``version``.

    Raises:
        CorruptionError: the page does not hold it.
    """
    scratch = _take()
    status = _page_read(payload, len(payload), version, scratch.version_entry)
    if status != _OK:
        _fail(status, "version page")
    entry = tuple.__new__(VersionEntry, _unpack_numbers(scratch.numbers, 2))
    _pool.append(scratch)
    return entry


def page_range(payload: bytes) -> tuple[int, int]:
    """Return the first and the last version of a page."""
    scratch = _take()
    words = scratch.word
    status = _page_range(payload, len(payload), words, words + 1)
    if status != _OK:
        _fail(status, "version page")
    first, last = words
    _pool.append(scratch)
    return first, last


def page_find_time(payload: bytes, time_us: int) -> int:
    """Return the last version with time <= ``time_us``, or the first version - 1 if all are later."""
    version = _new("int64_t *")
    status = _page_find_time(payload, len(payload), time_us, version)
    if status != _OK:
        _fail(status, "version page")
    found: int = version[0]
    return found


# --- wake word --------------------------------------------------------------------------------------

_wake_notify: Callable[..., int] = lib.sl_wake_notify
_wake_read: Callable[..., int] = lib.sl_wake_read
_wake_wait: Callable[..., int] = lib.sl_wake_wait


def _wake_word(buffer: Any) -> Any:
    word = _from_buffer("uint32_t[]", buffer, require_writable=True)
    if len(word) < 2:
        _fail(_USAGE, "wake word of 8 bytes")
    return word


def wake_notify(address_buffer: Any) -> None:
    """Raise the sequence of a wake word and wake who waits, in any process.

    Args:
        address_buffer: 8 writable bytes, aligned to 4, such as a shared mmap.
    """
    status = _wake_notify(_wake_word(address_buffer))
    if status != _OK:
        _fail(status, "wake word, which is aligned to 4")


def wake_read(address_buffer: Any) -> int:
    """Return the sequence of a wake word."""
    sequence = _new("uint32_t *")
    status = _wake_read(_wake_word(address_buffer), sequence)
    if status != _OK:
        _fail(status, "wake word, which is aligned to 4")
    value: int = sequence[0]
    return value


def wake_wait(address_buffer: Any, seen: int, timeout_s: float) -> bool:
    """Wait until the sequence of a wake word is no longer ``seen``.

    Returns:
        Whether it moved on within ``timeout_s`` seconds. Signal handlers run in the meantime.
    """
    word = _wake_word(address_buffer)
    deadline_ns = time.monotonic_ns() + int(min(timeout_s, _WAIT_S_MAX) * _NANOSECONDS)
    while True:
        left_ns = max(deadline_ns - time.monotonic_ns(), 0)
        status = _wake_wait(word, seen, left_ns)
        if status == _OK or (status == _ABSENT and left_ns == 0):
            return status == _OK
        if status != _ABSENT:
            _fail(status, "wake word, which is aligned to 4")
