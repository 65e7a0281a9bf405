"""The kernel that encodes the checkpoint of an ordinary commit in one C call.

Only the last chunk of a list may close.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from statelog._kernels import ffi, lib
from statelog.kernels.calls import OK, WANTED, from_buffer, new, reuse, take, unpack_bytes, unpack_numbers

if TYPE_CHECKING:
    from collections.abc import Callable

STEP_PUT: Final[int] = lib.SL_STEP_PUT
"""The operation that sets a channel. Its payload is the encoded new value."""

STEP_ADD: Final[int] = lib.SL_STEP_ADD
"""The operation that adds to an inline value. Its payload is an encoded value."""

STEP_APPEND: Final[int] = lib.SL_STEP_APPEND
"""The operation that appends to a list. Its payload is the joined encoded items."""

STEP_PUT_ONCE: Final[int] = lib.SL_STEP_PUT_ONCE
"""The operation that sets a channel without a value. Its payload is the encoded value."""

STEP_REMOVE: Final[int] = lib.SL_STEP_REMOVE
"""The operation that removes a channel if it exists. Its payload is empty."""

_make: Callable[..., int] = lib.sl_step_make
_list: Callable[..., int] = lib.sl_step_list
_prints: Callable[..., int] = lib.sl_step_prints

_new = tuple.__new__
"""A constructor of named tuples that skips their `__new__`, which is Python code."""

_ROW = Struct(">B20sII")
ROW_SIZE_BYTES: Final = _ROW.size
_LEAF: Final = 1
_LARGE_SIZE_BYTES_MIN: Final = 4096
_RECORD_AT: Final = 60
"""The offset of the record in the kernel's output. Three digests precede the record."""
_OUTPUT_SIZE_BYTES: Final = 192 * 1024
"""The size of the output: enough for the nodes of a step, the held nodes, and most metadata."""

pack_fixed: Callable[..., bytes] = Struct(">14q20s20s20s").pack
"""A function that packs the fixed fields of a step.

These are the numbers of `pack_numbers`, with the root of the parent; the LSN of the record; the digests of the parent
and its state; and the chain digest of the previous record.
"""

pack_change: Callable[..., bytes] = Struct(">BIHHI").pack
"""A function that packs the header of a change: operation, number of appended items, and sizes of key, name and
payload.

Encoded key, encoded name and payload follow the header. The name is the key of a keyed list, and empty otherwise.
"""

pack_held: Callable[..., bytes] = Struct(">B20sQII").pack
"""A function that packs the header of a held node: type, digest, LSN, size, content size. The node's bytes follow."""

pack_known: Callable[..., bytes] = Struct(">20sQI").pack
"""A function that packs a reference to a leaf that the store already has: digest, LSN, node number."""

Wanted = tuple[int, bytes, int, int]
"""A reference to a node that a step needs, but did not get in `held`: type, digest, LSN, node number."""


class Stepped(NamedTuple):
    """The encoded checkpoint of a step, and what the caller needs to store it."""

    digest: bytes
    """The digest of the checkpoint."""
    chain: bytes
    """The chain digest of the record."""
    root_digest: bytes
    """The digest of the state's root."""
    root_number: int
    """The node number of the state's root in the record, if the record has nodes."""
    record: bytes
    """The record without its checksum."""
    page: bytes
    """The version page with the entry of the checkpoint."""
    held: bytes
    """The nodes to pass to the next step as its `held`. Empty if the state does not change."""
    node_count: int
    """The number of nodes in the record, or 0 if the state does not change."""
    rows_at: int
    """The offset in the record at which the body ends and the node table begins."""
    nodes_at: int
    """The offset in the record at which the nodes begin."""
    large: list[tuple[int, bytes]]
    """The number and digest of each new leaf of 4,096 bytes or more. The caller checks that the store has none of them
    yet.
    """


class StepBuffers:
    """The working memory and output of a call of `step` or `make_entry`, for one call at a time."""

    __slots__ = ("characters", "digest", "made", "output", "step", "wanted")

    def __init__(self) -> None:
        self.step = new("sl_step *")
        self.made = ffi.cast("uint64_t *", self.step)
        self.wanted = self.step.wanted
        self.digest = ffi.cast("char *", self.wanted.digest)
        self.characters = new("char[]", _OUTPUT_SIZE_BYTES)
        self.output = new("sl_output *")
        self.output.bytes = ffi.cast("uint8_t *", self.characters)
        self.output.capacity = _OUTPUT_SIZE_BYTES

    def read_wanted(self) -> Wanted:
        """Return a reference to the node that the kernel needs next."""
        wanted = self.wanted
        return wanted.type, unpack_bytes(self.digest, 20), wanted.lsn, wanted.node


