"""Calling conventions of the kernels: how a status becomes an exception, and how calls get output buffers.

A call takes a scratch, passes it to C, reads the result from it, and returns it to the pool. No wrapper function does
this, because a commit calls several kernels, and a Python frame costs as much as the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

from statelog._kernels import ffi
from statelog.errors import CorruptionError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

SCRATCH_SIZE_BYTES: Final = 64 * 1024
"""The size of a pooled scratch. It is enough for most calls: a root is below 32 KiB unless its keys are very long."""

NUMBERS: Final = 14 * 128 + 1
"""The capacity of a number array: enough for the facts of 128 board entries and the number of plain entries."""

OK: Final = 0
MALFORMED: Final = 1
FALLBACK: Final = 2
ABSENT: Final = 3
TYPE: Final = 4
USAGE: Final = 5
WANTED: Final = 7

unpack_bytes: Callable[[Any, int], bytes] = ffi.unpack
unpack_numbers: Callable[[Any, int], list[int]] = ffi.unpack
from_buffer: Callable[..., Any] = ffi.from_buffer
new: Callable[..., Any] = ffi.new


class Scratch:
    """The output buffer of one call at a time: bytes, and an array of numbers with a view for each result struct."""

    __slots__ = (
        "characters", "checkpoint", "checkpoint_digest", "checkpoint_record", "count", "entries", "entry_facts",
        "key_hit", "kind", "next_chain", "next_record", "numbers", "order", "output", "parts", "place", "position_hit",
        "root", "rows", "version_entry", "walk", "walk_bytes", "word",
    )  # fmt: skip

    def __init__(self, size_bytes: int) -> None:
        self.characters = new("char[]", size_bytes)
        self.output = new("sl_output *")
        self.output.bytes = ffi.cast("uint8_t *", self.characters)
        self.output.capacity = size_bytes
        self.numbers = new("uint64_t[]", NUMBERS)
        self.count = new("uint64_t *")
        self.order = new("int *")
        self.kind = new("int *")
        self.word = new("uint32_t[2]")
        self.root = ffi.cast("sl_root_head *", self.numbers)
        self.entries = ffi.cast("sl_entry *", self.numbers)
        self.entry_facts = ffi.cast("sl_entry_facts *", self.numbers)
        self.key_hit = ffi.cast("sl_key_hit *", self.numbers)
        self.position_hit = ffi.cast("sl_position_hit *", self.numbers)
        self.place = ffi.cast("sl_node_place *", self.numbers)
        self.parts = ffi.cast("sl_record_parts *", self.numbers)
        self.checkpoint = ffi.cast("sl_checkpoint_fields *", self.numbers)
        self.checkpoint_record = ffi.cast("sl_checkpoint_record *", self.numbers)
        self.checkpoint_digest = ffi.cast("char *", self.checkpoint_record.digest)
        self.next_record = ffi.cast("sl_next_record *", self.numbers)
        self.next_chain = ffi.cast("char *", self.next_record.chain)
        self.version_entry = ffi.cast("sl_version_entry *", self.numbers)
        self.rows = ffi.cast("sl_lmdb_rows *", self.numbers)
        self.walk = ffi.cast("sl_walk *", self.numbers)
        self.walk_bytes = ffi.buffer(self.walk)


_pool: list[Scratch] = []
"""The scratches that no call is using. `take` and `reuse` are one atomic list operation each, which costs less than
thread-local storage. It is also safe if a signal handler or finalizer calls a kernel in the middle of another call.
"""

reuse: Callable[[Scratch], None] = _pool.append
"""A function that returns to the pool a scratch that was taken without a size.

The bound method saves an attribute look-up in each call.
"""


def take(size_bytes_max: int = 0) -> Scratch:
    """Take a scratch with room for `size_bytes_max` bytes of output, or for the output of most calls by default."""
    if size_bytes_max <= SCRATCH_SIZE_BYTES:
        try:
            return _pool.pop()
        except IndexError:
            return Scratch(SCRATCH_SIZE_BYTES)
    return Scratch(size_bytes_max)


def give(scratch: Scratch, size_bytes_max: int) -> None:
    """Return to the pool a scratch that was taken for ``size_bytes_max``. Drop a scratch above the pooled size."""
    if size_bytes_max <= SCRATCH_SIZE_BYTES:
        reuse(scratch)


def fail(status: int, what: str) -> NoReturn:
    """Raise the error for a status: CorruptionError, UsageError, or AssertionError for a status that must not occur."""
    if status == MALFORMED:
        message = f"damaged {what}"
        raise CorruptionError(message)
    if status == USAGE:
        message = f"inconsistent arguments for a {what}"
        raise UsageError(message)
    message = f"the kernel returned status {status} for a {what}"
    raise AssertionError(message)


def relocated_size_max(data: bytes, content_size: int) -> int:
    """Return the maximum size of a node's entries and locators after relocation."""
    # A locator of LSN 0 takes at least 2 bytes, and relocation adds at most 9 bytes.
    return content_size + 6 * (len(data) - content_size) + 64
