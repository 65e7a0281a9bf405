"""Where chunks close (FORMAT.md 4.4 and 4.5)."""

from __future__ import annotations

from oracles.node import Entry, loose
from oracles.reading import MASK, SORTED


def mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def content_hash(data: bytes) -> int:
    fnv = 0xCBF29CE484222325
    for byte in data:
        fnv = (fnv ^ byte) * 0x100000001B3 & MASK
    return mix(fnv)


def entry_hash(kind: int, level: int, entry: Entry) -> int:
    if kind in SORTED:
        return content_hash(entry.key)
    if level == 0 and not entry.is_ref:
        return content_hash(entry.slot)
    digest = entry.slot[1:] if level == 0 else entry.slot
    return int.from_bytes(digest[:8], "big")


def closes(kind: int, level: int, entry: Entry, count: int, size: int) -> bool:
    value = entry_hash(kind, level, entry)
    by_hash = value & 7 == 0 if level == 0 else (value >> 8 * min(level, 6)) & 15 == 0
    return (count >= 8 and by_hash) or count == 128 or size >= 8192


def boundaries(kind: int, level: int, entries: bytes, locators: bytes, count: int) -> list[int]:
    flat: list[int] = []
    first_index, first_at = 0, 0
    run = loose(kind, level, entries, locators, count)
    for index, entry in enumerate(run):
        if closes(kind, level, entry, index + 1 - first_index, entry.end - first_at):
            flat += [index + 1, entry.end, entry.locator_end]
            first_index, first_at = index + 1, entry.end
    return flat


def blob_cuts(data: bytes) -> list[int]:
    ends = []
    size = rolling = 0
    for at, byte in enumerate(data):
        rolling = ((rolling << 1) + mix(byte + 1)) & MASK
        size += 1
        if (size >= 2048 and rolling >> 52 == 0) or size == 16384:
            ends.append(at + 1)
            size = rolling = 0
    return ends
