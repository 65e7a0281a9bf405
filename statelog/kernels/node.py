"""Kernels that read nodes: the head of a root, and the entries of a chunk or of a root's tail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from statelog._kernels import lib
from statelog.kernels.calls import (
    NUMBERS,
    OK,
    USAGE,
    fail,
    give,
    relocated_size_max,
    reuse,
    take,
    unpack_bytes,
    unpack_numbers,
)

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

_ROOT_NUMBERS: Final = 8

_root_read: Callable[..., int] = lib.sl_root_read
_entries_table: Callable[..., int] = lib.sl_entries_table
_entries_copy: Callable[..., int] = lib.sl_entries_copy
_chunk_summary: Callable[..., int] = lib.sl_chunk_summary


class RootHead(NamedTuple):
    """The part of a root before its tail. ``levels`` has (covered, digest, lsn, node), highest level first."""

    kind: int
    key: bytes
    count: int  # type: ignore[assignment]  # This hides tuple.count, which nobody calls on a root.
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
    """Read a root node up to its tail. Locators of the levels are relocated."""
    scratch = take()
    status = _root_read(data, len(data), content_size, home_lsn, scratch.root)
    if status != OK:
        fail(status, "root")
    numbers = scratch.numbers
    kind, key_at, key_size, count, level_count, tail_count, tail_at, tail_locators_at = unpack_numbers(
        numbers, _ROOT_NUMBERS
    )
    levels: tuple[tuple[int, bytes | None, int, int], ...] = ()
    if level_count:
        levels = _levels(data, unpack_numbers(numbers, _ROOT_NUMBERS + 4 * level_count))
    reuse(scratch)
    key = data[key_at : key_at + key_size] if key_size else b""
    return tuple.__new__(RootHead, (kind, key, count, levels, tail_count, tail_at, tail_locators_at))


def entries_table(data: bytes, content_size: int, home_lsn: int, *, is_root: bool, kind: int) -> list[int]:
    """Return the offsets of the entries in a chunk or in a root's tail.

    Returns:
        A flat list of six numbers for each entry: at, slot_at, end, covered, lsn, node. slot_at is the offset of the
        digest at level >= 1, and equals end in a set. covered is 1 at level 0. lsn and node are 0 if there is no ref.
    """
    scratch = take()
    status = _entries_table(
        data, len(data), content_size, home_lsn, is_root, kind, scratch.entries, NUMBERS // 6, scratch.count
    )
    if status != OK:
        fail(status, "node")
    table = unpack_numbers(scratch.numbers, 6 * scratch.count[0])
    reuse(scratch)
    return table


def entries_copy(
    data: bytes, content_size: int, home_lsn: int, *, is_root: bool, kind: int, start: int, stop: int
) -> tuple[bytes, bytes]:
    """Copy entries [start, stop) of a node, as (entries, relocated locators).

    Raises:
        CorruptionError: the node is damaged, or has fewer than ``stop`` entries.
    """
    size_bytes_max = relocated_size_max(data, content_size)
    scratch = take(size_bytes_max)
    output = scratch.output
    status = _entries_copy(data, len(data), content_size, home_lsn, is_root, kind, start, stop, output)
    if status != OK:
        fail(status, "node")
    entries_size = output.content_size
    both = unpack_bytes(scratch.characters, output.size)
    give(scratch, size_bytes_max)
    return both[:entries_size], both[entries_size:]


def chunk_summary(data: bytes, content_size: int, kind: int, digest: bytes) -> bytes:
    """Return the entry of this chunk in the level above (FORMAT.md 4.3).

    Args:
        data: node of a closed chunk or an open level.
        content_size: see the package.
        kind: kind of the tree.
        digest: digest of the node, 20 bytes.
    """
    if len(digest) != 20:
        fail(USAGE, "digest")
    size_bytes_max = content_size + 64
    scratch = take(size_bytes_max)
    status = _chunk_summary(data, len(data), content_size, kind, digest, scratch.output)
    if status != OK:
        fail(status, "chunk")
    entry = unpack_bytes(scratch.characters, scratch.output.size)
    give(scratch, size_bytes_max)
    return entry
