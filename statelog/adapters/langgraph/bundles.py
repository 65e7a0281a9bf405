"""The writes of a task in one value: a packed header, and behind it the items of the lists that are split.

Header: task, path, and four things for each write: its channel, its number, and nil and its value; or the serialiser's
kind and its bytes; or, of a list that is split, true and how many items. Each write was once stored by itself: then its
value stands without nil, and of a list all that is behind the header is its items. That is read, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from statelog import items
from statelog.adapters.langgraph.values import (
    is_packed,
    join,
    pack,
    pack_bytes,
    pack_text,
    split_list,
    unpack,
    unpack_bytes,
    unpack_text,
)
from statelog.adapters.packed import MSGPACK
from statelog.kernels.msgpack import join_array, split_array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from statelog.adapters.langgraph.values import Codec

_new = tuple.__new__
"""Makes a named tuple without a call of Python's."""

_NIL = pack_text(None)
_TRUE = b"\xc3"
_TASK_PARTS, _WRITE_PARTS = 2, 4


class Bundle(NamedTuple):
    """What a task has written, as stored: nothing of it is decoded."""

    task_id: str
    path: str
    writes: dict[int, BundledWrite]
    """By number."""


class BundledWrite(NamedTuple):
    """One write."""

    channel: str
    value: Sequence[bytes]
    """In msgpack: a value; or kind and bytes. Empty of a list that is split."""
    items: Sequence[bytes]
    """Of a list that is split."""


def encode_bundle(codec: Codec, task_id: str, path: str, writes: Sequence[tuple[int, str, Any]], *, what: str) -> bytes:
    """Return the item of a task's writes: of each its number, its channel and its value.

    Raises:
        ValueTypeError: the serialiser refuses a value; the message names the channel.

    """
    made: dict[int, BundledWrite] = {}
    for number, channel, value in writes:
        kind, data = codec.dump(value, f"write to {channel!r} of {what}")
        parts = split_list(data) if kind == MSGPACK else None
        if parts is not None:
            made[number] = BundledWrite(channel, (), [pack(part) for part in parts])
        else:
            made[number] = BundledWrite(
                channel, (data,) if kind == MSGPACK else (pack_text(kind), pack_bytes(data)), ()
            )
    return _encode(Bundle(task_id, path, made))


def _encode(bundle: Bundle) -> bytes:
    header = [pack_text(bundle.task_id), pack_text(bundle.path)]
    behind: list[bytes] = []
    for number, (channel, value, split) in bundle.writes.items():
        header += (pack_text(channel), pack_text(str(number)))
        if len(value) == 1:
            header += (_NIL, *value)
        else:
            header += value or (_TRUE, pack_text(str(len(split))))
            behind += split
    packed = pack(join_array(header))
    return items.pack_list([packed, *behind]) if behind else packed


def decode_bundle(stored: Sequence[bytes]) -> Bundle:
    """Return what is stored: the header, and what is behind it."""
    parts = split_array(unpack(stored[0])) or []
    if (len(parts) - _TASK_PARTS) % _WRITE_PARTS:  # one write by itself
        is_split = len(parts) == _WRITE_PARTS
        parts[_WRITE_PARTS:_WRITE_PARTS] = [_TRUE, pack_text(str(len(stored) - 1))] if is_split else [_NIL]
    found: dict[int, BundledWrite] = {}
    at = 1
    for place in range(_TASK_PARTS, len(parts), _WRITE_PARTS):
        channel, number, form, data = parts[place : place + _WRITE_PARTS]
        end = at
        if form == _TRUE:
            end += int(_text(data))
        value = () if form == _TRUE else (data,) if form == _NIL else (form, data)
        found[int(_text(number))] = _new(BundledWrite, (_text(channel), value, stored[at:end]))
        at = end
    return _new(Bundle, (_text(parts[0]), _text(parts[1]), found))


def read_bundle(stored: items.Stored) -> list[bytes]:
    """Return what `decode_bundle` takes, of a value as `statelog.items` reads it."""
    return [stored] if isinstance(stored, bytes) and is_packed(stored) else items.read_list(stored)


def join_bundles(held: bytes, new: bytes) -> bytes:
    """Return what is held of a task, and of what is new the writes of numbers that it has not."""
    first, more = decode_bundle(read_bundle(held)), decode_bundle(read_bundle(new))
    missing = {number: write for number, write in more.writes.items() if number not in first.writes}
    return _encode(first._replace(writes={**first.writes, **missing})) if missing else held


def decode_write(codec: Codec, write: BundledWrite) -> Any:
    """Return the value of a write. Raises what the serialiser raises."""
    if not write.value:
        return codec.decode([join(write.items)])
    if len(write.value) == 1:
        return codec.load(MSGPACK, write.value[0])
    kind, data = write.value
    return codec.load(_text(kind), unpack_bytes(data))


def _text(packed: bytes) -> str:
    return unpack_text(packed) or ""
