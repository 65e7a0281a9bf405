"""What one commit changes in a state, where no chunk closes but at an end: the common commit, in a few calls."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from statelog._kernels import ffi, lib
from statelog.kernels.calling import OK, from_buffer, new, reuse, take, unpack_bytes, unpack_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

STEP_PUT: Final = 1
"""Payload: an item, the channel's new value."""

STEP_ADD: Final = 2
"""Payload: an item, added to an inline value."""

STEP_APPEND: Final = 3
"""Payload: items one after another, appended to a list."""

STEP_PUT_ONCE: Final = 4
"""Payload: an item, the value of a channel that has none."""

STEP_REMOVE: Final = 5
"""Takes a channel out, if it is there. Payload: empty."""

STEP_LEVELS: Final[int] = lib.SL_STEP_LEVELS
"""So many levels above the entries of a list or a state may take what has closed below them."""

_begin: Callable[..., None] = lib.sl_step_begin
_put: Callable[..., int] = lib.sl_step_put
_add: Callable[..., int] = lib.sl_step_add
_put_once: Callable[..., int] = lib.sl_step_put_once
_remove: Callable[..., int] = lib.sl_step_remove
_append: Callable[..., int] = lib.sl_step_append
_record: Callable[..., int] = lib.sl_step_record
_prints: Callable[..., int] = lib.sl_step_prints

_new = tuple.__new__
"""Makes a named tuple without a call of Python's."""

_ROW = Struct(">B20sII")
_ROW_SIZE_BYTES: Final = _ROW.size
_LEAF: Final = 1
_LARGE_SIZE_BYTES_MIN: Final = 4096
_RECORD_AT: Final = 60
"""Three digests stand before the record."""
_OUTPUT_SIZE_BYTES: Final = 128 * 1024
"""Above what rows and nodes of a step take, and metadata mostly."""


Change = tuple[int, bytes, bytes, int, int, tuple[bytes, int, int], tuple[tuple[bytes, int, int], ...]]
"""What a step does to one channel: operation, key item, payload; of `STEP_APPEND` also the number of items, the
kind of the list, its root (data, content size, LSN), and the same of its lowest `STEP_LEVELS` open levels, the lowest
first, empty data for one that covers nothing. A bare tuple, since every commit makes one."""


class Stepped(NamedTuple):
    """All that the checkpoint of a step brings to the disk."""

    digest: bytes
    """The checkpoint's."""
    chain: bytes
    """The record's chain digest."""
    root_digest: bytes
    """Of the state's root."""
    record: bytes
    """But for its checksum."""
    page: bytes
    """The version page with its entry."""
    node_count: int
    """0: the state stays as it was."""
    rows_at: int
    """Where in the record the body ends and rows of nodes begin."""
    nodes_at: int
    """Where the nodes begin."""
    places: list[Sequence[int]]
    """Of the state's root, last, and of the root of each list appended to: number of the node made, and where it
    begins, where its content ends, and where it ends behind `nodes_at`; and before these numbers, the last three of
    each of its lowest `STEP_LEVELS` open levels, zeros if one stays what it was."""
    large: list[tuple[int, bytes]]
    """Number and digest of each leaf of 4,096 bytes and up: it is a step only if the store has none of them."""


class _Room:
    """What one step at a time is gathered in, and put out to."""

    __slots__ = ("characters", "made", "output", "step", "views")

    def __init__(self) -> None:
        self.step = new("sl_step *")
        self.made = ffi.cast("uint64_t *", ffi.addressof(self.step, "opens"))
        self.views = new("sl_node_view[]", 1 + STEP_LEVELS)
        self.characters = new("char[]", _OUTPUT_SIZE_BYTES)
        self.output = new("sl_output *")
        self.output.bytes = ffi.cast("uint8_t *", self.characters)
        self.output.capacity = _OUTPUT_SIZE_BYTES


_idle: list[_Room] = []
"""As the pool of scratches in `calling`."""


