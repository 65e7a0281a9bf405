"""The writes of a task in one value: a packed header, and behind it the items of the lists that are split.

Header: task, path, and for each write an array of its channel, its number, and: its value; the serialiser's kind and
its bytes; or, of a list that is split, nil and how many items. Each write was once stored by itself, without an array,
and the items of its list behind the header: that is read, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from statelog import items
from statelog.adapters.langgraph.values import (
    ARRAYS,
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

_NIL = pack_text(None)


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
    for number, write in bundle.writes.items():
        value = write.value or (_NIL, pack_text(str(len(write.items))))
        header.append(join_array([pack_text(write.channel), pack_text(str(number)), *value]))
        behind += write.items
    packed = pack(join_array(header))
    return items.pack_list([packed, *behind]) if behind else packed


def decode_bundle(stored: Sequence[bytes]) -> Bundle:
    """Return what is stored: the header, and what is behind it."""
    task_id, path, *writes = split_array(unpack(stored[0])) or []
    found: dict[int, BundledWrite] = {}
    at = 1
    if writes[0][0] not in ARRAYS:
        channel, number, *value = writes
        found[int(_text(number))] = BundledWrite(_text(channel), value, stored[1:])
        writes = []
    for packed in writes:
        channel, number, *value = split_array(packed) or []
        end = at
        if value[0] == _NIL and len(value) > 1:
            end += int(_text(value[1]))
            value = []
        found[int(_text(number))] = BundledWrite(_text(channel), value, stored[at:end])
        at = end
    return Bundle(_text(task_id), _text(path), found)


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
