"""What one commit changes in a state whose trees close no chunk: the common commit, in a few calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from statelog._kernels import ffi, lib
from statelog.kernels.calling import ABSENT, OK, from_buffer, new, reuse, take, unpack_bytes, unpack_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

STEP_PUT: Final = 1
"""Payload: an item, the channel's new value."""

STEP_ADD: Final = 2
"""Payload: an item, added to an inline value."""

STEP_APPEND: Final = 3
"""Payload: items one after another, appended to a list."""

_begin: Callable[..., None] = lib.sl_step_begin
_put: Callable[..., int] = lib.sl_step_put
_add: Callable[..., int] = lib.sl_step_add
_append: Callable[..., int] = lib.sl_step_append
_finish: Callable[..., int] = lib.sl_step_finish
_prints: Callable[..., int] = lib.sl_step_prints

_ROW_SIZE_BYTES: Final = 29


Change = tuple[int, bytes, bytes, int, int, tuple[bytes, int, int]]
"""What a step does to one channel: operation, key item, payload; of `STEP_APPEND` also the number of items, the
kind of the list, and its root: data, content size, LSN. A bare tuple, since every commit makes one."""


class Stepped(NamedTuple):
    """The nodes that a step makes, as they go into a record; the state's root is the last of them."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls here
    rows: bytes
    nodes: bytes
    places: list[list[int]]
    """Of each change, then of the state's root: number of the node made, and where it begins, where its content
    ends, and where it ends in `nodes`."""


class _Room:
    """The struct that one step at a time is gathered in."""

    __slots__ = ("nodes", "place", "rows", "step")

    def __init__(self) -> None:
        self.step = new("sl_step *")
        self.place = ffi.addressof(self.step, "row")
        self.rows = ffi.cast("char *", self.step.rows)
        self.nodes = ffi.cast("char *", self.step.nodes)


_idle: list[_Room] = []
"""As the pool of scratches in `calling`."""

_NOTHING: Final = Stepped(0, b"", b"", [])


def step(state: tuple[bytes, int, int], digest: bytes, changes: Sequence[Change]) -> Stepped | None:
    """Change channels of a state.

    Args:
        state: root node of a dict, its content size and LSN.
        digest: the root's, 20 bytes.
        changes: ascending by key item, one per channel.

    Returns:
        The nodes made, none if the state is as it was; None where the general path must be taken: a chunk
        closes, a value becomes a tree, types do not go together, bytes are damaged.
    """
    try:
        room = _idle.pop()
    except IndexError:
        room = _Room()
    made = room.step
    places: list[list[int]] = []
    place = room.place
    _begin(made)
    for operation, key, payload, count, kind, root in changes:
        if operation == STEP_APPEND:
            node, content_size, lsn = root
            status = _append(
                made, key, len(key), payload, len(payload), count, kind, node, len(node), content_size, lsn
            )
        elif operation == STEP_PUT:
            status = _put(made, key, len(key), payload, len(payload))
        else:
            status = _add(made, key, len(key), payload, len(payload), state[0], len(state[0]), state[1])
        if status != OK:
            break
        places.append(unpack_numbers(place, 4))
    else:
        data, content_size, lsn = state
        status = _finish(made, data, len(data), content_size, lsn, digest)
    stepped = None
    if status == OK:
        count = made.row_count
        places.append(unpack_numbers(place, 4))
        rows = unpack_bytes(room.rows, _ROW_SIZE_BYTES * count)
        stepped = tuple.__new__(Stepped, (count, rows, unpack_bytes(room.nodes, made.nodes_size), places))
    elif status == ABSENT:
        stepped = _NOTHING
    _idle.append(room)
    return stepped


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