idle_rooms: list[StepBuffers] = []
"""The buffers that no call uses, like the pool of scratches in `calls`."""


def step(
    fixed: bytes,
    held: bytes,
    changes: bytes,
    known: bytes,
    id_item: bytes,
    metadata: bytes,
    written: bytes,
    borrowed: bytes,
    page: bytes,
) -> Stepped | Wanted | None:
    """Change channels of a state, and encode the record of the new checkpoint.

    Args:
        fixed: see `pack_fixed`. If the target is not 0, the step is a rollback and has no changes.
        held: the nodes that the last step returned, and wanted nodes. Each has the header of `pack_held`.
        changes: one change per channel, ascending by encoded key: see `pack_change`.
        known: leaves that the store already has: see `pack_known`.
        id_item: see `checkpoint_encode`.
        metadata: see `checkpoint_encode`.
        written: see `checkpoint_encode`.
        borrowed: see `checkpoint_encode`.
        page: the version page to which the checkpoint is added; empty for a new page.

    Returns:
        The checkpoint. `Wanted` if the kernel needs a node that `held` does not have. None if the caller must take the
        general path: a chunk closes in a map or above the first level; a value is a set, or becomes a tree of several
        nodes; types do not match; the output is full; or bytes are damaged.
    """
    try:
        room = idle_rooms.pop()
    except IndexError:
        room = StepBuffers()
    status = _make(
        room.step, fixed, held, len(held), changes, len(changes), known, len(known), id_item, len(id_item),
        metadata, len(metadata), written, len(written), borrowed, len(borrowed), page, len(page), room.output,
    )  # fmt: skip
    made: Stepped | Wanted | None = None
    if status == OK:
        number, count, nodes_at, end, page_end, is_large = unpack_numbers(room.made, 6)
        whole = unpack_bytes(room.characters, room.output.size)
        nodes_at -= _RECORD_AT
        rows_at = nodes_at - ROW_SIZE_BYTES * count
        record = whole[60:end]
        fields = (
            whole[:20], whole[20:40], whole[40:60], number, record, whole[end:page_end], whole[page_end:], count,
            rows_at, nodes_at, _find_large(record[rows_at:nodes_at]) if is_large else [],
        )  # fmt: skip
        made = _new(Stepped, fields)
    elif status == WANTED:
        made = room.read_wanted()
    idle_rooms.append(room)
    return made


def step_list(state_digest: bytes, held: bytes, key_item: bytes) -> Wanted | None:
    """Return a reference to the root of a channel's list, or None if a step cannot append to the channel.

    Args:
        state_digest: the digest of the state's root. `held` must contain this node.
        held: as for `step`.
        key_item: the encoded name of the channel.
    """
    try:
        room = idle_rooms.pop()
    except IndexError:
        room = StepBuffers()
    status = _list(room.step, state_digest, held, len(held), key_item, len(key_item))
    found = room.read_wanted() if status == OK else None
    idle_rooms.append(room)
    return found


def _find_large(rows: bytes) -> list[tuple[int, bytes]]:
    found, begin = [], 0
    for number, (type_, digest, content_end, end) in enumerate(_ROW.iter_unpack(rows)):
        if type_ == _LEAF and content_end - begin >= _LARGE_SIZE_BYTES_MIN:
            found.append((number, digest))
        begin = end
    return found


def step_prints(items: bytes, key_item: bytes, prints: bytearray) -> bytes | None:
    """Return the fingerprints of new items of a keyed list, 2 bytes each.

    Args:
        items: the encoded items, joined.
        key_item: the key of the list, encoded.
        prints: the fingerprints of the list's current items.

    Returns:
        The fingerprints. None if a fingerprint is already in the list or occurs twice, because that item may not be
        new. None also if an item lacks the key, or if there are too many items.
    """
    scratch = take()
    output = scratch.output
    status = _prints(items, len(items), key_item, len(key_item), from_buffer(prints), len(prints), output)
    added = unpack_bytes(scratch.characters, output.size) if status == OK else None
    reuse(scratch)
    return added
