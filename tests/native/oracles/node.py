"""Roots, chunks and their entries, read (FORMAT.md 4.1 to 4.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oracles.cbor import read_item
from oracles.reading import BYTES, DELETE, DICT, FROZENSET, KEYED, MASK, PUT, SET, SORTED, STR, Reader, require, varint

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Entry:
    at: int
    slot_at: int
    end: int
    covered: int
    lsn: int
    node: int
    locator_end: int
    data: bytes
    key: bytes
    slot: bytes
    fingerprints: bytes
    is_ref: bool
    deletes: bool = False


def read_entries(
    content: Reader, locators: Reader, *, kind: int, level: int, count: int, home_lsn: int = 0, batch: bool = False
) -> Iterator[Entry]:
    previous: bytes | None = None
    for _ in range(count):
        at = content.at
        key = fingerprints = b""
        covered, deletes, is_ref = 1, False, level > 0
        if kind in SORTED:
            key = read_item(content)
            require(kind != DICT or key[0] >> 5 == 3)
            require(previous is None or previous < key)
            previous = key
        if level > 0:
            covered = content.varint()
            require(covered > 0)
            slot_at = content.at
            slot = content.take(20)
            if kind == KEYED and level == 1:
                require(covered <= 128)
                fingerprints = content.take(2 * covered)
        elif batch and (kind != DICT or content.data[content.at : content.end][:1] == DELETE):
            slot_at = content.at
            slot = content.take(1)
            require(slot in ((DELETE,) if kind == DICT else (DELETE, PUT)))
            deletes = slot == DELETE
        else:
            fingerprints = content.take(2) if kind == KEYED else b""
            slot_at = content.at
            slot = b"" if kind in (SET, FROZENSET) else read_slot(content)
            is_ref = slot[:1] in (b"\xfc", b"\xfd")
        lsn, node = locators.locator(home_lsn) if is_ref else (0, 0)
        yield Entry(
            at, slot_at, content.at, covered, lsn, node, locators.at,
            content.data[at : content.at], key, slot, fingerprints, is_ref, deletes,
        )  # fmt: skip
    content.finish()
    locators.finish()


def read_slot(content: Reader) -> bytes:
    start = content.at
    if content.take(1) in (b"\xfc", b"\xfd"):
        content.take(20)
    else:
        content.at = start
        require(len(read_item(content)) <= 64)
    return content.data[start : content.at]


def loose(
    kind: int, level: int, entries: bytes, locators: bytes, count: int, *, batch: bool = False
) -> Iterator[Entry]:
    return read_entries(
        Reader(entries, 0, len(entries)), Reader(locators, 0, len(locators)),
        kind=kind, level=level, count=count, batch=batch,
    )  # fmt: skip


@dataclass
class Root:
    kind: int
    key: bytes
    count: int
    levels: tuple[tuple[int, bytes | None, int, int], ...]
    tail_count: int
    tail_at: int
    tail_locators_at: int
    entries: Iterator[Entry]
    spine: bytes


def parse_root(data: bytes, content_size: int, home_lsn: int) -> Root:
    require(0 <= content_size <= len(data))
    content, locators = Reader(data, 0, content_size), Reader(data, content_size, len(data))
    kind = content.number(1)
    require(kind <= KEYED)
    key_size = content.varint() if kind == KEYED else 0
    require(kind != KEYED or 1 <= key_size <= 255)
    key = content.take(key_size)
    count = content.varint()
    spine_at = content.at
    level_count = content.varint()
    require(level_count <= 64)
    levels: list[tuple[int, bytes | None, int, int]] = []
    for _ in range(level_count):
        covered = content.varint()
        levels.append((covered, content.take(20), *locators.locator(home_lsn)) if covered else (0, None, 0, 0))
    require(not levels or levels[0][0])
    spine = data[spine_at : content.at]
    tail_count = content.varint()
    require(sum(level[0] for level in levels) + tail_count == count)
    tail_at, tail_locators_at = content.at, locators.at
    if kind in (STR, BYTES):
        require(tail_count == content_size - tail_at)
        locators.finish()
    else:
        require(tail_count <= 128)
    entries = read_entries(content, locators, kind=kind, level=0, count=tail_count, home_lsn=home_lsn)
    return Root(kind, key, count, tuple(levels), tail_count, tail_at, tail_locators_at, entries, spine)


def root_read(data: bytes, content_size: int, home_lsn: int) -> tuple[Any, ...]:
    root = parse_root(data, content_size, home_lsn)
    return (
        root.kind, root.key, root.count, root.levels, root.tail_count, root.tail_at, root.tail_locators_at,
    )  # fmt: skip


def parse(data: bytes, content_size: int, home_lsn: int, *, is_root: bool, kind: int) -> tuple[int, Iterator[Entry]]:
    """Return (level, entries) of a chunk or of a root's tail."""
    if is_root:
        require(kind not in (STR, BYTES))
        root = parse_root(data, content_size, home_lsn)
        require(root.kind == kind)
        return 0, root.entries
    require(0 <= content_size <= len(data))
    content, locators = Reader(data, 0, content_size), Reader(data, content_size, len(data))
    require(content.number(1) == kind)
    level = content.number(1)
    require(level <= 64 and (level > 0 or kind not in (STR, BYTES)))
    count = content.varint()
    require(1 <= count <= 128)
    return level, read_entries(content, locators, kind=kind, level=level, count=count, home_lsn=home_lsn)


def entries_table(data: bytes, content_size: int, home_lsn: int, *, is_root: bool, kind: int) -> list[int]:
    _, entries = parse(data, content_size, home_lsn, is_root=is_root, kind=kind)
    return [number for e in entries for number in (e.at, e.slot_at, e.end, e.covered, e.lsn, e.node)]


def pack(entries: list[Entry]) -> tuple[bytes, bytes]:
    """Return (entries, locators) as bytes."""
    data = b"".join(e.data for e in entries)
    return data, b"".join(varint(e.lsn) + varint(e.node) for e in entries if e.is_ref)


def entries_copy(
    data: bytes, content_size: int, home_lsn: int, *, is_root: bool, kind: int, start: int, stop: int
) -> tuple[bytes, bytes]:
    _, entries = parse(data, content_size, home_lsn, is_root=is_root, kind=kind)
    first = [e for _, e in zip(range(stop), entries, strict=False)]
    require(start <= stop == len(first))
    return pack(first[start:])


def chunk_summary(data: bytes, content_size: int, kind: int, digest: bytes) -> bytes:
    level, run = parse(data, content_size, 0, is_root=False, kind=kind)
    entries = list(run)
    covered = sum(e.covered for e in entries)
    require(covered <= MASK)
    fingerprints = b"".join(e.fingerprints for e in entries) if kind == KEYED and level == 0 else b""
    return (entries[-1].key if kind in SORTED else b"") + varint(covered) + digest + fingerprints
