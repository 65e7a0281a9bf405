"""Reads numbers and bytes from a string of bytes, and raises an error at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MASK = 2**64 - 1
LIST, TUPLE, DICT, SET, FROZENSET, STR, BYTES, KEYED = range(8)
SORTED = (DICT, SET, FROZENSET)
DELETE, PUT = b"\xfe", b"\xff"


class Damaged(Exception):  # noqa: N818 - says what the bytes are
    """Bytes that FORMAT.md does not allow."""


def require(condition: object) -> None:
    if not condition:
        raise Damaged


def outcome(function: Callable[..., Any], *args: Any, **options: Any) -> tuple[str, Any]:
    """Return ("ok", result), or the name of the error, which is the same for kernels and oracles."""
    try:
        return ("ok", function(*args, **options))
    except Exception as error:  # noqa: BLE001 - the class is what is compared
        return ({"Damaged": "CorruptionError"}.get(type(error).__name__, type(error).__name__), None)


def varint(number: int) -> bytes:
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + varint(number >> 7)


@dataclass
class Reader:
    data: bytes
    at: int
    end: int

    def take(self, size: int) -> bytes:
        require(0 <= size <= self.end - self.at)
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def varint(self) -> int:
        start = self.at
        while self.number(1) >= 0x80:
            pass
        number = sum((byte & 0x7F) << (7 * i) for i, byte in enumerate(self.data[start : self.at]))
        require(number <= MASK and varint(number) == self.data[start : self.at])
        return number

    def locator(self, home_lsn: int) -> tuple[int, int]:
        lsn, node = self.varint(), self.varint()
        require(node < 2**32)
        return (lsn or home_lsn, node)

    def finish(self) -> None:
        require(self.at == self.end)
