"""Kernels for pages of the version index, and for the depth of jumps between versions (FORMAT.md 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from statelog._kernels import lib
from statelog.kernels.calls import ABSENT, MALFORMED, OK, fail, new, reuse, take, unpack_bytes, unpack_numbers

if TYPE_CHECKING:
    from collections.abc import Callable

_page_append: Callable[..., int] = lib.sl_page_append
_page_read: Callable[..., int] = lib.sl_page_read
_page_range: Callable[..., int] = lib.sl_page_range
_page_find_time: Callable[..., int] = lib.sl_page_find_time

jump_depth: Callable[[int], int] = lib.sl_jump_depth
"""A function that returns the depth to which a checkpoint at a depth jumps, if retention has not removed the target."""


class VersionEntry(NamedTuple):
    """An entry of a version page: the LSN of a version's record, and its time."""

    lsn: int
    time_us: int


def page_append(payload: bytes, version: int, lsn: int, time_us: int) -> bytes:
    """Return the page with an entry for ``version`` added. ``b""`` starts a new page.

    Skipped versions get entries of zeros, which mean that they have expired.

    Raises:
        UsageError: ``version`` is not above the page's last version, or belongs on a different page.
    """
    scratch = take()
    output = scratch.output
    status = _page_append(payload, len(payload), version, lsn, time_us, output)
    if status != OK:
        fail(status, "version page")
    page = unpack_bytes(scratch.characters, output.size)
    reuse(scratch)
    return page


def page_read(payload: bytes, version: int) -> VersionEntry:
    """Return the entry of ``version``.

    Raises:
        CorruptionError: the page does not have the version.
    """
    entry = page_find(payload, version)
    if entry is None:
        fail(MALFORMED, "version page")
    return entry


def page_find(payload: bytes, version: int) -> VersionEntry | None:
    """Return the entry of ``version``, or None if the page does not have it."""
    scratch = take()
    status = _page_read(payload, len(payload), version, scratch.version_entry)
    entry = tuple.__new__(VersionEntry, unpack_numbers(scratch.numbers, 2)) if status == OK else None
    reuse(scratch)
    if status not in (OK, ABSENT):
        fail(status, "version page")
    return entry


def page_range(payload: bytes) -> tuple[int, int]:
    """Return the first and the last version on a page."""
    scratch = take()
    words = scratch.word
    status = _page_range(payload, len(payload), words, words + 1)
    if status != OK:
        fail(status, "version page")
    first, last = words
    reuse(scratch)
    return first, last


def page_find_time(payload: bytes, time_us: int) -> int:
    """Return the last version at or before ``time_us``. If all are later, return the first version minus 1."""
    version = new("int64_t *")
    status = _page_find_time(payload, len(payload), time_us, version)
    if status != OK:
        fail(status, "version page")
    found: int = version[0]
    return found
