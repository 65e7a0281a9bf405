"""Encodes the writes of tasks that are committed together as one value: items of lists, if any, and then a header.

The header is nil, and then for each task its id (16 bytes for a UUID), its path, the number of its writes, and its
writes. Each write is its channel, its number and its value. The value is nil and the msgpack value; or the kind and
bytes from the serialiser; or, for a list that is split, true and the number of its items. The items of all lists come
before the header, so that they are cut into the same chunks as in the channel that they are added to. Without such
items, the header is one msgpack item. With items, the header is bytes, because no item of a list is bytes.

Older forms can also be read. In older releases the header was a msgpack item before the items of lists. The writes of
one task were stored alone, and errors, interrupts and resumes still are: then the header is the task, its path and its
writes. In still older releases each write was stored alone: its value has no nil, and all items after the header belong
to its list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.adapters.kit import items
from statelog.adapters.kit.notes import note
from statelog.adapters.kit.packed import MSGPACK
from statelog.adapters.langgraph.values.codec import join, may_be_split, split
from statelog.adapters.langgraph.values.msgpack_items import (
    is_packed,
    pack,
    pack_bytes,
    pack_id,
    pack_item,
    pack_name,
    pack_text,
    unpack,
    unpack_bytes,
    unpack_id,
    unpack_name,
)
from statelog.kernels.msgpack import join_array, split_array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from statelog.adapters.langgraph.values.codec import ValueCodec
    from statelog.adapters.langgraph.values.copies import DecodedBy

_new = tuple.__new__
"""Creates a named tuple without calling its `__new__` in Python."""

_NIL = pack_text(None)
_TRUE = b"\xc3"
_TASK_PARTS, _WRITE_PARTS = 2, 4


class Bundle(NamedTuple):
    """The writes that a task made in one call, still encoded."""

    task_id: str
    path: str
    writes: dict[int, BundledWrite]
    """The writes, keyed by number."""


class BundledWrite(NamedTuple):
    """One write of a task."""

    channel: str
    value: Sequence[bytes]
    """A msgpack value, or a kind and bytes. It is empty for a list that is split."""
    items: Sequence[bytes]
    """The items of a list that is split."""


class EncodedWrites(NamedTuple):
    """The writes of a task, encoded."""

    header: list[bytes]
    behind: list[bytes]


def encode_writes(
    codec: ValueCodec, task_id: str, path: str, writes: Sequence[tuple[int, str, Any]], *, what: str
) -> EncodedWrites:
    """Encode a task's writes, each given as its number, channel and value.

    Raises:
        ValueTypeError: the serialiser refuses a value; the message names the channel.
    """
    header = [pack_id(task_id), pack_name(path), pack_name(str(len(writes)))]
    behind: list[bytes] = []
    for number, channel, value in writes:
        kind, data = codec.dump(value, f"write to {channel!r} of {what}", (channel,))
        is_msgpack = kind == MSGPACK and (codec.proves or codec.is_one_value(kind, data))
        parts = split(data) if is_msgpack and may_be_split(data) else None
        header += (pack_name(channel), pack_name(str(number)))
        if parts is not None:
            header += (_TRUE, pack_name(str(len(parts))))
            behind += map(pack_item, parts)
        elif is_msgpack:
            header += (_NIL, data)
        else:
            header += (pack_name(kind), pack_bytes(data))
    return _new(EncodedWrites, (header, behind))


def encode_bundles(tasks: Sequence[EncodedWrites]) -> bytes:
    """Return the item that stores the writes of `tasks`."""
    header = [_NIL]
    behind: list[bytes] = []
    for task in tasks:
        header += task.header
        behind += task.behind
    return _pack(header, behind)


def encode_alone(task: EncodedWrites) -> bytes:
    """Return the item that stores one task's writes by themselves."""
    return _pack([*task.header[:_TASK_PARTS], *task.header[_TASK_PARTS + 1 :]], task.behind)


def _pack(header: list[bytes], behind: Sequence[bytes]) -> bytes:
    if not behind:
        return pack(join_array(header))
    return items.pack_list([*behind, items.wrap(b"", join_array(header))])


def decode_bundles(stored: Sequence[bytes]) -> tuple[list[Bundle], bool]:
    """Decode a header and its items. Also return whether the header has the form for the writes of one task alone."""
    parts = split_array(unpack(stored[0])) or []
    if parts[0] != _NIL:
        return [_decode_alone(parts, stored)], True
    found: list[Bundle] = []
    at, place = 1, 1
    while place < len(parts):
        end = place + _TASK_PARTS + 1 + _WRITE_PARTS * int(unpack_name(parts[place + _TASK_PARTS]))
        writes, at = _decode_writes(parts[place + _TASK_PARTS + 1 : end], stored, at)
        found.append(_new(Bundle, (_task_id(parts[place]), unpack_name(parts[place + 1]), writes)))
        place = end
    return found, False


def _decode_alone(parts: list[bytes], stored: Sequence[bytes]) -> Bundle:
    if (len(parts) - _TASK_PARTS) % _WRITE_PARTS:  # This is a single write, stored alone.
        is_split = len(parts) == _WRITE_PARTS
        parts[_WRITE_PARTS:_WRITE_PARTS] = [_TRUE, pack_text(str(len(stored) - 1))] if is_split else [_NIL]
    return _new(Bundle, (_task_id(parts[0]), unpack_name(parts[1]), _decode_writes(parts[_TASK_PARTS:], stored, 1)[0]))


def _decode_writes(parts: Sequence[bytes], stored: Sequence[bytes], at: int) -> tuple[dict[int, BundledWrite], int]:
    """Return the writes, keyed by number, and the position where the items of the next task begin."""
    found: dict[int, BundledWrite] = {}
    for place in range(0, len(parts), _WRITE_PARTS):
        channel, number, form, data = parts[place : place + _WRITE_PARTS]
        end = at
        if form == _TRUE:
            end += int(unpack_name(data))
        value = () if form == _TRUE else (data,) if form == _NIL else (form, data)
        found.setdefault(int(unpack_name(number)), _new(BundledWrite, (unpack_name(channel), value, stored[at:end])))
        at = end
    return found, at


def read_bundle(stored: items.Stored) -> list[bytes]:
    """Return the input of `decode_bundles` for a value that `statelog.adapters.kit.items` has read."""
    if isinstance(stored, bytes) and is_packed(stored):
        return [stored]
    *found, last = items.read_list(stored)
    return [*found, last] if is_packed(last) else [pack(items.unwrap(b"", last)), *found]


def join_bundles(held: bytes, new: bytes) -> bytes:
    """Join two items from `encode_bundles` that would be stored under one name."""
    first, more = read_bundle(held), read_bundle(new)
    header = [*(split_array(unpack(first[0])) or []), *(split_array(unpack(more[0])) or [])[1:]]
    return _pack([*header], [*first[1:], *more[1:]])


def _task_id(item: bytes) -> str:
    return unpack_id(item) or ""


def decode_write(codec: ValueCodec, write: BundledWrite, decoded: DecodedBy | None = None) -> Any:
    """Return the value of a write. Errors of the serialiser get a note that names the channel."""
    try:
        return _decode_value(codec, write, decoded)
    except Exception as error:
        note(error, f"raised by the serialiser for a write to channel {write.channel!r}")
        raise


def _decode_value(codec: ValueCodec, write: BundledWrite, decoded: DecodedBy | None) -> Any:
    if not write.value:
        return codec.decode([join(write.items)], decoded)
    if len(write.value) == 1:
        return codec.load(MSGPACK, write.value[0])
    kind, data = write.value
    return codec.load(unpack_name(kind), unpack_bytes(data))