def step(
    state: tuple[bytes, int, int],
    opens: Sequence[tuple[bytes, int, int]],
    state_digest: bytes,
    changes: Sequence[Change],
    numbers: bytes,
    parent_digest: bytes,
    id_item: bytes,
    metadata: bytes,
    written: bytes,
    lsn: int,
    previous_chain: bytes,
    page: bytes,
) -> Stepped | None:
    """Change channels of a state, and make the record of the checkpoint that says so.

    Args:
        state: root node of a dict, its content size and LSN.
        opens: its open levels, as those of a list in `Change`.
        state_digest: the root's, 20 bytes.
        changes: ascending by key item, one per channel.
        numbers: see `pack_numbers`; LSN and number of the root are those of `state`.
        parent_digest: of the checkpoint that has that state.
        id_item: see `checkpoint_encode`.
        metadata: see `checkpoint_encode`.
        written: see `checkpoint_encode`.
        lsn: of the record.
        previous_chain: chain digest of the record before.
        page: the version page that the checkpoint belongs on; empty for a new one.

    Returns:
        None where the general path must be taken: a chunk closes of a map's value, or of a level above the first, or an
        open one is not known; a value is a set, or becomes a tree of several nodes, types do not go together, there is
        too much of it, bytes are damaged.
    """
    try:
        room = _idle.pop()
    except IndexError:
        room = _Room()
    gathered = room.step
    places: list[Sequence[int]] = []
    data, content_size, _lsn = state
    _begin(gathered)
    for operation, key, payload, count, kind, root, levels in changes:
        if operation == STEP_APPEND:
            held = _show(room.views, (root, *levels))
            status = _append(gathered, key, len(key), payload, len(payload), count, kind, room.views, room.views + 1)
            del held
            places.append(unpack_numbers(room.made, 3 * STEP_LEVELS + 4))
        elif operation == STEP_PUT:
            status = _put(gathered, key, len(key), payload, len(payload))
        elif operation == STEP_REMOVE:
            status = _remove(gathered, key, len(key))
        else:
            change = _add if operation == STEP_ADD else _put_once
            status = change(gathered, key, len(key), payload, len(payload), data, len(data), content_size)
        if status != OK:
            break
    else:
        held = _show(room.views, (state, *opens))
        status = _record(
            gathered, room.views, room.views + 1, state_digest, numbers, parent_digest,
            id_item, len(id_item), metadata, len(metadata), written, len(written),
            lsn, previous_chain, page, len(page), room.output,
        )  # fmt: skip
        del held
    made = None
    if status == OK:
        *place, count, nodes_at, end = unpack_numbers(room.made, 3 * STEP_LEVELS + 7)
        places.append(place)
        whole = unpack_bytes(room.characters, room.output.size)
        nodes_at -= _RECORD_AT
        rows_at = nodes_at - _ROW_SIZE_BYTES * count
        record = whole[60:end]
        large = find_large(record[rows_at:nodes_at]) if gathered.large_count else []
        fields = (
            whole[:20], whole[20:40], whole[40:60], record, whole[end:], count, rows_at, nodes_at, places, large,
        )  # fmt: skip
        made = _new(Stepped, fields)
    _idle.append(room)
    return made


def _show(views: Any, nodes: Sequence[tuple[bytes, int, int]]) -> list[object]:
    """Let views show nodes, the rest nothing; what is returned is to be held for as long as they are looked at."""
    held = []
    for number in range(1 + STEP_LEVELS):
        data, content_size, lsn = nodes[number] if number < len(nodes) else (b"", 0, 0)
        view, buffer = views[number], from_buffer(data)
        view.bytes, view.size, view.content_size, view.lsn = buffer, len(data), content_size, lsn
        held.append(buffer)
    return held


def find_large(rows: bytes) -> list[tuple[int, bytes]]:
    """Return number and digest of each row that is of a leaf of 4,096 bytes and up."""
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
