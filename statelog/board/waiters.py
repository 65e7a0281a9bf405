"""Finds the waiters to wake after a write to a key."""

from __future__ import annotations

from functools import lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING

from statelog.board.names import RESERVED, compile_pattern
from statelog.errors import StatelogError
from statelog.format.digests import blake2b
from statelog.kernels import WAKE_SUBJECT_SIZE_BYTES_MAX
from statelog.storage.notify.wake import EVERY_SEGMENT, segment_bit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from statelog.board.names import KeyPattern
    from statelog.storage.notify.wake import Wake

CLAIMER = b"c"
"""The first byte of the wake-up subject of a claimer, which waits for an entry. Its key patterns follow, one per line.
"""

HOLDER = b"l"
"""The first byte of the wake-up subject of a waiter for a lease. The name of the lease follows."""


@lru_cache(maxsize=1024)
def wake_bits(key: str) -> int:
    """Return a mask of the wake words that watchers of a key sleep on."""
    return EVERY_SEGMENT | segment_bit(key.partition("/")[0])


def watch_bits(pattern: str) -> int:
    """Return a mask of the wake words that a watcher of a pattern sleeps on."""
    first = pattern.partition("/")[0]
    return EVERY_SEGMENT if "*" in first or "?" in first else segment_bit(first)


def claimer_subject(patterns: Sequence[KeyPattern]) -> bytes:
    """Return the wake-up subject of a claimer. If the patterns are too long, use a wider, shorter pattern."""
    subject = CLAIMER + "\n".join(each.text for each in patterns).encode()
    levels = zip(*(each.prefix.split("/")[:-1] for each in patterns), strict=False)
    directory = [segments[0] for segments in takewhile(lambda segments: len({*segments}) == 1, levels)]
    while len(subject) > WAKE_SUBJECT_SIZE_BYTES_MAX:
        wider = "/".join([*directory, "**"])
        if not directory and any(each.text.startswith(RESERVED) for each in patterns):
            wider = f"**\n{RESERVED}**"
        subject = CLAIMER + wider.encode()
        directory = directory[:-1]
    return subject


def call_claimer(key: str, wake: Wake) -> None:
    """Wake the waiter that has waited longest for an entry with this key."""

    def fits(subject: bytes) -> bool:
        if not subject.startswith(CLAIMER):
            return False
        try:
            return any(compile_pattern(each).fits(key) for each in subject[1:].decode().split("\n"))
        except (StatelogError, UnicodeDecodeError):  # Other processes write this shared memory, so it may be damaged.
            return False

    wake.call_next(fits)


def holder_subject(name: str) -> bytes:
    """Return the wake-up subject of a lease. If the name is too long, the subject contains the name's digest."""
    subject = HOLDER + name.encode()
    if len(subject) > WAKE_SUBJECT_SIZE_BYTES_MAX:
        return HOLDER + b"\0" + blake2b(name.encode(), digest_size=32).digest()
    return subject


def call_holder(name: str, wake: Wake) -> None:
    """Wake the waiter that has waited longest for a lease."""
    wake.call_next(holder_subject(name).__eq__)
