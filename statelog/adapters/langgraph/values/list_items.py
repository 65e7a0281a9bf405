"""Cuts a value with long lists into items: a header with the parts around the lists, and then the lists' items.

A graph that passes its state to a subgraph or a tool passes on all messages. Stored as items, these messages share the
nodes of the list of messages. Nothing is decoded, and the parts are put together again byte for byte.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from statelog.adapters.kit.packed import cut_header
from statelog.kernels.msgpack import array_head, split_array

if TYPE_CHECKING:
    from collections.abc import Sequence

CUT_SIZE_BYTES_MIN = 384
"""The minimum size of a list that is cut out."""
SPLIT_SIZE_BYTES_MIN = 32
"""A list is split if its items have at least this average size. Each item costs 14 bytes, too much for numbers."""

_DEPTH_MAX = 32

_MAPS = {0xDE: 2, 0xDF: 4} | dict.fromkeys(range(0x80, 0x90), 0)
"""The first bytes of maps, with the size of the count after them."""
ARRAYS = frozenset([*range(0x90, 0xA0), 0xDC, 0xDD])
"""The first bytes of lists."""
_EXTENSIONS = {0xC7: 3, 0xC8: 4, 0xC9: 6}
"""The first bytes of extensions, with the size of the head including the type."""
_BY_POSITION = 1
"""The extension type of an object that is made from a list of arguments."""
_OBJECT_PARTS_MIN = 3
_SEND = array_head(3) + b"\xaflanggraph.types\xa4Send"
_MESSAGE = b"langchain_core.messages."
"""The beginning of a message's module name. Messages are not cut, because they are items of lists."""


def split_list(data: bytes) -> list[bytes] | None:
    """Return the items of a list that is worth splitting, or None for any other value."""
    parts = split_array(data) if data and data[0] in ARRAYS else None
    return None if parts is None or len(data) < SPLIT_SIZE_BYTES_MIN * len(parts) else parts


def hands_on(items: Sequence[bytes]) -> bool:
    """Return True if an item of a list is a `Send`, which passes a state on. Then the list is cut inside its items."""
    return any(map(_is_send, items))


def _is_send(data: bytes) -> bool:
    head = _EXTENSIONS.get(data[0], 0) if len(data) >= CUT_SIZE_BYTES_MIN else 0
    return head > 0 and data.startswith(_SEND, head)


def cut(data: bytes) -> list[bytes] | None:
    """Return a header and the items of the long lists in a msgpack value, or None if it has no long lists."""
    pieces: list[tuple[bool, bytes]] = []
    _add(pieces, data, 0)
    items = [piece for is_item, piece in pieces if is_item]
    if not items:
        return None
    around = [(is_item, [piece for _is_item, piece in group]) for is_item, group in groupby(pieces, itemgetter(0))]
    return [cut_header(around), *items]


def _add(pieces: list[tuple[bool, bytes]], data: bytes, depth: int) -> None:
    """Add the pieces of a value: the items of its long lists, and what is around them."""
    first = data[0]
    if len(data) < CUT_SIZE_BYTES_MIN or depth > _DEPTH_MAX:
        pieces.append((False, data))
    elif first in ARRAYS:
        _add_list(pieces, data, depth)
    elif first in _MAPS:
        _add_map(pieces, data, depth)
    elif first in _EXTENSIONS:
        _add_object(pieces, data, depth)
    else:
        pieces.append((False, data))


def _add_list(pieces: list[tuple[bool, bytes]], data: bytes, depth: int) -> None:
    items = split_list(data)
    if items is None:
        pieces.append((False, data))
        return
    pieces.append((False, array_head(len(items))))
    for item in items:
        if _is_send(item):
            _add(pieces, item, depth + 1)
        else:
            pieces.append((True, item))


def _add_map(pieces: list[tuple[bool, bytes]], data: bytes, depth: int) -> None:
    head = 1 + _MAPS[data[0]]
    count = int.from_bytes(data[1:head]) if head > 1 else data[0] & 15
    parts = split_array(array_head(2 * count) + data[head:])
    pieces.append((False, data[:head] if parts else data))
    for key, value in zip(*[iter(parts or ())] * 2, strict=True):
        pieces.append((False, key))
        _add(pieces, value, depth + 1)


def _add_object(pieces: list[tuple[bool, bytes]], data: bytes, depth: int) -> None:
    """Add the pieces of an object: module, name and arguments. A message is one piece, as in a list of messages."""
    head = _EXTENSIONS[data[0]]
    parts = split_array(data[head:])
    if parts is None or len(parts) < _OBJECT_PARTS_MIN or _MESSAGE in parts[0]:
        pieces.append((False, data))
        return
    module, name, given, *more = parts
    pieces.append((False, data[:head] + array_head(len(parts)) + module + name))
    arguments = split_array(given) if data[head - 1] == _BY_POSITION else None
    if arguments is None:
        _add(pieces, given, depth + 1)
    else:
        pieces.append((False, array_head(len(arguments))))
        for argument in arguments:
            _add(pieces, argument, depth + 1)
    pieces.append((False, b"".join(more)))
