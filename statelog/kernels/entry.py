"""The kernel that encodes an event of an entry or a lease (its record and its index changes) in one C call."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from statelog._kernels import lib
from statelog.kernels.calls import OK, WANTED, unpack_bytes, unpack_numbers
from statelog.kernels.step import (  # Entries use the output buffers of steps.
    ROW_SIZE_BYTES,
    StepBuffers,
    Wanted,
    idle_rooms,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_make: Callable[..., int] = lib.sl_entry_make

_new = tuple.__new__
"""A constructor of named tuples that skips their `__new__`, which is Python code."""

_RECORD_AT: Final = 40
"""The offset of the record in the kernel's output. Two digests precede the record."""
_DELETED: Final[int] = lib.SL_ENTRY_DELETED

pack_entry: Callable[..., bytes] = Struct(">12Q4Q8sQQ8s3Q20s20s").pack
"""A function that packs the fields of an event that have a fixed size.

The fields are, in this order:

1. thread, act, LSN of the record, time, creation, expiry, rank, time from which the entry may be claimed, and number of
   claims;
2. LSN (0 for no value) and node number of the current root, and 1 if the entry exists before the event;
3. the six fields of the key's current row (`EntryRow`);
4. the five fields of the claim (`Claimed`);
5. digest of the current root, and chain digest of the previous record.
"""

_unpack_sizes: Callable[..., tuple[int, int]] = Struct(">HH").unpack_from


class EntryMade(NamedTuple):
    """An encoded event of an entry: its record and its index changes."""

    chain: bytes
    """The chain digest of the record."""
    root_digest: bytes
    """The digest of the entry's root after the event, or zeros if the entry has no value."""
    root_number: int
    """The node number of the root in the record, if the record has nodes."""
    record: bytes
    """The record without its checksum."""
    node_count: int
    """The number of nodes in the record, or 0 if the root does not change."""
    rows_at: int
    """The offset in the record at which the body ends and the node table begins."""
    nodes_at: int
    """The offset in the record at which the nodes begin."""
    index_changes: list[tuple[bytes, bytes | None]]
    """The pairs of key and payload, in order. A payload of None deletes the key."""


def make_entry(
    fixed: bytes, held: bytes, changes: bytes, key: bytes, agent_item: bytes, error_item: bytes
) -> EntryMade | Wanted | None:
    """Encode an event of an entry or a lease: its record and its index changes.

    Args:
        fixed: see `pack_entry`.
        held: the nodes that the kernel may read, encoded as for `step`, including the current root. If it is empty, the
            changes are made to an empty value.
        changes: the change of the value, encoded as for `step`; empty if the root does not change.
        key: the key of the entry, or a slash followed by the name of the lease.
        agent_item: the agent, encoded.
        error_item: the error, encoded.

    Returns:
        The record and the index changes. `Wanted` if the kernel needs a node that `held` lacks. None if the caller must
        take the general path: the value is cut into pieces, closes a chunk, may already be stored, or does not fit the
        change.
    """
    try:
        room = idle_rooms.pop()
    except IndexError:
        room = StepBuffers()
    status = _make(
        room.step, fixed, held, len(held), changes, len(changes), key, len(key), agent_item, len(agent_item),
        error_item, len(error_item), room.output,
    )  # fmt: skip
    made: EntryMade | Wanted | None = None
    if status == OK:
        number, count, nodes_at, end, at = unpack_numbers(room.made, 5)
        whole = unpack_bytes(room.characters, at)
        changes_made: list[tuple[bytes, bytes | None]] = []
        size, at = at, end
        while at < size:
            key_size, payload_size = _unpack_sizes(whole, at)
            at += 4 + key_size
            place = whole[at - key_size : at]
            if payload_size == _DELETED:
                changes_made.append((place, None))
            else:
                changes_made.append((place, whole[at : at + payload_size]))
                at += payload_size
        nodes_at -= _RECORD_AT
        rows_at = nodes_at - ROW_SIZE_BYTES * count
        fields = (whole[:20], whole[20:40], number, whole[40:end], count, rows_at, nodes_at, changes_made)
        made = _new(EntryMade, fields)
    elif status == WANTED:
        made = room.read_wanted()
    idle_rooms.append(room)
    return made
