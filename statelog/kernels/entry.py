"""The record of an event of an entry or a lease, and the index rows that follow from the event, in one call."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from statelog._kernels import lib
from statelog.kernels.calling import OK, WANTED, unpack_bytes, unpack_numbers
from statelog.kernels.step import ROW_SIZE_BYTES, Room, Wanted, idle_rooms  # a step's room is an entry's, too

if TYPE_CHECKING:
    from collections.abc import Callable

_make: Callable[..., int] = lib.sl_entry_make

_new = tuple.__new__
"""Makes a named tuple without a call of Python's."""

_RECORD_AT: Final = 40
"""Two digests come before the record."""
_DELETED: Final[int] = lib.SL_ENTRY_DELETED

pack_entry: Callable[..., bytes] = Struct(">12Q4Q8sQQ8s3Q20s20s").pack
"""Packs the fixed fields of an event.

These are: thread, act, LSN of the record, time, creation, expiry, rank, time from which the entry may be claimed,
number of claims, LSN (0: no value) and number of the root so far, 1 if the entry exists so far; the six fields of the
key's row so far; the five fields of the claim; digest of the root so far, chain digest.
"""

_unpack_sizes: Callable[..., tuple[int, int]] = Struct(">HH").unpack_from


class EntryMade(NamedTuple):
    """Everything that an event of an entry brings to the disk."""

    chain: bytes
    """The chain digest of the record."""
    root_digest: bytes
    """Of the value's root; zeros if there is none."""
    root_number: int
    """Of the value's root, if there are nodes."""
    record: bytes
    """The record without its checksum."""
    node_count: int
    """0: the root stays where it was."""
    rows_at: int
    """Where in the record the body ends and the rows of the nodes begin."""
    nodes_at: int
    """Where in the record the nodes begin."""
    index_changes: list[tuple[bytes, bytes | None]]
    """In order; None deletes the key."""


def make_entry(
    fixed: bytes, held: bytes, changes: bytes, key: bytes, agent_item: bytes, error_item: bytes
) -> EntryMade | Wanted | None:
    """Make the record of an event of an entry or a lease, and the index changes.

    Args:
        fixed: see `pack_entry`.
        held: empty, and the changes are made to an empty value; else as for `step`, with the root so far.
        changes: the change of the value, as for `step`; empty if the root stays.
        key: the key of the entry, or a slash and the name of the lease.
        agent_item: the agent, an item.
        error_item: the error, an item.

    Returns:
        None if the general path must be taken: the value is cut into pieces, closes a chunk, may be stored elsewhere,
        or does not fit the change. `Wanted` if a node is not held.

    """
    try:
        room = idle_rooms.pop()
    except IndexError:
        room = Room()
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
