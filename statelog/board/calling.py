"""Who is woken by what is done to a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statelog.board.names import compile_pattern
from statelog.errors import StatelogError
from statelog.storage.wake import EVERY_SEGMENT, segment_bit

if TYPE_CHECKING:
    from statelog.storage.wake import Wake

CLAIMER = b"c"
"""Subject of who waits for an entry to claim: this, and the pattern."""

HOLDER = b"l"
"""Subject of who waits for a lease: this, and its name."""


def wake_bits(key: str) -> int:
    """Return the words that watchers of a key sleep on."""
    return EVERY_SEGMENT | segment_bit(key.partition("/")[0])


def watch_bits(pattern: str) -> int:
    """Return the words that a watcher of a pattern sleeps on."""
    first = pattern.partition("/")[0]
    return EVERY_SEGMENT if "*" in first or "?" in first else segment_bit(first)


def call_claimer(key: str, wake: Wake) -> None:
    """Wake the one who has waited longest for an entry like this one."""

    def fits(subject: bytes) -> bool:
        if not subject.startswith(CLAIMER):
            return False
        try:
            return compile_pattern(subject[1:].decode()).fits(key)
        except (StatelogError, UnicodeDecodeError):  # memory that strangers write to
            return False

    wake.call_next(fits)


def call_holder(name: str, wake: Wake) -> None:
    """Wake the one who has waited longest for a lease."""
    wake.call_next((HOLDER + name.encode()).__eq__)
