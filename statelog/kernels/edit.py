"""Edits of one node, of which only what changes is looked at; a caller goes on where a chunk would close."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from statelog._kernels import lib
from statelog.kernels.calling import (
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

    from statelog.kernels.calling import Scratch

BATCH_DELETE: Final = b"\xfe"
"""After a key (dict) or element (set) in a batch of ``tail_merge``: remove it."""

BATCH_PUT: Final = b"\xff"
"""After an element in a batch of ``tail_merge`` on a set: put it."""

_chunk_replace: Callable[..., int] = lib.sl_chunk_replace
_tail_append: Callable[..., int] = lib.sl_tail_append
_tail_merge: Callable[..., int] = lib.sl_tail_merge


def _edited(status: int, scratch: Scratch, size_bytes_max: int, what: str) -> tuple[bytes, int] | None:
    """Give the scratch back, and return the node written into it; None where the kernel leaves it to Python."""
    node = (
        (unpack_bytes(scratch.characters, scratch.output.size), scratch.output.content_size) if status == OK else None
    )
    if size_bytes_max <= SCRATCH_SIZE_BYTES:
        reuse(scratch)  # as give(), without its frame
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
    """Replace entries [start, stop) of a chunk by ``added`` others.

    Returns:
        The new chunk (data, content_size), old locators relocated; None unless it closes at its end
        (``is_closed``), or nowhere.
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
        content_size: see the module.
        home_lsn: see the module.
        entries: encoded level-0 entries (keyed lists: each with its fingerprint).
        locators: one per ref of ``entries``, taken over as they are.
        count: number of entries.

    Returns:
        The new root node (data, content_size), old locators relocated; None if a chunk would close.
    """
    # As relocated_size_max; this one is called too often for a frame of its own.
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
        content_size: see the module.
        home_lsn: see the module.
        entries: the batch, strictly ascending by encoded key. Dicts: ``key ++ slot`` puts,
            ``key ++ BATCH_DELETE`` removes. Sets: ``element ++ BATCH_PUT``, ``element ++ BATCH_DELETE``.
            Removing what is absent does nothing. (The markers are bytes that no CBOR item begins with.)
        locators: one per ref of ``entries``, taken over as they are.
        count: number of entries in the batch.

    Returns:
        The new root node (data, content_size), old locators relocated; None if a chunk would close, or if the
        root has levels and the batch begins before the tail.
    """
    # As relocated_size_max; this one is called too often for a frame of its own.
    size_bytes_max = content_size + 6 * (len(data) - content_size) + len(entries) + len(locators) + 64
    scratch = take(size_bytes_max)
    status = _tail_merge(
        data, len(data), content_size, home_lsn, entries, len(entries), locators, len(locators), count, scratch.output
    )
    return _edited(status, scratch, size_bytes_max, "root, or batch for it")
