"""Values that a framework's serialiser has packed, in their stored form. `statelog.display.packed` shows them."""

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
    """One item of msgpack."""

    data: bytes

    @property
    def stored(self) -> tuple[str, bytes]:
        """The name of its codec, and what is stored."""
        return MSGPACK, self.data

    def __repr__(self) -> str:
        """Return what it says. Secrets are hidden by the names of their classes."""
        return repr(self.shown())

    def shown(self) -> Any:
        """Return the value as plain types and `Constructed`, or only its size if the bytes are not msgpack."""
        return unpacked(self)


@dataclass(frozen=True, slots=True)
class Serialised(Coded):
    """What a serialiser made that is no msgpack: how it names it, and the bytes."""

    type: str
    data: bytes

    @property
    def stored(self) -> tuple[str, list[Any]]:
        """The name of its codec, and what is stored."""
        return SERIALISED, [self.type, self.data]

    def __repr__(self) -> str:
        """Return it as far as it can be told without its serialiser."""
        return repr(self.shown())

    def shown(self) -> Any:
        """Return it as far as it can be told without its serialiser."""
        return unpacked(self)


# --- values that were cut ----------------------------------------------------------


def cut_header(pieces: Sequence[tuple[bool, Sequence[bytes]]]) -> bytes:
    """Return what stands before the items: their sizes together, and what stands around them.

    Args:
        pieces: of the value, those between two lists together, and those of a list; True with these.

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
