"""Stored values that a framework's serialiser has packed. `statelog.display.packed` shows them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from statelog import register_codec
from statelog.display.packed import CUT, MSGPACK, SERIALISED, SNAPSHOT, Coded, put_together, unpacked
from statelog.display.short_messages import lengthen
from statelog.kernels.msgpack import split_array

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CUT", "MSGPACK", "SERIALISED", "SNAPSHOT", "Packed", "Serialised", "cut_header", "put_together"]

_SIZE = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Packed(Coded):
    """A value packed as msgpack."""

    data: bytes

    @property
    def stored(self) -> tuple[str, bytes]:
        """The name of the codec, and the stored payload."""
        return MSGPACK, self.data

    def __repr__(self) -> str:
        """Return the decoded value as a string. Values of secret classes are hidden."""
        return repr(self.shown())

    def shown(self) -> Any:
        """Return the value as plain types and `Constructed`, or only its size if the bytes are not msgpack."""
        return unpacked(self)


@dataclass(frozen=True, slots=True)
class Serialised(Coded):
    """A value packed by a serialiser in a form other than msgpack: the name of the form, and the bytes."""

    type: str
    data: bytes

    @property
    def stored(self) -> tuple[str, list[Any]]:
        """The name of the codec, and the stored payload."""
        return SERIALISED, [self.type, self.data]

    def __repr__(self) -> str:
        """Return the value as far as it is known without its serialiser."""
        return repr(self.shown())

    def shown(self) -> Any:
        """Return the value as far as it is known without its serialiser."""
        return unpacked(self)


# --- values that were cut ----------------------------------------------------------


def cut_header(pieces: Sequence[tuple[bool, Sequence[bytes]]]) -> bytes:
    """Return the header of a cut value: the sizes of its lists and the bytes around them.

    Args:
        pieces: the pieces of the value in order: (True, items) for a list, (False, pieces) between lists.
    """
    sizes = b"".join([_SIZE.pack(sum(map(len, those)) << 1 | is_item) for is_item, those in pieces])
    around = b"".join([piece for is_item, those in pieces if not is_item for piece in those])
    return CUT + _SIZE.pack(len(pieces)) + sizes + around


register_codec(
    Packed, name=MSGPACK, encode=lambda packed: packed.data, decode=lambda data: Packed(lengthen(data, split_array))
)
register_codec(
    Serialised, name=SERIALISED, encode=lambda value: [value.type, value.data], decode=lambda pair: Serialised(*pair)
)
