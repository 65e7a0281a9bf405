"""Kernels for digests, and for checkpoint bodies, which contain digests (FORMAT.md 3 to 5)."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from statelog._kernels import ffi, lib
from statelog.kernels.calls import OK, fail, from_buffer, give, new, reuse, take, unpack_bytes, unpack_numbers

if TYPE_CHECKING:
    from collections.abc import Callable

_node_digest: Callable[..., int] = lib.sl_node_digest
_chain_digest: Callable[..., int] = lib.sl_chain_digest
_checkpoint_encode: Callable[..., int] = lib.sl_checkpoint_encode
_checkpoint_decode: Callable[..., int] = lib.sl_checkpoint_decode
_checkpoint_read: Callable[..., int] = lib.sl_checkpoint_read
_record_next: Callable[..., int] = lib.sl_record_next

_DIGEST_SIZE_BYTES: Final = 20
_NUMBERS_SIZE_BYTES: Final = 256
"""An upper bound of the total size of the numbers and digests in a checkpoint's body."""

pack_numbers: Callable[..., bytes] = Struct(">13q").pack
"""A function that packs the first argument of `checkpoint_encode`.

The fields are thread, branch, version, branch and version of the parent, branch and version of the jump, depth, jump
depth, LSN and node number of the root, target (0 if not a rollback), and time in microseconds. -1 stands for null.
"""

_NULL: Final = ffi.NULL


def node_digest(type_: int, content: bytes) -> bytes:
    """Return the digest of a node, which has one of the four types (FORMAT.md 4)."""
    digest = new("uint8_t[20]")
    status = _node_digest(type_, content, len(content), digest)
    if status != OK:
        fail(status, "node")
    return bytes(digest)


def chain_digest(type_: int, flags: int, lsn: int, time_us: int, previous: bytes, body: bytes, rows: bytes) -> bytes:
    """Return the chain digest of a record, computed from its body and the rows of its node table."""
    scratch = take()
    digest = scratch.output.bytes
    status = _chain_digest(type_, flags, lsn, time_us, previous, body, len(body), rows, len(rows), digest)
    if status != OK:
        fail(status, "record")
    chain = unpack_bytes(scratch.characters, _DIGEST_SIZE_BYTES)
    reuse(scratch)
    return chain


def checkpoint_encode(
    numbers: bytes,
    parent_digest: bytes | None,
    root_digest: bytes,
    id_item: bytes,
    metadata: bytes,
    written: bytes,
    borrowed: bytes,
) -> tuple[bytes, bytes]:
    """Return the body of a checkpoint or rollback, and the checkpoint's digest.

    Args:
        numbers: see `pack_numbers`.
        parent_digest: digest of the parent.
        root_digest: digest of the state's root.
        id_item: the caller's id or null, encoded.
        metadata: the metadata, encoded.
        written: the channels written, encoded.
        borrowed: the borrowed digests, encoded.
    """
    size_bytes_max = _NUMBERS_SIZE_BYTES + len(id_item) + len(metadata) + len(written) + len(borrowed)
    scratch = take(size_bytes_max)
    output = scratch.output
    parent: Any = _NULL if parent_digest is None else parent_digest
    status = _checkpoint_encode(
        numbers,
        parent,
        root_digest,
        id_item,
        len(id_item),
        metadata,
        len(metadata),
        written,
        len(written),
        borrowed,
        len(borrowed),
        output,
    )
    if status != OK:
        fail(status, "checkpoint")
    size = output.content_size
    both = unpack_bytes(scratch.characters, output.size)
    give(scratch, size_bytes_max)
    return both[:size], both[size:]


NO_NUMBER: Final = (1 << 64) - 1
"""The number that stands for null in the result of `checkpoint_decode`."""

_FIELDS: Final = 19


def checkpoint_decode(body: bytes, *, is_rollback: bool) -> list[int]:
    """Return the numbers in the body of a checkpoint or rollback, and the offsets of its other fields.

    Returns:
        The numbers of `pack_numbers` without the time, with null as `NO_NUMBER`; the offsets of the digests of the
        parent (0 for null) and the root; the offsets of the id, metadata, written channels and borrowed digests, which
        are consecutive items; and the end of the last item.

    Raises:
        CorruptionError: a field has the wrong type, or an item is not in the profile.
    """
    scratch = take()
    status = _checkpoint_decode(body, len(body), is_rollback, scratch.checkpoint)
    fields = unpack_numbers(scratch.numbers, _FIELDS) if status == OK else []
    reuse(scratch)
    if status != OK:
        fail(status, "checkpoint")
    return fields


def checkpoint_read(record: bytes | memoryview, lsn: int) -> tuple[list[int], bytes] | None:
    """Decode the record of a checkpoint or rollback, and compute the checkpoint's digest.

    Args:
        record: the record, with a checked checksum.
        lsn: LSN of the record.

    Returns:
        The result of `checkpoint_decode`, with offsets in the record, followed by the time in
        microseconds; and the digest. None if the record has a different type, or is redacted or damaged.
    """
    scratch = take()
    pointer = record if type(record) is bytes else from_buffer("uint8_t[]", record)
    status = _checkpoint_read(pointer, len(record), lsn, scratch.checkpoint_record)
    found = None
    if status == OK:
        found = (
            unpack_numbers(scratch.numbers, _FIELDS + 1),
            unpack_bytes(scratch.checkpoint_digest, _DIGEST_SIZE_BYTES),
        )
    reuse(scratch)
    return found


def record_next(record: bytes, lsn: int, chain: bytes) -> tuple[int, int, int, int, bytes] | None:
    """Read the next record of a log.

    Args:
        record: the record, with a checked checksum.
        lsn: LSN of the record.
        chain: chain digest of the previous record.

    Returns:
        Type, thread, branch and time of the record, and its chain digest. Thread and branch are the
        first two fields of the body, or 0 if these are not numbers. None if the record does not
        continue the chain, is redacted or damaged, or has a newer format.
    """
    scratch = take()
    found = None
    if _record_next(record, len(record), lsn, chain, scratch.next_record) == OK:
        type_, thread, branch, time_us = unpack_numbers(scratch.numbers, 4)
        found = (type_, thread, branch, time_us, unpack_bytes(scratch.next_chain, _DIGEST_SIZE_BYTES))
    reuse(scratch)
    return found
