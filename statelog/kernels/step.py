"""What one commit changes in a state, where no chunk closes but at an end: the common commit, in one call."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from statelog._kernels import ffi, lib
from statelog.kernels.calling import OK, WANTED, from_buffer, new, reuse, take, unpack_bytes, unpack_numbers

if TYPE_CHECKING:
    from collections.abc import Callable

STEP_PUT: Final[int] = lib.SL_STEP_PUT
"""Payload: an item, the channel's new value."""

STEP_ADD: Final[int] = lib.SL_STEP_ADD
"""Payload: an item, added to an inline value."""

STEP_APPEND: Final[int] = lib.SL_STEP_APPEND
"""Payload: items one after another, appended to a list."""

STEP_PUT_ONCE: Final[int] = lib.SL_STEP_PUT_ONCE
"""Payload: an item, the value of a channel that has none."""

STEP_REMOVE: Final[int] = lib.SL_STEP_REMOVE
"""Takes a channel out, if it is there. Payload: empty."""

_make: Callable[..., int] = lib.sl_step_make
_list: Callable[..., int] = lib.sl_step_list
_prints: Callable[..., int] = lib.sl_step_prints

_new = tuple.__new__
"""Makes a named tuple without a call of Python's."""

_ROW = Struct(">B20sII")
ROW_SIZE_BYTES: Final = _ROW.size
_LEAF: Final = 1
_LARGE_SIZE_BYTES_MIN: Final = 4096
_RECORD_AT: Final = 60
"""Three digests stand before the record."""
_OUTPUT_SIZE_BYTES: Final = 192 * 1024
"""Above what rows and nodes of a step take, and what is held, and metadata mostly."""

pack_fixed: Callable[..., bytes] = Struct(">14q20s20s20s").pack
"""Packs what a step begins with: the numbers that `pack_numbers` takes, the root being the parent's; the record's LSN;
digests of the parent, of its state, and of the chain."""

pack_change: Callable[..., bytes] = Struct(">BIHHI").pack
"""Packs what stands before key item, name item and payload of a change: operation, number of items (of an append),
sizes of the three. The name is the key of a keyed list; empty for any other."""

pack_held: Callable[..., bytes] = Struct(">B20sQII").pack
"""Packs what stands before a node that is held for a step: type, digest, LSN, size, content size."""

pack_known: Callable[..., bytes] = Struct(">20sQI").pack
"""Packs a leaf that need not be made: digest, LSN, number."""

Wanted = tuple[int, bytes, int, int]
"""A node that a step lacks: type, digest, LSN, number."""


class Stepped(NamedTuple):
    """All that the checkpoint of a step brings to the disk, and what the next step begins with."""

    digest: bytes
    """The checkpoint's."""
    chain: bytes
    """The record's chain digest."""
    root_digest: bytes
    """Of the state's root."""
    root_number: int
    """Of the state's root, if there are nodes."""
    record: bytes
    """But for its checksum."""
    page: bytes
    """The version page with its entry."""
    held: bytes
    """For the next step; empty if the state stays."""
    node_count: int
    """0: the state stays as it was."""
    rows_at: int
    """Where in the record the body ends and rows of nodes begin."""
    nodes_at: int
    """Where the nodes begin."""
    large: list[tuple[int, bytes]]
    """Number and digest of each leaf of 4,096 bytes and up that was made: the store is to have none of them."""


class Room:
    """What one step at a time is gathered in, and put out to."""

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
        """Return the node that the kernel lacks."""
        wanted = self.wanted
        return wanted.type, unpack_bytes(self.digest, 20), wanted.lsn, wanted.node


idle_rooms: list[Room] = []
"""As the pool of scratches in `calling`."""


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
    """Change channels of a state, and make the record of the checkpoint that says so.

    Args:
        fixed: see `pack_fixed`. With a target it is a rollback, and changes nothing.
        held: what the last step held, and nodes that were wanted, each behind what `pack_held` packs.
        changes: ascending by key item, one per channel: see `pack_change`.
        known: leaves that lie elsewhere: see `pack_known`.
        id_item: see `checkpoint_encode`.
        metadata: see `checkpoint_encode`.
        written: see `checkpoint_encode`.
        borrowed: see `checkpoint_encode`.
        page: the version page that the checkpoint belongs on; empty for a new one.

    Returns:
        None where the general path must be taken: a chunk closes of a map's value, or of a level above the first; a
        value is a set, or becomes a tree of several nodes, types do not go together, there is too much of it, bytes are
        damaged. `Wanted` where a node is not held.
    """
    try:
        room = idle_rooms.pop()
    except IndexError:
        room = Room()
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
    """Return the root of the list that a channel has; None where a step would not append to it.

    Args:
        state_digest: of the state's root, which is held.
        held: as for `step`.
        key_item: the channel's.
    """
    try:
        room = idle_rooms.pop()
    except IndexError:
        room = Room()
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
    """Return the fingerprints of items that a keyed list gets, 2 bytes each.

    Args:
        items: one after another.
        key_item: the list's key, encoded.
        prints: the fingerprints it has.

    Returns:
        None where one is there already, or twice among them, so that an item may not be new; where an item is not one
        of such a list; and where they are too many.
    """
    scratch = take()
    output = scratch.output
    status = _prints(items, len(items), key_item, len(key_item), from_buffer(prints), len(prints), output)
    added = unpack_bytes(scratch.characters, output.size) if status == OK else None
    reuse(scratch)
    return added
