"""Kernels that edit one node and read only the changed entries.

If a chunk would close, the caller edits the node in Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from statelog._kernels import lib
from statelog.kernels.calls import (
    FALLBACK,
    OK,
    SCRATCH_SIZE_BYTES,
    fail,
    relocated_size_max,
    reuse,
    take,
    unpack_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog.kernels.calls import Scratch

BATCH_DELETE: Final = b"\xfe"
"""The byte that follows a key (dict) or element (set) to remove in a batch of ``tail_merge``."""

BATCH_PUT: Final = b"\xff"
"""The byte that follows an element to add in a batch of ``tail_merge`` on a set."""

_chunk_replace: Callable[..., int] = lib.sl_chunk_replace
_tail_append: Callable[..., int] = lib.sl_tail_append
_tail_merge: Callable[..., int] = lib.sl_tail_merge


def _edited(status: int, scratch: Scratch, size_bytes_max: int, what: str) -> tuple[bytes, int] | None:
    """Return the edited node in a scratch, or None if the kernel declined the edit. Return the scratch to the pool."""
    node = (
        (unpack_bytes(scratch.characters, scratch.output.size), scratch.output.content_size) if status == OK else None
    )
    if size_bytes_max <= SCRATCH_SIZE_BYTES:
        reuse(scratch)  # This inlines give().
    if node is None and status != FALLBACK:
        fail(status, what)
    return node


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
    """Replace entries [start, stop) of a chunk by ``added`` entries.

    Returns:
        The new chunk (data, content_size), with the old locators relocated. None if the chunk would close, or,
        with ``is_closed``, unless it closes at its end and only there.
    """
    size_bytes_max = relocated_size_max(data, content_size) + len(entries) + len(locators)
    scratch = take(size_bytes_max)
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
        scratch.output,
    )
    return _edited(status, scratch, size_bytes_max, "chunk, or entries for it")


def tail_append(
    data: bytes, content_size: int, home_lsn: int, entries: bytes, locators: bytes, count: int
) -> tuple[bytes, int] | None:
    """Append level-0 entries to the tail of a list, tuple or keyed root.

    Args:
        data: the root node.
        content_size: see the package.
        home_lsn: see the package.
        entries: encoded level-0 entries. In a keyed list, each has its fingerprint.
        locators: one locator for each ref in ``entries``, copied unchanged.
        count: number of entries.

    Returns:
        The new root node (data, content_size), with the old locators relocated; None if a chunk
        would close.
    """
    # This inlines relocated_size_max, because this function is called often.
    size_bytes_max = content_size + 6 * (len(data) - content_size) + len(entries) + len(locators) + 64
    scratch = take(size_bytes_max)
    status = _tail_append(
        data, len(data), content_size, home_lsn, entries, len(entries), locators, len(locators), count, scratch.output
    )
    return _edited(status, scratch, size_bytes_max, "root, or entries for it")


def tail_merge(
    data: bytes, content_size: int, home_lsn: int, entries: bytes, locators: bytes, count: int
) -> tuple[bytes, int] | None:
    """Merge a batch into the tail of a dict, set or frozenset root.

    Args:
        data: the root node.
        content_size: see the package.
        home_lsn: see the package.
        entries: the batch, strictly ascending by encoded key. In a dict, ``key ++ slot`` puts and
            ``key ++ BATCH_DELETE`` removes. In a set, ``element ++ BATCH_PUT`` adds and ``element
            ++ BATCH_DELETE`` removes. Removing an absent key has no effect. (No CBOR item begins
            with a marker byte.)
        locators: one locator for each ref in ``entries``, copied unchanged.
        count: number of entries in the batch.

    Returns:
        The new root node (data, content_size), with the old locators relocated. None if a chunk would close, or if the
        batch begins before the tail of a root with levels.
    """
    # This inlines relocated_size_max, because this function is called often.
    size_bytes_max = content_size + 6 * (len(data) - content_size) + len(entries) + len(locators) + 64
    scratch = take(size_bytes_max)
    status = _tail_merge(
        data, len(data), content_size, home_lsn, entries, len(entries), locators, len(locators), count, scratch.output
    )
    return _edited(status, scratch, size_bytes_max, "root, or batch for it")
