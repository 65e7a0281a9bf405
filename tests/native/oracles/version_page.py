"""Pages of the version index (FORMAT.md 6)."""

from __future__ import annotations

import struct

from oracles.reading import Reader, require

PAGE_ENTRY = struct.Struct(">QQ")


def page_parse(payload: bytes) -> tuple[int, list[tuple[int, ...]]]:
    reader = Reader(payload, 0, len(payload))
    first, count = reader.number(4), reader.number(4)
    require(1 <= count <= 32 and (first + count - 1) // 32 == first // 32)
    entries = [PAGE_ENTRY.unpack(reader.take(16)) for _ in range(count)]
    reader.finish()
    return first, entries


def page_build(first: int, entries: list[tuple[int, ...]]) -> bytes:
    return struct.pack(">II", first, len(entries)) + b"".join(PAGE_ENTRY.pack(*entry) for entry in entries)


def page_read(payload: bytes, version: int) -> tuple[int, ...]:
    first, entries = page_parse(payload)
    require(first <= version < first + len(entries))
    return entries[version - first]


def page_find_time(payload: bytes, time_us: int) -> int:
    first, entries = page_parse(payload)
    found = [version for version, entry in enumerate(entries, first) if entry[0] and entry[1] <= time_us]
    return max(found, default=first - 1)
